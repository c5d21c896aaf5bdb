"""Every split scheme against a slow, obvious one: disjoint, complete, equal parts, wrapping round the end."""

import json
from argparse import Namespace
from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from datasets import _schemes
from datasets._images import Image
from tests.datasets.layouts import names, read_folder
from tests.kit.data_sets import make_folder
from tests.kit.refusals import refused
from utilities.errors import UserError


def flags(scheme, size=0.5, start=0.5, partitions=4, sets=4):
    return Namespace(
        split_scheme=scheme,
        split_test_size=float(size),
        split_test_start=float(start),
        split_partitions=partitions,
        split_sets=sets,
        split_file=None,
        use_tv_split=False,
        split_shuffle=None,
    )


HUNDREDTHS = st.integers(1, 99).map(lambda i: Fraction(i, 100))
SETTINGS = {
    "n": st.one_of(st.integers(1, 60), st.integers(61, 20_000)),
    "size": HUNDREDTHS,
    "start": st.integers(0, 99).map(lambda i: Fraction(i, 100)),
    "partitions": st.integers(2, 12),
    "data": st.data(),
}
few_examples = settings(max_examples=60, deadline=None)


def obvious_test(n, start, length):
    return {(start + i) % n for i in range(length)}


def as_lists(fold):
    return [part.tolist() for part in fold]


@given(**SETTINGS)
@few_examples
def test_class_disjoint(n, size, start, partitions, data):
    sets = data.draw(st.integers(1, partitions))
    # exact: fractions
    begin = int(n * start)
    end = int(n * (start + size))
    testing = obvious_test(n, begin, end - begin)
    assert abs(len(testing) - n * size) < 1
    remaining = [c for c in range(n) if c not in testing]
    folds = _schemes.class_disjoint(n, flags("class_disjoint", size, start, partitions, sets))
    assert len(folds) == sets
    sizes = [len(remaining) // partitions + (i < len(remaining) % partitions) for i in range(partitions)]
    for i, fold in enumerate(folds):
        first = sum(sizes[:i])
        validation = remaining[first : first + sizes[i]]
        assert as_lists(fold) == [remaining[:first] + remaining[first + sizes[i] :], validation, sorted(testing)]


@given(**SETTINGS)
@few_examples
def test_mlrc(n, size, start, partitions, data):
    sets = data.draw(st.integers(1, partitions))
    testing = obvious_test(n, int(n * start), int(n * size))
    remaining = [c for c in range(n) if c not in testing]
    n_validation = int(n * (1 - size) / partitions)
    n_training = int(n * (1 - Fraction(1, partitions)) * (1 - size))
    n_training += n - n_training - n_validation - len(testing)
    validated = set()
    for p, fold in enumerate(_schemes.mlrc(n, flags("mlrc", size, start, partitions, sets))):
        first = int(Fraction(p, partitions) * len(remaining))
        order = [remaining[(first + i) % len(remaining)] for i in range(len(remaining))]
        assert as_lists(fold) == [sorted(order[:n_training]), sorted(order[n_training:]), sorted(testing)]
        assert validated.isdisjoint(fold.validation.tolist())
        validated.update(fold.validation.tolist())


def test_folds_of_the_reality_check_and_of_wrapped_test_sets():
    assert [as_lists(fold)[1] for fold in _schemes.mlrc(200, flags("mlrc"))] == [
        list(range(n, n + 25)) for n in (75, 0, 25, 50)
    ]
    for n, counts, never in ((196, (74, 24, 98), {24, 73}), (22634, (8488, 2829, 11317), {8487})):
        folds = _schemes.mlrc(n, flags("mlrc"))
        assert all(tuple(map(len, fold)) == counts for fold in folds)
        validated = set().union(*(fold.validation.tolist() for fold in folds))
        assert set(range(counts[0] + counts[1])) - validated == never
    for size, start, expected in ((0.5, 0.9, [*range(40), *range(90, 100)]), (0.3, 0.7, list(range(70, 100)))):
        assert _schemes.class_disjoint(100, flags("class_disjoint", size, start))[0].testing.tolist() == expected


@given(st.lists(st.integers(1, 9), min_size=1, max_size=60), HUNDREDTHS, HUNDREDTHS, st.integers(2, 6), st.data())
@few_examples
def test_closed_set_and_index(sizes, size, start, partitions, data):
    sets = data.draw(st.integers(1, partitions))
    labels = [c for c, n in enumerate(sizes) for _ in range(n)]
    testing = []
    remaining = []
    single = []
    for c, n in enumerate(sizes):
        begin = int(n * start)
        end = int(n * (start + size))
        positions = obvious_test(n, begin, min(end - begin, n - 1))
        first = labels.index(c)
        testing += sorted(first + i for i in positions)
        training_rows = [first + i for i in range(n) if i not in positions]
        if len(training_rows) == 1:
            single += training_rows
        else:
            remaining += training_rows
    opt = flags("closed_set", size, start, partitions, sets)
    for i, fold in enumerate(_schemes.closed_set(np.array(sizes), opt)):
        training, validation, test = as_lists(fold)
        assert test == testing and validation == remaining[i::partitions]
        assert training == sorted(set(remaining) - set(validation) | set(single))
        assert {labels[k] for k in training} == set(range(len(sizes))), "every class trains"
        for c in range(len(sizes)):
            of_class = [k for k in remaining if labels[k] == c]
            assert abs(sum(labels[k] == c for k in validation) - len(of_class) / partitions) < 1
    # index divides images by the rule by which class_disjoint divides classes
    of_images = _schemes.index(np.array(sizes), opt)
    of_classes = _schemes.class_disjoint(sum(sizes), opt)
    assert list(map(as_lists, of_images)) == list(map(as_lists, of_classes))


def classes_of(sizes):
    return {f"c{c:05d}": [Image(f"/data/c{c:05d}/{i}.jpg", f"c{c:05d}") for i in range(n)] for c, n in enumerate(sizes)}


SCHEMES = ["class_disjoint", "mlrc", "closed_set", "index"]


@given(
    st.sampled_from(SCHEMES),
    st.lists(st.integers(1, 8), min_size=1, max_size=40),
    HUNDREDTHS,
    HUNDREDTHS,
    st.integers(2, 6),
)
@settings(max_examples=80, deadline=None)
def test_division_is_disjoint_and_complete_or_refused(scheme, sizes, size, start, partitions):
    classes = classes_of(sizes)
    opt = flags(scheme, size, start, partitions, partitions)
    everything = [image for images in classes.values() for image in images]
    try:
        folds = [_schemes.divide(classes, opt, i, "/data") for i in range(partitions)]
    except UserError as error:
        assert str(error).startswith("--split_") and "\n" not in str(error)
        return
    validated = []
    of_test = set(folds[0][2])
    for training, validation, testing in folds:
        assert training and validation and testing
        assert sorted(training + validation + testing) == sorted(everything)
        assert testing == folds[0][2] == [image for image in everything if image in of_test]
        validated += validation
        if scheme in _schemes.BY_CLASSES:
            of_parts = [{image.class_name for image in part} for part in (training, validation, testing)]
            assert sum(map(len, of_parts)) == len(classes) and len(set.union(*of_parts)) == len(classes)
    assert len(set(validated)) == len(validated)


def test_predefined_by_classes_and_by_paths(tmp_path):
    data = make_folder(tmp_path / "data", n_classes=6, n_images=3)
    file = tmp_path / "splits.json"

    def select(**lists):
        file.write_text(json.dumps(lists))
        return read_folder(data, split_scheme="predefined", split_file=str(file))

    images = ["class_3/000.jpg", str(data / "class_3" / "002.jpg")]
    splits = select(train=["class_5", "class_0"], val=["class_2"], test=images)
    assert names(splits) == {"training": ["class_0", "class_5"], "validation": ["class_2"], "testing": ["class_3"]}
    assert splits["testing"].paths == [str(data / "class_3/000.jpg"), str(data / "class_3/002.jpg")]
    assert select(train=["class_0"], test=["class_1"])["validation"] is None
    for train, test, expected in (
        (["class_0"], ["clas_1"], "Did you mean 'class_1'"),
        (["class_0"], ["class_0/001.jpg"], "in train and in test"),
        (["class_0", "class_0"], ["class_1"], "twice in train"),
        (["class_0"], [], "test must be a list"),
    ):
        with refused(expected):
            select(train=train, test=test)


def test_impossible_flags_are_one_line(folder_data):
    for changes, expected in (
        ({"split_partitions": 5, "split_sets": 2}, "--split_partitions 5 is too many for the 4 classes"),
        ({"fold": 4}, "fold 4"),
        ({"split_test_size": 0.01, "split_test_start": 0}, "leaves 0 for test"),
        ({"split_sets": 5}, "--split_sets 5"),
        ({"use_tv_split": True}, "--use_tv_split"),
    ):
        with refused(expected):
            read_folder(folder_data, split_scheme="class_disjoint", **changes)
