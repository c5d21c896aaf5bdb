"""Rules beside a flag: what has no effect is refused in one line where it was typed, and the help says the rule."""

import argparse

import pytest

import criteria
from options.flags import rules
from tests.kit.refusals import refused
from utilities.numbers import number, whole


def declared():
    """A parser with a flag for each form of a rule."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--schedule", choices=["step", "cosine", "none"], default="step", help="a schedule")
    parser.add_argument("--rerank", choices=["one", "two"], help="a re-ranking (unset: none)")
    parser.add_argument("--warm_up", type=whole(0), default=0, help="epochs")
    parser.add_argument("--fixed", action="store_true", help="no training")
    parser.add_argument("--factor", type=number(), default=0.3, help="a factor").only_with = {"schedule": ["step"]}
    parser.add_argument("--k", type=whole(), default=20, help="neighbours").only_with = {"rerank": ["one", "two"]}
    parser.add_argument("--start", type=number(), default=0.0, help="a start").needs = "warm_up"
    parser.add_argument("--either", action="store_true", help="a switch").needs = "warm_up", "fixed"
    parser.add_argument("--decay", type=number(), default=1.0, help="a decay").idle_with = {"fixed": [True]}
    parser.add_argument("--share", type=number(), default=1.0, help="a share").idle_with = {
        "schedule": ["step", "none"]
    }
    parser.add_argument("--limit", type=number(), help="a limit (unset: none)").excludes = "warm_up", "fixed"
    return parser


def hold(words, typed=None):
    """Refuse what breaks the rules of `declared`; `typed`: the flags of the command line, if unset all changed ones."""
    parser = declared()
    opt = parser.parse_args(words.split())
    actions = parser._actions[1:]
    if typed is None:
        typed = rules.changed(actions, opt)
    rules.refuse(actions, opt, typed)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--schedule none --factor .5", "0.5 has no effect with --schedule none: take --schedule step, or leave"),
        ("--k 5", "--k 5 has no effect without --rerank one or two: add it, or leave --k out"),
        ("--start .1", "--start 0.1 has no effect without --warm_up: add it, or leave --start out"),
        ("--start .1 --warm_up 0", "has no effect without --warm_up"),
        ("--either", "--either has no effect without --warm_up or --fixed: add it, or leave --either out"),
        ("--decay .5 --fixed", "--decay 0.5 has no effect with --fixed: leave one out"),
        ("--share .5", "--share 0.5 has no effect with --schedule step: leave one out"),
        ("--limit 1 --fixed", "--limit 1 excludes --fixed: leave one out"),
        ("--limit 1 --warm_up 3", "--limit 1 excludes --warm_up 3: leave one out"),
    ],
)
def test_what_breaks_a_rule_is_refused_in_one_line(words, message):
    with refused(message):
        hold(words)


@pytest.mark.parametrize(
    "words",
    [
        "--factor .5",
        "--schedule cosine",
        "--rerank two --k 5",
        "--start .1 --warm_up 2",
        "--either --fixed",
        "--decay .5",
        "--limit 1 --warm_up 0",
        "--share .5 --schedule cosine",
    ],
)
def test_what_keeps_the_rules_passes(words):
    hold(words)


def test_only_what_was_typed_is_refused_but_flags_that_exclude_each_other_always():
    hold("--schedule none --factor .5", typed={"schedule"})
    with refused("--limit 1 excludes --fixed"):
        hold("--limit 1 --fixed", typed=set())


def test_the_help_says_the_rule():
    texts = {action.dest: rules.help_of(action) for action in declared()._actions}
    expected = {
        "factor": "a factor (only with --schedule step)",
        "rerank": "a re-ranking (unset: none)",
        "k": "neighbours (only with --rerank one or two)",
        "either": "a switch (only with --warm_up or --fixed)",
        "decay": "a decay (not with --fixed)",
        "limit": "a limit (unset: none; not with --warm_up or --fixed)",
        "share": "a share (not with --schedule step or none)",
        "warm_up": "epochs (at least 0)",
    }
    assert {name: texts[name] for name in expected} == expected


def test_another_program_is_refused_too():
    with refused("--matryoshka_heads own has no effect without --matryoshka: add it"):
        criteria.select("triplet", batchminer=None, matryoshka_heads="own")
