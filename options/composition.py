"""From what was given to the options of a run: defaults, --config files, a saved run and the command line, later ones winning.

A mistake raises UserError with one line. checks.py then refuses what cannot work.
"""

import argparse
import difflib
from pathlib import Path

import yaml

import datasets
from options import checks
from runs import configuration
from runs.folds import fold_of
from utilities import configs
from utilities.errors import UserError

FOLLOWS = {"fc_lr": "lr", "fc_decay": "decay", "eval_bs": "bs", "eval_kernels": "kernels"}  # unset, they are as the other
DERIVED = {*FOLLOWS, "savename", "source_path", "augmentation", "splits_to_eval"}  # what `_derive` decides


def compose(parser, argv: list[str] | None) -> argparse.Namespace:
    """The options that the parser's defaults, the files and the saved run named on the command line, and the command line itself give.

    `flags` names all flags; of a reproduction `later_stages` holds the options of each stage but the first.
    """
    defaults = vars(parser.parse_args([]))
    explicit = _explicit(parser, argv)
    opt = argparse.Namespace(**{**defaults, **explicit})
    values = _config_values(parser, opt.config)
    if opt.reproduce_results is not None:
        return _reproduction(defaults, values, explicit)
    return _continued(defaults, values, explicit)


def _resolved(defaults: dict, values: dict, explicit: dict) -> argparse.Namespace:
    """The options that the three layers give, later ones winning."""
    if values.get("savename") == f"{values.get('group')}_s{values.get('seed')}":
        values = {name: value for name, value in values.items() if name != "savename"}  # with another seed or group there is another
    opt = argparse.Namespace(**{**defaults, **values, **explicit}, flags=frozenset(defaults))
    if opt.list is None:
        _resume(opt, explicit, defaults)
        _derive(opt)
        checks.check(opt)
    return opt


def _underived(flags: dict) -> dict:
    """A run's saved flags without the values that equal those they may have been derived from: unset, they follow a new value of these."""
    derived = [name for name, source in FOLLOWS.items() if name in flags and flags[name] == flags.get(source)]
    return {**flags, **dict.fromkeys(derived)}


def _reproduction(defaults: dict, values: dict, explicit: dict) -> argparse.Namespace:
    """The options of a saved run's first stage, and in `later_stages` those of each in which a flag had been changed."""
    for name in ("resume_from", "evaluate", "evaluate_ensemble", "aggregate_only", "list"):
        if explicit.get(name):
            raise UserError(f"--reproduce_results makes a new run: leave out --{name}")
    source, explicit = Path(explicit["reproduce_results"]), dict(explicit)
    if fold_of(source) is not None:
        source, explicit["folds"] = fold_of(source)
    resume = explicit.pop("resume", None)
    first = _staged(defaults, values, explicit, configuration.stages(source))
    folder = configuration.run_folder(first)
    if resume is None or not (folder / "parameters.yaml").exists():
        first.resume = resume
        return first
    if folder.resolve() == source.resolve():
        raise UserError(
            f"--resume: {folder} is what is to be reproduced. Continue its reproduction by --resume_from, or name it by --savename"
        )
    del explicit["reproduce_results"]
    return _continued(defaults, values, {**explicit, "resume": resume, "resume_from": str(folder)})


def _continued(defaults: dict, values: dict, explicit: dict) -> argparse.Namespace:
    """The options of a run; of a reproduction with changes still to come, as those of `_reproduction`."""
    opt = _resolved(defaults, values, explicit)
    stages = configuration.plan(opt) if opt.list is None else []
    if not stages:
        return opt
    folder = configuration.run_folder(opt)
    saved, asked = configuration.read_parameters(folder), set(explicit) - configuration.NEVER_A_CHANGE
    different = [name for name in sorted(asked & set(saved)) if getattr(opt, name) != saved[name]]
    if different or opt.resume == "best":
        what = ", ".join(f"--{name}" for name in different) or "--resume best"
        raise UserError(f"{folder} is a reproduction with changes still to come: continue it without {what}, or let it end first")
    kept = {name: value for name, value in explicit.items() if name in configuration.NEVER_A_CHANGE - {"resume", "resume_from"}}
    first = _staged(defaults, {}, kept, stages)
    for stage in (first, *first.later_stages):
        stage.resume, stage.resume_from, stage.savename = opt.resume, str(folder), opt.savename
    return first


def _staged(defaults: dict, values: dict, explicit: dict, stages: list) -> argparse.Namespace:
    """The options of the first of some `configuration.stages`; `later_stages`: those of the others."""
    staged = []
    for until, flags in stages:
        known = {name: value for name, value in flags.items() if name in defaults}
        staged.append(_resolved(defaults, {**values, **_underived(known)}, explicit))
        staged[-1].until = until
        n_folds = 1 if staged[-1].split_scheme == "half" else datasets.n_folds(staged[-1])
        if until is not None and len(until) != n_folds:
            raise UserError(
                f"the saved run was changed at the epochs {checks.shown(until)} of its folds, and these flags make {n_folds}: leave the flags of the split as they were"
            )
    first, *first.later_stages = staged
    return first


def _explicit(parser, argv) -> dict:
    """Only what the command line itself says."""
    silent = argparse.Namespace(**{action.dest: argparse.SUPPRESS for action in parser._actions if action.dest != "help"})
    return {name: value for name, value in vars(parser.parse_args(argv, silent)).items() if value is not argparse.SUPPRESS}


def _config_values(parser, files: list[str]) -> dict:
    values = {}
    for name in files:
        path = configs.find(name)
        found = {key: _config_value(parser, path, key, node) for key, node in configs.nodes(path).items()}
        is_saved = {"savename", *FOLLOWS, *FOLLOWS.values()} <= set(found)  # a run's parameters.yaml names every flag
        values |= _underived(found) if is_saved else found
    return values


def _config_value(parser, path: Path, key: str, node: yaml.Node):
    """A file's value passed through its flag's own type."""
    actions = {action.dest: action for action in parser._actions if action.dest != "help"}
    if key in {"config", "list", *configuration.NEVER_SAVED}:
        raise UserError(f"{path}: {key} is for the command line alone: --{key}")
    if key not in actions:
        nearest = difflib.get_close_matches(key, actions, n=1)
        raise UserError(f"{path}: unknown flag {key!r}." + (f" Did you mean {nearest[0]!r}?" if nearest else ""))
    action = actions[key]
    if isinstance(action, argparse._StoreTrueAction):
        if _kind(node) != "bool" or node.value.lower() not in yaml.SafeLoader.bool_values:
            raise UserError(f"{path}: {key} is a switch: true or false, not {_text(node)!r}")
        return yaml.SafeLoader.bool_values[node.value.lower()]
    if _kind(node) == "null":
        return action.default
    several = action.nargs in ("+", "*") or isinstance(action.nargs, int)
    if not isinstance(node, yaml.ScalarNode) and not (several and isinstance(node, yaml.SequenceNode)):
        raise UserError(f"{path}: {key} takes {'values' if several else 'one value'}, not {_text(node)}")
    items = node.value if isinstance(node, yaml.SequenceNode) else [node]
    least, most = (action.nargs, action.nargs) if isinstance(action.nargs, int) else (int(action.nargs == "+"), len(items))
    if several and not least <= len(items) <= most:
        raise UserError(
            f"{path}: {key} takes {action.nargs if most == least else 'at least one'} value{'s' * (least > 1)}, not {_text(node)}"
        )
    for item in items:
        if _kind(item) == "bool":
            raise UserError(f"{path}: {key} is no switch, and {item.value} stands for true or false in YAML: write it in quotes")
    try:
        values = [parser._get_value(action, _text(item)) for item in items]
        for value in values:
            parser._check_value(action, value)
    except argparse.ArgumentError as error:
        raise UserError(f"{path}: {key}: {error.message}") from error
    return values if several else values[0]


def _kind(node: yaml.Node) -> str:
    """What YAML takes a value for: bool, null, int, float, str, seq, map."""
    return node.tag.rpartition(":")[2]


def _text(node: yaml.Node) -> str:
    """A value as the command line would have it."""
    if isinstance(node, yaml.SequenceNode):
        return f"[{', '.join(map(_text, node.value))}]"
    if isinstance(node, yaml.MappingNode):
        return "{…}"
    is_special = _kind(node) == "float" and node.value.lower().lstrip("+-") in (".inf", ".nan")
    return node.value.replace(".", "") if is_special else node.value


def _resume(opt, explicit: dict, defaults: dict) -> None:
    """On resume the saved run's flags stand below the command line's; a difference is an error unless it is allowed."""
    action = next((name for name in ("evaluate", "evaluate_ensemble", "aggregate_only") if getattr(opt, name)), None)
    if opt.resume is None and (opt.resume_from is not None or action):
        opt.resume = "latest"
    if opt.resume is None:
        return
    if opt.resume_from is None:
        _derive_savename(opt)
    elif fold_of(Path(opt.resume_from)) is not None:  # one fold of a cross-validation: of that, this fold
        folder, opt.folds = fold_of(Path(opt.resume_from))
        opt.resume_from = str(folder)
    folder = configuration.run_folder(opt)
    if action == "evaluate_ensemble":
        for name, why in (("folds", "joins all folds"), ("splits_to_eval", "measures test alone: the folds validate on different data")):
            if name in explicit and explicit[name] != ["test"]:
                raise UserError(f"--evaluate_ensemble {why}: leave out --{name}")
    if not (folder / "parameters.yaml").exists():
        if opt.resume_from is not None or action:
            asked = f"--resume_from {folder}" if opt.resume_from is not None else f"--{action} {folder}"
            raise UserError(f"{asked}: no run there (parameters.yaml is missing)")
        return
    saved = configuration.read_parameters(folder)
    _refuse_changes(folder, opt, saved, explicit, action)
    for name, value in _underived(saved).items():
        if name in defaults and name not in explicit and not (action and name == "dump_embeddings"):
            setattr(opt, name, value)
    configuration.check_split_file(folder, opt)


def _refuse_changes(folder: Path, opt, saved: dict, explicit: dict, action: str | None) -> None:
    """Raise UserError where the command line gives what differs from the saved flags, unless that is allowed, harmless, or more epochs."""
    free = configuration.NEVER_RECORDED | (configuration.EVALUATION_FLAGS if action else set())
    given = {name: value for name, value in explicit.items() if name in saved}
    derived = argparse.Namespace(**{**vars(opt), **saved, **given})  # so that `--savename group_plus_seed` equals its resolved value
    _derive(derived)
    differing = {
        name: f"--{name} {checks.shown(getattr(derived, name))} (saved: {checks.shown(saved[name])})"
        for name in sorted(given)
        if name not in free and getattr(derived, name) != saved[name] and not (name == "n_epochs" and given[name] > saved[name])
    }
    fixed = [text for name, text in differing.items() if configuration.is_fixed(name, saved[name], getattr(derived, name))]
    if fixed:
        raise UserError(
            f"--{action or 'resume'}: {'; '.join(fixed)}: the images that train, validate and test, and the metric that chooses the epoch, stay "
            f"those of {folder}. Start a new run"
        )
    if differing and (action or not opt.resume_allow_changes):
        way_out = "Leave them out" if action else "Leave them out, or add --resume_allow_changes"
        raise UserError(f"--{action or 'resume'}: flags differ from those of {folder}: {'; '.join(differing.values())}. {way_out}")


def _derive_savename(opt) -> None:
    if opt.savename == "group_plus_seed":
        opt.savename = f"{opt.group}_s{opt.seed}"


def _derive(opt) -> None:
    """Give every default of None that stands for another flag its value."""
    _derive_savename(opt)
    dataset = datasets.REGISTRY.module(opt.dataset)
    if opt.source_path is None:
        opt.source_path = str(getattr(dataset, "default_source_path", lambda: "./Datasets")())
    if opt.augmentation is None:
        opt.augmentation = getattr(dataset, "DEFAULT_AUGMENTATION", "base")
    for name, source in FOLLOWS.items():
        if getattr(opt, name) is None or (name == "fc_lr" and opt.fc_lr < 0):
            setattr(opt, name, getattr(opt, source))
    if opt.splits_to_eval is None:
        opt.splits_to_eval = ["train"] + ["val"] * datasets.has_validation(opt) + ["test"]
        if opt.split_scheme != "half":
            opt.splits_to_eval = ["val" if datasets.has_validation(opt) else "test"]
    if opt.no_train_metrics:
        opt.splits_to_eval = [split for split in opt.splits_to_eval if split != "train"]
    if opt.online_backend == "comet":
        opt.online_backend = "comet_ml"
