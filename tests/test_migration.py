"""docs/migration.md does what it says: its commands run, its flags exist, every old command has one here."""

import re
import shlex
from pathlib import Path

import pytest
import yaml

import parameters
import Result_Evaluations
from launch import __main__ as launcher
from search import __main__ as searcher
from tests.kit.data_sets import make_cars196, make_cub200, make_online_products
from tests.kit.runs import SMALL_IMAGES, content_of, pass_dry_run, read, run_main

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "docs" / "migration.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(.*)\n([\s\S]*?)^```$", TEXT, flags=re.MULTILINE)  # (info string, content)
# files whose names stand in the info string, as in ```yaml my_loss.yaml
FILES = {info.split()[1]: content for info, content in BLOCKS if len(info.split()) == 2}
ON_A_RUN = {"--resume", "--resume_from", "--evaluate", "--evaluate_ensemble", "--aggregate_only", "--reproduce_results"}
SMALL = [*SMALL_IMAGES, "--arch", "conv4_normalize"]
# folds in place of the page's four, where a line does not name its own by --folds
FOLDS = 2


def commands(program):
    """The words behind `python <program>` of every such line, in the page's order."""
    blocks = [content.replace("\\\n", " ") for info, content in BLOCKS if info == "sh"]
    lines = "".join(blocks).splitlines()
    start = f"python {program} "
    return [shlex.split(line.removeprefix(start)) for line in lines if line.startswith(start)]


def name_of(words):
    return words[words.index("--savename") + 1] if "--savename" in words else None


MAIN = commands("main.py")
SEARCHES = commands("-m search")
WORK_ON_A_RUN = [words for words in MAIN if ON_A_RUN & set(words)]
REPEAT = [words for words in MAIN if "/parameters.yaml " in f"{shlex.join(words)} "]
NEW = [words for words in MAIN if words not in WORK_ON_A_RUN + REPEAT]


# ---------- the page
def test_every_old_command_has_one_here():
    """After a block of old commands there is, before the next one, a block with at least as many here."""
    counts = []
    for info, content in BLOCKS:
        old_commands = re.findall(r"^python run(?:_bayesian_optimization)?\.py", content, flags=re.MULTILINE)
        if old_commands:
            counts.append([len(old_commands), 0])
        elif info == "sh" and counts:
            counts[-1][1] += len(re.findall(r"^python (?:main\.py|-m search)", content, flags=re.MULTILINE))
    n_old = sum(old for old, _ in counts)
    assert n_old >= 32 and all(new >= old for old, new in counts), counts
    assert len(MAIN) >= n_old - len(SEARCHES)


def test_the_flags_of_the_tables_exist_and_their_values_are_accepted():
    """What stands in one pair of backticks with a value is a command that parses."""
    options = set()
    for program in (parameters, searcher):
        options |= program.get_parser()._option_string_actions.keys()
    rows = [line.strip("|").split("|")[-1] for line in TEXT.splitlines() if line.startswith("| ")]
    column = "\n".join(rows)
    flags = set(re.findall(r"--[a-z_]+", column))
    assert len(rows) > 60 and len(flags) > 80 and flags <= options, flags - options
    with_values = set(re.findall(r"`(--(?!resume)[^`\n]*\s[^`\n]*)(?<!_path)(?<!_file)(?<!--decay)`", column))
    assert len(with_values) > 25
    for text in with_values:
        opt = read(text)
        assert all(hasattr(opt, flag.removeprefix("--")) for flag in re.findall(r"--[a-z_]+", text))


def test_lines_for_other_programs_are_read():
    """The Reality Check's lines are those of its script, and the other scripts read theirs."""
    script = (ROOT / "experiments/MLRC_Runs.sh").read_text(encoding="utf-8").splitlines()
    of_script = [shlex.split(line)[2:] for line in script if "_Contrastive " in line and line.startswith("python")]

    def protocol(words):
        names_of_runs = ("savename", "group", "project", "seed", "source_path", "flags")
        return {name: value for name, value in vars(read(*words)).items() if name not in names_of_runs}

    of_page = [words for words in NEW if "contrastive" in words]
    assert list(map(protocol, of_page)) == list(map(protocol, of_script)) and len(of_page) == 4
    (tables,) = commands("Result_Evaluations.py")
    (script,) = commands("-m launch")
    assert Result_Evaluations.read(tables).compare_to == ["mlrc"]
    assert launcher.read_options(script).seeds == list(range(10))


# ---------- the commands
@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder to work in, with the files that the page shows."""
    path = tmp_path_factory.mktemp("migration")
    for name, content in FILES.items():
        (path / name).write_text(content, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def images(place):
    """./Datasets there, with the three in small."""
    path = place / "Datasets"
    # so many classes that 64 train, which fill a batch of 256
    make_cub200(path, n_classes=172, n_images=4)
    make_cars196(path, n_classes=24, n_images=4)
    make_online_products(path, n_train=24, n_test=24, n_images=8)


@pytest.fixture(autouse=True)
def in_place(place, monkeypatch):
    """Commands run in this folder."""
    monkeypatch.chdir(place)


@pytest.fixture(scope="module")
def started(images):
    """Starts the run of a name, once, by the page's first line that does: an epoch of one batch in few folds."""
    runs = {}

    def start(name):
        if name not in runs:
            words = next(words for words in NEW if name_of(words) == name)
            folds = [] if "--folds" in words else ["--split_sets", FOLDS]
            runs[name] = run_main(*words, *SMALL, *folds, "--n_epochs 1 --iterations_per_epoch 1")
        return runs[name].folder

    return start


def run_of(words):
    """The name of the run that a line works on."""
    folder = re.search(r"Training_Results/cub200/(\w+)", " ".join(words))
    return folder[1] if folder else name_of(words)


def tried(cases, do):
    """Do each case. Fails with all that went wrong, the command before its error."""
    wrong = []
    for words in cases:
        try:
            do(words)
        except (SystemExit, Exception) as error:
            wrong.append(f"{' '.join(words)}: {type(error).__name__} {error}")
    assert not wrong, "\n".join(wrong)


def try_new(words, capsys):
    if "--print_config" in words:
        printed = yaml.safe_load(parameters.answer(read(*words)))
        # of both files and the first
        assert (printed["loss"], printed["n_epochs"], printed["bs"]) == ("arcface", 100, 128)
    else:
        pass_dry_run([*words, "--arch", "conv4_normalize"], capsys)


def try_search(words, capsys):
    assert searcher.search([*words, *SMALL, "--dry_run"]) is None
    output = capsys.readouterr().out
    assert "dry run: one batch of 128 images" in output and "for map_r on validation" in output
    assert output.count("BAYESIAN~: [") == (4 if "ms_miner" in words[-1] else 1)


def test_new_runs_and_searches_are_read_and_the_flags_of_a_run_again(place, monkeypatch):
    tried(NEW, parameters.read)
    tried(SEARCHES, lambda words: searcher.plan([*words, *SMALL]))
    (repeated,) = REPEAT
    flags = read(*next(words for words in NEW if name_of(words) == run_of(repeated))).saved()
    file = place / "read" / repeated[repeated.index("--config") + 1]
    file.parent.mkdir(parents=True)
    file.write_text(yaml.safe_dump(flags))
    monkeypatch.chdir(place / "read")
    assert read(*repeated).saved() == flags | {"savename": name_of(repeated)}


@pytest.mark.long
def test_every_new_run_and_search_passes_a_dry_run(images, capsys):
    tried(NEW, lambda words: try_new(words, capsys))
    tried(SEARCHES, lambda words: try_search(words, capsys))
    assert not (Path("Training_Results") / "cub200" / "test1").exists()


@pytest.mark.long
def test_the_flags_of_a_run_are_those_of_another(started, capsys):
    for words in REPEAT:
        started(run_of(words))
    tried(REPEAT, lambda words: pass_dry_run(words, capsys))


def work_on(words, started):
    """Do what a line says with its run: only a reproduction makes another folder."""
    folder = started(run_of(words))
    before = set(Path("Training_Results").glob("*/*"))
    # more epochs than before, but not so many as the page says
    if "--n_epochs" in words:
        trained = content_of(folder / "parameters.yaml")["n_epochs"]
        assert int(words[words.index("--n_epochs") + 1]) > trained
        words = [*words, "--n_epochs", str(trained + 1)]
    run_main(*words)
    new = {path.name for path in set(Path("Training_Results").glob("*/*")) - before}
    assert new == ({name_of(words)} if "--reproduce_results" in words else set())


@pytest.mark.long
def test_every_line_that_works_on_a_run_does(started):
    tried(WORK_ON_A_RUN, lambda words: work_on(words, started))
