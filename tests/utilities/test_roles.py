"""Every flag has a role; what resume, search and records do with a flag follows from it, a user's plug-in's flag
included.
"""

import argparse

import pytest

import parameters
from options.flags import roles
from options.flags.roles import CONTROL, DATA, METHOD, PLACE, SELECTION, Roles

PARSER = parameters.get_parser()
DECLARED = roles.declared(PARSER)


def test_every_flag_has_a_role_its_own_before_its_groups():
    assert set(DECLARED) == {action.dest for action in PARSER._actions} - {"help"}
    parser = argparse.ArgumentParser(add_help=False)
    group = parser.add_argument_group("mine")
    group.role = METHOD
    group.add_argument("--a")
    group.add_argument("--b").role = PLACE
    assert roles.declared(parser) == {"a": METHOD, "b": PLACE}
    parser.add_argument_group("another").add_argument("--c")
    with pytest.raises(LookupError, match="--c has no role"):
        roles.declared(parser)
    assert Roles({"list": CONTROL})["loss_unheard_of_margin"] is METHOD, "a flag of another clone"


def test_what_is_never_saved():
    assert DECLARED.having(saved=False) == {
        "wandb_key",
        "comet_api_key",
        "config",
        "plugins",
        "print_config",
        "list",
        "find",
        "explain",
        "dry_run",
        "check_data",
        "profile_steps",
        "evaluate_only",
        "memory_weight",
        "embed_regularizer_weight",
        "weight_regularizer_weight",
        "resume",
        "resume_or_start",
        "resume_from",
        "resume_allow_changes",
        "reproduce_results",
        "evaluate",
        "evaluate_ensemble",
        "aggregate_only",
        "folds",
    }
    assert not {"wandb_key", "config", "resume"} & set(
        parameters.read("--dataset glyphs --wandb_key secret".split()).saved()
    )


def test_what_may_change_what_may_not_and_what_is_measured():
    free = DECLARED.having(change=False)
    assert {"source_path", "save_path", "gpu", "kernels", "log_online", "resume", "evaluate", "wandb_key"} <= free
    assert not {"lr", "loss", "dataset", "seed", "savename", "bs", "evaltypes", "precision"} & free
    assert {"dataset", "split_scheme", "use_tv_split", "tv_split_perc", "split_sets"} <= DECLARED.having(fixed="always")
    assert DECLARED.having(fixed="first") == {"storage_metrics", "evaltypes"}
    assert "eval_pca" in DECLARED.having(measured=True) and "lr" not in DECLARED.having(measured=True)
    assert DATA.forbids("a", "b") and not DATA.forbids("a", "a") and not METHOD.forbids(1, 2)
    assert SELECTION.forbids(["a", "b"], ["b", "a"]) and not SELECTION.forbids(["a", "b"], ["a"])
    assert DECLARED["loss_margin_beta"] is METHOD and DECLARED["arch"] is METHOD and DECLARED["dataset"] is DATA
    assert not DECLARED["seed"].compared
