"""The end of a search: plots, the best trial reproduced with other seeds; and how far a search has come."""

import json
from pathlib import Path

import torch

from pictures.search import draw_search
from runs.meta import over_folds
from search import study as studies
from search.files import BEST, read_table, undamaged
from search.tables import best_of
from search.trials import reason, scores
from utilities.console import propose
from utilities.errors import NotFinite
from utilities.files import write_yaml
from utilities.locks import Lock
from utilities.reading import read_yaml

REPRODUCTIONS = "reproductions.yaml"


def how_far(folder: Path, trials: int, reproductions: int) -> tuple[bool, str]:
    """(finished, progress as text) of a search by the files in its folder; writes nothing.

    Raises UserError where a file is damaged.

    Args:
        trials, reproductions: the requested numbers.
    """
    n_ended = sum(row["state"] in ("complete", "fail") for row in read_table(folder))
    best = folder / BEST
    content = _reproductions(folder)
    n_reproduced = 0
    if best.exists() and content["runs"]:
        text = best.read_text(encoding="utf-8", errors="replace")
        # the trial that the heading names, as `write_tables` writes it
        trial = text.removeprefix("# ").partition(":")[0]
        if trial == content["trial"]:
            n_reproduced = len(content["runs"])
    finished = n_ended >= trials and n_reproduced >= reproductions and best.exists()
    progress = f"{n_ended} trials" if finished else f"after {n_ended} of {trials} trials"
    if reproductions and n_ended >= trials:
        progress += f" and {n_reproduced} of {reproductions} reproductions"
    return finished, progress


def _reproductions(folder: Path) -> dict:
    """reproductions.yaml; none if there is no such file. Raises UserError where it is damaged."""
    path = folder / REPRODUCTIONS
    if not path.exists():
        return {"trial": None, "results": {}, "runs": {}}
    with undamaged(path, "move it away: the folders of the reproductions stay, and are read again"):
        content = dict(read_yaml(path))
        _results(content["runs"])
        return {"trial": content["trial"], "results": dict(content["results"]), "runs": content["runs"]}


def _results(runs: dict) -> dict:
    """The results over the reproductions that did not fail; empty if all did."""
    values = [run["values"] for run in runs.values() if "failed" not in run]
    return over_folds(values) if values else {}


def draw(study, folder: Path, metric: str) -> list[Path]:
    """Draw a search's pictures into `plots/`: see `pictures.search`."""
    finished = [trial for trial in studies.latest(study) if trial.state.is_finished()]
    return draw_search(finished, study.direction, folder, metric)


def reproduce(study, plan, train) -> dict | None:
    """Run the best trial again with seeds seed + 1, seed + 2 …, without the trial itself, and measure these on test.

    Finished reproductions are not run again. Returns the content of reproductions.yaml;
    None while another process reproduces.
    """
    lock = Lock(plan.folder / ".reproductions.lock")
    if not lock.acquire(wait=False):
        return None
    with lock:
        best = best_of(study)
        content = _reproductions(plan.folder)
        name = studies.folder_name(study, best)
        done = content["runs"] if content["trial"] == name else {}
        first = plan.flags.read(best.params).seed
        for number in range(1, plan.reproductions + 1):
            run = f"{name}_reproduction_{number}"
            if run not in done:
                print(f"\n{run} of {plan.reproductions}: seed {first + number}", flush=True)
                added = [f"--group={plan.opt.group}_best", f"--seed={first + number}", "--final_test"]
                if (plan.folder / run).exists():
                    added.append("--resume")
                try:
                    train(plan.read(best.params, run, *added))
                    done[run] = {"seed": first + number, "values": scores(plan.folder / run)}
                except (NotFinite, torch.OutOfMemoryError) as error:
                    done[run] = {"seed": first + number, "failed": reason(error)}
                    print(f"{run} failed: {done[run]['failed']}", flush=True)
            content = {"trial": name, "results": _results(done), "runs": done}
            write_yaml(plan.folder / REPRODUCTIONS, json.loads(json.dumps(content)), sort_keys=False)
        return content


def propose_next(folder: Path, code_flags: set[str]) -> None:
    """Print the command that trains with the best flags found, once there are some.

    `code_flags`: the flags of files of code, which a run executes only where its command line names them.
    """
    path = folder / BEST
    if not path.exists():
        return
    print(f"best flags: {path}")
    best = read_yaml(path)
    words = []
    for flag in sorted(code_flags & best.keys()):
        if best[flag] is not None:
            words += [f"--{flag}", best[flag]]
    propose("python", "main.py", "--config", path, *words)


def print_results(study, plan, reproductions: dict | None) -> None:
    """Print the numbers of trials, the best one, and the results of the reproductions."""
    trials = studies.latest(study)
    best = best_of(study)
    failed = [trial for trial in trials if trial.state.name == "FAIL"]
    print(f"\n{plan.folder}: {len(trials)} trials, {len(failed)} failed")
    print(f"best: {studies.folder_name(study, best)}, {plan.metric} on validation {best.value:.4f}")
    for flag, value in best.params.items():
        print(f"  {flag}: {value}")
    if reproductions is None:
        return
    for split, results in reproductions["results"].items():
        result = results.get(plan.metric)
        if result is not None:
            interval = result["interval_95"]
            width = f", 95 % interval {interval[0]:.4f} to {interval[1]:.4f}" if interval else ""
            print(f"{len(result['values'])} reproductions: {plan.metric} on {split} {result['mean']:.4f}{width}")
