"""All runs of some folders and W&B projects."""

from collections import Counter

from results.folders import METRICS, PARAMETERS, find_folders, read_folder
from results.online import read_project, wandb_api
from results.recorded import RecordedRun
from utilities.errors import UserError


def collect(folders: list[str], projects: list[str], api=None) -> tuple[list[RecordedRun], list[str]]:
    """All runs of the folders and W&B projects, and what was skipped, in words. `api` stands in for `wandb.Api()`.

    Raises UserError where there is no run.
    """
    from tqdm import tqdm

    skipped = []
    places = {place.resolve(): place for root in folders for place in find_folders(root, skipped)}
    runs = [
        read_folder(place)
        for place in tqdm(list(places.values()), desc="reading runs", unit="run", leave=False, disable=None)
    ]
    if projects and api is None:
        api = wandb_api()
    for project in projects:
        runs += read_project(project, api)
    notes = [
        f"{folder} holds the trials of a search and was left out; name it in --runs to see them" for folder in skipped
    ]
    if not runs:
        asked = ([f"--runs {' '.join(folders)}"] if folders else []) + (
            [f"--project {' '.join(projects)}"] if projects else []
        )
        expected = f"A run folder holds {PARAMETERS} and {METRICS}, as main.py writes them"
        raise UserError("; ".join([f"{', '.join(asked)}: no runs there. {expected}", *notes]))
    return _with_distinct_names(runs), notes


def _with_distinct_names(runs: list[RecordedRun]) -> list[RecordedRun]:
    """The runs; where several --dataset share a data set name, such as that of a folder called cub200, its value is put
    before the name.
    """
    flags = [str(run.flags.get("dataset", run.dataset)) for run in runs]
    times = Counter(name for name, _ in {(run.dataset, flag) for run, flag in zip(runs, flags, strict=True)})
    for run, flag in zip(runs, flags, strict=True):
        if times[run.dataset] > 1 and flag != run.dataset:
            run.dataset = f"{flag}_{run.dataset}"
    return runs
