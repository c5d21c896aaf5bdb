"""Commands and names of powerful-benchmarker and pytorch-metric-learning run, or a line says what to type."""

import re
import shlex
from collections import Counter
from pathlib import Path

import pytest

import metrics
import parameters
from options import help as help_pages
from options.flags import migration
from search import __main__ as searcher
from tests.kit.refusals import refused
from tests.kit.runs import assert_flags, resolve
from tests.test_migration import BLOCKS
from utilities.errors import UserError

OLD_BLOCKS = [content.replace("\\\n", " ") for info, content in BLOCKS if not info]
OLD = [line for content in OLD_BLOCKS for line in content.splitlines() if line.startswith("python run")]
ALIASES = {
    "batch_size": "bs",
    "experiment_name": "savename",
    "dataset_root": "source_path",
    "root_experiment_folder": "save_path",
    "pytorch_home": "weights_cache",
    "num_epochs_train": "n_epochs",
    "resume_training": "resume",
}


@pytest.mark.parametrize("line", OLD, ids=lambda line: line[7:70])
def test_an_old_command_runs_or_says_what_to_type(line, tmp_path):
    # a placeholder such as <folder> is a name
    words = [word.strip("<>") for word in line.split()[2:]]
    try:
        if "bayesian" in line.split()[1]:
            searcher.plan(words)
        else:
            resolve(*words, "--save_path", tmp_path)
    except UserError as error:
        message = str(error)
        assert "\n" not in message and "Did you mean" not in message, message
        options = {*parameters.get_parser().options, "--bayesian_optimization_n_iter"} - {"--config", "--find"}
        names_flag = options.intersection(re.findall(r"(?<![-\w])--[a-z]\w+", message))
        assert names_flag or "no run" in message or "--config with any number" in message, message
    else:
        assert not any("{" in word or "~" in word for word in words)


def test_all_old_commands_are_tried():
    assert len(OLD) >= 32


@pytest.mark.parametrize("old", ALIASES)
def test_plain_names_are_aliases(old, folder_data, tmp_path):
    if old != "resume_training":
        value = {"batch_size": "8", "num_epochs_train": "3", "experiment_name": "test1"}.get(old, str(tmp_path))
        opt = resolve("--dataset glyphs", f"--{old}", value)
        assert str(getattr(opt, ALIASES[old])) == value
    assert f"--{old}" in help_pages.page(parameters.get_parser(), {}, [f"--{old}"])
    assert ALIASES[old] in help_pages.find(parameters.get_parser(), old)


@pytest.mark.parametrize(
    ("command", "parts"),
    {
        "--mining_funcs~OVERRIDE~ {}": ["--batch_mining", "--config"],
        "--trainer~APPLY~2: {a: 1}": ["--trainer", "--config"],
        "--optimizers {trunk_optimizer: {Adam: {lr: 0.01}}}": ["--optim adam --lr --decay"],
        "--lr~LOG_BAYESIAN~ [1e-6,1]": ["python -m search --lr~LOG_BAYESIAN~ [1e-6,1]"],
        "--optimizers {a: {RMSprop: {lr~LOG_BAYESIAN~: [0.1, 1]}}}": ["--optim adam", "python -m search"],
        "--config_models default with_resnet50": ["with any number of flat files, such as powerful_benchmarker"],
        "--split_manager~SWAP~1 {MLRCSplitManager: {}} --merge_argparse_when_resuming": [
            "--split_scheme mlrc",
            "--merge_argparse_when_resuming: here --resume_allow_changes",
        ],
        "--dataset~OVERRIDE~ {Cars196: {download: True}}": ["--dataset cars196", "--download"],
        "--bayes_opt_iters 3": ["python -m search --bayesian_optimization_n_iter"],
        "--mining_funcs {tuple_miner: {PairMarginMiner: {pos_margin: 1}}}": ["--batch_mining pairmargin"],
        "--eval_batch_size=3": ["--eval_bs"],
        "--loss TripletMarginLoss": ["--loss triplet --batch_mining all"],
        "--loss ProxyNCALoss": ["--loss proxynca_pp"],
        "--loss tripletmarginloss": ["--loss triplet "],
        "--loss softmax --batch_mining DistanceWeightedMiner": ["--batch_mining distance"],
        "--data_sampler MPerClassSampler": ["--data_sampler class_balanced"],
        "--loss SelfMadeLoss": ["--loss pml --loss_pml_class SelfMadeLoss"],
        "--trainer TrainWithClassifier": ["--trainer classifier"],
        "--dataset SOP": ["--dataset online_products"],
        "--tester WithSameParentLabelTester": ["--tester same_parent_label"],
        "--storage_metrics NMI": ["nmi"],
        "--patience null": ["--patience", "leave the flag out"],
        "--check_untrained_accuracy True": ["a switch", "without a value"],
        "--no_records false": ["a switch", "leave it out"],
        "--wandb_kez=KEY": ["--wandb_kez.", "Did you mean --wandb_key?"],
        "--reproduce_results /old/test1": ["/old/test1", "experiments/MLRC_Runs.sh"],
        "--find dataloader_num_workers --batchsize 3": ["Did you mean --batch_size?"],
        "--config_general default daml": [
            "--config_general: here for default --config powerful_benchmarker; for daml --trainer adversarial",
            "--loss triplet ",
        ],
        "--config_general default daml train_with_classifier": [
            "for daml --trainer adversarial",
            "for train_with_classifier --loss_weights classifier_loss=1",
        ],
        "--config_general [default, with_classifier]": [
            "for with_classifier --trainer classifier --classifier_lr 0.001"
        ],
        "--config_general [default,with_cascaded] --config_models [default,with_cascaded]": [
            "--config_general, --config_models: here",
            "for with_cascaded --trainer cascaded",
        ],
        "--config_transforms [default, with_unsupervised]": ["for with_unsupervised --trainer unsupervised --views 2"],
        "--config_dataset [default, with_cars196]": ["for with_cars196 --dataset cars196", "--config mlrc_cars196"],
        "--config_general=[default,with_sop.yaml]": [
            "for with_sop.yaml --dataset online_products",
            "--config mlrc_sop",
        ],
        "--config_general [default, with_256_batch]": ["for with_256_batch --bs 256", "--config mlrc_cub200_bs256"],
        "--config_general default sop": ["for sop --dataset online_products"],
        "--config_eval [default, with_32_workers]": ["--kernels 32 --eval_kernels 32"],
        "--config_optimizers~OVERRIDE~ [with_daml]": ["for with_daml --trainer adversarial"],
        "--config_general default mine": [
            "--config with any number of flat files",
            "; for default --config powerful_benchmarker",
        ],
        "--config_general mine": ["--config with any number of flat files"],
        "--config_general": ["--config with any number of flat files"],
    }.items(),
)
def test_other_names_and_shipped_files_are_answered(command, parts):
    with refused("^((?!KEY).)*$", *parts):
        resolve(*command.split())


def test_names_of_a_search_are_answered():
    for words, way in (
        (["--experiment_name", "a"], "--group"),
        (["--loss_funcs~OVERRIDE~", "{a: {MarginLoss: {beta~BAYESIAN~: [0, 1]}}}"], "--loss margin"),
        (["--batchsize~INT_BAYESIAN~", "1,2"], "batch_size"),
    ):
        with refused(way):
            searcher.plan([*words, "--lr~LOG_BAYESIAN~", "1e-6,1"])


def test_a_file_gets_the_same_answers(tmp_path):
    (tmp_path / "old.yaml").write_text("dataloader_num_workers: 4\n")
    with refused("unknown flag 'dataloader_num_workers'. Here: --kernels"):
        resolve("--config", tmp_path / "old.yaml")
    with refused("here --kernels"):
        help_pages.find(parameters.get_parser(), "dataloader_num_workers")


@pytest.mark.parametrize("flag", parameters.NAMED)
def test_every_plug_in_is_found_without_case_and_ending(flag):
    registry = parameters.NAMED[flag]
    names = Counter(map(migration.bare, registry.names()))
    ending = {"loss": "Loss", "batch_mining": "Miner", "data_sampler": "Sampler"}.get(flag, "")
    for name in registry.names():
        assert registry.resolve(name) == name
        if names[migration.bare(name)] == 1 and migration.answer(name.replace("_", "") + ending) is None:
            for spelling in (name.upper(), f"{name.replace('_', '').title()}{ending}"):
                assert registry.resolve(spelling) == name, spelling


def test_classes_become_plug_ins_on_the_command_line_in_files_and_in_a_search(tmp_path):
    (tmp_path / "a.yaml").write_text("loss: MultiSimilarityLoss\n")
    opt = resolve("--dataset GLYPHS --batch_mining MultiSimilarityMiner --mine_pairs --config", tmp_path / "a.yaml")
    assert_flags(opt, dataset="glyphs", loss="multisimilarity", batch_mining="multisimilarity")
    assert resolve("--loss hier --loss_hier_base TripletLoss").loss_hier_base == "triplet"
    words = "--dataset Glyphs --use_tv_split --loss~CHOICE~ [ArcFaceLoss,Softmax] --study_storage x"
    plan = searcher.plan(words.split())
    assert plan.ranges["loss"].values == ("arcface", "softmax")


@pytest.mark.parametrize(
    "brackets", ["[test]", "[test, val]", "[test,val]", "test val", "[test, val,]", "[ 'test', \"val\" ]"]
)
def test_values_in_brackets_are_read(brackets):
    metric_names = "--evaluation_metrics [e_recall@1, map_r]"
    opt = resolve("--dataset glyphs --use_tv_split", metric_names, f"--splits_to_eval {brackets}", "--evaluate_only")
    assert opt.splits_to_eval == re.findall(r"\w+", brackets) and opt.evaluation_metrics == ["e_recall@1", "map_r"]


@pytest.mark.parametrize("brackets", ["[]", "[ ]"])
def test_empty_brackets_hold_no_value(brackets):
    assert resolve("--dataset glyphs", f"--loss_learn {brackets}").loss_learn == []
    with pytest.raises(UserError, match="--evaltypes: expected at least one value"):
        resolve("--dataset glyphs", f"--evaltypes {brackets}")


def test_every_class_of_the_package_is_known():
    """A loss, miner or sampler of pytorch-metric-learning is a plug-in, or the page answers it."""
    kinds = {"losses": "loss", "miners": "batch_mining", "samplers": "data_sampler"}
    for package, flag in kinds.items():
        module = pytest.importorskip(f"pytorch_metric_learning.{package}")
        registry = parameters.NAMED[flag]
        for name in filter(re.compile("(?!Base)[A-Z].*(?<!Mixin)$").match, dir(module)):
            assert registry.resolve(name) in registry.names() or migration.answer(name) is not None, name


def test_the_page_holds_what_is_read():
    answers = migration.answers()
    assert Path(migration.PAGE).name == "migration.md" and len(answers) > 120
    assert all(shlex.split(text.replace("'", "")) for text in answers.values())


def test_names_are_refused_as_well_where_the_docs_were_not_copied(monkeypatch, tmp_path):
    monkeypatch.setattr(migration, "PAGE", tmp_path / "migration.md")
    monkeypatch.setattr(migration, "answers", migration.answers.__wrapped__)
    assert migration.answer("margins") is None
    assert migration.answer_to_class("MarginLoss", "loss", ["margin"]) == "--loss margin"
    with pytest.raises(UserError, match="unknown metric 'loss'"):
        metrics.check("loss")
