"""Damaged run folders under resume, evaluate, reproduce: one line that names what is damaged, or the run goes on; nothing of it is lost."""

import json
import shutil

import pytest
import torch
import yaml

import main
import parameters
from runs import RunFolder, checkpoint
from tests import builders
from utilities.errors import UserError

LAST, BEST = checkpoint.LAST, "checkpoint_Test_discriminative_map_r.pth.tar"
DEEP = 3000
FLAGS = ["--loss", "margin", "--batch_mining", "distance", *builders.SHORT_RUN, "--resize_size", "18", "--crop_size", "16"]


def trained(data, folder, *more):
    words = ["--dataset", "folder", "--dataset_folder_path", str(data), "--save_path", str(folder), "--savename", "Run"]
    return main.main(parameters.resolve([*words, *FLAGS, "--n_epochs", "2", *more])).folder


@pytest.fixture(autouse=True)
def no_drawing(monkeypatch):
    """What --evaluate draws takes longer than all else here."""
    monkeypatch.setattr(main.outputs, "draw_pictures", lambda *given: [])


@pytest.fixture(scope="module")
def whole(folder_data, tmp_path_factory):
    return trained(folder_data, tmp_path_factory.mktemp("whole"), "--data_sampler", "d2_coreset", "--data_batchmatch_bigbs", "16")


@pytest.fixture(scope="module")
def crossed(data, tmp_path_factory):
    folds = ["--split_scheme", "class_disjoint", "--split_sets", "2", "--split_partitions", "2", "--final_test", "--n_epochs", "1"]
    return trained(data, tmp_path_factory.mktemp("crossed"), *folds)


@pytest.fixture
def run(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "Run")


@pytest.fixture
def cross(crossed, tmp_path):
    return shutil.copytree(crossed, tmp_path / "Run")


def job(name, folder, *more):
    """Resume, evaluate or reproduce the run in a folder, in this process. Gives the error's line, or None where it goes well."""
    words = {
        "resume": ["--resume_from", str(folder), "--n_epochs", "3"],
        "best": ["--resume_from", str(folder), "--resume", "best"],
        "evaluate": ["--resume_from", str(folder), "--evaluate", "--splits_to_eval", "test"],
        "reproduce": ["--reproduce_results", str(folder), "--save_path", str(folder.parent / "again"), "--savename", "Again"],
    }[name]
    try:
        main.main(parameters.resolve([*words, *more]))
    except UserError as error:
        assert len(str(error).splitlines()) == 1, error
        return str(error)
    return None


def contents(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}


def refused(name, folder, *words):
    """The job is refused in one line that holds the words, and leaves the folder as it was."""
    before = contents(folder)
    said = job(name, folder)
    assert said is not None, "it went on"
    assert all(word in said for word in words), said
    assert contents(folder) == before
    return said


# --------------------------------------------------------------------------------------------------------- parameters.yaml
VALUES = [
    "bs: x", "bs: [8]", "bs: -1", "bs: 1.5", "bs: true", "tau: null_", "tau: [a]", "tau: []", "tau: 3", "tau: [[1]]", "seed: 1.5", "seed: 2001-01-01",
    "seed: {a: 1}", "n_epochs: many", "n_epochs: 2001-01-01", "arch: nothing50", "arch: 3", "loss: nothing", "batch_mining: [distance]",
    "data_sampler: nothing", "embed_dim: wide", "lr: fast", "lr: .nan", "splits_to_eval: [moon]", "evaluation_metrics: [nothing]",
    "evaluation_metrics: map_r", "split_scheme: nothing", "split_scheme: 3", "no_records: 'yes'", "optim: 7", "trainer: nothing",
    'group: "a\\0b"', "storage_metrics: []", "seed: !!python/object:a {}", "seed: !!bool x", "seed: !!int ''", "seed: !!timestamp x", "3: 4", "? [a]\n: 1",
]  # fmt: skip


RESUME_AND_LONG = ["resume", *(pytest.param(name, marks=pytest.mark.long) for name in ("evaluate", "reproduce"))]


@pytest.mark.parametrize("name", RESUME_AND_LONG)
@pytest.mark.parametrize("line", VALUES)
def test_a_wrong_value_in_parameters_is_one_line(run, name, line):
    flags = yaml.safe_load((run / "parameters.yaml").read_text())
    flags.pop(line.partition(":")[0], None)
    (run / "parameters.yaml").write_text(yaml.safe_dump(flags) + line + "\n")
    refused(name, run)


BAD_YAML = {
    "empty": b"", "noise": b"\xff\xfe\x00 noise", "a list": b"- 1", "a text": b"hello", "cut": b"bs: [1, 2", "tabs": b"bs:\t\t- 1\n\t:",
    "endless": b"a: &a [*a]\n", "merged": b"a: &a\n  <<: *a\n", "deep": b"a: " + b"[" * DEEP + b"]" * DEEP, "laughs":
    b"a: &a [x, x]\n" + b"".join(b"%c: &%c [*%c, *%c, *%c, *%c]\n" % (c, c, c - 1, c - 1, c - 1, c - 1) for c in range(98, 122)),
    "number": b"bs: " + b"9" * 5000, "date": b"bs: 2001-99-99", "two documents": b"bs: 1\n---\nbs: 2\n", "nothing": b"~",
}  # fmt: skip


@pytest.mark.parametrize("name", RESUME_AND_LONG)
@pytest.mark.parametrize("content", BAD_YAML.values(), ids=BAD_YAML)
def test_parameters_that_are_none_are_one_line(run, name, content):
    (run / "parameters.yaml").write_bytes(content)
    refused(name, run, "parameters.yaml")


@pytest.mark.parametrize("name", RESUME_AND_LONG[::2])
@pytest.mark.parametrize("content", BAD_YAML.values(), ids=BAD_YAML)
@pytest.mark.parametrize("place", ["configs", "configs/resume_training_config_diffs_1"])
def test_damaged_changes_are_one_line_or_are_not_read(run, name, content, place):
    (run / place).mkdir(parents=True)
    (run / place / "parameters.yaml").write_bytes(content)
    if name == "reproduce":
        refused(name, run, place)
    else:  # a change is recorded, so the history is read
        assert place in job(name, run, "--resume_allow_changes", "--lr", ".01")


@pytest.mark.parametrize("content", [
    *BAD_YAML.values(), b"[]", b"- {until: null, flags: 3}", b"- {until: x, flags: {}}\n- {until: null, flags: {}}", b"- {flags: {}}",
    b"- {until: [], flags: {}}\n- {until: null, flags: {}}", b"- {until: [-1], flags: {}}\n- {until: null, flags: {}}",
    b"- {until: null, flags: {}}\n- {until: [2], flags: {}}", b"- {until: [9, 2], flags: {}}\n- {until: null, flags: {bs: x}}",
])  # fmt: skip
def test_a_damaged_plan_of_a_reproduction_is_one_line(run, content):
    (run / "configs").mkdir()
    (run / "configs" / "reproduction.yaml").write_bytes(content)
    refused("resume", run, str(run))


def test_a_file_in_place_of_configs(run):
    (run / "configs").write_text("x")
    assert job("reproduce", run) is None and (run / "configs").read_text() == "x"
    assert job("resume", run) is None and (run / "configs.damaged").read_text() == "x"
    assert (run / "configs" / "resume_training_config_diffs_2" / "parameters.yaml").exists()


# -------------------------------------------------------------------------------------------------------------- checkpoints
DROP = object()
PARTS = {
    "epoch": [DROP, -1, "2", 1.5, None, True, 2**70], "state_dict": [DROP, {}, 3, {"a": 1}, {1: torch.zeros(1)}, {"a": torch.zeros(1)}],
    "run": [DROP, None, {}, []], "random_states": [DROP, {}, None, [], {"python": [], "numpy": [], "torch": [], "cuda": []}],
    "optimizer": [DROP, {}, [], {"state": {}, "param_groups": []}, {"state": 3, "param_groups": [{}]}], "criterion": [DROP, {}, [], {"x": 1}],
    "scheduler": [DROP, {}, [], {"last_epoch": "x"}, {"last_epoch": None}], "scaler": [DROP, [], {"scale": "x"}],
    "sampler": [DROP, [], {"storage": 3}, {"storage": torch.zeros(3, 8)}, {"storage": torch.zeros(24, 7)}, {"storage": torch.zeros(24, 8).long()}],
}  # fmt: skip
INSIDE = [
    *[("run", part, value) for part, values in {
        "best": [DROP, 3, {"test": 3}, {"test": {"map_r": 1}}, {"test": {"map_r": {"value": "x", "epoch": 1}}}],
        "selected": [DROP, None, {}, {"epoch": -1, "values": {}}, {"epoch": "x", "values": {}}, {"epoch": 1, "values": {"test": {"map_r": "x"}}},
                     {"epoch": 1, "values": {}, "checkpoint": 3}, {"epoch": 1, "values": {}, "checkpoint": "../Run/" + LAST}],
        "last": [DROP, [], {"test": 1}], "seconds": [DROP, "x", None], "untrained": [DROP, [], {"0": 1}], "stopped": [DROP, 3, "no"],
        "steps": ["x", -1, None],
    }.items() for value in values],
    *[("random_states", part, value) for part, values in {
        "python": [DROP, [], [3, ["x"] * 625, None], [3, [0] * 5, None]], "torch": [DROP, torch.zeros(3), [], torch.zeros(3, dtype=torch.uint8)],
        "numpy": [DROP, ["MT19937", torch.zeros(3), 0, 0, 0.0], ["x", torch.zeros(624), 0, 0, 0.0], ["MT19937", torch.zeros(624), 10**9, 0, 0.0]],
    }.items() for value in values],
    *[("optimizer", "param_groups", value) for value in ([], [{}], [{"lr": 1.0, "initial_lr": 1.0, "params": ["x"]}], 3)],
    *[("optimizer", "state", value) for value in (3, {0: 3}, {0: {"step": 3}}, {0: {name: torch.zeros(3) for name in ("step", "exp_avg", "exp_avg_sq")}})],
]  # fmt: skip


def falsify(path, value, *keys):
    """Set or drop one entry of a checkpoint."""
    content = place = torch.load(path, weights_only=True)
    for key in keys[:-1]:
        place = place[key]
    place.pop(keys[-1]) if value is DROP else place.update({keys[-1]: value})
    torch.save(content, path)


@pytest.mark.parametrize("part, value", [(part, value) for part, values in PARTS.items() for value in values])
def test_a_false_part_of_the_last_checkpoint_is_named(run, part, value):
    falsify(run / LAST, value, part)
    refused("resume", run, LAST, {"state_dict": "", "run": "run"}.get(part, part))


@pytest.mark.parametrize("part, entry, value", INSIDE)
def test_a_false_entry_of_the_last_checkpoint_is_named(run, part, entry, value):
    falsify(run / LAST, value, part, entry)
    refused("resume", run, LAST, part)


NO_CHECKPOINT = {
    "empty": lambda path: path.write_bytes(b""),
    "noise": lambda path: path.write_bytes(b"\xff\x00 noise" * 99),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-999]),
    "its head": lambda path: path.write_bytes(path.read_bytes()[:100]),
    "a folder": lambda path: path.unlink() or path.mkdir(),
    "a list": lambda path: torch.save([1], path),
    "a network": lambda path: torch.save(torch.nn.Linear(2, 2).state_dict(), path),
    "a pickle": lambda path: torch.save(pytest.approx, path),
}


@pytest.mark.parametrize("name", ["resume", "evaluate"])
@pytest.mark.parametrize("damage", NO_CHECKPOINT.values(), ids=NO_CHECKPOINT)
def test_no_checkpoint_is_one_line_and_resume_best_the_way_out(run, name, damage):
    damage(run / LAST)
    said = refused(name, run, LAST)
    assert "--resume best" in said
    if not (run / LAST).is_dir():
        assert job("best", run) is None and RunFolder(run).progress.epochs == 2


@pytest.mark.parametrize("name", ["best", "evaluate"])
@pytest.mark.parametrize("damage", [*NO_CHECKPOINT.values(), lambda path: path.unlink()], ids=[*NO_CHECKPOINT, "missing"])
def test_a_damaged_best_checkpoint_is_one_line_and_the_last_goes_on(run, name, damage):
    damage(run / BEST)
    refused(name, run, BEST)
    assert job("reproduce", run) is None


def test_the_last_checkpoint_goes_on_without_the_best(run):
    (run / BEST).unlink()
    assert job("resume", run) is None and RunFolder(run).progress.epochs == 3


def test_a_checkpoint_of_another_network_is_named(run):
    flags = yaml.safe_load((run / "parameters.yaml").read_text()) | {"embed_dim": 9}
    (run / "parameters.yaml").write_text(yaml.safe_dump(flags))
    refused("resume", run, LAST)
    refused("evaluate", run, "checkpoint_")


# ------------------------------------------------------------------------------------------------------ other files and folders
def test_environment_and_summary_are_worth_no_run(run):
    for name in ("environment.yaml", "summary.json", "Parameter_Info.txt"):
        (run / name).write_bytes(b"\xff\x00 noise")
    assert job("resume", run) is None and RunFolder(run).selected["epoch"] is not None


@pytest.mark.parametrize("name", ["resume", "evaluate", "reproduce"])
def test_a_folder_in_place_of_parameters_is_one_line(run, name):
    (run / "parameters.yaml").unlink()
    (run / "parameters.yaml").mkdir()
    refused(name, run, "parameters.yaml")


def test_folders_in_place_of_what_only_describes_the_run_are_set_aside(run):
    names = ("environment.yaml", "summary.json", "Parameter_Info.txt")
    for name in names:
        (run / name).unlink()
        (run / name).mkdir()
    assert job("resume", run) is None
    assert all((run / name).is_file() and (run / f"{name}.damaged").is_dir() for name in names)


@pytest.mark.parametrize("name", ["evaluate", "reproduce", "best"])
def test_a_file_in_place_of_the_run_is_one_line(run, name):
    shutil.rmtree(run)
    run.write_text("x")
    assert str(run) in job(name, run) and run.read_text() == "x"


def test_a_damaged_evaluation_is_left_alone(run):
    name = f"evaluation_{BEST.removeprefix('checkpoint_').removesuffix('.pth.tar')}"
    for content in ("", "[]", "[" * 10**5, '"x"', "\x00"):
        (run / f"{name}.json").write_text(content)
        assert job("evaluate", run) is None and (run / f"{name}.json").read_text() == content
        (run / f"{name}_1.json").unlink()
    (run / f"{name}.json").unlink()
    (run / f"{name}.json").mkdir()
    shutil.rmtree(run / f"{name}_1")
    (run / f"{name}_1").write_text("x")
    assert job("evaluate", run) is None and json.loads((run / f"{name}_1.json").read_text())["values"]


def test_a_damaged_split_file_of_the_run_is_not_read_while_its_own_is_there(run):
    flags = yaml.safe_load((run / "parameters.yaml").read_text())
    for value in ("~nobody/x.json", "", "[" * 9, 7):
        (run / "parameters.yaml").write_text(yaml.safe_dump(flags | {"split_file": value, "split_scheme": "predefined"}))
        (run / "split_file.json").write_text("[" * 10**5)
        for name in ("resume", "evaluate", "reproduce"):
            refused(name, run, "split_file")


# ---------------------------------------------------------------------------------------------------------- cross-validation
@pytest.mark.parametrize("content", [
    "", "3", "[" * 10**5,
    '{"folds": [0, 1], "epochs": [1, 1], "values": {"val": {"map_r": {"mean": "x"}}}, "embeddings": "x"}',
])  # fmt: skip
def test_damaged_results_over_folds_are_made_anew(cross, content):
    for path in list((cross / "meta").glob("*.json")):
        path.write_text(content)
    assert job("resume", cross, "--n_epochs", "1") is None
    assert all(json.loads((cross / "meta" / f"{name}.json").read_text())["values"] for name in ("separated", "concatenated"))
    assert {path.read_text() for path in (cross / "meta").glob("*.damaged*")} == {content}
    (cross / "meta" / "evaluation_separated.json").write_text(content)
    assert job("evaluate", cross, "--splits_to_eval", "test") is None
    assert (cross / "meta" / "evaluation_separated.json").read_text() == content


def test_meta_that_is_a_file_or_holds_folders(cross):
    shutil.rmtree(cross / "meta")
    (cross / "meta").write_text("x")
    assert job("resume", cross, "--n_epochs", "1") is None and (cross / "meta.damaged").read_text() == "x"
    for name in ("separated", "concatenated"):
        (cross / "meta" / f"{name}.json").unlink()
        (cross / "meta" / f"{name}.json").mkdir()
    assert job("resume", cross, "--n_epochs", "1") is None and (cross / "meta" / "concatenated.json").is_file()


@pytest.mark.parametrize("name", ["resume", "evaluate"])
def test_a_fold_that_is_a_file_is_one_line(cross, name):
    shutil.rmtree(cross / "fold_1")
    (cross / "fold_1").write_text("x")
    assert "fold_1" in job(name, cross) and (cross / "fold_1").read_text() == "x"


def test_a_damaged_checkpoint_of_one_fold(cross):
    (cross / "fold_1" / LAST).write_bytes(b"noise")
    assert f"fold_1/{LAST}" in refused("resume", cross)
    assert f"fold_1/{LAST}" in job("evaluate", cross)
    assert job("reproduce", cross) is None
    assert job("resume", cross, "--resume", "best") is None and RunFolder(cross / "fold_1").progress.epochs == 3


@pytest.mark.parametrize(
    "content", ["", "3", '{"selected": {"epoch": 1, "values": {"val": {"map_r": "x"}}}}', '{"selected": {"epoch": "x", "values": {}}}']
)
def test_a_damaged_summary_of_one_fold(cross, content):
    (cross / "fold_1" / "summary.json").write_text(content)
    said = job("resume", cross, "--n_epochs", "1")
    assert said is None or "fold_1/summary.json" in said


@pytest.mark.parametrize("content", [BAD_YAML[name] for name in ("empty", "noise", "deep", "laughs")])
def test_damaged_flags_of_a_cross_validation(cross, content):
    (cross / "parameters.yaml").write_bytes(content)
    for name in ("resume", "evaluate", "reproduce"):
        refused(name, cross, "parameters.yaml")
    refused("resume", cross / "fold_0", "parameters.yaml")
