"""The ledger: published figures with their conditions, those of runs, and what may stand beside what."""

import contextlib
import functools
import importlib
import math
import random
from types import SimpleNamespace

import numpy as np
import pytest

import parameters
from results import groups, ledger, published, recorded, roles
from results.recorded import RecordedRun
from tests.kit.run_folders import (
    ENVIRONMENT,
    collected,
    evaluated,
    flag_roles,
    lines,
    make_run,
    make_runs,
    rows,
    values_of,
)


@pytest.fixture(scope="module")
def trained(flags_of):
    """Group -> the training of a configuration."""
    return {group: ledger.training(plain, flag_roles()) for group, plain in flags_of.items()}


TRANSFORMS = {
    "testing": "Resize(size=[256], interpolation=InterpolationMode.BILINEAR, antialias=True); "
    "CenterCrop(size=(224, 224))"
}
RECORDED = {**ENVIRONMENT, "weights": "IMAGENET1K_V1", "data": {**ENVIRONMENT["data"], "transforms": TRANSFORMS}}


@pytest.fixture(scope="module", autouse=True)
def loaded_once():
    """The commands of the published figures are read once, not for each evaluation."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(published, "load", functools.cache(published.load))
        yield


@pytest.fixture(scope="module")
def configurations(loaded_once):
    return {p.group: p for source in published.SCRIPTS for p in published.load(source)}


@pytest.fixture(scope="module")
def flags_of(configurations):
    """Group -> flags of a configuration."""
    return {group: p.flags(parameters.read) for group, p in configurations.items()}


@pytest.fixture(scope="module")
def flags(flags_of):
    """Those of one configuration, the multi-similarity loss on CUB200-2011."""
    return flags_of["CUB_MS"]


@pytest.fixture(scope="module")
def defaults():
    return vars(parameters.get_parser().parse_args([]))


def conditions_of(flags, defaults, dataset="cub200", split=None, **environment):
    """The conditions of a run of these flags, of which `split` was recorded if it is given."""
    run = RecordedRun("a", "a", dataset, "a", 0, flag_roles(), flags=flags, environment=environment)
    if split:
        run.series = SimpleNamespace(keys={(split, flags["storage_metrics"][0]): 0})
    return ledger.of_run(run, defaults)


def make(root, flags, seeds=5, splits=("train", "test"), quality=0.628, environment=RECORDED, **changes):
    """Short runs of a configuration's flags, but for `changes`; what they recorded of epochs is what the flags plan."""
    for seed in range(seeds):
        run_flags = {**flags, "seed": seed, **changes}
        run_flags.pop("savename")
        epochs = run_flags.pop("n_epochs")
        records = []
        for epoch in (1, epochs):
            records += [(epoch, *row[1:]) for row in rows(quality, 1, seed, splits, ("e_recall@1", "map_r"), ())]
        make_run(root, records=records, epochs=epochs, environment=environment, **run_flags)


def test_every_row_is_whole_and_has_a_source():
    table_rows = lines(ledger.FILE)
    rules = {ledger.TEST, ledger.BY_CLASSES, ledger.BY_SAMPLES, ledger.LAST, ledger.NOT_STATED}
    for row in table_rows:
        assert all(row[name] for name in ("source", "method", *ledger.CONDITIONS)), row
        assert 0 < float(row["value"]) < 100 and float(row["deviation"] or 1) > 0 and row["selection"] in rules, row
    counts = {"ICML 2020": 67, "Reality Check": 98, "Proxy-Anchor": 4, "UNICOM": 4}
    assert {name: sum(row["source"].startswith(name) for row in table_rows) for name in counts} == counts
    assert len(table_rows) == 277
    names = ("value", "boxes", "backbone")
    values = {}
    for row in table_rows:
        if not row["group"]:
            values[row["method"], row["dataset"]] = [row[name] for name in names]
    assert values["OML, triplet, hard miner", "cub200"] == ["83.7", "yes", "vit_small_patch16_224"]
    assert values["Proxy-Anchor", "online_products"] == ["79.2", "not stated", "bninception"]
    assert values["HIER, DINO", "cars196"][0] == "91.3" and values["IBC", "inshop"][0] == "92.8"


def test_the_page_is_current(monkeypatch):
    monkeypatch.syspath_prepend(ledger.FILE.parent.parent)
    generate = importlib.import_module("generate_ledger")
    assert generate.TARGET.read_text(encoding="utf-8") == generate.text(), "run: python docs/generate_ledger.py"


def test_the_run_that_repeats_a_figure_has_its_conditions(configurations, flags_of, defaults):
    """By its flags and records; the ledger was written by hand. Seeds and joined folds aside."""
    n_compared = 0
    for p in configurations.values():
        split = "val" if p.figures[0].column.split == "val" else "test"
        weights = p.figures[0].condition("pretraining")
        ours = conditions_of(flags_of[p.group], defaults, p.dataset, split, weights=weights)
        for figure in p.figures:
            theirs = dict(figure.conditions)
            theirs = {k: v for k, v in theirs.items() if k != "seeds" and v != ledger.NOT_STATED}
            assert {name: ours[name] for name in theirs} == theirs, p.group
            n_compared += 1
    assert n_compared == 67 + 98


# presets of another network than the figure's, as their headers say
NO_REPEAT = ("unicom_sop", "unicom_inshop")
FEW = {"hyp_dino_inshop", "hier_dino_cub200", "fastretri_inshop", "sbs_market1501"}


@pytest.mark.parametrize("few_presets", [True, pytest.param(False, marks=pytest.mark.long)])
def test_the_run_of_a_preset_has_the_conditions_of_its_figure(defaults, few_presets):
    presets = published.load_presets({"cub200", "cars196", "online_products", "inshop", "market1501"})
    assert len({preset.group for preset in presets}) == len(presets) == 34

    def differences(preset, flags, figure, **changes):
        # an embedding layer that is left out has the width that the run found
        environment = {"dimensions": 512 if "osnet" in flags["arch"] else 2048}
        if flags["embed_dim"]:
            environment = {}
        ours = conditions_of(flags | changes, defaults, preset.dataset, "test", **environment)
        return ledger.differences(ours, figure, ledger.training(flags, flag_roles()))

    for preset in presets:
        if preset.group in NO_REPEAT or few_presets and preset.group not in FEW:
            continue
        flags = preset.flags(parameters.read)
        for figure in preset.figures:
            case = (preset, flags, figure)
            assert differences(*case) == [], preset.group
            assert differences(*case, decode_once=True, image_cache="images") == [], "decode_once is no condition"
            assert any(text.startswith("--lr ") for text in differences(*case, lr=1.0)), "flags are conditions"
            if flags["eval_space"] == "hyperbolic":
                euclidean = differences(*case, eval_space="euclidean")
                assert any(text.startswith("evaluation eval_space hyperbolic") for text in euclidean)


def test_figures_of_recipes_have_the_conditions_of_the_authors_code():
    rows = {(f.source.split(" (")[0], f.method, f.dataset): f for f in ledger.figures()}
    resize = {"cub200": "256", "cars196": "256 x 256", "online_products": "256 x 256", "inshop": "none"}
    # epochs of the figures on CUB200
    epochs = {"MS + Metrix (feature)": "100", "MS, baseline": "60", "contrastive + Metrix (feature)": "60"}
    for dataset, test_resize in resize.items():
        figure = rows["FastRetri", "FastRetri", dataset]
        assert (figure.condition("crop"), figure.condition("test_resize")) == ("224", test_resize)
        for method, of_cub in epochs.items():
            assert rows["Metrix", method, dataset].condition("epochs") == (of_cub if dataset == "cub200" else "60")
    for method, size in (("BoT (R50)", "256 x 128"), ("SBS (R50, non-local blocks)", "384 x 128")):
        figure = rows["FastReID", method, "market1501"]
        assert figure.condition("crop") == figure.condition("test_resize") == size


def table_of(tmp_path):
    return lines(evaluated(tmp_path, "--compare_to", "ledger") / "cub200_ledger.csv")


def test_the_same_conditions_give_difference_and_t(tmp_path, flags):
    make(tmp_path / "runs", flags)
    line, *other_lines = table_of(tmp_path)
    values = []
    for run in collected(tmp_path / "runs"):
        values.append(100 * run.series.get("test", "e_recall@1").max())
    mean = np.mean(values)
    deviation = np.std(values)
    # both over 5 seeds
    t = (mean - 62.80) / math.sqrt(deviation**2 / 4 + 0.70**2 / 4)
    assert (line["published"], line["value"], line["value deviation"]) == ("MS", "62.80", "0.70")
    assert (line["ours"], line["ours deviation"]) == (f"{mean:.2f}", f"{deviation:.2f}")
    assert (line["difference"], line["t"]) == (f"{mean - 62.80:+.2f}", f"{t:+.2f}")
    assert line["conditions that differ"] == "none"
    assert "divided by the number of anchors" in line["remarks"], "the published code differed"
    assert other_lines and all(row["difference"] == row["t"] == row["ours"] == "" for row in other_lines)
    differing = values_of(other_lines, "conditions that differ", key="published")
    for published_name, begins in (
        (
            "Proxy-Anchor 69.9",
            "dimensions 512 (ours: 128); batch 120 (ours: 112); --classifier_lr 0.0001 (ours: 1e-05)",
        ),
        (
            "OML, triplet, hard miner 83.7",
            "boxes yes (ours: no); pretraining vit_small_patch16_224.dino (ours: IMAGENET1K_V1)",
        ),
    ):
        assert differing[published_name].startswith(begins)


SIZES = {"transforms": {"testing": "Resize(size=[256, 256]); CenterCrop(size=(227, 227))"}}


VALIDATED = {"use_tv_split": True, "splits": ("train", "val", "test")}


# changes of the flags, and what is reported
DIFFERING = (
    ({"cub_boxes": True}, "boxes no (ours: yes)"),
    ({"bs": 56}, "batch 112 (ours: 56)"),
    ({"samples_per_class": 4}, "sampler class_random, 2 a class (ours: class_random, 4 a class)"),
    ({"embed_dim": 512}, "dimensions 128 (ours: 512)"),
    ({"embed_dim": 0}, "dimensions 128 (ours: unknown)"),
    ({"embed_dim": 0, "environment": {**RECORDED, "dimensions": 2048}}, "dimensions 128 (ours: 2048)"),
    ({"arch": "bninception_frozen_normalize"}, "backbone resnet50 (ours: bninception)"),
    ({"n_epochs": 40}, "epochs 150 (ours: 40)"),
    ({"iterations_per_epoch": 100, "patience": 200}, "epochs 150 (ours: 150 of 100 batches, patience 200)"),
    ({"rerank": "kreciprocal", "rerank_k1": 9}, "evaluation plain (ours: rerank kreciprocal, rerank_k1 9)"),
    ({"rerank_dba": [2.0, 3.0]}, "evaluation plain (ours: rerank_dba 2 3)"),
    ({"eval_pca": 16}, "evaluation plain (ours: eval_pca 16)"),
    ({"eval_use_trunk_output": True}, "evaluation plain (ours: eval_use_trunk_output True)"),
    ({"environment": {**RECORDED, "weights": "random"}}, "pretraining IMAGENET1K_V1 (ours: random)"),
    ({"environment": {**RECORDED, "data": SIZES}}, "crop 224 (ours: 227); test resize 256 (ours: 256 x 256)"),
    (VALIDATED, "split half (ours: half, tv_split_perc 0.8); epoch selected on test (ours: validation by classes)"),
    (
        {**VALIDATED, "tv_split_by_samples": True},
        "split half (ours: half, tv_split_by_samples True, tv_split_perc 0.8); epoch selected on test (ours: "
        "validation by samples)",
    ),
)


def test_a_condition_that_differs_is_named_and_nothing_is_compared(tmp_path, flags, trained, defaults):
    for number, (changes, message) in enumerate(DIFFERING):
        make(tmp_path / str(number), flags, seeds=2, **changes)
        all_groups = groups.build(collected(tmp_path / str(number)), defaults)
        compared = ledger.compare(all_groups, defaults, trained)
        assert not [silent for *_, silent in compared.comparable if not silent], message
        (icml,) = [refusal for refusal in compared.refused if refusal.figures[0].source.startswith("ICML")]
        assert "; ".join(icml.differences) == message and len(icml.figures) == 23 and icml.groups == all_groups


def test_flags_of_an_evaluation_that_is_off_are_no_condition(flags, defaults):
    plain = dict(flags, rerank=None, eval_space="euclidean", eval_scales=[1], eval_whiten=None)
    for idle in (plain, dict(plain, rerank_k1=3, eval_space_c=2.0, eval_scales_join="gem", eval_whiten_dims=3)):
        assert conditions_of(idle, defaults)["evaluation"] == ledger.PLAIN


def other_value(action, value):
    """A value of a flag unlike `value`, by its declaration alone; None where none is to be had."""
    if action.choices:
        return next(choice for choice in action.choices if choice != value)
    if isinstance(action.const, bool):
        return not value
    for words in ("1", "2", "0.5", "3", "0.25", "other"):
        with contextlib.suppress(Exception):
            parsed = action.type(words) if action.type else words
            parsed = [parsed] if action.nargs else parsed
            if parsed != value:
                return parsed
    return None


def test_which_flags_are_conditions(configurations, flags_of, trained, defaults):
    """Those of data, evaluation and training; not those of loss and miner, nor of what records tell (selection)."""
    rng = random.Random(5)
    actions = {action.dest: action for action in parameters.get_parser()._actions}
    declared = parameters.declared_roles()

    def differs(p, flags):
        figure = p.figures[0]
        split = "test" if figure.condition("selection") == ledger.TEST else "val"
        ours = conditions_of(flags, defaults, recorded.dataset_of(flags), split)
        return bool(ledger.differences(ours, figure, trained[p.group]))

    def is_idle(name, plain):
        """Whether a flag of evaluation belongs to one that is off."""
        if name in roles.without_effect(plain):
            return True
        if name in roles.RERANKING_ALONE:
            return False
        owners = [owner for owner in plain if name.startswith(f"{owner}_") and plain[owner] == defaults[owner]]
        return any(declared[owner].name == declared[name].name == "evaluation" for owner in owners)

    wrong = []
    free = roles.OUTPUTS | {"precision", "decode_once"}
    for name, role in declared.items():
        p = rng.choice(list(configurations.values()))
        plain = flags_of[p.group]
        is_free = role.name == "selection" or name in free or roles.OF_METHOD.fullmatch(name) or is_idle(name, plain)
        refused = role.compared and not is_free
        if name in plain and differs(p, plain | {name: other_value(actions[name], plain[name])}) != refused:
            wrong.append((p.group, role.name, name))
    assert not wrong


def test_what_a_source_does_not_state_is_named_beside_the_comparison(tmp_path, configurations, flags):
    figure = configurations["CUB_MS"].figures[0]
    ours = dict(figure.conditions)
    unstated = {"crop": ledger.NOT_STATED, "seeds": ledger.NOT_STATED}
    incomplete, last = (
        ledger.Figure(**{**vars(figure), "conditions": tuple({**ours, **changes}.items())})
        for changes in (unstated, {"selection": ledger.LAST})
    )
    trained = ledger.training(flags, flag_roles())
    assert [ledger.silent(f, trained) for f in (figure, incomplete)] == [[], ["crop"]]
    assert ledger.silent(figure) == ["training"]
    assert ledger.differences(ours, incomplete) == ledger.differences(ours, last) == []
    assert published.rule(last) == "last" and published.rule(figure) == "best_on_test"
    make(tmp_path / "runs", flags, seeds=3)
    line = table_of(tmp_path)[0]
    assert line["seeds"] == "3" and line["difference"], "the test knows the number of seeds"


def test_a_new_method_stands_beside_all_figures_of_its_conditions(tmp_path, flags):
    make(tmp_path / "runs", flags, group="New", loss="circle", quality=0.7)
    make(tmp_path / "runs", flags, group="Wide", loss="circle", embed_dim=512)
    table_rows = table_of(tmp_path)
    assert sum(line["group"] == "New" and line["difference"] != "" for line in table_rows) == 23
    assert {line["group"] for line in table_rows if line["published"].startswith("Npair 61.63, GenLifted")} == {"Wide"}
    assert {line["group"] for line in table_rows if line["published"] == "IBC 70.3"} == {"New"}
    (wide,) = [line for line in table_rows if line["published"] == "IBC" and line["group"] == "Wide"]
    assert wide["difference"] and "not stated by the source, so perhaps other: boxes" in wide["remarks"], "under a mark"
    page = (tmp_path / "out" / "index.html").read_text()
    assert "other conditions: not to be compared" in page and "docs/ledger.md" in page
    assert r"p{.22\linewidth}" in (tmp_path / "out" / "cub200_ledger.tex").read_text()


TIMM = {"arch": "timm:vit_small_patch16_224.dino_frozen_normalize", "weights": "x"}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {"pretraining": "IMAGENET1K_V1", "crop": "224", "test_resize": "256"}),
        ({"not_pretrained": True}, {"pretraining": "random"}),
        ({"weights": "own.pth"}, {"pretraining": "own.pth"}),
        ({"arch": "mine_frozen"}, {"pretraining": ledger.UNKNOWN}),
        ({"arch": "conv4_normalize"}, {"pretraining": ledger.UNKNOWN}),
        ({"augmentation": "plain"}, {"crop": "227", "test_resize": "256 x 256"}),
        ({"crop_size": 100, "resize_size": 120}, {"crop": "100"}),
        ({"dataset": "csv"}, {"boxes": ledger.UNKNOWN}),
        ({"n_epochs": 0}, {"selection": ledger.UNTRAINED}),
        (TIMM, {"backbone": "vit_small_patch16_224"}),
    ],
)
def test_runs_that_recorded_no_weights_and_no_sizes_have_those_of_their_flags(changes, expected, flags, defaults):
    assert conditions_of(flags | changes, defaults).items() >= expected.items()


@pytest.mark.long
def test_a_data_set_without_figures_is_said(tmp_path, capsys):
    for folder, names in (("runs", {"G": "glyphs"}), ("both", {"G": "glyphs", "C": "cub200"})):
        make_runs(tmp_path / folder, {name: {"dataset": dataset} for name, dataset in names.items()}, epochs=2)
        out = evaluated(tmp_path, "--compare_to", "ledger", runs=folder, out=f"of_{folder}")
        note = "--compare_to ledger: no figures on glyphs in a metric that was recorded; there are some on cub200"
        assert note in capsys.readouterr().out and note in (out / "index.html").read_text()
        assert (out / "glyphs_selected.md").exists() and not (out / "glyphs_ledger.md").exists()
        assert (out / "cub200_ledger.md").exists() == (folder == "both")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"dataset": "market1501", "eval_skip_unmatched": 1}, {}),
        ({"dataset": "glyphs", "glyphs_protocol": "reid", "eval_skip_unmatched": 1}, {}),
        ({"dataset": "market1501", "eval_skip_unmatched": 0}, {"eval_skip_unmatched": 0}),
        ({"dataset": "glyphs", "eval_skip_unmatched": 1}, {"eval_skip_unmatched": 1}),
    ],
)
def test_leaving_out_queries_is_plain_for_re_identification_alone(changes, expected, defaults):
    flags = {**defaults, "evaltypes": ["discriminative"], **changes}
    assert flag_roles().of_evaluation(flags, defaults) == expected
