"""Damaged and foreign files in a run folder: one line that names the file, or the run goes on; nothing of the run is lost."""

import json
import shutil

import pytest
import torch
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import main
import parameters
from runs import RunFolder, checkpoint
from utilities.errors import UserError

LAST, BEST = checkpoint.LAST, "checkpoint_Test_discriminative_map_r.pth.tar"
FOREIGN = [b"", b"\xff\xfe\x00 noise" * 9, b"- 1", b"hello", b"bs: [1, 2", b"a: " + b"[" * 3000 + b"]" * 3000, b"{}", b"[]", b'{"selected": 1}', b"~"]


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
    assert said is not None and all(word in said for word in words), said
    assert contents(folder) == before
    return said


READERS = {  # file -> what reads it, by which the error is named
    "parameters.yaml": lambda run: run.flags,
    "summary.json": lambda run: run.selected,
    LAST: lambda run: run.state,
    BEST: lambda run: run.network(),
    "CSV_Logs/metrics.csv": lambda run: run.metrics,
}
DAMAGE = st.one_of(
    st.tuples(st.just("cut"), st.floats(0, 0.99)),
    st.tuples(st.just("flip"), st.floats(0, 0.99)),
    st.tuples(st.just("foreign"), st.sampled_from(FOREIGN)),
)


@settings(max_examples=120, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(sorted(READERS)), DAMAGE)
def test_a_damaged_file_is_read_or_refused_in_one_line_that_names_it(trained_run, name, damage):
    path, (kind, about) = trained_run / name, damage
    whole = path.read_bytes()
    place = int(len(whole) * about) if kind != "foreign" else 0
    path.write_bytes({
        "cut": lambda: whole[:place], "flip": lambda: whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :], "foreign": lambda: about,
    }[kind]())  # fmt: skip
    try:
        READERS[name](RunFolder(trained_run))
        assert kind != "foreign" or about == b"{}" and name == "CSV_Logs/metrics.csv", "read what is no such file"
    except UserError as error:
        assert path.name in str(error) and len(str(error).splitlines()) == 1
    finally:
        path.write_bytes(whole)


@pytest.mark.parametrize("name", ["resume", "evaluate", "reproduce"])
def test_foreign_parameters_are_refused(trained_run, name):
    for content in FOREIGN:
        (trained_run / "parameters.yaml").write_bytes(content)
        refused(name, trained_run, "parameters.yaml")
    (trained_run / "parameters.yaml").unlink()
    (trained_run / "parameters.yaml").mkdir()
    refused(name, trained_run, "parameters.yaml")


def test_a_wrong_value_in_parameters_is_refused(trained_run):
    flags = yaml.safe_load((trained_run / "parameters.yaml").read_text())
    for line in ("bs: x", "bs: [8]", "tau: [[1]]", "seed: 2001-01-01", "arch: nothing50", "loss: nothing", "lr: .nan", "evaluation_metrics: map_r",
                 "storage_metrics: []", "seed: !!python/object:a {}", "seed: {a: 1}", "no_records: 'yes'"):  # fmt: skip
        kept = {name: value for name, value in flags.items() if name != line.partition(":")[0]}
        (trained_run / "parameters.yaml").write_text(yaml.safe_dump(kept) + line + "\n")
        refused("resume", trained_run)


def test_damaged_changes_and_plans_are_refused(trained_run):
    (trained_run / "configs").mkdir()
    for content in FOREIGN[:6]:
        (trained_run / "configs" / "parameters.yaml").write_bytes(content)
        refused("reproduce", trained_run, "configs")
    (trained_run / "configs" / "parameters.yaml").unlink()
    for content in (*FOREIGN, b"- {until: null, flags: 3}", b"- {flags: {}}", b"- {until: null, flags: {}}\n- {until: [2], flags: {}}"):
        (trained_run / "configs" / "reproduction.yaml").write_bytes(content)
        refused("resume", trained_run, "reproduction.yaml")


NO_CHECKPOINT = {
    "empty": lambda path: path.write_bytes(b""),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-999]),
    "a folder": lambda path: path.unlink() or path.mkdir(),
    "a network": lambda path: torch.save(torch.nn.Linear(2, 2).state_dict(), path),
    "a pickle": lambda path: torch.save(pytest.approx, path),
}


@pytest.mark.parametrize("damage", NO_CHECKPOINT.values(), ids=NO_CHECKPOINT)
def test_a_damaged_checkpoint_is_refused_and_the_other_is_the_way_out(trained_run, tmp_path, damage):
    both = trained_run, shutil.copytree(trained_run, tmp_path / "other" / "Run_s1")
    damage(both[0] / LAST)
    assert "--resume best" in refused("resume", both[0], LAST)
    refused("evaluate", both[0], LAST)
    assert (both[0] / LAST).is_dir() or (job("best", both[0]) is None and RunFolder(both[0]).progress.epochs == 2)
    damage(both[1] / BEST)
    for name in ("best", "evaluate"):
        refused(name, both[1], BEST)
    assert job("resume", both[1]) is None and RunFolder(both[1]).progress.epochs == 3


@pytest.mark.parametrize("part", ["epoch", "run", "state_dict", "random_states", "optimizer", "criterion", "scheduler", "scaler"])
def test_a_part_that_a_checkpoint_lacks_is_named(trained_run, part):
    content = torch.load(trained_run / LAST, weights_only=True)
    for wrong in ({name: value for name, value in content.items() if name != part}, {**content, part: {"x": 1}}):
        torch.save(wrong, trained_run / LAST)
        if part not in wrong or part not in ("epoch", "scaler"):  # of these the value is not looked at
            refused("resume", trained_run, LAST)


def test_a_checkpoint_of_another_network_is_refused(trained_run):
    flags = yaml.safe_load((trained_run / "parameters.yaml").read_text()) | {"embed_dim": 9}
    (trained_run / "parameters.yaml").write_text(yaml.safe_dump(flags))
    refused("resume", trained_run, LAST)
    refused("evaluate", trained_run, "checkpoint_")


def test_what_only_describes_the_run_is_written_anew(trained_run, resumed_run):
    for name in ("environment.yaml", "summary.json", "Parameter_Info.txt"):
        (trained_run / name).write_bytes(b"\xff\x00 noise")
        (resumed_run / name).unlink()
        (resumed_run / name).mkdir()
    (trained_run / "configs").write_text("x")
    assert job("resume", trained_run) is None and RunFolder(trained_run).selected["epoch"] is not None
    assert (trained_run / "configs.damaged").read_text() == "x"
    assert job("resume", resumed_run) is None
    assert all((resumed_run / f"{name}.damaged").is_dir() for name in ("environment.yaml", "summary.json", "Parameter_Info.txt"))


def test_a_damaged_evaluation_is_left_alone(trained_run):
    name = f"evaluation_{BEST.removeprefix('checkpoint_').removesuffix('.pth.tar')}"
    for content in ("", "[" * 10**5):
        (trained_run / f"{name}.json").write_text(content)
        assert job("evaluate", trained_run) is None and (trained_run / f"{name}.json").read_text() == content
        assert json.loads((trained_run / f"{name}_1.json").read_text())["values"]
        (trained_run / f"{name}_1.json").unlink()


def test_damaged_folds(cross_validated):
    for path in list((cross_validated / "meta").glob("*.json")):
        path.write_text("3")
    assert job("resume", cross_validated, "--n_epochs", "1") is None
    assert all(json.loads((cross_validated / "meta" / f"{name}.json").read_text())["values"] for name in ("separated", "concatenated"))
    assert {path.read_text() for path in (cross_validated / "meta").glob("*.damaged*")} == {"3"}
    (cross_validated / "fold_1" / LAST).write_bytes(b"noise")
    assert f"fold_1/{LAST}" in refused("resume", cross_validated)
    assert job("resume", cross_validated, "--resume", "best") is None and RunFolder(cross_validated / "fold_1").progress.epochs == 3
    shutil.rmtree(cross_validated / "fold_1")
    (cross_validated / "fold_1").write_text("x")
    for name in ("resume", "evaluate"):
        assert "fold_1" in job(name, cross_validated) and (cross_validated / "fold_1").read_text() == "x"
    (cross_validated / "parameters.yaml").write_bytes(FOREIGN[1])
    refused("resume", cross_validated / "fold_0", "parameters.yaml")
