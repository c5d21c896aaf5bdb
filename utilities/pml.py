"""Losses and miners of pytorch-metric-learning, built from a class name and `key=value` words of the command line."""

import importlib
import inspect

from utilities.errors import UserError
from utilities.registry import unknown
from utilities.words import parse_kwargs

_JOINS = "takes other losses as arguments, which a command line cannot name"
# classes of the package that are no loss of embeddings and labels by themselves
NOT_ALONE = {
    "CrossBatchMemory": _JOINS,
    "MultipleLosses": _JOINS,
    "SelfSupervisedLoss": _JOINS,
    "GenericPairLoss": (
        "is a base of losses, without a formula of its own (--loss gpw has the formula that it is named after)"
    ),
    "ManifoldLoss": "uses no labels (--loss manifold does)",
    "VICRegLoss": "compares two views of the images and uses no labels (--loss vicreg does)",
}
MISREADS = {"ThresholdConsistentMarginLoss"}  # takes a reference, but looks its rows up in the batch
OWN_PAIRS = {"NCALoss", "AngularLoss"}  # form pairs beyond those that they are given, so that no image can be left out


def build(package: str, class_name: str | None, kwargs: list[str] | None, **defaults):
    """An instance of `pytorch_metric_learning.<package>.<class_name>`.

    Args:
        package: `"losses"` or `"miners"`.
        kwargs: `key=value` words that go to the constructor.
        defaults: `num_classes`, `embedding_size`: given where the constructor has such an argument and `kwargs` does
        not name it.

    Raises UserError where the package is absent, the class is missing or no loss by itself, a word is no `key=value`,
    or the class refuses.
    """
    try:
        module = importlib.import_module(f"pytorch_metric_learning.{package}")
    except ImportError as error:
        raise UserError(
            f"pytorch_metric_learning.{package} cannot be imported ({error}): pip install pytorch-metric-learning"
        ) from error
    classes = {}
    for name, member in inspect.getmembers(module, inspect.isclass):
        if not name.startswith(("_", "Base")) and not name.endswith("Mixin"):
            classes[name] = member
    kind = f"class of pytorch_metric_learning.{package}"
    if class_name is None:
        prefix = "loss" if package == "losses" else "miner"
        raise UserError(f"no {kind} is named: give one with --{prefix}_pml_class")
    if class_name not in classes:
        raise unknown(kind, class_name, classes)
    if class_name in NOT_ALONE:
        raise UserError(
            f"{class_name} of pytorch_metric_learning.{package} {NOT_ALONE[class_name]}: write a file in "
            "criteria/ around it (CONTRIBUTING.md)"
        )
    accepted = _arguments(classes[class_name])
    chosen = parse_kwargs(kwargs)
    arguments = {name: value for name, value in defaults.items() if name in accepted and name not in chosen}
    arguments |= chosen
    try:
        return classes[class_name](**arguments)
    except (TypeError, ValueError, AssertionError) as error:
        words = [f"{name}={value!r}" for name, value in arguments.items()]
        raise UserError(
            f"{kind} {class_name}({', '.join(words)}) cannot be built: {error}; it takes {', '.join(accepted)}"
        ) from error


def _arguments(cls: type) -> list[str]:
    """Names of the arguments that the constructor takes, those it hands on to its bases included."""
    names = []
    for base in cls.__mro__:
        if "__init__" not in vars(base) or base.__module__.split(".")[0] != "pytorch_metric_learning":
            continue
        parameters = list(inspect.signature(base.__init__).parameters.values())[1:]
        for parameter in parameters:
            is_named = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
            if is_named and parameter.name not in names:
                names.append(parameter.name)
        if all(p.kind is not p.VAR_KEYWORD for p in parameters):
            # no **kwargs: nothing is handed on to the bases
            break
    return names
