"""docs/tutorials/ does what it says: the commands and programs of its pages run, in their order, on small data."""

import re
import shlex
import shutil
import sys
from argparse import Namespace
from pathlib import Path
from types import ModuleType

import pytest
import torch
import yaml

import evaluation.__main__
import Result_Evaluations
import retrieval.__main__
from datasets import _mot_table
from experiments import moving_glyphs
from runs import RunFolder
from search import __main__ as searcher
from tests.kit import runs as kit
from tests.kit.data_sets import make_folder
from tests.kit.runs import run_main

ROOT = Path(__file__).resolve().parent.parent
TUTORIALS = ROOT / "docs" / "tutorials"
FENCE = re.compile(r"^```(\w*) ?(\S*)\n([\s\S]*?)^```$", re.MULTILINE)
TINY = {
    "dataset": "folder",
    "arch": "conv4_normalize",
    "embed_dim": 8,
    "bs": 8,
    "kernels": 0,
    "lr": 0.001,
    "iterations_per_epoch": 1,
    "n_epochs": 2,
    "resize_size": 18,
    "crop_size": 16,
    "evaluation_metrics": ["e_recall@1", "map_r"],
    "seed": 1,
    "tv_split_perc": 0.5,
}
OF_PHOTOGRAPHS = (
    "--arch conv4_normalize --bs 8 --iterations_per_epoch 1 --embed_dim 8 --n_epochs 1 --resize_size 18 --crop_size 16 "
    "--kernels 0"
).split()


def blocks(page):
    """(language, file name or note, content) of a page's blocks."""
    return FENCE.findall((TUTORIALS / f"{page}.md").read_text(encoding="utf-8"))


def commands(page):
    """The command lines of a page's `sh` blocks, of those without a file name."""
    scripts = [content.replace("\\\n", " ") for kind, name, content in blocks(page) if kind == "sh" and not name]
    return [shlex.split(line) for script in scripts for line in script.splitlines() if line.strip()]


def program(page, name="", kind="python"):
    """The block of a page that has this name behind its language."""
    (content,) = [content for *info, content in blocks(page) if info == [kind, name]]
    return content


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder to work in: `photos/`, `other_photos/`, and small flags in place of the demo's."""
    make_folder(tmp_path / "photos", n_classes=12, n_images=5)
    make_folder(tmp_path / "other_photos", n_classes=3, n_images=4)
    flags = TINY | {"dataset_folder_path": str(tmp_path / "photos")}
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "demo_glyphs.yaml").write_text(yaml.safe_dump(flags))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def of_folder(words):
    """The words, for runs that lie under `folder`."""
    return [word.replace("Training_Results/glyphs", "Training_Results/folder") for word in words]


def smaller(words, place):
    """A command on the small data: the demo's configuration is ours; ResNets and many epochs are not trained."""
    words = of_folder(words)
    words = [str(place / "configs" / "demo_glyphs.yaml") if word == "demo_glyphs" else word for word in words]
    return [*words, *OF_PHOTOGRAPHS] if "--dataset_folder_path" in words and "--evaluate" not in words else words


def follow(page, place):
    """Run a page's commands of main.py. Returns the result of each."""
    lines = [words[2:] for words in commands(page) if words[:2] == ["python", "main.py"] and "--list" not in words]
    return [run_main(*smaller(words, place)) for words in lines]


def test_every_tutorial_is_tried_here():
    source = Path(__file__).read_text(encoding="utf-8")
    tried = set(re.findall(r'(?:follow|commands|program|clone_of)\("(\w+)"', source))
    assert {page.stem for page in TUTORIALS.glob("*.md")} == tried


def test_first_steps(place, capsys):
    done = follow("first_steps", place)
    assert [run.folder.name for run in done[:2]] == ["Demo_s1", "Margin_s1"]
    assert done[3].epoch == 8 and done[3].folder == done[0].folder, "resumed"
    assert set(done[4]["test"]) == {"e_recall@1", "map_r", "mAP_c", "nmi"}
    exec(compile(program("first_steps").replace("glyphs", "folder"), "first_steps", "exec"), {})
    assert "torch.Size([2, 8])" in capsys.readouterr().out


def test_own_photographs(place, capsys):
    dry, run, measured = follow("own_photographs", place)
    output = capsys.readouterr().out
    assert dry is None and "dry run: one batch of" in output
    summary = RunFolder(run.folder).selected
    assert run.folder.name == "Photos_s0" and "on val" in summary["rule"] and "test" in summary["values"]
    assert 0 <= measured["test"]["e_recall@1"] <= 1


def test_the_searches_of_a_comparison_have_one_budget(place):
    lines = [words[3:] for words in commands("compare_two_methods") if words[1:3] == ["-m", "search"]]
    searches = [smaller(words, place) for words in lines]
    assert len(searches) == 2 and all(map(searcher.plan, searches))
    assert len({words[words.index("--bayesian_optimization_n_iter") + 1] for words in searches}) == 1


@pytest.mark.long
def test_run_to_search(place, capsys):
    (run,) = follow("run_to_search", place)
    programs = [words[3:] for words in commands("run_to_search") if words[:3] == ["python", "-m", "retrieval"]]
    for words in programs:
        if words[0] == "explore":
            # t-SNE of so few takes longer than all the rest
            words = [*words, "--map", "pca"]
        if "--help" not in words:
            retrieval.__main__.main(words)
    exec(compile(program("run_to_search", "retrieval"), "run_to_search", "exec"), {})
    assert capsys.readouterr().out.count(" -> ") == 2
    assert {"index", "answers.html", "explore.html", "exported"} <= {path.name for path in place.iterdir()}
    assert (place / "exported" / "README.md").is_file()


@pytest.mark.long
def test_track_reid(place, capsys):
    small = {
        "experiments/moving_glyphs.py": (moving_glyphs.main, "--train 4 --val 2 --frames 60 --tracks 3"),
        "datasets.mot": (_mot_table.main, ""),
        "main.py": (lambda words: run_main(*words), "--kernels 0 --eval_kernels 0"),
        "evaluation": (evaluation.__main__.main, "--gap 10 --stride 20"),
        "retrieval": (retrieval.__main__.main, ""),
    }
    results = []
    for words in commands("track_reid"):
        program, *flags = [word for word in words[1:] if word != "-m"]
        if "--loss" in flags:
            flags += "--bs 8 --iterations_per_epoch 1 --n_epochs 1".split()
        run, further_flags = small[program]
        results.append(run([*flags, *further_flags.split()]))
    assert 0 <= results[4]["track_mrr"] <= 1 and "scored" in capsys.readouterr().out
    assert {"films", "crops", "crops.csv", "Training_Results"} <= {path.name for path in place.iterdir()}


@pytest.mark.long
def test_features_of_anything(place):
    exec(compile(program("features_of_anything", "sounds.py"), "sounds.py", "exec"), {})
    for words in commands("features_of_anything")[1:]:
        if "retrieval" in words:
            retrieval.__main__.main(words[3:])
        else:
            run_main(*words[2:], *"--kernels 0 --eval_kernels 0".split())
    values = RunFolder(place / "Training_Results" / "arrays" / "Sounds_s0").selected["values"]["test"]
    assert values["map_r"] > 0.15
    assert (place / "exported" / "model.onnx").is_file()
    assert (place / "Training_Results" / "arrays" / "Sounds_s0" / "embeddings_test.npz").is_file()


@pytest.mark.long
def test_new_network_old_index(place, capsys):
    classes = sorted(path for path in (place / "photos").rglob("*") if path.is_dir())
    rows = ["label,path,split"]
    for number, folder in enumerate(classes):
        split = "train" if number < 6 else "validation"
        rows += [f"{folder.name},{path},{split}" for path in sorted(folder.iterdir())]
    (place / "Datasets").mkdir()
    (place / "Datasets" / "objects.csv").write_text("\n".join(rows) + "\n")
    results = []
    for words in commands("new_network_old_index"):
        if words[1] == "main.py":
            weights = words.index("--weights")
            small = "--arch conv4_normalize --bs 8 --iterations_per_epoch 2 --n_epochs 1".split()
            run = run_main(*words[2:weights], *words[weights + 2 :], *small)
            results.append(run.folder.name)
        elif words[:3] == ["python", "-m", "evaluation"]:
            values = evaluation.__main__.main(words[3:])
            assert 0 <= values["cross"]["e_recall@1"]["value"] <= 1 and len(values["curve"]) == 5
    assert results == ["Old_s0", "Free_s0", "Points_s0"] and (place / "upgrade.png").is_file()
    assert "new queries, old gallery" in capsys.readouterr().out


# ---------- in a copy of the program
def clone_of(page, place):
    """A copy of the program in which the files of a page are written."""
    ignored = shutil.ignore_patterns(
        ".git", ".venv", "build", "__pycache__", "Training_Results", "Result_Tables", "Datasets", ".*_cache", "wandb"
    )
    clone = shutil.copytree(ROOT, place / "clone", ignore=ignored)
    shutil.copy(place / "configs" / "demo_glyphs.yaml", clone / "configs")
    for kind, name, content in blocks(page):
        if "." in name:
            (clone / name).write_text(content, encoding="utf-8")
            assert kind
    return clone


def shell(words, clone):
    """Run a command of a page as a reader would, with this Python."""
    interpreter = {"python": [], "torchrun": ["-m", "torch.distributed.run"]}[words[0]]
    done = kit.program(*interpreter, *words[1:], cwd=clone, MPLBACKEND="Agg", CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def test_the_loss_of_the_tutorial_is_its_formula(monkeypatch):
    module = ModuleType("criteria.mine")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(program("add_a_loss", "criteria/mine.py"), "mine", "exec"), vars(module))  # noqa: S102
    x = torch.randn(6, 4, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([0, 0, 1, 1, 2, 3])
    loss = module.Criterion(Namespace(loss_mine_margin=0.3, loss_mine_scale=4.0))(x, labels)
    loss.backward()
    unit = torch.nn.functional.normalize(x.detach())
    excesses = 4 * (unit @ unit.T - 0.3) * torch.where(labels[:, None] == labels, -1.0, 1.0)
    slow = torch.log(1 + excesses.exp().fill_diagonal_(0).sum(1)).mean()
    assert loss.item() == pytest.approx(float(slow), rel=1e-12) and torch.isfinite(x.grad).all()


@pytest.mark.long
def test_add_a_loss(place):
    clone = clone_of("add_a_loss", place)
    outputs = [shell(words, clone) for words in commands("add_a_loss")]
    assert "mine " in outputs[0] and "Soft margin loss on cosines" in outputs[0]
    assert (clone / "Training_Results" / "folder" / "Mine_s1" / "summary.json").is_file()
    assert re.search(r"\d+ passed", outputs[2]) and "failed" not in outputs[2]


@pytest.mark.long
def test_several_gpus(place):
    clone = clone_of("several_gpus", place)
    for words in commands("several_gpus"):
        shell(of_folder(words), clone)
    tables = [RunFolder(clone / "Training_Results" / "folder" / name).metrics for name in ("One_s1", "Two_s1")]
    assert tables[1].epoch.max() == 3, "the last line went on"
    single, double = (rows[(rows.metric == "map_r") & (rows.epoch <= 2)].value for rows in tables)
    assert len(single) == len(double) >= 2
    torch.testing.assert_close(torch.tensor(double.to_numpy()), torch.tensor(single.to_numpy()), rtol=1e-4, atol=1e-4)


@pytest.mark.long
def test_compare_two_methods(place, monkeypatch):
    lines = [set(shlex.split(line)) for line in program("compare_two_methods", "compare.sh", "sh").splitlines()]
    different = {word for word in set.union(*lines) - set.intersection(*lines) if word.startswith("--")}
    assert different <= {"--batch_mining"}, "the two lines are one protocol"
    clone = clone_of("compare_two_methods", place)
    (launched,) = [words for words in commands("compare_two_methods") if words[1:3] == ["-m", "launch"]]
    (tables,) = [words[2:] for words in commands("compare_two_methods") if words[1] == "Result_Evaluations.py"]
    shell([*launched[: launched.index("--seeds") + 2]], clone)
    monkeypatch.chdir(clone)
    page = Result_Evaluations.main(Result_Evaluations.read(smaller(tables, place))).read_text(encoding="utf-8")
    assert "Triplet" in page and "MultiSimilarity" in page
    names = {path.parent.name for path in Path("Training_Results/folder").glob("*/summary.json")}
    assert names == {"Triplet_s0", "MultiSimilarity_s0"}
