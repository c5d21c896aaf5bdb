"""The ledger: published figures with their conditions, those of runs, and what may stand beside what."""

import contextlib
import csv
import functools
import importlib
import math
import random

import numpy as np
import pytest

import parameters
from results import groups, ledger, published, recorded, roles
from results.recorded import RecordedRun
from tests.kit import run_folders
from tests.kit.run_folders import ENVIRONMENT, collected, flag_roles, lines, make_run, make_runs, rows

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
def flags(configurations):
    """Those of one configuration, the multi-similarity loss on CUB200-2011."""
    return configurations["CUB_MS"].flags(parameters.read)


@pytest.fixture(scope="module")
def defaults():
    return vars(parameters.get_parser().parse_args([]))


@pytest.fixture(scope="module")
def conditions(flags, defaults):
    """The conditions of a run by its flags: changes of `flags`, or whole sets of flags."""

    def of_flags(all_flags=None, **changes):
        run = RecordedRun("a", "a", "cub200", "a", 0, flag_roles(), flags={**(all_flags or flags), **changes})
        return ledger.of_run(run, defaults)

    return of_flags


def make(root, flags, seeds=5, splits=("train", "test"), quality=0.628, environment=RECORDED, **changes):
    """Five short runs of a configuration's flags, but for `changes`; what they recorded of epochs is what the flags
    plan.
    """
    for seed in range(seeds):
        run_flags = {**flags, "seed": seed, **changes}
        run_flags.pop("savename")
        last = [
            (run_flags["n_epochs"], *row[1:]) for row in rows(quality, 1, seed, splits, ("e_recall@1", "map_r"), ())
        ]
        epochs = run_flags.pop("n_epochs")
        make_run(
            root, records=[(1, *row[1:]) for row in last] + last, epochs=epochs, environment=environment, **run_flags
        )


def evaluated(tmp_path):
    return lines(run_folders.evaluated(tmp_path, "--compare_to", "ledger") / "cub200_ledger.csv")


def test_every_row_is_whole_and_has_a_source():
    with open(ledger.FILE, newline="", encoding="utf-8") as file:
        table_rows = list(csv.DictReader(file))
    for row in table_rows:
        assert (
            row["source"]
            and row["method"]
            and 0 < float(row["value"]) < 100
            and all(row[name] for name in ledger.CONDITIONS)
        ), row
        assert not row["deviation"] or float(row["deviation"]) > 0
        assert row["selection"] in (ledger.TEST, ledger.BY_CLASSES, ledger.BY_SAMPLES, ledger.LAST, ledger.NOT_STATED)
    sources = ("ICML 2020", "Reality Check", "Proxy-Anchor", "UNICOM")
    counts = {name: sum(row["source"].startswith(name) for row in table_rows) for name in sources}
    assert counts == {"ICML 2020": 67, "Reality Check": 98, "Proxy-Anchor": 4, "UNICOM": 4} and len(table_rows) == 269
    values = {
        (row["method"], row["dataset"]): (row["value"], row["boxes"], row["backbone"])
        for row in table_rows
        if not row["group"]
    }
    assert values["OML, triplet, hard miner", "cub200"] == ("83.7", "yes", "vit_small_patch16_224")
    assert values["Proxy-Anchor", "online_products"] == ("79.2", "not stated", "bninception")
    assert values["HIER, DINO", "cars196"][0] == "91.3" and values["IBC", "inshop"][0] == "92.8"


def test_the_page_is_current(monkeypatch):
    monkeypatch.syspath_prepend(ledger.FILE.parent.parent)
    generate = importlib.import_module("generate_ledger")
    assert generate.TARGET.read_text(encoding="utf-8") == generate.text(), "run: python docs/generate_ledger.py"


def test_the_run_that_repeats_a_figure_has_its_conditions(configurations, flags_of, defaults):
    """Conditions of a run are read from its flags and records; those of the ledger were written by hand. Seeds and
    joined folds aside.
    """
    n_compared = 0
    for p in configurations.values():
        flags = flags_of[p.group]
        split = "val" if p.figures[0].column.split == "val" else "test"
        run = RecordedRun(
            "a",
            "a",
            p.dataset,
            "a",
            0,
            flag_roles(),
            flags=flags,
            environment={"weights": p.figures[0].condition("pretraining")},
        )
        run.series = type("Series", (), {"keys": {(split, flags["storage_metrics"][0]): 0}})
        ours = ledger.of_run(run, defaults)
        for figure in p.figures:
            theirs = {
                name: value for name, value in figure.conditions if name != "seeds" and value != ledger.NOT_STATED
            }
            assert {name: ours[name] for name in theirs} == theirs, p.group
            n_compared += 1
    assert n_compared == 67 + 98


NO_REPEAT = ("unicom_sop", "unicom_inshop")  # presets of another network than the figure's, as their headers say
FEW = {"hyp_dino_inshop", "hier_dino_cub200", "fastretri_inshop", "sbs_market1501"}


def of_preset(preset, flags, defaults):
    """The conditions of a run of these flags, which found the width of an embedding layer that is left out."""
    environment = {} if flags["embed_dim"] else {"dimensions": 2048}
    run = RecordedRun("a", "a", preset.dataset, "a", 0, flag_roles(), flags=flags, environment=environment)
    run.series = type("Series", (), {"keys": {("test", flags["storage_metrics"][0]): 0}})
    return ledger.of_run(run, defaults)


@pytest.mark.parametrize("few_presets", [True, pytest.param(False, marks=pytest.mark.long)])
def test_the_run_of_a_preset_has_the_conditions_of_its_figure(defaults, few_presets):
    presets = published.load_presets({"cub200", "cars196", "online_products", "inshop", "market1501"})
    assert len({preset.group for preset in presets}) == len(presets) == 32
    for preset in presets:
        if preset.group in NO_REPEAT or few_presets and preset.group not in FEW:
            continue
        flags = preset.flags(parameters.read)
        trained = ledger.training(flags, flag_roles())
        for figure in preset.figures:
            assert ledger.differences(of_preset(preset, flags, defaults), figure, trained) == [], preset.group
            images_kept = {**flags, "decode_once": True, "image_cache": "images"}
            assert ledger.differences(of_preset(preset, images_kept, defaults), figure, trained) == [], (
                "decode_once is no condition"
            )
            changed_conditions = of_preset(preset, {**flags, "lr": 1.0}, defaults)
            assert any(
                difference.startswith("--lr ") for difference in ledger.differences(changed_conditions, figure, trained)
            ), "flags are conditions"
            if flags["eval_space"] == "hyperbolic":
                euclidean = of_preset(preset, {**flags, "eval_space": "euclidean"}, defaults)
                assert any(
                    difference.startswith("evaluation eval_space hyperbolic")
                    for difference in ledger.differences(euclidean, figure, trained)
                )


def test_figures_of_recipes_have_the_conditions_of_the_authors_code():
    rows = {(f.source.split(" (")[0], f.method, f.dataset): f for f in ledger.figures()}
    for dataset, resize in (
        ("cub200", "256"),
        ("cars196", "256 x 256"),
        ("online_products", "256 x 256"),
        ("inshop", "none"),
    ):
        figure = rows["FastRetri", "FastRetri", dataset]
        assert (figure.condition("crop"), figure.condition("test_resize")) == ("224", resize)
        for method, of_cub in (
            ("MS + Metrix (feature)", "100"),
            ("MS, baseline", "60"),
            ("contrastive + Metrix (feature)", "60"),
        ):
            assert rows["Metrix", method, dataset].condition("epochs") == (of_cub if dataset == "cub200" else "60")
    for method, size in (("BoT (R50)", "256 x 128"), ("SBS (R50, non-local blocks)", "384 x 128")):
        figure = rows["FastReID", method, "market1501"]
        assert figure.condition("crop") == figure.condition("test_resize") == size


def test_the_same_conditions_give_difference_and_t(tmp_path, flags):
    make(tmp_path / "runs", flags)
    line, *other_lines = evaluated(tmp_path)
    values = []
    for path in (tmp_path / "runs").rglob("metrics.csv"):
        recalls = [
            float(row["value"]) for row in lines(path) if (row["split"], row["metric"]) == ("test", "e_recall@1")
        ]
        values.append(100 * max(recalls))
    mean = np.mean(values)
    deviation = np.std(values)
    t = (mean - 62.80) / math.sqrt(deviation**2 / 4 + 0.70**2 / 4)  # both over 5 seeds
    assert (line["published"], line["value"], line["value deviation"]) == ("MS", "62.80", "0.70")
    assert (line["ours"], line["ours deviation"]) == (f"{mean:.2f}", f"{deviation:.2f}")
    assert (line["difference"], line["t"]) == (f"{mean - 62.80:+.2f}", f"{t:+.2f}") and line[
        "conditions that differ"
    ] == "none"
    assert "divided by the number of anchors" in line["remarks"], "the published code differed"
    assert other_lines and all(row["difference"] == row["t"] == row["ours"] == "" for row in other_lines)
    differing = {row["published"]: row["conditions that differ"] for row in other_lines}
    assert differing["Proxy-Anchor 69.9"].startswith(
        "dimensions 512 (ours: 128); batch 120 (ours: 112); --classifier_lr 0.0001 (ours: 1e-05)"
    )
    begins = "boxes yes (ours: no); pretraining vit_small_patch16_224.dino (ours: IMAGENET1K_V1)"
    assert differing["OML, triplet, hard miner 83.7"].startswith(begins)


def test_a_condition_that_differs_is_named_and_nothing_is_compared(tmp_path, flags_of, flags, defaults):
    resized = {"transforms": {"testing": "Resize(size=[256, 256]); CenterCrop(size=(227, 227))"}}
    validated = {"use_tv_split": True, "splits": ("train", "val", "test")}
    cases = [
        ({"cub_boxes": True}, "boxes no (ours: yes)"),
        ({"bs": 56}, "batch 112 (ours: 56)"),
        ({"samples_per_class": 4}, "sampler class_random, 2 a class (ours: class_random, 4 a class)"),
        ({"embed_dim": 512}, "dimensions 128 (ours: 512)"),
        ({"embed_dim": 0}, "dimensions 128 (ours: unknown)"),
        ({"embed_dim": 0, "environment": {**RECORDED, "dimensions": 2048}}, "dimensions 128 (ours: 2048)"),
        ({"arch": "bninception_frozen_normalize"}, "backbone resnet50 (ours: bninception)"),
        ({"n_epochs": 40}, "epochs 150 (ours: 40)"),
        (
            {"n_epochs": 150, "iterations_per_epoch": 100, "patience": 200},
            "epochs 150 (ours: 150 of 100 batches, patience 200)",
        ),
        ({"rerank": "kreciprocal", "rerank_k1": 9}, "evaluation plain (ours: rerank kreciprocal, rerank_k1 9)"),
        ({"eval_pca": 16}, "evaluation plain (ours: eval_pca 16)"),
        ({"eval_use_trunk_output": True}, "evaluation plain (ours: eval_use_trunk_output True)"),
        ({"environment": {**RECORDED, "weights": "random"}}, "pretraining IMAGENET1K_V1 (ours: random)"),
        ({"environment": {**RECORDED, "data": resized}}, "crop 224 (ours: 227); test resize 256 (ours: 256 x 256)"),
        (validated, "split half (ours: half, tv_split_perc 0.8); epoch selected on test (ours: validation by classes)"),
        (
            {**validated, "tv_split_by_samples": True},
            (
                "split half (ours: half, tv_split_by_samples True, tv_split_perc 0.8); epoch selected on test (ours: "
                "validation by samples)"
            ),
        ),
    ]
    trained = {group: ledger.training(published_flags, flag_roles()) for group, published_flags in flags_of.items()}
    for number, (changes, message) in enumerate(cases):
        make(tmp_path / str(number), flags, seeds=2, **changes)
        all_groups = groups.build(collected(tmp_path / str(number)), defaults)
        compared = ledger.compare(all_groups, defaults, trained)
        assert not [silent for *_, silent in compared.comparable if not silent], message
        (icml,) = [refusal for refusal in compared.refused if refusal.figures[0].source.startswith("ICML")]
        assert "; ".join(icml.differences) == message and len(icml.figures) == 23 and icml.groups == all_groups


def test_flags_of_an_evaluation_that_is_off_are_no_condition(flags, conditions):
    plain = dict(flags, rerank=None, eval_space="euclidean", eval_scales=[1], eval_whiten=None)
    for idle in (plain, dict(plain, rerank_k1=3, eval_space_c=2.0, eval_scales_join="gem", eval_whiten_dims=3)):
        assert conditions(idle)["evaluation"] == ledger.PLAIN


def other_value(action, value):
    """A value of a flag unlike `value`, by its declaration alone; None where none is to be had."""
    if action.choices:
        return next(choice for choice in action.choices if choice != value)
    if isinstance(action.const, bool):
        return not value
    tries = ("1", "2", "0.5", "3", "0.25", "other")
    for words in tries:
        with contextlib.suppress(Exception):
            parsed = action.type(words) if action.type else words
            parsed = [parsed] if action.nargs else parsed
            if parsed != value:
                return parsed
    return None


def test_which_flags_are_conditions(configurations, flags_of, defaults):
    """Of runs that differ in one flag, for every flag of the registry, those are refused whose flag is of data,
    evaluation or training; a flag of loss or miner makes another method under the same conditions. What selects the
    epoch is the condition of that name, which records tell, not flags.
    """
    rng = random.Random(5)
    actions = {action.dest: action for action in parameters.get_parser()._actions}
    declared = parameters.declared_roles()

    def differs(p, **changes):
        figure = p.figures[0]
        plain = flags_of[p.group]
        run = RecordedRun("a", "a", p.dataset, "a", 0, flag_roles(), flags={**plain, **changes})
        run.dataset = recorded.dataset_of({**plain, **changes})
        split = "test" if figure.condition("selection") == ledger.TEST else "val"
        run.series = type("Series", (), {"keys": {(split, run.flags["storage_metrics"][0]): 0}})
        return ledger.differences(ledger.of_run(run, defaults), figure, ledger.training(plain, flag_roles()))

    wrong = []
    for name, role in declared.items():
        p = rng.choice(list(configurations.values()))
        plain = flags_of[p.group]
        idle = name in roles.without_effect(plain) or any(
            name.startswith(f"{owner}_")
            and plain[owner] == defaults[owner]
            and declared[owner].name == role.name == "evaluation"
            for owner in plain
        )
        free = (
            idle
            or role.name == "selection"
            or name in roles.OUTPUTS | {"precision", "decode_once"}
            or roles.OF_METHOD.fullmatch(name)
        )
        refused = role.compared and not free
        if name in plain and bool(differs(p, **{name: other_value(actions[name], plain[name])})) != refused:
            wrong.append((p.group, role.name, name))
    assert not wrong


def test_what_a_source_does_not_state_is_named_beside_the_comparison(tmp_path, configurations, flags):
    figure = configurations["CUB_MS"].figures[0]
    ours = dict(figure.conditions)
    incomplete, last = (
        ledger.Figure(**{**vars(figure), "conditions": tuple({**ours, **changes}.items())})
        for changes in ({"crop": ledger.NOT_STATED, "seeds": ledger.NOT_STATED}, {"selection": ledger.LAST})
    )
    trained = ledger.training(flags, flag_roles())
    assert (
        ledger.silent(figure, trained) == []
        and ledger.silent(incomplete, trained) == ["crop"]
        and ledger.silent(figure) == ["training"]
    )
    assert ledger.differences(ours, incomplete) == ledger.differences(ours, last) == []
    assert published.rule(last) == "last" and published.rule(figure) == "best_on_test"
    make(tmp_path / "runs", flags, seeds=3)
    line = evaluated(tmp_path)[0]
    assert line["seeds"] == "3" and line["difference"], "the test knows the number of seeds"


def test_a_new_method_stands_beside_all_figures_of_its_conditions(tmp_path, flags):
    make(tmp_path / "runs", flags, group="New", loss="circle", quality=0.7)
    make(tmp_path / "runs", flags, group="Wide", loss="circle", embed_dim=512)
    table_rows = evaluated(tmp_path)
    assert sum(line["group"] == "New" and line["difference"] != "" for line in table_rows) == 23
    assert {line["group"] for line in table_rows if line["published"].startswith("Npair 61.63, GenLifted")} == {"Wide"}
    assert {line["group"] for line in table_rows if line["published"] == "IBC 70.3"} == {"New"}
    (wide,) = [line for line in table_rows if line["published"] == "IBC" and line["group"] == "Wide"]
    assert wide["difference"] and "not stated by the source, so perhaps other: boxes" in wide["remarks"], "under a mark"
    page = (tmp_path / "out" / "index.html").read_text()
    assert "other conditions: not to be compared" in page and "docs/ledger.md" in page
    assert r"p{.22\linewidth}" in (tmp_path / "out" / "cub200_ledger.tex").read_text()


def test_runs_that_recorded_no_weights_and_no_sizes_have_those_that_their_flags_decide(conditions):
    for changes, expected in (
        ({}, {"pretraining": "IMAGENET1K_V1", "crop": "224", "test_resize": "256"}),
        ({"not_pretrained": True}, {"pretraining": "random"}),
        ({"weights": "own.pth"}, {"pretraining": "own.pth"}),
        ({"arch": "mine_frozen"}, {"pretraining": ledger.UNKNOWN}),
        ({"arch": "conv4_normalize"}, {"pretraining": ledger.UNKNOWN}),
        ({"augmentation": "plain"}, {"crop": "227", "test_resize": "256 x 256"}),
        ({"crop_size": 100, "resize_size": 120}, {"crop": "100"}),
        ({"dataset": "csv"}, {"boxes": ledger.UNKNOWN}),
        ({"n_epochs": 0}, {"selection": ledger.UNTRAINED}),
        (
            {"arch": "timm:vit_small_patch16_224.dino_frozen_normalize", "weights": "x"},
            {"backbone": "vit_small_patch16_224"},
        ),
    ):
        result = conditions(**changes)
        assert {name: result[name] for name in expected} == expected, changes


@pytest.mark.long
def test_a_data_set_without_figures_is_said(tmp_path, capsys):
    for folder, names in (("runs", {"G": "glyphs"}), ("both", {"G": "glyphs", "C": "cub200"})):
        make_runs(tmp_path / folder, {name: {"dataset": dataset} for name, dataset in names.items()}, epochs=2)
        out = run_folders.evaluated(tmp_path, "--compare_to", "ledger", runs=folder, out=f"of_{folder}")
        note = "--compare_to ledger: no figures on glyphs in a metric that was recorded; there are some on cub200"
        assert note in capsys.readouterr().out and note in (out / "index.html").read_text()
        assert (out / "glyphs_selected.md").exists() and not (out / "glyphs_ledger.md").exists()
        assert (out / "cub200_ledger.md").exists() == (folder == "both")


def test_leaving_out_queries_without_a_match_is_plain_for_re_identification_alone(defaults):
    for changes, expected in (
        ({"dataset": "market1501", "eval_skip_unmatched": 1}, {}),
        ({"dataset": "glyphs", "glyphs_protocol": "reid", "eval_skip_unmatched": 1}, {}),
        ({"dataset": "market1501", "eval_skip_unmatched": 0}, {"eval_skip_unmatched": 0}),
        ({"dataset": "glyphs", "eval_skip_unmatched": 1}, {"eval_skip_unmatched": 1}),
    ):
        assert (
            flag_roles().of_evaluation({**defaults, "evaltypes": ["discriminative"], **changes}, defaults) == expected
        )
