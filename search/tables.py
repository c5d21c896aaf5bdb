"""The files that a search writes after each trial: trials.csv and best_parameters.yaml."""

import yaml

from search import study as studies
from search.files import BEST, TABLE
from utilities.files import write_csv, write_file

COLUMNS = ("trial", "state", "value", "attempts", "seconds", "host", "reason")


def best_of(study):
    """The best trial; None while none has a value."""
    done = [trial for trial in studies.latest(study) if trial.state.name == "COMPLETE"]
    if not done:
        return None
    choose = max if study.direction.name == "MAXIMIZE" else min
    return choose(done, key=lambda trial: trial.value)


def _reason(trial) -> str:
    """Why a trial has no value; empty if it has one, or runs."""
    if trial.state.name not in ("FAIL", "WAITING"):
        return ""
    reason = trial.user_attrs.get("reason", "")
    if trial.state.name == "FAIL" and not reason:
        return "its process was killed"
    return reason


def write_tables(study, plan) -> None:
    """Write trials.csv, and best_parameters.yaml as soon as a trial has a value."""
    rows = []
    for trial in studies.latest(study):
        columns = {
            "trial": studies.folder_name(study, trial),
            "state": trial.state.name.lower(),
            "value": trial.value,
            "attempts": trial.user_attrs.get("attempt", 1),
            "seconds": None if trial.duration is None else trial.duration.total_seconds(),
            "host": trial.user_attrs.get("host"),
            "reason": _reason(trial),
        }
        values = [trial.params.get(flag) for flag in plan.ranges]
        rows.append([*(columns[name] for name in COLUMNS), *values])
    # csv writes None as an empty field
    write_csv(plan.folder / TABLE, [*COLUMNS, *plan.ranges], rows)
    best = best_of(study)
    if best is None:
        return
    opt = plan.flags.read(best.params)
    content = dict(best.params)
    for name in sorted(plan.named & set(opt.roles) - plan.SETS):
        if opt.roles[name].change or name in plan.INPUTS:
            content[name] = getattr(opt, name)
    heading = (
        f"# {studies.folder_name(study, best)}: {plan.metric} on validation {best.value:.6g}, the best of {len(rows)} "
        "trials\n"
    )
    write_file(plan.folder / BEST, heading + yaml.safe_dump(content, sort_keys=False))
