"""Numeric flags declare what they allow: any value is taken, or refused in one line that names the flag, wherever it
comes from.
"""

import argparse
import math
import random

import pytest
import torch

import batch_mining
import criteria
import main
import parameters
from options import composition
from tests.kit.runs import run_words
from utilities.errors import UserError, one_line_errors
from utilities.numbers import LARGEST, MOST_64, OutOfRange, Range, number, whole

BAD = ["nan", "inf", "-inf", "-1", "0", "1e308", str(2**63), "x", ""]
PARSER = parameters.get_parser()
FLAGS = {action.dest: action for action in PARSER._actions if isinstance(action.type, Range)}
# further ones: any *_batchmatch
OF_SAMPLERS = {"data_d2_coreset_lambda": "d2_coreset", "data_gc_coreset_lim": "greedy_coreset"}


def parsed(argv):
    """As `parameters.resolve`, which builds a parser each time."""
    PARSER.exits = False
    return composition.compose(PARSER, argv)


def words(flag, text):
    """A flag as the command line has it; where it takes several values, all the same."""
    nargs = FLAGS[flag].nargs
    return [f"--{flag}", *[text] * nargs] if isinstance(nargs, int) else [f"--{flag}={text}"]


def readers(flag):
    """The flags that choose what reads this one."""
    if flag.startswith("data_"):
        return ["--data_sampler", OF_SAMPLERS.get(flag, "disthist_batchmatch")]
    if losses := [name for name in criteria.REGISTRY.names() if flag.startswith(f"loss_{name}_")]:
        loss = max(losses, key=len)
        allowed = getattr(criteria.REGISTRY.module(loss), "ALLOWED_MINING_OPS", None) or ["random"]
        return ["--loss", loss, "--batch_mining", allowed[0]]
    if flag.startswith("miner_"):
        miners = [name for name in batch_mining.REGISTRY.names() if flag.startswith(f"miner_{name}_")]
        return ["--loss", "triplet", "--batch_mining", max(miners, key=len)]
    return READERS.get(flag, "").split()


READERS = {
    "momentum": "--optim sgd",
    "tv_split_perc": "--use_tv_split",
    "memory_start": "--memory_size 8",
    "memory_ema": "--memory_size 8",
    "loss_learn_lr": "--loss_learn margin",
    "subset_trials": "--subset_mining maximum_loss --subset_size 4",
    "s2sd_features_after": "--trainer s2sd --s2sd_features",
    **dict.fromkeys(("embed_regularizer_p", "embed_regularizer_power"), "--embed_regularizer lp"),
}
for flag in ("split_test_size", "split_test_start", "split_partitions", "split_sets"):
    READERS[flag] = "--split_scheme class_disjoint"


def as_list(value):
    return value if isinstance(value, list) else [value]


def test_every_numeric_flag_has_a_range_that_its_default_lies_in_and_its_help_names():
    assert not [action.dest for action in PARSER._actions if action.type in (int, float)] and len(FLAGS) > 110
    page = " ".join(PARSER.format_help().split())
    for action in FLAGS.values():
        assert action.type.rule in page
        for value in as_list(action.default):
            if value is not None:
                action.type.check(value)


def refused_by_itself(a_type, text):
    try:
        a_type(text)
    except (argparse.ArgumentTypeError, ValueError):
        return True
    return False


def test_a_bad_value_is_taken_or_refused_in_one_line():
    """A type refuses in the same words everywhere: one such value per flag goes through the whole command line."""
    for flag, action in FLAGS.items():
        refused = [text for text in BAD if refused_by_itself(action.type, text)]
        for text in (text for text in BAD if text not in refused[1:]):
            try:
                opt = parsed(words(flag, text))
            except UserError as error:
                assert "\n" not in str(error) and f"--{flag}" in str(error), (flag, text, error)
            else:
                largest = MOST_64 if action.type.kind is int else LARGEST
                for item in as_list(getattr(opt, flag)):
                    assert math.isfinite(item) or action.type.inf, (flag, text, item)
                    assert abs(item) <= largest or item == math.inf, (flag, text, item)
        # nan, -inf, 2**63, x and nothing, at least
        assert len(refused) >= 5, flag


NOT_TRIED = "iterations_per_epoch profile_steps kernels eval_kernels resize_size crop_size".split()
EXTREMES = []
for flag, action in FLAGS.items():
    ends = [action.type.least, action.type.most, action.type.special]
    if not action.type.rule:
        ends += [-LARGEST, LARGEST]
    if flag not in NOT_TRIED:
        EXTREMES += [(flag, value) for value in dict.fromkeys(ends) if value is not None]


@pytest.mark.parametrize("n", [4, pytest.param(len(EXTREMES), marks=pytest.mark.long)])
def test_extremes_pass_a_dry_run_or_end_in_one_line(n, folder_data, tmp_path, capsys):
    """Some of them, the same each time; all of them take minutes."""
    base = run_words(folder_data, tmp_path, "--resize_size 36 --crop_size 32 --n_epochs 1 --dry_run")
    passed = 0
    for flag, value in random.Random(1).sample(EXTREMES, n):
        try:
            with one_line_errors():
                main.main(parsed([*base, *readers(flag), *words(flag, str(value))]))
            passed += 1
        except SystemExit:
            *warnings, line = capsys.readouterr().err.strip().splitlines()
            assert line.startswith("main.py: error: ") and "error" not in str(warnings).lower(), (flag, value, line)
        except Exception as error:
            # the flags are drawn: the message has to name them
            pytest.fail(f"{readers(flag)} --{flag} {value}: {type(error).__name__} {error}")
    assert passed


@pytest.mark.parametrize(
    ("a_type", "rule", "accepted", "refused"),
    [
        (whole(1), "at least 1", ["1", "12", "3"], ["0", str(2**63)]),
        (whole(0, 10), "from 0 to 10", ["0", "10"], ["-1", "11"]),
        (whole(1, special=-1), "at least 1, or -1", ["-1", "1"], ["-2", "0"]),
        (number(), "", ["-0.5", "1e6", "-1e6"], ["inf", "nan", "1e7"]),
        (number(0, below=1), "at least 0 and below 1", ["0", ".99"], ["1", "-.1", "inf", "nan"]),
        (number(above=0, most=1), "above 0 and at most 1", ["1e-9", "1"], ["0", "1.1", "nan"]),
        (number(0, special=-1), "at least 0, or -1", ["-1", "0", "1"], ["-2", "-.5", "inf"]),
        (number(inf=True), "", ["inf", "0"], ["-inf", "nan"]),
    ],
)
def test_ranges(a_type, rule, accepted, refused):
    assert a_type.rule == rule
    for text in accepted:
        assert a_type(text) == float(text) and isinstance(a_type(text), a_type.kind)
    for text in refused:
        with pytest.raises(OutOfRange, match="^must be "):
            a_type(text)
    with pytest.raises(argparse.ArgumentTypeError, match="invalid"):
        a_type("x")


def test_select_and_combinations_know_the_range():
    with pytest.raises(UserError, match="loss_ntxent_temperature 0 must be at least 1e-06"):
        criteria.select("ntxent", loss_ntxent_temperature=0, embed_dim=4)
    with pytest.raises(UserError, match="loss_histogram_nbins 2.5 must be a whole number"):
        criteria.select("histogram", loss_histogram_nbins=2.5, embed_dim=4)
    with pytest.raises(UserError, match="--gamma 1 must be below 1 with --scheduler plateau"):
        parsed("--scheduler plateau --gamma 1 --use_tv_split".split())
    assert parsed(["--gamma", "1"]).gamma == 1


def test_half_a_character_is_refused_in_one_line():
    texts = [action for action in PARSER._actions if action.type is None and action.nargs is None]
    flags = [action.dest for action in texts if not action.choices]
    assert len(flags) > 10
    for flag in flags:
        with pytest.raises(UserError, match=rf"--{flag}.*'a.ud800' holds") as caught:
            parsed([f"--{flag}=a\ud800"])
        str(caught.value).encode()


def test_memory_that_cannot_be_had_is_one_line(capsys):
    for fails in (lambda: torch.empty(2**50), lambda: torch.empty(2**62, 2**62), lambda: bytearray(2**62)):
        with pytest.raises(SystemExit), one_line_errors():
            fails()
        message = capsys.readouterr().err
        assert message.count("\n") == 1 and "lower" in message.lower(), message
    with pytest.raises(RuntimeError, match="other"), one_line_errors():
        raise RuntimeError("other")
