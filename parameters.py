"""The command line: the only parser of the program, topic by topic; options/parser.py is its class.

options/composition.py adds files and saved runs, over which the command line wins; options/checks.py refuses flags that
cannot work.

Where a flag is declared:
  options/groups/         flags of the run as a whole: schedule, optimiser, evaluation, records, resume
  options/flags/shared.py flags that plug-ins of several folders read: --bs, --lr, --embed_dim, --loss, --batch_mining …
  <folder>/_<helper>.py   flags that several plug-ins of one folder read: image sizes, weights of networks, storages
  <folder>/<plug-in>.py   a plug-in's own, with its name in front: --loss_<name>_…, --miner_<name>_…, --<trainer>_…

Beside a declaration stand its role (options/flags/roles.py) and with which other flags it acts (rules.py there).
All end up in one flat namespace, `opt`, and in docs/flags.md. The help says from what a default of None is derived.
"""

import argparse
import sys
from collections.abc import Collection, Sequence

import yaml

import architectures
import criteria
import datasets
import metrics
from evaluation import whitening
from options import composition
from options import help as help_pages
from options.flags import roles
from options.flags import shared as shared_flags
from options.groups import evaluation, optimisation, records, run, step
from options.groups.run import LISTS
from options.parser import Parser
from options.registries import NAMED, REGISTRIES
from utilities import plug_in_folders
from utilities.errors import UserError
from utilities.registry import unknown


def basic_training_parameters(parser) -> None:
    """Length of the training, learning rates, optimiser, devices."""
    group = roles.group(parser, "schedule", roles.METHOD)
    optimisation.epochs(group)
    optimisation.schedule(group)
    group = roles.group(parser, "optimiser", roles.METHOD)
    optimisation.optimiser(group)
    optimisation.gradient_clipping(group)
    step.devices(roles.group(parser, "machine", roles.PLACE))


def step_parameters(parser) -> None:
    """The training step: chunks, averages, warm-up, and how the machine computes it."""
    group = roles.group(parser, "steps", roles.METHOD)
    step.updates(group)
    step.warm_up(group)
    step.computation(group)


def evaluation_parameters(parser) -> None:
    """What is measured, on what, and how the best epoch is chosen."""
    group = roles.group(parser, "evaluation", roles.EVALUATION)
    evaluation.metrics_and_selection(group)
    evaluation.splits(group)
    evaluation.relevance(group)
    evaluation.computation(group)
    evaluation.embeddings(group)
    whitening.add_arguments(group)
    metrics.add_arguments(group)
    evaluation.files(group)
    evaluation.jobs(group)


def logging_parameters(parser) -> None:
    """Where a run is written, and under which name."""
    group = roles.group(parser, "records", roles.RECORDS)
    records.names(group)
    records.files(group)
    records.online_service(group)


def run_parameters(parser) -> None:
    """Configuration files, resume, and flags that end the program before training."""
    group = roles.group(parser, "configuration and resume", roles.CONTROL)
    run.configuration(group)
    run.resume(group)
    run.folds(group)
    run.rehearsals(group)
    run.information(group)


def get_parser() -> argparse.ArgumentParser:
    """The parser with every flag of the program and of its plug-ins."""
    parser = Parser(
        NAMED,
        prog="main.py",
        formatter_class=help_pages.Formatter,
        allow_abbrev=False,
        add_help=False,
        usage="python main.py [flags]",
    )
    parser.plug_ins = {}
    for registry in REGISTRIES.values():
        parser.plug_ins |= {f"{registry.kind} {name}": module for name, module in registry.modules().items()}
    shared_flags.add_arguments(parser)
    basic_training_parameters(parser)
    step_parameters(parser)
    evaluation_parameters(parser)
    logging_parameters(parser)
    run_parameters(parser)
    for registry in REGISTRIES.values():
        registry.add_arguments(parser)
    inner = [module.INNER_LOSS for module in parser.plug_ins.values() if hasattr(module, "INNER_LOSS")]
    named = NAMED | dict.fromkeys(inner, criteria.REGISTRY)
    for action in parser._actions:
        if action.dest in named:
            action.type = named[action.dest].resolve
    parser.add_negations()
    return parser


def declared_roles() -> roles.Roles:
    """Flag -> its role, of every flag of the program and of its plug-ins."""
    return roles.declared(get_parser())


def read(argv: list[str] | None = None) -> argparse.Namespace:
    """The checked options, an `options.options.Options`. Without side effects: no folder, no device, no seeding.

    Later ones win: defaults, --config files, the saved run on resume or reproduction, the command line. A mistake: exit
    2, one line.
    """
    try:
        return resolve(argv)
    except UserError as error:
        get_parser().error(str(error))


def resolve(
    argv: list[str] | None = None,
    searched: Collection[str] = (),
    config_files: Sequence[tuple] = (),
    is_checked: bool = True,
) -> argparse.Namespace:
    """As `read`; a mistake raises UserError.

    Args:
        searched: flags whose values a search varies: what has no effect with one of them, and would with another, is
            not refused.
        config_files: files that are read already, path and lines of `configs.nodes`; those of --config win over them.
        is_checked: options that cannot work are refused.
    """
    if argv is None:
        argv = sys.argv[1:]
    plug_in_folders.use(argv)
    parser = get_parser()
    parser.exits = False
    return composition.compose(parser, argv, searched, config_files, is_checked)


def unchecked(argv: list[str]) -> argparse.Namespace:
    """As `resolve`, for a command that is known to work and is not run. Its checks would import large packages."""
    return resolve(argv, is_checked=False)


def listing(kind: str) -> list[tuple[str, str]]:
    """(name, caption) of the plug-ins of one kind of `LISTS`."""
    if kind == "metrics":
        return metrics.listing()
    if kind not in REGISTRIES:
        raise unknown("list", kind, LISTS)
    registry = REGISTRIES[kind]
    captions = [(name, registry.caption(name)) for name in registry.names()]
    if kind == "architectures":
        captions += architectures.LISTED
    return captions


def answer(opt) -> str | None:
    """The text that --list, --find, --explain, --check_data or --print_config asks for; None for a run."""
    if opt.find is not None:
        return help_pages.find(get_parser(), opt.find)
    if opt.explain:
        return help_pages.explain(opt)
    if opt.check_data:
        return help_pages.checked(datasets.problems(opt))
    if opt.list is not None:
        return help_pages.captions(listing(opt.list))
    if opt.print_config:
        return yaml.safe_dump(opt.saved(), sort_keys=True).rstrip()
    return None
