"""`python -m evaluation` on files of every form: the numbers are those of metrics.compute, or there is one line."""

import gzip
import itertools
import pickle

import numpy as np
import pytest
import torch

import metrics
from evaluation import __main__ as command
from evaluation import file_arrays, whitening
from tests.kit.plain_metrics import random_lists, random_space
from tests.kit.refusals import refused
from tests.kit.splits import measured, save
from tools import measure
from utilities.errors import UserError
from utilities.hyperbolic import Ball

X, Y = random_space(n=60, d=4, classes=6, spread=0.7, seed=2)
X = X.astype(np.float32)
TEXTS = np.array([f"class {label}" for label in Y])
LEVELS = np.stack([Y, Y // 2, Y // 4], 1)
QUERIES = slice(15)
GALLERY = slice(15, None)
# lists of positives and of junk
RAW = random_lists(1, 45, 15)
LISTS = metrics.Lists.of(*RAW)
RETRIEVAL = ["e_recall@1", "map_r", "c_map_r", "mAP"]
CLASSWISE = ["nmi", "dists@intra", "rho_spectrum@1"]
LEVELED = ["h_ap", "asi", "e_recall@1", "e_recall@1_level1", "map_r_level2"]
LISTED = ["ap", "ap_trapezoid", "e_recall@1", "mp@5", "inp"]


def of_arrays(names, *arguments, **settings):
    return metrics.compute(names, *arguments, **{"seed": 1, **settings})


def of_parts(names=RETRIEVAL, x=X, y=Y, **settings):
    if y is None:
        return of_arrays(names, x[QUERIES], None, x[GALLERY], None, **settings)
    return of_arrays(names, x[QUERIES], y[QUERIES], x[GALLERY], y[GALLERY], **settings)


def part(rows, x=X, **arrays):
    return {"features": x[rows], **{name: array[rows] for name, array in arrays.items()}}


def save_maps(folder):
    """.npy files of features and labels; the words that search the gallery's with the queries'."""
    for name, rows in (("", slice(None)), ("_queries", QUERIES), ("_gallery", GALLERY)):
        for letter, array in (("x", X), ("y", Y), ("levels", LEVELS)):
            np.save(folder / f"{letter}{name}.npy", array[rows])
    return ["--gallery", f"{folder}/x_gallery.npy", "--gallery_labels", f"{folder}/y_gallery.npy"]


def forms(folder):
    """(form, words, the file or its arrays, the values)."""
    in_itself = of_arrays(RETRIEVAL + CLASSWISE, X, Y)
    together = of_arrays(CLASSWISE, X, Y)
    yield "alone", [], GOOD, in_itself
    half = X.astype(np.float16)
    yield "of half precision, with names", [], {"features": half, "labels": TEXTS}, of_arrays(RETRIEVAL, half, Y)
    yield "by default", [], GOOD, of_arrays(measure.DEFAULT_METRICS, X, Y)
    yield "several starts", ["--eval_kmeans_starts", "3"], GOOD, of_arrays(["nmi"], X, Y, seed=range(3))
    gap = of_arrays(["e_recall@1_group_gap"], X, Y, groups=Y % 2)
    yield "super-classes", [], {**GOOD, "groups": Y % 2}, gap
    odd_paths = np.array([None, 1, []] * 20, dtype=object)
    yield "odd paths that are not needed", [], {**GOOD, "paths": odd_paths}, of_arrays(RETRIEVAL, X, Y)
    yield "a reference", [], IN_FILE, {**of_parts(), **of_arrays(CLASSWISE, X[QUERIES], Y[QUERIES])}
    nearest = np.array([np.square(X[GALLERY] - query).sum(1).argmin() for query in X[QUERIES]])
    yield "a reference that holds the queries", [], {**IN_FILE, "exclude": nearest}, of_parts(exclude=nearest)

    order = np.random.default_rng(2).permutation(60)
    is_query = np.arange(60) < 15
    roles = {"is_query": is_query, "is_gallery": ~is_query}
    shuffled_roles = {name: array[order] for name, array in roles.items()}
    yield "roles", [], part(order, labels=Y) | shuffled_roles, of_parts()
    is_distractor = np.arange(60) >= 50
    hidden = of_parts(y=np.where(is_distractor, -9, Y))
    fake = np.where(is_distractor, Y[0], Y)
    yield "roles and distractors", [], {"features": X, "labels": fake, **roles, "is_distractor": is_distractor}, hidden
    queries = part(QUERIES, labels=Y)
    named = part(QUERIES, labels=TEXTS)
    odd = part(QUERIES, labels=5 - Y, class_names=TEXTS)
    with_classwise = {**of_parts(), **together}
    fakes = np.array([f"class {label}" for label in fake])
    for form, gallery, arrays, values in (
        ("with distractors", part(GALLERY, labels=fake, is_distractor=is_distractor), queries, hidden),
        (
            "with distractors that have names",
            part(GALLERY, labels=fake + 7, class_names=fakes, is_distractor=is_distractor),
            named,
            hidden,
        ),
        ("by numbers", part(GALLERY, labels=Y), queries, with_classwise),
        ("by names", part(GALLERY, labels=TEXTS), named, with_classwise),
        ("by numbers of the same names", part(GALLERY, labels=Y + 7, class_names=TEXTS), odd, with_classwise),
        ("by names and their numbers", part(GALLERY, labels=TEXTS), odd, with_classwise),
    ):
        yield f"a gallery {form}", ["--gallery", *save(folder, gallery=gallery)], arrays, values
    in_order = part(order, labels=Y) | {"paths": order.astype(str)}
    all_paths = ["--gallery", *save(folder, all_paths=in_order)]
    rows = np.argsort(order)[QUERIES]
    in_all = of_arrays(RETRIEVAL, X[QUERIES], Y[QUERIES], X[order], Y[order], exclude=rows)
    in_all |= of_arrays(CLASSWISE, X[order], Y[order])
    paths = np.arange(60).astype(str)
    yield "a gallery with the same paths", all_paths, part(QUERIES, labels=Y, paths=paths), in_all
    yield "a gallery of which rows are known", all_paths, {**queries, "exclude": rows}, in_all
    yield "the same images, unknown", all_paths, queries, {"e_recall@1": 1.0}

    maps = save_maps(folder)
    mapped = f"{folder}/x_queries.npy"
    of_maps = ["--labels", f"{folder}/y_queries.npy"]
    numbers, names = save(folder, numbers=part(GALLERY, labels=Y), names=part(GALLERY, labels=TEXTS))
    labels = ["--labels", f"{folder}/y.npy"]
    in_themselves = [*labels, "--gallery", f"{folder}/x.npy", "--gallery_labels", f"{folder}/y.npy"]
    yield "maps", labels, f"{folder}/x.npy", in_itself
    yield "maps with a map", [*of_maps, *maps], mapped, with_classwise
    yield "maps with a gallery", [*of_maps, "--gallery", numbers], mapped, with_classwise
    yield "a gallery of maps", maps, queries, with_classwise
    yield "maps in themselves", in_themselves, f"{folder}/x.npy", in_itself

    of_levels = of_arrays(LEVELED, X, LEVELS)
    parts_of_levels = of_parts(LEVELED, y=LEVELS)
    in_file = {**part(QUERIES, labels=LEVELS), "reference_features": X[GALLERY], "reference_labels": LEVELS[GALLERY]}
    levels = ["--gallery", *save(folder, levels=part(GALLERY, labels=LEVELS))]
    above = {"groups": Y // 2, "higher_names": LEVELS[:, 2:]}
    yield "levels", [], {"features": X, "labels": LEVELS}, of_levels
    yield "levels of names", [], {"features": X, "labels": np.char.add("c", LEVELS.astype(str))}, of_levels
    yield "levels with roles", [], {"features": X, "labels": LEVELS, **roles}, parts_of_levels
    yield "levels with a reference", [], in_file, parts_of_levels
    yield "levels with a gallery", levels, part(QUERIES, labels=LEVELS), parts_of_levels
    yield "maps of levels", ["--labels", f"{folder}/levels.npy"], f"{folder}/x.npy", of_levels
    yield "super-classes as levels", [], {**GOOD, **above}, of_levels

    listed = of_parts(LISTED, y=None, lists=LISTS)
    of_lists = {"features": X[QUERIES], **LISTS._asdict()}
    places = np.argsort(order[order >= 15])
    requested = order[order < 15]
    shuffled = metrics.Lists.of(*([places[list(rows)] for rows in map(lists.__getitem__, requested)] for lists in RAW))
    in_file = {"features": X[order], **shuffled_roles, **shuffled._asdict()}
    yield "lists and a reference", [], OF_LISTS, listed
    yield "lists and a gallery", ["--gallery", names], of_lists, listed
    yield "lists and a map", ["--gallery", f"{folder}/x_gallery.npy"], of_lists, listed
    yield "lists and roles", [], in_file, listed
    yield "lists, roles and labels", [], {**GOOD, **roles, **LISTS._asdict()}, {**listed, **together}
    for words, settings in (
        ("--rerank k_reciprocal --rerank_k1 6", {"rerank": metrics.KReciprocal(6)}),
        ("--rerank alpha_qe --rerank_n 3", {"rerank": metrics.AlphaExpansion(3)}),
        ("--rerank superglobal --rerank_m 9 --rerank_k 2", {"rerank": metrics.SuperGlobal(9, 2)}),
        ("--rerank_dba 3 2", {"rerank": metrics.DatabaseAugmentation(3, 2.0)}),
        ("--eval_space hyperbolic", {"ball": Ball(0.1, 2.3)}),
    ):
        yield words, words.split(), GOOD, of_arrays(["map_r", "nmi"], X, Y, **settings)
        yield f"{words}, a reference", words.split(), IN_FILE, of_parts(["map_r", "mAP"], **settings)


def test_numbers_are_those_of_the_arrays(tmp_path):
    wrong = []
    for form, words, file, expected in forms(tmp_path):
        path = file if isinstance(file, str) else save(tmp_path, file=file)[0]
        results = command.main([path, "--evaluation_metrics", *expected, *words])
        if list(results) != list(expected) or results != pytest.approx(expected, rel=1e-9, abs=1e-12):
            wrong.append(f"{form}: {results}, expected {expected}")
    assert not wrong, "\n".join(wrong)


def test_what_is_said_of_lists_and_what_queries_find_by_them(tmp_path, capsys):
    values = measured(tmp_path, "--dump_query_results", str(tmp_path / "q.npz"), **OF_LISTS)
    is_lone = np.diff(LISTS.positive_indptr) == 0
    printed = capsys.readouterr().out
    counts = f"{len(LISTS.positive_indices)} positives, {len(LISTS.junk_indices)} junk"
    assert f"15 queries search in 45 images; lists: {counts}" in printed
    assert is_lone.any() and f"{is_lone.sum()} of 15 queries have no positive: left out" in printed
    assert "classes" not in printed
    results = np.load(tmp_path / "q.npz")
    assert "labels" not in results.files and np.isnan(results["ap_at_r"]).sum() == is_lone.sum()
    assert results["hit"][~is_lone].mean() == pytest.approx(values["e_recall@1"])


# form -> number of queries that have a copy, the first of them, its row in the reference
COPIES = {
    "gallery": ("10 of 15", "row 5 (new/10)", "row 0"),
    "maps": ("15 of 15", "row 0 (new/5)", "row 5"),
    "reference": ("10 of 15", "row 5", "row 0"),
    "roles": ("3 of 13", "row 60", "row 0"),
}


@pytest.mark.parametrize("form", COPIES)
def test_the_same_vectors_under_other_paths_are_told_with_the_way_out(form, tmp_path, capsys):
    save_maps(tmp_path)
    old, new = (np.char.add(f"{folder}/", np.arange(60).astype(str)) for folder in ("old", "new"))
    queries = part(slice(5, 20), labels=Y, paths=new)
    is_query = np.arange(63) >= 50
    arrays = queries
    words = []
    if form == "gallery":
        words = ["--gallery", *save(tmp_path, gallery=part(slice(10, None), labels=Y, paths=old))]
    elif form == "maps":
        words = ["--gallery", f"{tmp_path}/x.npy", "--gallery_labels", f"{tmp_path}/y.npy"]
    elif form == "reference":
        arrays = {**queries, "reference_features": X[10:], "reference_labels": Y[10:]}
    else:
        arrays = part(np.r_[:60, :3], labels=Y) | {"is_query": is_query, "is_gallery": ~is_query}
    measured(tmp_path, *words, **arrays)
    printed = capsys.readouterr().out
    count, first, row = COPIES[form]
    message = f"{count} queries have the same vector in the reference and may find themselves"
    assert f"{message}, first {first}, which is {row}" in printed and "give exclude" in printed
    assert ("or the same paths in both files" in printed) == (form in ("gallery", "maps"))
    if form == "gallery":
        for change in (
            {"exclude": np.maximum(np.arange(15) - 5, -1)},
            {"paths": old[5:20]},
            {"features": queries["features"] + np.float32(0.1)},
        ):
            measured(tmp_path, *words, **{**queries, **change})
        assert "same vector" not in capsys.readouterr().out


def test_a_file_of_another_kind_is_called_what_it_is(tmp_path):
    """Whatever its name; tables, files of torch and others."""
    torch.save({"features": torch.ones(3, 2)}, tmp_path / "new.pt")
    torch.save({"features": torch.ones(3, 2)}, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    contents = {
        "a text file": b"label,path,f0\na,b.jpg,\xc3\xa9\n",
        "an HDF5 file": b"\x89HDF\r\n\x1a\n" + bytes(20),
        "a Parquet file": b"PAR1" + bytes(9),
        "a pickle, perhaps of torch.save": pickle.dumps([1]),
        "a safetensors file": b'@\0\0\0\0\0\0\0{"features":{"dtype":"F32","shape":[1]}}',
        "a gzip file": gzip.compress(b"1"),
        "a file of torch.save": (tmp_path / "new.pt").read_bytes(),
        "perhaps of torch.save": (tmp_path / "old.pt").read_bytes(),
    }
    good = save(tmp_path, good=GOOD)[0]
    for number, (kind, content) in enumerate(contents.items()):
        path = tmp_path / f"{number}.{('csv', 'npz', 'pt')[number % 3]}"
        path.write_bytes(content)
        for words in ([], [good, "--gallery"], ["compress"], ["pairs"]):
            last = ["pairs.npz"] if words == ["pairs"] else []
            with refused(None, f"{path}: ", kind, "not an .npz file of arrays, nor an .npy file", "numpy.savez"):
                command.main([*words, str(path), *last])
    for content in (b"", bytes(range(256)) * 20, b"\xff" * 50):
        path.write_bytes(content)
        with refused("not an .npz file of plain arrays"):
            command.main([str(path)])


ASKING = {"is_query": np.arange(60) < 20}


GOOD = {"features": X, "labels": Y}


IN_FILE = {**part(QUERIES, labels=Y), "reference_features": X[GALLERY], "reference_labels": Y[GALLERY]}


REFERENCE = {**IN_FILE, "exclude": np.full(15, -1)}
ROLES = {**GOOD, **ASKING, "is_gallery": np.arange(60) > 15, "sequence": np.arange(60) // 5, "groups": Y % 2}
DRAWS = {**GOOD, **ASKING, "is_gallery": np.arange(60) >= 20, "role_draws": np.arange(60)[None] >= [[20], [30]]}
OF_LISTS = {"features": X[QUERIES], "reference_features": X[GALLERY], **LISTS._asdict()}
DAMAGES = {
    "missing": lambda array: None,
    "shorter": lambda array: array[:-1],
    "wider": lambda array: array[:, None],
    "halves": lambda array: array + 0.5,
    "texts": lambda array: np.full(array.shape, "a"),
    "objects": lambda array: np.array([None, 1, "a"] * len(array), dtype=object)[: len(array)],
    "NaN": lambda array: np.full(array.shape, np.nan),
    "none": np.zeros_like,
}
# damage: arrays that may be like this
TAKEN = {
    "missing": "exclude is_query is_gallery sequence role_draws",
    "wider": "labels reference_labels",
    "texts": "sequence",
    "halves": "features reference_features labels reference_labels groups",
    "none": "features labels reference_features reference_labels exclude sequence",
}


@pytest.mark.parametrize(
    ("arrays", "accepted"),
    [
        (GOOD, ["labels texts"]),
        (REFERENCE, []),
        (ROLES, ["labels texts"]),
        (OF_LISTS, []),
        # the draws say who searches
        (DRAWS, ["labels texts", "role_draws shorter", "is_query none", "is_gallery none"]),
    ],
    ids=["good", "reference", "roles", "lists", "draws"],
)
def test_an_array_that_is_damaged_is_refused_in_one_line(arrays, accepted, tmp_path):
    names = ["map_r"]
    if arrays is OF_LISTS:
        names = ["ap"]
    elif arrays is ROLES:
        names.append("e_recall@1_group_gap")
    wrong = []
    for name, (damage, hurt) in itertools.product(arrays, DAMAGES.items()):
        changed = {**arrays, name: hurt(arrays[name])}
        if damage == "missing":
            del changed[name]
        try:
            measured(tmp_path, names=names, **changed)
            message = None
        except UserError as error:
            message = str(error)
            assert "\n" not in message, message
        if (message is None) != (name in TAKEN.get(damage, "").split() or f"{name} {damage}" in accepted):
            wrong.append(f"{name} {damage}: {message}")
    assert not wrong, "\n".join(wrong)


def test_files_that_do_not_fit_each_other_or_the_flags(tmp_path):
    save_maps(tmp_path)
    np.save(tmp_path / "short.npy", Y[:50])
    np.save(tmp_path / "objects.npy", np.array([1, None], dtype=object))
    (tmp_path / "text.npz").write_text("no arrays")
    named = {"features": X, "labels": TEXTS}
    odd_paths = {**GOOD, "paths": np.array([None] * 60, dtype=object)}
    good, names, odd, narrow, nan, short, twice, reference, levels, paths = save(
        tmp_path,
        good=GOOD,
        names=named,
        odd=odd_paths,
        narrow={"features": X[:, :3], "labels": Y},
        nan={"features": X * np.nan, "labels": Y},
        short={"features": X, "labels": Y[:-1]},
        twice={**GOOD, "paths": np.repeat(["a", "b"], 30)},
        reference=REFERENCE,
        levels={**GOOD, "groups": np.char.add("c", LEVELS[:, 1].astype(str))},
        paths={**GOOD, "paths": np.arange(60).astype(str)},
    )
    mapped = f"{tmp_path}/x.npy"
    fewer = f"{tmp_path}/short.npy"
    level = ["--evaluation_metrics", "h_ap"]
    of_levels = {"features": X, "labels": LEVELS}
    itself = metrics.Lists.of([[(row + 59) % 60] for row in range(60)])._asdict()
    kinds = "labels are numbers in one file and names in the other"
    for words, arrays, message in (
        (["--gallery", names], GOOD, kinds),
        (["--gallery", good], named, kinds),
        (["--gallery", odd], odd_paths, "not an .npz file of plain arrays"),
        (["--gallery", narrow], GOOD, "they must agree"),
        (["--gallery", nan], GOOD, "nan.npz: features hold NaN"),
        (["--gallery", short], GOOD, "short.npz: labels have shape (59,)"),
        (["--gallery", twice], {**GOOD, "paths": np.repeat(["a", "c"], 30)}, "occurs there several times"),
        (["--gallery", good], REFERENCE, "it has reference_features, and --gallery"),
        (["--gallery", reference], GOOD, "it has reference_features, and --gallery"),
        (["--gallery", good, paths], GOOD, "in paths"),
        (["--gallery", good, narrow], GOOD, "their width must agree"),
        (["--gallery", "nowhere.npz"], GOOD, "no such file"),
        (["--gallery", good], {**GOOD, "exclude": Y + 60}, "exclude must be"),
        (["--gallery", mapped], GOOD, "by --gallery_labels"),
        (["--gallery", good, "--gallery_labels", fewer], GOOD, "--gallery_labels"),
        (["--gallery_labels", fewer], GOOD, "there is no --gallery"),
        (["--labels", fewer], GOOD, "holds its labels itself, leave it out"),
        (["--gallery_keep", "absent.txt"], GOOD, "--gallery_keep absent.txt: there is no --gallery"),
        (["--gallery", good, "--gallery_keep", "absent.txt"], GOOD, "has no is_distractor (N,)"),
        (["--eval_whiten_dims", "2"], GOOD, "--eval_whiten_dims 2 has no effect without --eval_whiten: add it"),
        (["--gallery", good], {**GOOD, "sequence": np.arange(60)}, "sequence is in one of the files alone"),
        (["--gallery", good], {**GOOD, "domains": np.arange(60) % 2}, "domains is in one of the files alone"),
        (["--outliers", "--gallery", good], GOOD, "leave out --gallery"),
        (["--outliers", "--labels", good], GOOD, "leave out --labels"),
        ([], {**GOOD, "exclude": Y}, "exclude needs reference_features, or --gallery"),
        ([], {**REFERENCE, "is_query": np.ones(15, bool)}, "leave out one of them"),
        ([], {**GOOD, "reference_features": X}, "has no reference_labels"),
        ([], {**GOOD, "reference_labels": Y}, "needs reference_features"),
        ([], {"features": X, "labels": Y.astype(object)}, "plain arrays"),
        ([], {**OF_LISTS, "sequence": np.arange(15)}, "it has lists and sequence"),
        (["--evaluation_metrics", "nmi"], OF_LISTS, "metric 'nmi' is of classes"),
        (level, GOOD, "labels have a single level"),
        (level, {"features": X, "labels": np.stack([Y, np.arange(60) % 5], 1)}, "levels do not nest"),
        (level, {**REFERENCE, "labels": LEVELS[QUERIES]}, "labels have a single level"),
        (level, {**of_levels, **itself}, "lists have a single level"),
        ([*level, "--gallery", levels], of_levels, "levels are numbers in one file and names in the other"),
        ([*level, "--gallery", levels], GOOD, "labels have a single level"),
        (["--evaluation_metrics", "e_recal@1"], GOOD, "Did you mean"),
        (["--eval_kmeans_starts", "0"], GOOD, "must be at least 1"),
        (["--eval_space_c", "1"], GOOD, "--eval_space_c 1 has no effect"),
        (["--out", f"{tmp_path}/nowhere/x.json"], GOOD, "cannot write"),
    ):
        with refused(None, message):
            command.main([*save(tmp_path, file=arrays), "--evaluation_metrics", "map_r", *words])
    for words, message in (
        ([mapped], "one array, the features: name the .npy file of their labels by --labels"),
        ([mapped, "--labels", good], f"by --labels, not {good}"),
        ([mapped, "--labels", f"{tmp_path}/absent.npy"], "absent.npy: no such file"),
        ([mapped, "--labels", fewer], "labels have shape (50,)"),
        ([f"{tmp_path}/objects.npy", "--labels", fewer], "nor an .npy file"),
        ([str(tmp_path)], "a folder, expected a file of embeddings"),
        ([f"{tmp_path}/absent.npz"], "no such file"),
        ([f"{tmp_path}/text.npz"], "not an .npz file"),
    ):
        with refused(None, message):
            command.main(words)


def test_a_gallery_in_maps_is_whitened_and_reranked(tmp_path):
    words = [*save_maps(tmp_path), "--labels", f"{tmp_path}/y_queries.npy", "--evaluation_metrics", "map_r"]
    whiten = whitening.pca(X[GALLERY], 3)
    for flags, expected in (
        ("--rerank k_reciprocal --rerank_k1 6", of_parts(["map_r"], rerank=metrics.KReciprocal(6))),
        ("--eval_whiten fit_gallery --eval_whiten_dims 3", of_parts(["map_r"], whiten(X))),
    ):
        assert command.main([f"{tmp_path}/x_queries.npy", *words, *flags.split()]) == pytest.approx(expected)


def test_rows_of_a_gallery_that_is_cut_or_named_second_are_refused(tmp_path):
    (tmp_path / "keep.txt").write_text("1\n")
    named = {"is_distractor": np.arange(45) >= 40, "paths": np.arange(45).astype(str)}
    files = {"gallery": part(GALLERY, labels=Y) | named, "plain": part(GALLERY, labels=Y)}
    gallery, plain, queries = save(tmp_path, **files, mine=part(QUERIES, labels=Y))
    words = ["--gallery", gallery, "--gallery_keep", str(tmp_path / "keep.txt")]
    with refused("exclude goes by rows of the whole gallery"):
        measured(tmp_path, *words, names=["map_r"], **part(QUERIES, labels=Y), exclude=np.full(15, -1))
    with refused("name .*mine.npz first, so that no image finds itself"):
        command.main([queries, "--gallery", plain, queries, "--evaluation_metrics", "map_r"])


def test_a_damaged_archive_is_one_line(tmp_path):
    """Python's zipfile answers an unknown version by NotImplementedError."""
    path = tmp_path / "embeddings.npz"
    np.savez(path, features=np.eye(3), labels=np.arange(3))
    content = path.read_bytes()
    # the version needed to extract, in the directory of the archive
    place = content.index(b"PK\x01\x02") + 6
    path.write_bytes(content[:place] + b"\x62" + content[place + 1 :])
    with refused("embeddings.npz cannot be read"):
        file_arrays.read(str(path))
