"""What the pictures show, against loops; that they are drawn from odd spaces too."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import ConcatDataset

import metrics
from evaluation import Embedded, embed_all, loaders, outputs, queries, spaces
from evaluation.outputs import _title
from pictures import neighbours, space, text
from tests.evaluation._made import Network, made_splits, options, runtime

PICTURES = True


class Things:
    def __init__(self, labels, names=True):
        self.labels = labels
        if names:
            self.class_names = {int(label): f"a class of a long name, ${label}$" for label in set(labels)}

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return int(self.labels[index]), np.full((3, 8, 8), 9 * index % 256, dtype=np.uint8), index


def alone(features, labels=None):
    return spaces.Compared(spaces.Space(features, np.zeros(len(features), int) if labels is None else labels), None, ["test"])


def ranked(features, query, reference=None, allowed=None):
    reference = features if reference is None else reference
    allowed = [j for j in range(len(features)) if j != query] if allowed is None else allowed
    return sorted(allowed, key=lambda j: (np.square(features[query].astype(float) - reference[j].astype(float)).sum(), j))


def test_nearest_neighbours_with_ties():
    features = np.random.default_rng(0).integers(0, 4, size=(40, 3)).astype(np.float32)  # many duplicates
    shown = np.array([0, 7, 39])
    for query, found in zip(shown, queries.nearest(alone(features), shown, 5), strict=True):
        distances = np.square(features[found] - features[query]).sum(1).tolist()
        assert query not in found and len(set(found.tolist())) == 5
        assert distances == [np.square(features[j] - features[query]).sum() for j in ranked(features, query)[:5]]
    assert [len(found) for found in queries.nearest(alone(features[:3]), np.array([1]), 7)] == [2]
    assert [len(found) for found in queries.nearest(alone(features[:1]), np.array([0]), 7)] == [0]


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
    compared = alone(features, labels)
    found = queries.nearest(compared, np.arange(200), 7)
    neighbours = metrics.EmbeddingSpace(features, labels).neighbours(7)
    assert [few.tolist() for few in found] == neighbours.tolist()
    green = np.mean([labels[few[0]] == labels[query] for query, few in enumerate(found)])
    assert green == pytest.approx(metrics.compute(["e_recall@1"], features, labels)["e_recall@1"])
    for query, note in zip(*queries.worst_queries(compared, seed=1), strict=True):
        order = ranked(features, query)
        first = next(rank for rank, j in enumerate(order, start=1) if labels[j] == labels[query])
        assert note.endswith(f"first hit at {first}")


def test_nearest_neighbours_of_distinct_points_are_in_order():
    features = np.random.default_rng(1).normal(size=(60, 8)).astype(np.float32)
    for query, found in enumerate(queries.nearest(alone(features), np.arange(60), 7)):
        assert found.tolist() == ranked(features, query)[:7]


def test_worst_queries():
    generator = np.random.default_rng(2)
    labels = np.repeat(np.arange(100, 130), generator.integers(1, 5, 30))
    features = generator.normal(size=(130, 4))[labels] * 0 + generator.normal(size=(len(labels), 4))
    features = (features + 1.5 * np.eye(130)[labels] @ generator.normal(size=(130, 4))).astype(np.float32)
    assert_worst(alone(features, labels))


def assert_worst(compared):
    (features, labels, *_), parents = compared.space, compared.space.parents
    reference, reference_labels, exclude = compared.space.gallery()
    rows = []
    for query, label in enumerate(labels):
        inside = range(len(reference)) if parents is None else np.flatnonzero(compared.space.reference_parents == parents[query])
        order = ranked(features, query, reference, [j for j in inside if j != exclude[query]])
        right = [reference_labels[j] == label for j in order]
        if any(right):
            count = sum(right)
            ap = sum(sum(right[: r + 1]) / (r + 1) for r in range(count) if right[r]) / count
            rows.append((ap, -(right.index(True) + 1), query))
    rows.sort()
    expected, seen = [], set()
    for ap, first, query in rows:
        if labels[query] not in seen:
            seen.add(labels[query])
            expected.append((query, f"AP {ap:.2f}\nfirst hit at {-first:,}"))
    worst, notes = queries.worst_queries(compared, seed=1)
    assert len(worst) > 2
    assert [(int(query), note) for query, note in zip(worst, notes, strict=True)] == expected[: queries.SHOWN]


def test_worst_queries_where_there_is_nothing_to_find():
    worst, notes = queries.worst_queries(alone(np.eye(5, dtype=np.float32), np.arange(5)), seed=1)
    assert len(worst) == 0 and notes == []


@pytest.mark.parametrize("inside_parents", [False, True])
@pytest.mark.parametrize("own", ["none", "some"])
def test_queries_search_in_the_reference_and_in_their_super_class(inside_parents, own):
    generator = np.random.default_rng(3)
    features, reference = (generator.normal(size=(n, 5)).astype(np.float32) for n in (40, 70))
    labels, reference_labels = generator.integers(0, 9, 40), generator.integers(1, 10, 70)
    exclude = np.full(40, -1)
    if own == "some":
        reference[10:30], reference_labels[10:30], exclude[:20] = features[:20], labels[:20], np.arange(10, 30)
    parents = (labels % 3, reference_labels % 3) if inside_parents else (None, None)
    searched = spaces.Space(features, labels, reference, reference_labels, exclude, parents=parents[0], reference_parents=parents[1])
    compared = spaces.Compared(searched, None, ["train"])
    for query, found in enumerate(queries.nearest(compared, np.arange(40), 7)):
        allowed = [j for j in range(70) if j != exclude[query] and (not inside_parents or parents[1][j] == parents[0][query])]
        assert found.tolist() == ranked(features, query, reference, allowed)[:7]
    assert_worst(compared)


SHOWN = {
    "--eval_reference_set compared_to_training_set": ["train"],
    "--eval_reference_set compared_to_sets_combined": ["train", "val", "test"],
    "--tester same_parent_label": ["test"],
    "--label_hierarchy_level 1": ["test"],
    "--eval_pca 2": ["test"],
    "": ["test"],
}


@pytest.mark.parametrize("flags", SHOWN)
def test_what_is_evaluated_is_shown(monkeypatch, tmp_path, flags):
    splits, opt = made_splits(shared=True), options(*flags.split())
    splits["testing"] = splits["validation"]
    splits["testing"].super_labels = dict(enumerate(["first", "second", "first", "second"]))
    embedded = embed_all(Network(), loaders(splits, opt), opt, runtime(opt))
    drawn, charted = [], {}
    monkeypatch.setattr(outputs, "recoveries", lambda path, *what: drawn.append(what))
    for name in ("spectra", "distances"):
        monkeypatch.setattr(space, name, lambda path, *what, _name=name: charted.update({_name: what}) or path)
    outputs.draw_pictures(tmp_path, embedded, "test", opt, "Group")
    (images, compared, *_, title), (*_, worst_title, _) = drawn
    assert compared.sources == SHOWN[flags]
    assert ("on test in train" in title) == ("on test in train" in worst_title) == (compared.sources != ["test"])
    whole = {"evaluation": "train", "validation": "val", "testing": "test"}
    source_images = [splits[name][i][1] for name, split in whole.items() if split in compared.sources for i in range(len(splits[name]))]
    reference, reference_labels, _ = compared.space.gallery()
    assert len(images[1]) == len(reference) == len(source_images)
    assert all((images[1][i][1] == image).all() for i, image in enumerate(source_images))
    assert images[0] is splits["testing"]
    parts = spaces.build(embedded, "discriminative", opt)["test"]
    for part in parts:
        for row, label in zip(part.features, part.labels, strict=True):
            assert ((compared.space.features == row).all(1) & (compared.space.labels == label)).any()
    assert len(parts) == (1 if compared.space.parents is None else len(set(compared.space.parents)))
    shown_names = {compared.names[label] for label in [*compared.space.labels.tolist(), *reference_labels.tolist()]}
    assert shown_names <= ({"first", "second"} if "level" in flags else set("abcd"))
    assert charted["spectra"][0]["test"].shape[1] == (2 if "pca" in flags else 3)
    assert (charted["distances"][2]["test"] is None) == ("tester" not in flags)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=30), st.integers(0, 5))
def test_pairs_are_of_one_class_and_of_two(classes, seed):
    labels = np.array(classes)
    (a, b), (c, d) = space.sample_pairs(labels, seed)
    assert (labels[a] == labels[b]).all() and (a != b).all() and (labels[c] != labels[d]).all()
    assert (len(a) > 0) == (np.bincount(labels).max() > 1)
    assert (len(c) > 0) == (len(set(classes)) > 1)


def test_every_pair_is_as_likely():
    labels = np.array([0, 1, 0, 0, 1, 2])
    (a, b), _ = space.sample_pairs(labels, 0)
    pairs, counts = np.unique(np.stack([a, b], 1), axis=0, return_counts=True)
    assert {tuple(pair) for pair in pairs.tolist()} == {(i, j) for i in range(6) for j in range(6) if i != j and labels[i] == labels[j]}
    assert np.abs(counts / counts.sum() - 1 / 8).max() < 0.01


def test_pairs_of_two_classes_inside_a_super_class():
    labels, parents = np.arange(40) % 8, np.arange(40) % 4
    (a, b), (c, d) = space.sample_pairs(labels, 0, parents)
    assert len(a) and len(c) and (labels[a] == labels[b]).all() and (labels[c] != labels[d]).all() and (parents[c] == parents[d]).all()


def test_spectrum_is_the_metric():
    features = np.random.default_rng(0).normal(size=(30, 5))
    np.testing.assert_array_equal(space.spectrum(features, 1), metrics.compute("rho_spectrum@0", features, np.zeros(30))["rho_spectrum@0"])


def test_tsne_takes_whole_classes():
    labels = np.array([3, 1, 2] * 10)
    chosen = space.sample_classes(labels, 20, seed=5)
    assert len(chosen) == 20 and np.unique(labels[chosen], return_counts=True)[1].tolist() == [10, 10]
    assert np.array_equal(chosen, space.sample_classes(labels, 20, seed=5))
    assert np.array_equal(space.sample_classes(labels, 1000, seed=5), np.arange(30))


def test_queries_are_of_distinct_classes_as_far_as_there_are():
    labels = np.repeat([7, 3, 9], [50, 2, 1])
    shown = queries.sample_queries(labels, 1)
    assert len(shown) == 8 and set(labels[shown]) == {3, 7, 9} and (np.diff(shown) > 0).all()
    many = np.repeat(np.arange(20), 5)
    assert len(set(many[queries.sample_queries(many, 3)])) == 8
    assert np.array_equal(queries.sample_queries(many, 3), queries.sample_queries(many, 3))
    assert not np.array_equal(queries.sample_queries(many, 3), queries.sample_queries(many, 4))
    assert queries.sample_queries(np.zeros(1, dtype=int), 3).tolist() == [0]


def test_images_are_shown_whole(tmp_path):
    import datasets
    from tests.builders import make_folder, picture

    make_folder(tmp_path / "things", n_classes=4, size=(300, 100))
    opt = options("--dataset", "folder", "--dataset_folder_path", str(tmp_path / "things"), "--not_pretrained")
    splits = datasets.select("folder", opt, opt.source_path, 224)
    both = ConcatDataset([splits["evaluation"], splits["testing"]])
    for index in (0, len(splits["evaluation"])):
        shown = neighbours.whole_image(both, index)
        assert shown.shape == (80, 240, 3)
    whole = np.asarray(picture((0, 0), (300, 100)).resize((240, 80))).astype(float)
    assert np.abs(neighbours.whole_image(both, 0) - whole).mean() < 4
    assert np.array_equal(neighbours.whole_image(Things(np.arange(3)), 2), np.full((8, 8, 3), 18)), "where there is no other, the transformed one"


@pytest.mark.parametrize("own", [True, False], ids=["in itself", "in another reference"])
def test_distances_stand_below_the_neighbours(figures, tmp_path, own):
    generator = np.random.default_rng(0)
    features, labels = generator.normal(size=(30, 4)).astype(np.float32), np.arange(30) % 3
    reference = features if own else generator.normal(size=(40, 4)).astype(np.float32)
    reference_labels = np.arange(len(reference)) % 3
    exclude = np.arange(30) if own else np.full(30, -1)
    compared = spaces.Compared(spaces.Space(features, labels, reference, reference_labels, exclude), None, ["test"])
    shown = np.array([4, 9])
    found = queries.nearest(compared, shown, 7)
    neighbours.recoveries(tmp_path / "a.png", (Things(labels), Things(reference_labels)), compared, shown, found, queries.judged(compared, shown, found), "title")
    expected = []
    for query in (4, 9):
        order = ranked(features, query, reference, [j for j in range(len(reference)) if not own or j != query])[:7]
        expected += [f"distance {np.linalg.norm(features[query].astype(float) - reference[j].astype(float)):#.3g}" for j in order]
    assert [text for text, _ in boxes(figures["a"]) if text.startswith("distance")] == expected


SHORTENED = {  # names -> what stands for them where 60 points are there
    ("People_and_Body__1f44b", "People_and_Body__1f590", "short"): ("…Body__1f44b", "…Body__1f590", "short"),
    ("Acura TL Sedan 2012", "Acura TL Type-S 2008"): ("…TL Sedan 2012", "…Type-S 2008"),
    ("001.Black_footed_Albatross", "002.Laysan_Albatross"): ("001.Black_foot…", "002.Laysan_Al…"),
    ("a_common_beginning_", "a_common_beginning_and_more"): ("…beginning_", "…and_more"),
}


def test_what_names_share_at_their_beginning_is_cut_first():
    for names, expected in SHORTENED.items():
        short = text.shortened(names, 7, 60)
        assert tuple(short[name] for name in names) == expected
        assert all(text.text_width(one, 7) <= 60 for one in short.values())


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.sets(st.text("ab_ $", min_size=1, max_size=40), min_size=1, max_size=6), st.integers(20, 120))
def test_shortened_names_fit_and_whole_ones_stay(names, width):
    for name, short in text.shortened(names, 7, width).items():
        assert text.text_width(short, 7) <= width
        assert short == name or text.text_width(name, 7) > width


def plain_options(size_of_tsne):
    return SimpleNamespace(
        evaltypes=["discriminative"], seed=1, eval_size_of_tsne=size_of_tsne, eval_reference_set="compared_to_self", tester="global",
        label_hierarchy_level=0, eval_pca=None, splits_to_eval=["train", "val", "test"],
    )  # fmt: skip


@pytest.fixture
def figures(monkeypatch):
    """Every figure that is saved, by the stem of its file."""
    from matplotlib.figure import Figure

    saved, original = {}, Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda self, path, **k: (saved.update({path.stem: self}), original(self, path, **k))[1])
    return saved


def boxes(figure):
    """(text, where it stands in the figure) of all titles, names and notes."""
    renderer = figure._get_renderer()
    texts = [*figure.texts, *(text for axis in figure.axes for text in axis.texts)]
    return [(text.get_text(), text.get_window_extent(renderer)) for text in texts if text.get_text().strip()]


NAMES = {
    "wide": "W" * 21 + "{}", "capitals": "HUMMER H3T CREW CAB 2010 {}", "long": "{:03d}.Black_footed_Albatross", "two lines": "a\nb{}",
    "eight": "WWWWWWW{}", "tab": "a\tb\x07\x1b{}", "none": "",
}  # fmt: skip


@pytest.mark.parametrize(("size", "classes", "names"), [(60, 25, "long"), *(pytest.param(60, 25, n, marks=pytest.mark.long) for n in NAMES if n != "long"), *((n, 1 + n // 3, "wide") for n in (1, 2, 4))])
def test_no_text_runs_into_another_or_off_the_picture(figures, tmp_path, size, classes, names):
    labels = np.arange(size) % classes
    things = Things(labels)
    things.class_names = {label: NAMES[names].format(label) for label in range(classes)}
    features = np.random.default_rng(size).normal(size=(size, 6)).astype(np.float32)
    embedded = {"test": Embedded({"discriminative": features}, labels, 0.0, things)}
    outputs.draw_pictures(tmp_path, embedded, "test", plain_options(size), _title("W" * 40, 1000))
    for stem in {"sample_recoveries", "worst_queries", "spectrum", "distances"} & set(figures):
        width, height = figures[stem].bbox.size
        found = boxes(figures[stem])
        for shown, box in found:
            assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height, (stem, shown)
        if stem in ("sample_recoveries", "worst_queries"):
            assert not [(a, b) for i, (a, one) in enumerate(found) for b, other in found[:i] if one.overlaps(other)], stem
            assert all("\n" not in shown or shown.startswith("AP ") for shown, _ in found)


def test_text_is_cut_by_its_width():
    assert text.fitted("iiiiiiiiiiiiiiiiiiiiiiii", 7, 90) == "i" * 24 and text.fitted("short\n\tname", 7, 90) == "short  name"
    cut = text.fitted("W" * 24, 7, 90)
    assert cut.endswith("…") and text.text_width(cut, 7) <= 90 < text.text_width("W" + cut, 7)
    assert text.fitted("anything", 7, 1) == "…"


@pytest.mark.parametrize("shape", [(30, 1), (1, 5)])
def test_a_spectrum_of_one_value_is_seen(figures, tmp_path, shape):
    space.spectra(tmp_path / "spectrum.png", {"test": np.ones(shape), "val": np.eye(4)}, 1, "Group")
    one, several = figures["spectrum"].axes[0].lines
    assert one.get_marker() == "o" and several.get_marker() in ("", "None", None)


def test_singular_values_of_zero_are_counted_and_do_not_stretch_the_axis(figures, tmp_path):
    generator = np.random.default_rng(0)
    flat = (generator.normal(size=(50, 3)) @ generator.normal(size=(3, 10))).astype(np.float32)
    space.spectra(tmp_path / "spectrum.png", {"train": generator.normal(size=(50, 10)), "test": flat}, 1, "Group")
    (axis,) = figures["spectrum"].axes
    assert [line.get_label() for line in axis.lines] == ["train", "test, 7 of 10 are 0"]
    assert [len(line.get_xdata()) for line in axis.lines] == [10, 3] and axis.get_ylim()[0] > 1e-3
    assert [line.get_color() for line in axis.lines] == [text.SPLIT_COLOURS[split] for split in ("train", "test")]


def test_coloured_groups_are_large_and_spread():
    centres = np.array([[0, 0], [0.1, 0], [0, 0.1], [10, 0], [0, 10], [10, 10], [5, 5], [30, 30]], dtype=float)
    sizes = [9, 8, 8, 8, 8, 8, 8, 2]  # the last is far away, and small
    codes = np.repeat(np.arange(8), sizes)
    places = centres[codes] + 0.01 * np.random.default_rng(0).normal(size=(len(codes), 2))
    assert space.coloured(places, codes, 4).tolist() == [0, 3, 4, 5]
    assert space.coloured(places, codes, 8).tolist() == list(range(8))


def test_tsne_has_colours_by_super_class_where_there_are_some(figures, tmp_path):
    labels = np.repeat(np.arange(30), 4)
    features = np.random.default_rng(0).normal(size=(120, 5)).astype(np.float32)
    things = Things(labels)
    things.super_labels = {label: "first" if label % 2 else "second" for label in range(30)}
    for supers, told in ((True, ["first", "second"]), (False, 13)):
        if not supers:
            things.super_labels = dict.fromkeys(range(30))
        parents = queries.super_classes(Embedded({}, labels, 0.0, things))
        assert (parents is not None) == supers
        assert space.tsne(tmp_path / "tsne.png", features, labels, 120, 1, "Group", things.class_names, parents)
        figure = figures["tsne"]
        legend = [text.get_text().strip() for text in figure.legends[0].get_texts()]
        assert legend == told if supers else (len(legend) == told and legend[-1] == "18 other classes")
        assert ("by super-class" in figure.axes[0].get_title()) == supers
        drawn = {tuple(collection.get_facecolor()[0]): len(collection.get_offsets()) for collection in figure.axes[0].collections}
        assert sum(drawn.values()) == 120 and len(drawn) == (2 if supers else 13)
        box, renderer = figure.legends[0], figure._get_renderer()
        assert box.get_window_extent(renderer).x1 <= figure.bbox.width


@pytest.mark.filterwarnings("error::UserWarning")
@pytest.mark.parametrize(
    ("labels", "features"),
    [
        (np.repeat(np.arange(3), 4), np.random.default_rng(0).normal(size=(12, 4))),
        (np.zeros(6, dtype=int), np.random.default_rng(0).normal(size=(6, 4))),
        (np.arange(6), np.random.default_rng(0).normal(size=(6, 1))),
        (np.repeat(np.arange(3), 4), np.ones((12, 4))),
        (np.repeat(np.arange(3), 4), np.zeros((12, 4))),
        (np.zeros(1, dtype=int), np.ones((1, 2))),
    ],
    ids=["usual", "one class", "singletons in one dimension", "collapsed", "zero", "one image"],
)
def test_all_are_drawn_of_any_space(labels, features, tmp_path):
    opt = plain_options(8)
    features = features.astype(np.float32)
    embedded = {
        "train": Embedded({"discriminative": features}, labels, 0.0, Things(labels, names=False)),
        "test": Embedded({"discriminative": features}, labels, 0.0, Things(labels)),
    }
    with np.errstate(all="ignore"):
        paths = outputs.draw_pictures(tmp_path, embedded, "test", opt, "$Group, epoch 1")
    names = {path.name for path in paths}
    assert {path.name for path in tmp_path.iterdir()} == names
    assert {"sample_recoveries.png", "spectrum.png", "distances.png"} <= names
    assert ("worst_queries.png" in names) == (len(set(labels)) < len(labels))
    assert ("tsne_test.png" in names) == (len(labels) >= 4)
