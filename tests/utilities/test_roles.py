"""Every flag has a role; what resume, search and records do with a flag follows from it, a user's plug-in's flag included."""

import argparse

import pytest

import parameters
from utilities import roles
from utilities.roles import CONTROL, DATA, EVALUATION, METHOD, PLACE, SELECTION, Roles


def test_every_flag_has_a_role():
    parser = parameters.get_parser()
    declared = roles.declared(parser)
    assert set(declared) == {action.dest for action in parser._actions} - {"help"}


def test_a_flag_without_a_role_is_refused():
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument_group("mine").add_argument("--mine")
    with pytest.raises(LookupError, match="mine"):
        roles.declared(parser)


def test_a_flag_may_say_otherwise_than_its_group():
    parser = argparse.ArgumentParser(add_help=False)
    group = parser.add_argument_group("mine")
    group.role = METHOD
    group.add_argument("--a")
    group.add_argument("--b").role = PLACE
    assert roles.declared(parser) == {"a": METHOD, "b": PLACE}


def test_what_is_never_saved():
    assert roles.declared(parameters.get_parser()).having(saved=False) == {
        "wandb_key", "comet_api_key", "config", "print_config", "list", "find", "explain", "dry_run", "check_data", "profile_steps", "evaluate_only", "memory_weight", "embed_regularizer_weight", "weight_regularizer_weight", "resume", "resume_from", "resume_allow_changes",
        "reproduce_results", "evaluate", "evaluate_ensemble", "aggregate_only", "folds",
    }  # fmt: skip
    assert not {"wandb_key", "config", "resume"} & set(parameters.read(["--dataset", "glyphs", "--wandb_key", "secret"]).saved())


def test_what_never_counts_as_a_change():  # DESIGN, section 9
    free = roles.declared(parameters.get_parser()).having(change=False)
    assert {"source_path", "save_path", "gpu", "kernels", "log_online", "resume", "evaluate", "wandb_key"} <= free
    assert not {"lr", "loss", "dataset", "seed", "savename", "bs", "evaltypes", "precision"} & free


def test_what_may_never_change_and_what_is_measured():
    declared = roles.declared(parameters.get_parser())
    assert {"dataset", "split_scheme", "use_tv_split", "tv_split_perc", "split_sets"} <= declared.having(fixed="always")
    assert declared.having(fixed="first") == {"storage_metrics", "evaltypes"}
    assert "eval_pca" in declared.having(measured=True) and "lr" not in declared.having(measured=True)
    assert DATA.forbids("a", "b") and not DATA.forbids("a", "a") and not METHOD.forbids(1, 2)
    assert SELECTION.forbids(["a", "b"], ["b", "a"]) and not SELECTION.forbids(["a", "b"], ["a"])


def test_flags_of_plug_ins_are_of_the_method_or_the_data():
    declared = roles.declared(parameters.get_parser())
    assert declared["loss_margin_beta"] is METHOD and declared["arch"] is METHOD and declared["dataset"] is DATA
    assert not declared["seed"].compared and declared["evaluation_metrics"].name == "extent" and EVALUATION.compared


def test_a_flag_of_another_clone_is_of_the_method():
    assert Roles({"list": CONTROL})["loss_unheard_of_margin"] is METHOD
