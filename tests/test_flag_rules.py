"""No flag is silent: set alone, each is refused, noted at the start of the run, or read by it.

Noted are flags of plug-ins that the run does not use.
"""

import argparse
import sys
from pathlib import Path

import pytest
import yaml

import datasets
import main
import parameters
from options import composition
from options.flags import roles, rules
from runs import idle
from tests.kit import runs as kit
from tests.kit.flags import words_of
from tests.kit.refusals import refused
from utilities.errors import UserError

ROOT = Path(__file__).resolve().parent.parent
PARSER = parameters.get_parser()
PARSER.exits = False
ACTIONS = {action.dest: action for action in PARSER._actions if action.dest != "help"}
# flags that options/ and `parameters.answer` read
READ_BEFORE_A_RUN = {
    *("print_config", "explain", "find", "list", "check_data", "resume_or_start", "plugins"),
    "eval_size_of_tsne",  # by the pictures, which tests leave out
    "no_train_metrics",  # it changes --splits_to_eval
    "resume_allow_changes",  # of a run that goes on; a search reads it too
    *("project", "wandb_key", "comet_api_key"),  # the run's record holds the project; keys may always be there
}
ACTS_IN_OTHER_RUNS = {
    "allow_partial_dataset",  # of data whose files are missing
    "dataset_name",  # in tables
    "weights_cache",  # of weights that are downloaded
}


def resolved(*words):
    return composition.compose(PARSER, kit.words_of("--dataset glyphs", *words))


def looks_at_all_flags(path: Path) -> bool:
    """Whether a file reads flags to compose or check them, so that its reading one shows no effect."""
    name = path.as_posix()
    # plug_ins.py hands plug-ins the flags of their tables
    if name == "options/flags/plug_ins.py":
        return False
    return name.startswith(("options/", "runs/idle.py", "utilities/registry.py"))


@pytest.fixture(scope="module")
def read_flags(folder_data, tmp_path_factory):
    """The command line of a small run, and the flags that it reads."""
    short = "--arch conv4_normalize --kernels 0 --n_epochs 1 --bs 8"
    words = kit.on_folder(folder_data, tmp_path_factory.mktemp("rules"), short)
    opt = composition.compose(PARSER, words)
    names = set()

    def recorded(self, name):
        reader = Path(sys._getframe(1).f_code.co_filename)
        is_own = reader.is_relative_to(ROOT) and ".venv" not in reader.parts
        if is_own and not looks_at_all_flags(reader.relative_to(ROOT)):
            names.add(name)
        return object.__getattribute__(self, name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(argparse.Namespace, "__getattribute__", recorded, raising=False)
        main.main(opt)
    return words, names & ACTIONS.keys()


def test_every_flag_alone_acts_or_is_refused_or_noted(read_flags):
    words, read = read_flags
    assert {"lr", "scheduler", "tau", "loss_margin_nu"} <= read and len(read) > 100
    silent = []
    for flag, action in ACTIONS.items():
        if action.help is argparse.SUPPRESS or flag in read | READ_BEFORE_A_RUN | ACTS_IN_OTHER_RUNS:
            continue
        try:
            opt = composition.compose(PARSER, [*words, *words_of(action)])
        except UserError as error:
            assert "\n" not in str(error), flag
            continue
        if not any(f"--{flag}" in line for line in idle.idle(opt)):
            silent.append(flag)
    assert not silent, "set alone, nobody reads them, and nobody says so: declare .needs, .only_with or .excludes"


def test_rules_name_flags_and_values_that_there_are():
    for flag, action in ACTIONS.items():
        assert {*rules._needs(action), *rules._excludes(action)} <= ACTIONS.keys() - {flag}, flag
        for chooser, values in [*rules._only_with(action).items(), *rules._idle_with(action).items()]:
            choices = datasets.REGISTRY.names() if chooser == "dataset" else ACTIONS[chooser].choices
            if choices is not None:
                assert set(values) <= set(choices), flag
            elif ACTIONS[chooser].nargs == 0:
                assert values == [True], flag
            else:
                assert [(ACTIONS[chooser].type or str)(str(value)) for value in values] == values, flag
        if any(hasattr(action, rule) for rule in ("needs", "only_with", "idle_with", "excludes")):
            assert " with --" in rules.help_of(action), flag


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--scheduler cosine --tau 5", "--tau 5 has no effect with --scheduler cosine: take --scheduler step, or"),
        ("--scheduler onecycle --gamma .5", "--gamma 0.5 has no effect with --scheduler onecycle"),
        ("--plateau_patience 3", "--plateau_patience 3 has no effect with --scheduler step: take --scheduler plateau"),
        ("--momentum .5", "--momentum 0.5 has no effect with --optim adam: take --optim sgd or rmsprop"),
        ("--rerank alpha_qe --rerank_k1 5", "--rerank_k1 5 has no effect with --rerank alpha_qe"),
        ("--rerank_m 5", "--rerank_m 5 has no effect without --rerank superglobal: add it"),
        ("--rerank_pairs_top 5", "--rerank_pairs_top 5 has no effect without --rerank_pairs: add it"),
        ("--rerank k_reciprocal --rerank_dba 3 1", "--rerank_dba 3 1 has no effect with --rerank k_reciprocal"),
        ("--rerank_dba 2.5 1", "--rerank_dba 2.5 1: K, the first, is a whole number of at least 1"),
        ("--rerank_dba 2 1 --eval_space hyperbolic", "--rerank_dba 2 1 goes by cosines: leave it out, or --eval_space"),
        ("--rerank superglobal --eval_space hyperbolic", "--rerank superglobal goes by cosines"),
        ("--rerank_dba 2 1 --evaluation_metrics known_auroc", "known_auroc' goes by distances, which --rerank_dba 2 1"),
        ("--rerank k_reciprocal --rerank_n 5", "--rerank_n 5 has no effect with --rerank k_reciprocal"),
        ("--eval_pca 8 --eval_whiten fit", "--eval_pca 8 excludes --eval_whiten fit: leave one out"),
        ("--log_artifacts", "--log_artifacts has no effect without --log_online: add it"),
        ("--color_jitter_p .5", "--color_jitter_p 0.5 has no effect without --color_jitter"),
    ],
)
def test_what_was_typed_and_has_no_effect_is_refused(words, message):
    with refused(message):
        resolved(words)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--split_sets 2", "--split_sets 2 has no effect with --split_scheme half: take --split_scheme class_disjoint"),
        ("--split_test_start .1", "has no effect with --split_scheme half"),
        ("--tv_split_perc .5", "--tv_split_perc 0.5 has no effect without --use_tv_split: add it, or leave"),
        ("--lora_alpha 4", "--lora_alpha 4 has no effect without --lora_rank"),
        ("--prompt_step 4", "--prompt_step 4 has no effect without --prompts"),
        ("--memory_start 5", "--memory_start 5 has no effect without --memory_size"),
        ("--metrix_level feature", "--metrix_level feature has no effect without --metrix"),
        ("--language_T 2", "--language_T 2 has no effect without --language_vectors"),
        ("--embed_regularizer zero_mean --embed_regularizer_p 3", "no effect with --embed_regularizer zero_mean: take"),
        ("--subset_trials 9", "--subset_trials 9 has no effect without --subset_mining maximum_loss: add it"),
        ("--s2sd_features_after 9", "--s2sd_features_after 9 has no effect without --s2sd_features"),
        ("--loss_learn_lr .1", "--loss_learn_lr 0.1 has no effect without --loss_learn"),
        ("--loss_margin_beta_constant --loss_margin_beta_lr .1", "no effect with --loss_margin_beta_constant: leave"),
        ("--loss pnp --loss_pnp_b 3", "--loss_pnp_b 3 has no effect with --loss_pnp_variant Dq: take --loss_pnp_varia"),
        (
            "--batch_mining easy_hard --miner_easy_hard_pos all --miner_easy_hard_pos_range 0 1",
            "--miner_easy_hard_pos_range 0 1 has no effect with --miner_easy_hard_pos all: leave one out",
        ),
        ("--loss triplet --loss_vectors_start pml", "--loss_vectors_start pml has no effect: --loss triplet has no"),
        ("--loss hier --loss_hier_base triplet --loss_vectors_start pml", "has no effect: --loss hier has no class"),
    ],
)
def test_a_flag_without_its_switch_is_refused(words, message):
    with refused(message):
        resolved(words)


def test_a_start_of_class_vectors_is_taken_where_a_loss_has_some_and_from_a_preset_for_all_losses():
    for words in ("--loss softmax", "--loss hier", "--trainer s2sd --s2sd_target softmax"):
        assert resolved(*words.split(), "--loss_vectors_start", "pml").loss_vectors_start == "pml"
    words = ["--config", "powerful_benchmarker", "--dataset", "cub200", "--loss", "triplet", "--batch_mining", "all"]
    assert not [line for line in idle.idle(resolved(*words)) if "--loss_vectors_start" in line]
    inside = "--trainer s2sd --s2sd_target hier --loss margin --loss_hier_base proxyanchor --loss_proxyanchor_alpha 16"
    opt = resolved(*inside.split(), "--loss_vectors_start", "pml")
    assert not [line for line in idle.idle(opt) if "no effect" in line]
    words = ["--dataset", "glyphs", "--loss_vectors_start", "pml"]
    assert composition.compose(PARSER, words, searched={"loss"}).loss_vectors_start == "pml"


def test_a_files_value_without_effect_is_noted_and_so_is_a_typed_default(tmp_path):
    file = tmp_path / "preset.yaml"
    file.write_text("scheduler: step\ntau: [5]\ngamma: 0.5\nuse_tv_split: true\ntv_split_perc: 0.5\n")
    opt = resolved("--config", file, "--scheduler cosine --no-use_tv_split")
    assert set(opt.without_effect) == {"tau", "gamma", "tv_split_perc"}
    assert "--tau 5 has no effect with --scheduler cosine: take --scheduler step, or leave --tau out" in idle.idle(opt)
    assert set(resolved("--scheduler cosine --tau 1000").without_effect) == {"tau"}
    with refused("--gamma 0.2 has no effect"):
        resolved("--config", file, "--scheduler cosine --gamma 0.2")


def test_an_old_run_goes_on_and_repeats_its_command(tmp_path):
    flags = resolved("--n_epochs 3 --save_path", tmp_path).saved()
    folder = tmp_path / "glyphs" / flags["savename"]
    folder.mkdir(parents=True)
    # --momentum and --gamma were accepted here before there were rules
    old = {**flags, "momentum": 0.5, "scheduler": "cosine", "gamma": 0.5}
    (folder / "parameters.yaml").write_text(yaml.safe_dump(old))
    for words in (
        f"--resume_from {folder}",
        f"--resume_from {folder} --momentum .5 --gamma .5 --n_epochs 9",
        f"--resume_or_start --save_path {tmp_path} --momentum .5 --scheduler cosine",
        f"--reproduce_results {folder} --save_path {tmp_path}/again",
        f"--reproduce_results {folder} --save_path {tmp_path}/again --momentum .5",
        f"--resume_from {folder} --decay .1 --nesterov --resume_allow_changes",
        f"--config {folder}/parameters.yaml --save_path {tmp_path}/again",
    ):
        opt = resolved(words)
        assert (opt.momentum, opt.gamma) == (0.5, 0.5), words
        assert set(opt.without_effect) - {"nesterov"} == {"momentum", "gamma"}, words
    for words in (f"--evaluate --resume_from {folder}", f"--reproduce_results {folder}"):
        with refused("--rerank_k1 7 has no effect without --rerank k_reciprocal"):
            resolved(words, "--rerank_k1 7")


def test_flags_of_records_are_refused_of_an_old_run_too(tmp_path):
    flags = resolved("--n_epochs 3 --save_path", tmp_path).saved()
    folder = tmp_path / "glyphs" / flags["savename"]
    folder.mkdir(parents=True)
    (folder / "parameters.yaml").write_text(yaml.safe_dump(flags))
    with refused("--log_artifacts has no effect without --log_online"):
        resolved(f"--resume_from {folder} --log_artifacts")


def test_unchecked_flags_are_not_refused():
    assert parameters.unchecked(["--dataset", "glyphs", "--momentum", ".5"]).momentum == 0.5


def test_what_acts_with_another_value_of_a_searched_flag_is_not_refused():
    words = "--dataset glyphs --momentum .5".split()
    assert set(composition.compose(PARSER, words, searched={"optim"}).without_effect) == {"momentum"}
    with refused("--momentum 0.5 has no effect with --optim adam"):
        composition.compose(PARSER, words, searched={"momentum", "bs"})


def test_every_flag_has_a_role_that_its_rule_leaves_alone():
    assert roles.declared(PARSER)["eval_whiten_dims"] == roles.EVALUATION
    assert roles.declared(PARSER)["color_jitter_p"] == roles.METHOD
