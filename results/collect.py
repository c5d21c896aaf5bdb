"""All runs of some folders and W&B projects."""

from results.folders import METRICS, PARAMETERS, find_folders, read_folder
from results.online import read_project, wandb_api
from results.recorded import RecordedRun
from results.roles import FlagRoles
from utilities.errors import UserError


def collect(
    folders: list[str], projects: list[str], flag_roles: FlagRoles, api=None
) -> tuple[list[RecordedRun], list[str]]:
    """All runs of the folders and W&B projects, and a note on each folder that was skipped.

    Args:
        flag_roles: which flags count for which purpose; every run carries it.
        api: stands in for `wandb.Api()`.

    Raises UserError if there is no run.
    """
    from tqdm import tqdm

    skipped = []
    # a folder that is named twice is read once
    places = {}
    for root in folders:
        for place in find_folders(root, skipped):
            places[place.resolve()] = place
    runs = []
    for place in tqdm(list(places.values()), desc="reading runs", unit="run", leave=False, disable=None):
        runs.append(read_folder(place, flag_roles))
    if projects and api is None:
        api = wandb_api()
    for project in projects:
        runs += read_project(project, api, flag_roles)
    notes = []
    for folder in skipped:
        notes.append(f"{folder} holds the trials of a search and was left out; name it in --runs to see them")
    if not runs:
        sources = []
        if folders:
            sources.append(f"--runs {' '.join(folders)}")
        if projects:
            sources.append(f"--project {' '.join(projects)}")
        expected = f"A run folder holds {PARAMETERS} and {METRICS}, as main.py writes them"
        raise UserError("; ".join([f"{', '.join(sources)}: no runs there. {expected}", *notes]))
    return _with_distinct_names(runs), notes


def _with_distinct_names(runs: list[RecordedRun]) -> list[RecordedRun]:
    """The runs; if several --dataset share the name of a data set, their value is put before the name.

    For example, a folder may be called cub200.
    """
    # name of a data set -> the values of --dataset that share it
    flags_of = {}
    for run in runs:
        flags_of.setdefault(run.dataset, set()).add(str(run.flags.get("dataset", run.dataset)))
    for run in runs:
        flag = str(run.flags.get("dataset", run.dataset))
        if len(flags_of[run.dataset]) > 1 and flag != run.dataset:
            run.dataset = f"{flag}_{run.dataset}"
    return runs
