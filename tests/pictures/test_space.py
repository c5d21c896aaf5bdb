"""What the pictures show, against loops; that they are drawn from odd spaces too."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import ConcatDataset

import datasets
import metrics
from evaluation import Embedded, outputs, queries
from evaluation.task import Rows, Task
from pictures import neighbours, space, text
from tests.kit.data_sets import make_folder
from tests.kit.images import random_picture
from tests.kit.plain_metrics import orders, plain_value
from tests.kit.splits import options

PICTURES = True


class ImageList:
    def __init__(self, labels, names=True):
        self.labels = labels
        if names:
            self.class_names = {int(label): f"a class of a long name, ${label}$" for label in set(labels)}

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return int(self.labels[index]), np.full((3, 8, 8), 9 * index % 256, dtype=np.uint8), index


def task_of(features, labels, reference=None, reference_labels=None, exclude=None, parents=(None, None)):
    gallery = None if reference is None else Rows(reference, reference_labels, parents=parents[1])
    return Task(Rows(features, labels, parents=parents[0]), gallery, exclude)


def assert_worst(searched, hits):
    """The worst queries of a space, at most one of a class.

    `hits`: of each query its reference's labels, right or not, nearest first.
    """
    rows = []
    for query, right in enumerate(hits):
        if any(right):
            rows.append((plain_value("map_r", right, sum(right), None), -(right.index(True) + 1), query))
    expected = {}
    for ap, first, query in sorted(rows):
        expected.setdefault(searched.queries.labels[query], (query, f"AP@R {ap:.2f}\nfirst hit at {-first:,}"))
    worst, notes = queries.worst_queries(searched, seed=1)
    assert len(worst) > 2
    assert list(zip(worst.tolist(), notes, strict=True)) == list(expected.values())[: queries.SHOWN]


@pytest.mark.parametrize("kind", ["collapsing", "few points", "one point"])
def test_pictures_show_what_the_metrics_count(kind):
    """Also where float32 distances of a space far from the origin are noise, and where ties are many."""
    generator = np.random.default_rng(5)
    labels = np.repeat(np.arange(20), 10)
    spread = generator.normal(size=(20, 16))[labels] + 0.6 * generator.normal(size=(200, 16))
    features = {
        "collapsing": np.ones(16) + 1e-4 * spread,
        "few points": generator.normal(size=(15, 16))[generator.integers(0, 15, 200)],
        "one point": np.ones((200, 16)),
    }[kind].astype(np.float32)
    searched = task_of(features, labels)
    nearest_rows = queries.nearest(searched, np.arange(200), 7)
    assert [row.tolist() for row in nearest_rows] == metrics.EmbeddingSpace(features, labels).neighbours(7).tolist()
    assert_worst(searched, [(labels[order] == labels[query]).tolist() for query, order in orders(features)])
    for size in (3, 1):
        (row,) = queries.nearest(task_of(features[:size], labels[:size]), np.array([0]), 7)
        assert len(row) == size - 1
    lone_queries, notes = queries.worst_queries(task_of(features[:5], np.arange(5)), seed=1)
    assert len(lone_queries) == len(notes) == 0


@pytest.mark.parametrize("inside_parents", [False, True])
@pytest.mark.parametrize("is_own", ["none", "some"])
def test_queries_search_in_the_reference_and_in_their_super_class(inside_parents, is_own):
    generator = np.random.default_rng(3)
    features, reference = (generator.normal(size=(n, 5)).astype(np.float32) for n in (40, 70))
    labels = generator.integers(0, 9, 40)
    reference_labels = generator.integers(1, 10, 70)
    exclude = np.full(40, -1)
    if is_own == "some":
        reference[10:30] = features[:20]
        reference_labels[10:30] = labels[:20]
        exclude[:20] = np.arange(10, 30)
    parents = (labels % 3, reference_labels % 3) if inside_parents else (None, None)
    searched = task_of(features, labels, reference, reference_labels, exclude, parents)
    expected = [order for _, order in orders(features, reference, exclude)]
    if inside_parents:
        is_inside = parents[0][:, None] == parents[1]
        expected = [np.array(order)[is_inside[query, order]].tolist() for query, order in enumerate(expected)]
    assert [row.tolist() for row in queries.nearest(searched, np.arange(40), 7)] == [order[:7] for order in expected]
    is_relevant = labels[:, None] == reference_labels
    assert_worst(searched, [is_relevant[query, order].tolist() for query, order in enumerate(expected)])


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=30), st.integers(0, 5), st.booleans())
def test_pairs_are_of_one_class_and_of_two(classes, seed, inside):
    labels = np.array(classes)
    parents = labels % 2 if inside else np.zeros_like(labels)
    limits = parents if inside else None
    (a, b), (c, d) = space.sample_pairs(labels, seed, limits)
    assert (labels[a] == labels[b]).all() and (a != b).all() and (labels[c] != labels[d]).all()
    assert (parents[c] == parents[d]).all()
    assert (len(a) > 0) == (np.bincount(labels).max() > 1)
    assert (len(c) > 0) == any(len(set(labels[parents == parent])) > 1 for parent in set(parents))


def test_every_pair_is_as_likely():
    labels = np.array([0, 1, 0, 0, 1, 2])
    (a, b), _ = space.sample_pairs(labels, 0)
    pairs, counts = np.unique(np.stack([a, b], 1), axis=0, return_counts=True)
    of_one_class = (labels[:, None] == labels) & ~np.eye(6, dtype=bool)
    assert pairs.tolist() == np.argwhere(of_one_class).tolist()
    assert np.abs(counts / counts.sum() - 1 / 8).max() < 0.01


def test_samples_of_classes_and_of_queries():
    labels = np.array([3, 1, 2] * 10)
    chosen = space.sample_classes(labels, 20, seed=5)
    assert len(chosen) == 20 and np.unique(labels[chosen], return_counts=True)[1].tolist() == [10, 10], "whole classes"
    assert np.array_equal(chosen, space.sample_classes(labels, 20, seed=5))
    assert np.array_equal(space.sample_classes(labels, 1000, seed=5), np.arange(30))
    labels = np.repeat([7, 3, 9], [50, 2, 1])
    sampled = queries.sample_queries(labels, 1)
    # of distinct classes as far as there are
    assert len(sampled) == 8 and set(labels[sampled]) == {3, 7, 9} and (np.diff(sampled) > 0).all()
    repeated = np.repeat(np.arange(20), 5)
    first, repetition, second = (queries.sample_queries(repeated, seed).tolist() for seed in (3, 3, 4))
    assert len(set(repeated[first])) == 8 and first == repetition != second
    assert queries.sample_queries(np.zeros(1, dtype=int), 3).tolist() == [0]


def test_images_are_shown_whole(tmp_path):
    make_folder(tmp_path / "things", n_classes=4, size=(300, 100))
    opt = options("--dataset", "folder", "--dataset_folder_path", str(tmp_path / "things"), "--not_pretrained")
    splits = datasets.select("folder", opt, opt.source_path, 224)
    joined = ConcatDataset([splits["evaluation"], splits["testing"]])
    first, second = (neighbours.whole_image(joined, index) for index in (0, len(splits["evaluation"])))
    assert first.shape == second.shape == (80, 240, 3)
    assert np.abs(first - np.asarray(random_picture((0, 0), (300, 100)).resize((240, 80))).astype(float)).mean() < 4
    # where there is no other, the transformed one
    assert np.array_equal(neighbours.whole_image(ImageList(np.arange(3)), 2), np.full((8, 8, 3), 18))


@pytest.mark.parametrize("is_own", [True, False], ids=["in itself", "in another reference"])
def test_distances_stand_below_the_neighbours(figures, tmp_path, is_own):
    generator = np.random.default_rng(0)
    features = generator.normal(size=(30, 4)).astype(np.float32)
    labels = np.arange(30) % 3
    reference = features if is_own else generator.normal(size=(40, 4)).astype(np.float32)
    exclude = np.arange(30) if is_own else np.full(30, -1)
    reference_labels = np.arange(len(reference)) % 3
    searched = task_of(features, labels, reference, reference_labels, exclude)
    sampled = np.array([4, 9])
    neighbour_rows = queries.nearest(searched, sampled, 7)
    rankings = neighbours.Rankings(sampled, neighbour_rows, queries.judged(searched, sampled, neighbour_rows))
    images = (ImageList(labels), ImageList(reference_labels))
    neighbours.recoveries(tmp_path / "a.png", images, searched, rankings, "title")
    expected = []
    for query, (_, order) in zip(sampled, orders(features[sampled], reference, exclude[sampled]), strict=True):
        differences = features[query].astype(float) - reference[order[:7]].astype(float)
        expected += [f"distance {distance:#.3g}" for distance in np.linalg.norm(differences, axis=1)]
    assert [text for text, _ in boxes(figures["a"]) if text.startswith("distance")] == expected


# names -> what stands for them where 60 points are there
SHORTENED = {
    ("People_and_Body__1f44b", "People_and_Body__1f590", "short"): ("…Body__1f44b", "…Body__1f590", "short"),
    ("Acura TL Sedan 2012", "Acura TL Type-S 2008"): ("…TL Sedan 2012", "…Type-S 2008"),
    ("001.Black_footed_Albatross", "002.Laysan_Albatross"): ("001.Black_foot…", "002.Laysan_Al…"),
    ("a_common_beginning_", "a_common_beginning_and_more"): ("…beginning_", "…and_more"),
}


def test_what_names_share_at_their_beginning_is_cut_first():
    for names, expected in SHORTENED.items():
        short = text.shortened(names, 7, 60)
        assert tuple(short[name] for name in names) == expected
    cut = text.fitted("W" * 24, 7, 90)
    assert cut.endswith("…") and text.text_width(cut, 7) <= 90 < text.text_width("W" + cut, 7)
    assert (text.fitted("short\n\tname", 7, 90), text.fitted("anything", 7, 1)) == ("short  name", "…")


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.sets(st.text("ab_ $", min_size=1, max_size=40), min_size=1, max_size=6), st.integers(20, 120))
def test_shortened_names_fit_and_whole_ones_stay(names, width):
    for name, short in text.shortened(names, 7, width).items():
        assert text.text_width(short, 7) <= width
        assert short == name or text.text_width(name, 7) > width


def boxes(figure):
    """(text, where it stands in the figure) of all titles, names and notes."""
    renderer = figure._get_renderer()
    texts = [*figure.texts, *(text for axis in figure.axes for text in axis.texts)]
    return [(text.get_text(), text.get_window_extent(renderer)) for text in texts if text.get_text().strip()]


def drawn_of(folder, features, labels, title, size_of_tsne, **of_splits):
    """The paths of all pictures of these embeddings. `of_splits`: the images."""
    embedded = {
        split: Embedded({"discriminative": features.astype(np.float32)}, labels, 0.0, images)
        for split, images in of_splits.items()
    }
    return outputs.draw_pictures(folder, embedded, "test", options("--eval_size_of_tsne", str(size_of_tsne)), title)


NAMES = {
    "wide": "W" * 21 + "{}",
    "capitals": "HUMMER H3T CREW CAB 2010 {}",
    "long": "{:03d}.Black_footed_Albatross",
    "two lines": "a\nb{}",
    "eight": "WWWWWWW{}",
    "tab": "a\tb\x07\x1b{}",
    "none": "",
}


MANY = [pytest.param(60, 25, name, marks=pytest.mark.long) for name in NAMES if name != "long"]


@pytest.mark.parametrize(("size", "classes", "names"), [(60, 25, "long"), (1, 1, "wide"), (4, 2, "wide"), *MANY])
def test_no_text_runs_into_another_or_off_the_picture(figures, tmp_path, size, classes, names):
    labels = np.arange(size) % classes
    images = ImageList(labels)
    images.class_names = {label: NAMES[names].format(label) for label in range(classes)}
    features = np.random.default_rng(size).normal(size=(size, 6))
    drawn_of(tmp_path, features, labels, outputs._title("W" * 40, 1000), 1, test=images)
    for stem in {"sample_recoveries", "worst_queries", "spectrum", "distances"} & set(figures):
        width, height = figures[stem].bbox.size
        text_boxes = boxes(figures[stem])
        for words, box in text_boxes:
            assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height, (stem, words)
        if stem in ("sample_recoveries", "worst_queries"):
            x, y, right, top = np.array([box.extents for _, box in text_boxes]).T
            overlap = (x[:, None] <= right) & (x <= right[:, None]) & (y[:, None] <= top) & (y <= top[:, None])
            assert not [(text_boxes[a][0], text_boxes[b][0]) for a, b in np.argwhere(np.triu(overlap, 1))], stem
            assert all("\n" not in words or words.startswith("AP@R ") for words, _ in text_boxes)


def test_spectra_count_zeros_and_show_a_single_value(figures, tmp_path):
    generator = np.random.default_rng(0)
    flat = (generator.normal(size=(50, 3)) @ generator.normal(size=(3, 10))).astype(np.float32)
    splits = {"train": generator.normal(size=(50, 10)), "test": flat, "val": np.ones((30, 1))}
    space.spectra(tmp_path / "spectrum.png", splits, 1, "Group")
    (axis,) = figures["spectrum"].axes
    assert [line.get_label() for line in axis.lines] == ["train", "test, 7 of 10 are 0", "val"]
    assert [len(line.get_xdata()) for line in axis.lines] == [10, 3, 1] and axis.get_ylim()[0] > 1e-3
    assert [line.get_color() for line in axis.lines] == [text.SPLIT_COLOURS[split] for split in splits]
    assert [line.get_marker() == "o" for line in axis.lines] == [False, False, True]
    values = metrics.compute("rho_spectrum@0", splits["train"], np.zeros(50))["rho_spectrum@0"]
    assert axis.lines[0].get_ydata().tolist() == values.tolist()


def test_coloured_groups_are_large_and_spread():
    centres = np.array([[0, 0], [0.1, 0], [0, 0.1], [10, 0], [0, 10], [10, 10], [5, 5], [30, 30]], dtype=float)
    # the last is far away, and small
    sizes = [9, 8, 8, 8, 8, 8, 8, 2]
    codes = np.repeat(np.arange(8), sizes)
    places = centres[codes] + 0.01 * np.random.default_rng(0).normal(size=(len(codes), 2))
    assert space.coloured(places, codes, 4).tolist() == [0, 3, 4, 5]
    assert space.coloured(places, codes, 8).tolist() == list(range(8))


@pytest.mark.parametrize("supers", [True, False])
def test_tsne_has_colours_by_super_class_where_there_are_some(figures, tmp_path, supers):
    labels = np.repeat(np.arange(30), 4)
    features = np.random.default_rng(0).normal(size=(120, 5)).astype(np.float32)
    images = ImageList(labels)
    images.super_labels = dict.fromkeys(range(30))
    if supers:
        images.super_labels = {label: "first" if label % 2 else "second" for label in range(30)}
    parents = queries.super_classes(Embedded({}, labels, 0.0, images))
    assert (parents is not None) == supers
    points = space.Points(features, labels, images.class_names, parents)
    assert space.tsne(tmp_path / "tsne.png", points, 120, 1, "Group")
    figure = figures["tsne"]
    legend = [text.get_text().strip() for text in figure.legends[0].get_texts()]
    assert legend == ["first", "second"] if supers else (len(legend) == 13 and legend[-1] == "18 other classes")
    assert ("by super-class" in figure.axes[0].get_title()) == supers
    collections = figure.axes[0].collections
    colours = {tuple(collection.get_facecolor()[0]) for collection in collections}
    assert sum(len(collection.get_offsets()) for collection in collections) == 120
    assert len(colours) == len(collections) == len(legend)
    assert figure.legends[0].get_window_extent(figure._get_renderer()).x1 <= figure.bbox.width


@pytest.mark.filterwarnings("error::UserWarning")
@pytest.mark.parametrize(
    ("labels", "features"),
    [
        pytest.param(np.repeat(np.arange(3), 4), np.random.default_rng(0).normal(size=(12, 4)), marks=pytest.mark.long),
        (np.zeros(6, dtype=int), np.zeros((6, 4))),
        (np.arange(6), np.random.default_rng(0).normal(size=(6, 1))),
        (np.zeros(1, dtype=int), np.ones((1, 2))),
    ],
    ids=["usual", "one class, collapsed", "singletons in one dimension", "one image"],
)
def test_all_are_drawn_of_any_space(labels, features, tmp_path):
    with np.errstate(all="ignore"):
        images = {"train": ImageList(labels, names=False), "test": ImageList(labels)}
        paths = drawn_of(tmp_path, features, labels, "$Group, epoch 1", 8, **images)
    names = {path.name for path in paths}
    assert {path.name for path in tmp_path.iterdir()} == names
    assert {"sample_recoveries.png", "spectrum.png", "distances.png"} <= names
    assert ("worst_queries.png" in names) == (len(set(labels)) < len(labels))
    assert ("tsne_test.png" in names) == (len(labels) >= 4)
