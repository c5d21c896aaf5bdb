"""Numeric flags declare what they allow: any value is taken, or refused in one line that names the flag, wherever it comes from."""

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
from utilities import errors
from utilities.errors import UserError, one_line_errors
from utilities.numbers import LARGEST, MOST_64, OutOfRange, Range, number, whole

BAD = ["nan", "inf", "-inf", "-1", "0", "1e308", "1e9", str(2**63), str(2**70), "x", ""]
PARSER = parameters.get_parser()
FLAGS = {action.dest: action for action in PARSER._actions if isinstance(action.type, Range)}
OF_SAMPLERS = {"data_d2_coreset_lambda": "d2_coreset", "data_gc_coreset_lim": "greedy_coreset"}  # the others: any *_batchmatch


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
        return [
            "--loss",
            "triplet",
            "--batch_mining",
            max((n for n in batch_mining.REGISTRY.names() if flag.startswith(f"miner_{n}_")), key=len),
        ]
    return {"momentum": ["--optim", "sgd"], "tv_split_perc": ["--use_tv_split"], "split_sets": ["--split_scheme", "class_disjoint"]}.get(
        flag, []
    )


def test_every_numeric_flag_has_a_range_that_its_default_lies_in():
    bare = [action.dest for action in PARSER._actions if action.type in (int, float)]
    assert not bare and len(FLAGS) > 110
    for action in FLAGS.values():
        for value in action.default if isinstance(action.default, list) else [action.default]:
            if value is not None:
                action.type.check(value)


def test_a_bad_value_is_taken_or_refused_in_one_line():
    for flag, action in FLAGS.items():
        refused = 0
        for text in BAD:
            try:
                opt = parsed(words(flag, text))
            except UserError as error:
                assert "\n" not in str(error) and f"--{flag}" in str(error), (flag, text, error)
                refused += 1
            else:
                value = getattr(opt, flag)
                for item in value if isinstance(value, list) else [value]:
                    assert math.isfinite(item) or action.type.inf, (flag, text, item)
                    assert abs(item) <= (MOST_64 if action.type.kind is int else LARGEST) or item == math.inf, (flag, text, item)
        assert refused >= 5, flag  # nan, -inf, 2**70, x and nothing, at least


def test_help_names_every_range():
    page = " ".join(PARSER.format_help().split())
    assert not [flag for flag, action in FLAGS.items() if action.type.rule not in page]


EXTREMES = [
    (flag, value)
    for flag, action in FLAGS.items()
    for value in dict.fromkeys(
        [action.type.least, action.type.most, action.type.special, *([-LARGEST, LARGEST] if not action.type.rule else [])]
    )
    if value is not None and flag not in ("iterations_per_epoch", "kernels", "eval_kernels", "resize_size", "crop_size")
]


@pytest.mark.parametrize("n", [8, pytest.param(len(EXTREMES), marks=pytest.mark.long)])
def test_extremes_pass_a_dry_run_or_end_in_one_line(n, folder_data, tmp_path, capsys):
    """Some of them, the same each time; all of them take minutes."""
    base = ["--dataset", "folder", "--dataset_folder_path", str(folder_data), "--save_path", str(tmp_path), "--arch", "conv4_normalize",
            "--embed_dim", "8", "--bs", "8", "--kernels", "0", "--resize_size", "36", "--crop_size", "32", "--evaluation_metrics", "e_recall@1",
            "--n_epochs", "1", "--dry_run"]  # fmt: skip
    ended = []
    for flag, value in random.Random(1).sample(EXTREMES, n):
        try:
            with one_line_errors():
                main.main(parsed([*base, *readers(flag), *words(flag, str(value))]))
            ended.append("passed")
        except SystemExit as stop:
            *warnings, line = capsys.readouterr().err.strip().splitlines()
            assert stop.code == 2 and line.startswith("main.py: error: "), (flag, value, line)
            assert not any("error" in said.lower() for said in warnings), (flag, value, warnings)
        except Exception as error:  # the flags are drawn: the message has to name them
            pytest.fail(f"{readers(flag)} --{flag} {value}: {type(error).__name__} {error}")
    assert ended, "the base command itself should pass"


@pytest.mark.parametrize(
    ("a_type", "rule", "taken", "refused"),
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
def test_ranges(a_type, rule, taken, refused):
    assert a_type.rule == rule
    for text in taken:
        assert a_type(text) == float(text) and isinstance(a_type(text), a_type.kind)
    for text in refused:
        with pytest.raises(OutOfRange, match="^must be "):
            a_type(text)
    with pytest.raises(argparse.ArgumentTypeError, match="invalid"):
        a_type("x")


def test_files_saved_runs_and_select_know_the_range(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("momentum: 1.5\n")
    with pytest.raises(UserError, match="momentum: 1.5 must be below 1"):
        parsed(["--config", str(path)])
    with pytest.raises(UserError, match="loss_ntxent_temperature 0 must be at least 1e-06"):
        criteria.select("ntxent", loss_ntxent_temperature=0, embed_dim=4)
    with pytest.raises(UserError, match="loss_histogram_nbins 2.5 must be a whole number"):
        criteria.select("histogram", loss_histogram_nbins=2.5, embed_dim=4)
    assert criteria.select("ntxent", loss_ntxent_temperature=0.5, embed_dim=4)


def test_plateau_needs_a_factor_below_one():
    with pytest.raises(UserError, match="--gamma 1 must be below 1 with --scheduler plateau"):
        parsed(["--scheduler", "plateau", "--gamma", "1", "--use_tv_split"])
    assert parsed(["--gamma", "1"]).gamma == 1


def test_half_a_character_is_refused_in_one_line(tmp_path):
    texts = [action.dest for action in PARSER._actions if action.type is None and action.nargs is None and not action.choices]
    assert len(texts) > 10
    for flag in texts:
        with pytest.raises(UserError, match=rf"--{flag}.*'a.ud800' holds") as caught:
            parsed([f"--{flag}=a\ud800"])
        str(caught.value).encode()
    (tmp_path / "a.yaml").write_text('group: "a\\ud800"\n')
    with pytest.raises(UserError, match="group"):
        parsed(["--config", str(tmp_path / "a.yaml")])


def test_memory_that_cannot_be_had_is_one_line(capsys):
    for fails in (lambda: torch.empty(2**50), lambda: torch.empty(2**62, 2**62), lambda: bytearray(2**62)):
        with pytest.raises(SystemExit) as stop, one_line_errors():
            fails()
        told = capsys.readouterr().err
        assert stop.value.code == 2 and told.count("\n") == 1 and "lower" in told.lower(), told
    with pytest.raises(RuntimeError, match="other"), one_line_errors():
        raise RuntimeError("other")
    assert errors.too_large(RuntimeError("other")) is None
