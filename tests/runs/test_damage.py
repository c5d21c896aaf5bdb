"""Damaged and foreign files of a run or a search: one line with the file's name and the way out; nothing is lost."""

import contextlib
import itertools
import json
import re
import shutil
import sqlite3
from argparse import Namespace

import pytest
import torch
import yaml
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

import main
from runs import RunFolder, checkpoint
from search import __main__ as searcher
from search import report
from search.settings import changes
from search.study import DATABASE
from tests.kit.refusals import refused
from tests.kit.runs import resolve, run_main
from tests.search.test_search import RANGES, command, counts, without_training
from utilities.errors import UserError

LAST = checkpoint.LAST
BEST = "checkpoint_Test_discriminative_map_r.pth.tar"
WAY_OUT = re.compile(
    "put a copy|--resume|delete it|move it away|start the reproduction anew|another --group", re.IGNORECASE
)
FOREIGN = [b"", b"\xff\xfe\x00 noise" * 9, b"- 1", b"hello", b"bs: [1, 2", b"{}", b"[]", b'{"selected": 1}', b"~"]


@pytest.fixture(scope="session")
def plan(folder_data, tmp_path_factory):
    """The plan of a search."""
    return searcher.plan(command(folder_data, tmp_path_factory.mktemp("searched"), *RANGES, counts(3, 1)))


def search(plan):
    """A search without training; the runs that it would have trained."""
    with pytest.MonkeyPatch.context() as patch:
        trained = without_training(patch)
        searcher.trials_and_report(plan, main.main)
    return trained


@pytest.fixture(scope="session")
def copied(trained_once, resumed_once, plan, tmp_path_factory):
    """Context of a new copy of the folder `run`, `changed` (a run that was resumed with another flag) or `search`."""
    search(plan)
    place = tmp_path_factory.mktemp("copies")
    numbers = itertools.count()
    originals = {"run": trained_once, "changed": resumed_once}
    originals["search"] = shutil.copytree(plan.folder, place / plan.folder.name)

    @contextlib.contextmanager
    def copy(name):
        root = place / str(next(numbers))
        folder = plan.folder if name == "search" else root / "runs" / "folder" / originals[name].name
        shutil.rmtree(folder, ignore_errors=True)
        yield shutil.copytree(originals[name], folder)
        shutil.rmtree(root, ignore_errors=True)

    return copy


@pytest.fixture(scope="session")
def jobs(plan):
    """What reads a folder, by name; a search gives the runs that it trained."""

    def start(*words):
        return main.main(resolve(*words))

    return {
        "flags": lambda folder: RunFolder(folder).flags,
        "summary": lambda folder: RunFolder(folder).selected,
        "state": lambda folder: RunFolder(folder).state,
        "network": lambda folder: RunFolder(folder).network(),
        "metrics": lambda folder: RunFolder(folder).metrics,
        "resume": lambda folder: start("--resume_from", folder, "--n_epochs 3"),
        "best": lambda folder: start("--resume_from", folder, "--resume best"),
        "evaluate": lambda folder: start("--resume_from", folder, "--evaluate --splits_to_eval test"),
        "reproduce": lambda folder: start(
            "--reproduce_results", folder, "--save_path", folder.parents[2] / "again", "--savename Again"
        ),
        "search": lambda folder: search(plan),
        "changes": lambda folder: changes(plan),
        "reproductions": lambda folder: report.how_far(folder, 3, 1),
    }


def contents(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


def check(job, folder, name, must_fail=True):
    """The line, with the file's name and a way out, in which the job ends, changing nothing; else it goes well: ""."""
    before = contents(folder)
    try:
        job(folder)
    except UserError as error:
        message = str(error)
        assert name in message and len(message.splitlines()) == 1 and WAY_OUT.search(message), message
        assert contents(folder) == before, f"changed: {message}"
        return message
    assert not must_fail, f"{name} was read as if it were sound"
    return ""


READ = [
    ("run", "parameters.yaml", "flags"),
    ("run", "summary.json", "summary"),
    ("run", LAST, "state"),
    ("run", BEST, "network"),
    ("run", "CSV_Logs/metrics.csv", "metrics"),
    ("search", "search.yaml", "changes"),
    ("search", "reproductions.yaml", "reproductions"),
]
WORKED_ON = [
    *(("run", "parameters.yaml", job) for job in ("resume", "evaluate", "reproduce")),
    ("run", LAST, "resume"),
    ("run", LAST, "evaluate"),
    ("run", BEST, "best"),
    ("run", BEST, "evaluate"),
    ("changed", "configs/parameters.yaml", "reproduce"),
    ("changed", "configs/reproduction.yaml", "resume"),
    ("search", "search.yaml", "search"),
    ("search", "reproductions.yaml", "search"),
    ("search", DATABASE, "search"),
]


ALIEN = st.just("foreign"), st.sampled_from([*FOREIGN, None])
CASES = st.one_of(
    st.tuples(st.sampled_from(READ), st.sampled_from(["cut", "flipped"]), st.floats(0, 0.99)),
    st.tuples(st.sampled_from(READ), *ALIEN),
    st.tuples(st.sampled_from(WORKED_ON), *ALIEN),
)
# an example is small as it is
SMALL = settings(deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate])


def damaged(copied, jobs, case):
    """Cut short, with flipped bits, perhaps still sound, or foreign: a file, or (None) a folder."""
    (owner, file, job), kind, change = case
    with copied(owner) as folder:
        path = folder / file
        content = path.read_bytes() if path.exists() else b""
        if change is None:
            path.unlink(missing_ok=True)
            path.mkdir()
        elif kind == "foreign":
            path.write_bytes(change)
        else:
            place = int(len(content) * change)
            tail = b"" if kind == "cut" else bytes([content[place] ^ 0x55]) + content[place + 1 :]
            path.write_bytes(content[:place] + tail)
        named_file = "" if kind == "flipped" else path.name
        check(jobs[job], folder, named_file, kind == "foreign")


@settings(SMALL, max_examples=30)
@given(CASES)
# SQLite takes a file of one byte for an empty one
@example((("search", DATABASE, "search"), "foreign", b"~"))
def test_a_damaged_file_is_refused_in_one_line_that_names_it_and_the_way_out(copied, jobs, case):
    damaged(copied, jobs, case)


@pytest.mark.long
@settings(SMALL, max_examples=400)
@given(CASES)
def test_any_damaged_file_is_refused(copied, jobs, case):
    damaged(copied, jobs, case)


def sql(*statements):
    def change(path):
        with contextlib.closing(sqlite3.connect(path)) as connection, connection:
            for statement in statements:
                connection.execute(statement)

    return change


def text(change):
    def change_file(path):
        content = path.read_text() if path.exists() else ""
        path.write_text(change(content))

    return change_file


def part(name, value=None):
    """A checkpoint without the part, or with another value of it."""

    def change(path):
        content = torch.load(path, weights_only=True)
        del content[name]
        if value is not None:
            content[name] = value
        torch.save(content, path)

    return change


LAST_TRIAL = "where trial_id = (select max(trial_id) from trials)"
NO_LAST_TRIAL = [
    f"delete from {table} {LAST_TRIAL}" for table in ("trial_values", "trial_user_attributes", "trial_params", "trials")
]


def half(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def to(content):
    return text(lambda _: content)


PARTS = ("epoch", "run", "state_dict", "random_states", "optimizer", "scaler")
OTHER_PARTS = ("run", "state_dict", "random_states", "optimizer", "scheduler")
DEEP = to("a: " + "[" * 3000 + "]" * 3000)
NO_CHECKPOINTS = (
    lambda path: path.write_bytes(path.read_bytes()[:-999]),
    lambda path: torch.save(torch.nn.Linear(2, 2).state_dict(), path),
    lambda path: torch.save(pytest.approx, path),
)
NO_STAGES = ("- {until: null, flags: 3}", "- {flags: {}}", "- {until: null, flags: {}}\n- {until: [2], flags: {}}")
# folder, file, job, how the file is changed, what is said
KNOWN = [
    *(("run", LAST, "resume", part(name), "") for name in PARTS),
    *(("run", LAST, "resume", part(name, {"x": 1}), "") for name in OTHER_PARTS),
    *(("run", LAST, "resume", change, "") for change in NO_CHECKPOINTS),
    *(("run", BEST, "evaluate", change, "") for change in NO_CHECKPOINTS),
    *(("changed", "configs/reproduction.yaml", "resume", to(plan), "holds no stages") for plan in NO_STAGES),
    ("run", "parameters.yaml", "resume", DEEP, ""),
    ("search", "search.yaml", "changes", DEEP, ""),
    ("search", "search.yaml", "search", to("flags: {}\nranges:\n"), ""),
    # as a full disk leaves it
    ("search", "search.yaml", "changes", text(lambda content: content[: content.rindex("- ")]), ""),
    ("search", "reproductions.yaml", "reproductions", to("trial: trial_0\n"), ""),
    ("search", "reproductions.yaml", "search", text(lambda content: content[: content.rindex("values:") + 7]), ""),
    ("search", "trials.csv", "search", to("\0\n\0"), ""),
    ("search", "trials.csv", "search", to("trial,value\ntrial_0,1\n"), ""),
    ("search", "trials.csv", "search", text(lambda content: content.replace("complete,0.", "complete,x", 1)), ""),
    ("search", DATABASE, "search", lambda path: path.unlink(), "--study_storage"),
    ("search", DATABASE, "search", half, "is damaged"),
    ("search", DATABASE, "search", sql("delete from studies"), "does not know trial_0"),
    ("search", DATABASE, "search", sql(*NO_LAST_TRIAL), "does not know trial_2"),
    ("search", DATABASE, "search", sql(f"delete from trial_values {LAST_TRIAL}"), "does not know the value of trial_2"),
    ("search", DATABASE, "search", sql("update trial_values set value = value + 1"), "the value of trial_0"),
]


def test_what_a_sound_file_lacks_is_refused(copied, jobs):
    for owner, file, job, change, words in KNOWN:
        with copied(owner) as folder:
            change(folder / file)
            assert words in check(jobs[job], folder, (folder / file).name)


@pytest.mark.long
def test_a_study_is_compared_with_folders_and_with_the_table_and_another_one_is_refused(copied, jobs, plan):
    """Each of the two tells by itself; folders and rows that are gone are no damage."""
    for gone in ("trial_2", "trials.csv"):
        with copied("search") as folder:
            database = (folder / DATABASE).read_bytes()
            (folder / gone).rename(folder / f"moved_{gone}")
            sql(*NO_LAST_TRIAL)(folder / DATABASE)
            assert "does not know trial_2" in check(jobs["search"], folder, DATABASE)
            (folder / DATABASE).write_bytes(database)
            assert jobs["search"](folder) == []
    with copied("search") as folder:
        options = Namespace(**{**vars(plan.options), "study_storage": f"sqlite:///{folder}.db"})
        elsewhere = plan._replace(options=options)
        check(lambda folder: search(elsewhere), folder, "the study in --study_storage is damaged, or of another")
        (folder / DATABASE).unlink()
        (folder / "journal.log").write_bytes(b"{}")
        with refused("of an earlier version"):
            jobs["search"](folder)


def test_the_way_out_leads_out(copied, jobs):
    with copied("run") as folder:
        (folder / LAST).write_bytes(b"noise")
        assert "--resume best" in check(jobs["resume"], folder, LAST)
        jobs["best"](folder)
        assert RunFolder(folder).progress.epochs == 2
    with copied("run") as folder:
        (folder / BEST).write_bytes(b"noise")
        check(jobs["best"], folder, BEST)
        jobs["resume"](folder)
        assert RunFolder(folder).progress.epochs == 3
    with copied("search") as folder:
        names = ("search.yaml", "trials.csv", "reproductions.yaml")
        whole_run = {name: (folder / name).read_text() for name in names}
        for name in names:
            (folder / name).unlink()
            assert bool(jobs["search"](folder)) == (name == "reproductions.yaml"), name
        assert {name: (folder / name).read_text() for name in names} == whole_run


@pytest.mark.parametrize(
    "name",
    [
        "../../thesis.pth.tar",
        "/etc/hostname",
        "checkpoint_x/../../thesis.pth.tar",
        "thesis",
        "checkpoint_\n.pth.tar\n",
        3,
    ],
)
def test_a_checkpoint_that_names_another_file_is_refused(copied, jobs, name):
    """What is measured is written beside the run under a name made from that of the checkpoint."""
    with copied("run") as folder:
        content = torch.load(folder / LAST, weights_only=True)
        content["run"]["selected"]["checkpoint"] = name
        torch.save(content, folder / LAST)
        for job in ("network", "evaluate"):
            with refused(f"{LAST} is damaged.* it names the checkpoint .* expected checkpoint_….pth.tar"):
                jobs[job](folder)


def test_what_only_describes_the_run_is_written_anew(copied, jobs):
    described = ("environment.yaml", "summary.json", "Parameter_Info.txt")
    with copied("run") as folder:
        for name in described:
            (folder / name).write_bytes(b"\xff\x00 noise")
        (folder / "configs").write_text("x")
        jobs["resume"](folder)
        assert RunFolder(folder).selected["epoch"] is not None and (folder / "configs.damaged").read_text() == "x"
        first = folder / BEST.replace("checkpoint_", "evaluation_").replace(".pth.tar", ".json")
        second = first.with_stem(f"{first.stem}_1")
        # a damaged evaluation is left alone
        for content in ("", "[" * 10**5):
            first.write_text(content)
            jobs["evaluate"](folder)
            assert first.read_text() == content and json.loads(second.read_text())["values"]
            second.unlink()
    with copied("changed") as folder:
        for name in described:
            (folder / name).unlink()
            (folder / name).mkdir()
        jobs["resume"](folder)
        assert all((folder / f"{name}.damaged").is_dir() for name in described)


def test_a_wrong_value_in_parameters_and_those_of_another_network_are_refused(trained_run, jobs):
    path = trained_run / "parameters.yaml"
    flags = yaml.safe_load(path.read_text())
    for line in (
        "bs: x",
        "bs: [8]",
        "tau: [[1]]",
        "seed: 2001-01-01",
        "arch: nothing50",
        "loss: nothing",
        "lr: .nan",
        "evaluation_metrics: map_r",
        "storage_metrics: []",
        "seed: !!python/object:a {}",
        "seed: {a: 1}",
        "no_records: 'yes'",
    ):
        name = line.partition(":")[0]
        path.write_text(yaml.safe_dump({**flags, name: None}).replace(f"\n{name}: null\n", f"\n{line}\n"))
        assert f"\n{line}\n" in path.read_text()
        before = contents(trained_run)
        with refused("."):
            jobs["resume"](trained_run)
        assert contents(trained_run) == before, line
    path.write_text(yaml.safe_dump(flags | {"embed_dim": 9}))
    for job in ("resume", "evaluate"):
        check(jobs[job], trained_run, "checkpoint_")


def test_damaged_folds(cross_validated, jobs):
    def resumed(flags):
        return run_main("--resume_from", cross_validated, flags)

    for path in list((cross_validated / "meta").glob("*.json")):
        path.write_text("3")
    resumed("--n_epochs 1")
    for name in ("separated", "concatenated"):
        assert json.loads((cross_validated / "meta" / f"{name}.json").read_text())["values"]
    assert {path.read_text() for path in (cross_validated / "meta").glob("*.damaged*")} == {"3"}
    (cross_validated / "fold_1" / LAST).write_bytes(b"noise")
    check(jobs["resume"], cross_validated, f"fold_1/{LAST}")
    resumed("--n_epochs 2 --resume best")
    assert RunFolder(cross_validated / "fold_1").progress.epochs == 2
    shutil.rmtree(cross_validated / "fold_1")
    (cross_validated / "fold_1").write_text("x")
    for job in ("resume", "evaluate"):
        with refused("fold_1"):
            jobs[job](cross_validated)
    (cross_validated / "parameters.yaml").write_bytes(FOREIGN[1])
    check(jobs["resume"], cross_validated / "fold_0", "parameters.yaml")
