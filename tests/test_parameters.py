"""The command line: defaults of the ICML pipeline, one-line errors, configuration files, lists."""

import argparse
import contextlib
import re
import shutil

import pytest
import yaml

import parameters
from options import derived
from options import help as help_pages
from runs import idle
from tests.kit.refusals import refused
from tests.kit.runs import assert_flags, read, resolve
from utilities.errors import UserError

ICML = yaml.safe_load("""
{dataset: cub200, use_tv_split: false, tv_split_by_samples: false, tv_split_perc: 0.8, augmentation: base,
 lr: 1.0e-05, decay: 0.0004, n_epochs: 150, kernels: 6, bs: 112, seed: 1, scheduler: step, gamma: 0.3, tau: [1000],
 optim: adam, loss: margin, batch_mining: distance, embed_dim: 128, not_pretrained: false,
 arch: resnet50_frozen_normalize, no_train_metrics: false, evaluate_on_gpu: false, storage_metrics: [e_recall@1],
 evaltypes: [discriminative], gpu: [0], source_path: ./Datasets, save_path: ./Training_Results, log_online: false,
 project: Sample_Project, group: Sample_Group, online_backend: wandb, data_sampler: class_random,
 samples_per_class: 2, savename: Sample_Group_s1, fc_lr: 1.0e-05, eval_bs: 112, eval_kernels: 6, momentum: 0.9,
 loss_decay: 0.0, loss_contrastive_pos_margin: 0, loss_contrastive_neg_margin: 1, loss_triplet_margin: 0.2,
 loss_margin_margin: 0.2, loss_margin_beta_lr: 0.0005, loss_margin_beta: 1.2, loss_margin_nu: 0,
 loss_margin_beta_constant: false, loss_multisimilarity_pos_weight: 2, loss_multisimilarity_neg_weight: 40,
 loss_multisimilarity_margin: 0.1, loss_multisimilarity_thresh: 0.5, loss_softmax_lr: 1.0e-05,
 loss_softmax_temperature: 0.05, loss_proxynca_lrmulti: 50, loss_npair_l2: 0.005, loss_angular_alpha: 45,
 loss_angular_npair_ang_weight: 2, loss_angular_npair_l2: 0.005, loss_lifted_neg_margin: 1, loss_lifted_l2: 0.005,
 loss_quadruplet_margin_alpha_1: 0.2, loss_quadruplet_margin_alpha_2: 0.2, loss_softtriplet_n_centroids: 2,
 loss_softtriplet_margin_delta: 0.01, loss_softtriplet_gamma: 0.1, loss_softtriplet_lambda: 8,
 loss_softtriplet_reg_weight: 0.2, loss_softtriplet_lrmulti: 1, loss_histogram_nbins: 65, loss_snr_margin: 0.2,
 loss_snr_reg_lambda: 0.005, loss_arcface_lr: 0.0005, loss_arcface_angular_margin: 0.5,
 loss_arcface_feature_scale: 16, miner_distance_lower_cutoff: 0.5, miner_rho_distance_lower_cutoff: 0.5,
 miner_rho_distance_cp: 0.2, data_batchmatch_bigbs: 512, data_batchmatch_ncomps: 10, data_storage_no_update: false,
 data_d2_coreset_lambda: 1, data_gc_coreset_lim: 1.0e-09, data_sampler_lowproj_dim: -1, data_gc_softened: false,
 data_mb_mom: -1, data_mb_lr: 1}
""")


def error(capsys, *argv) -> str:
    with pytest.raises(SystemExit) as stop:
        read(*argv)
    assert stop.value.code == 2
    message = capsys.readouterr().err
    assert message.startswith("main.py: error: ") and message.count("\n") == 1, message
    return message


def test_defaults_are_those_of_the_icml_pipeline():
    opt = vars(parameters.read([]))
    assert {name: opt[name] for name in ICML} == ICML
    assert read("--source /x").source_path == "/x", "an alias"


# a command line -> what its one line says
MISTAKES = {
    "--loss multisimilarty": ["unknown loss 'multisimilarty'. Did you mean 'multisimilarity'?", "margin"],
    "--batch_mining distanc": ["unknown miner", "'distance'"],
    "--data_sampler class_balance": ["unknown sampler", "'class_balanced'"],
    "--dataset cub": ["unknown dataset 'cub'", "cub200"],
    "--arch resnet5_frozen": ["resnet50"],
    "--arch resnet50_frozn": ["frozen"],
    "--evaluation_metrics e_recal@1": ["e_recall"],
    "--evaluation_metrics e_recall@0": ["e_recall@0"],
    "--storage_metrics map_r": ["--storage_metrics map_r is not evaluated"],
    "--loss hier --loss_hier_base contrastive --batch_mining npair": ["--loss_hier_base contrastive does not take"],
    "--loss hier --loss_hier_base triplet --batch_mining packaged": ["takes batches made of triplets"],
    "--loss hier --loss_hier_base triplet --loss_triplet_own_positive": ["the anchors of --batch_mining batchhard"],
    "--loss proxyanchor --trainer s2sd --s2sd_target triplet --batch_mining lifted": ["--s2sd_target triplet does not"],
    "--savename /elsewhere": ["no name of a folder below <save_path>/<dataset>"],
    "--evaluation_metrics rho_spectrum@0 --storage_metrics rho_spectrum@0": ["array"],
    "--pool gem_learned --freeze_backbone": ["which is frozen with --freeze_backbone: use gem"],
    "--bs 111": ["--bs 111 is not a multiple of --samples_per_class 2"],
    "--samples_per_class 1": ["--samples_per_class 1", "positives"],
    "--loss hier --loss_hier_base margin --samples_per_class 1": ["--loss_hier_base margin without positives"],
    "--loss triplet --batch_mining npair": ["npair", "sets"],
    "--loss npair --batch_mining distance": ["does not go with", "npair"],
    "--loss softmax --batch_mining distnce": ["distnce", "distance"],
    "--loss softmax --mine_pairs": ["--mine_pairs", "multisimilarity"],
    "--loss hier --mine_pairs": ["--mine_pairs: --loss hier, with proxyanchor inside, does not work on all pairs"],
    "--classifier_lr .1": ["--classifier_lr 0.1 has no effect: --trainer metric_only has no classifier here"],
    "--trainer adversarial --classifier_no_bias": ["has no classifier here; add --loss_weights classifier_loss=1"],
    "--los margin": ["unrecognized argument --los", "--loss"],
    "--patience 3": ["validation"],
    "--scheduler plateau": ["validation", "--use_tv_split"],
    "--evaluate_only --aggregate_only": ["--evaluate_only and --aggregate_only are jobs of their own"],
    "--evaluate_only --dry_run": ["--dry_run tries a training, and --evaluate_only trains nothing"],
    "--freeze_backbone --warmup_head_epochs 2": ["--warmup_head_epochs 2 excludes --freeze_backbone: leave one out"],
    "--n_epochs 0": ["--check_untrained_accuracy"],
    "--evaltypes discriminative discriminative": ["each one once"],
    "--resume_from /nowhere": ["/nowhere", "no run"],
    "--config nope": ["nope", "demo_glyphs"],
    "--config demo_glyhps": ["no such preset: did you mean demo_glyphs? (configs/ holds "],
    "--dataset glyphs --augmentation adv": ["--augmentation adv"],
}


def test_mistakes_are_one_line(capsys):
    for words, expected in MISTAKES.items():
        message = error(capsys, *words.split())
        assert all(part in message for part in expected), (words, message)


def test_pairs_of_a_loss_inside_another_are_mined():
    assert read("--loss hier --loss_hier_base multisimilarity --mine_pairs --batch_mining semihard").mine_pairs


def test_none_switches_off_what_a_saved_run_has(trained_once, tmp_path):
    assert read("--eval_pca none --eval_whiten none").eval_pca is None
    run = shutil.copytree(trained_once, tmp_path / "run")
    flags = (run / "parameters.yaml").read_text()
    words = f"--evaluate --resume_from {run}"
    (run / "parameters.yaml").write_text(flags.replace("eval_pca: null", "eval_pca: 4"))
    assert read(words).eval_pca == 4 and read(f"{words} --eval_pca none").eval_pca is None
    with_whitening = read(f"{words} --eval_pca none --eval_whiten fit")
    assert (with_whitening.eval_pca, with_whitening.eval_whiten) == (None, "fit")
    (run / "parameters.yaml").write_text(flags.replace("eval_whiten: null", "eval_whiten: fit"))
    assert read(words).eval_whiten == "fit" and read(f"{words} --eval_whiten none").eval_whiten is None


def written(path, content):
    text = content if isinstance(content, str) else yaml.safe_dump(content)
    path.write_text(text)
    return str(path)


def test_config_files_compose_and_their_mistakes_are_one_line(tmp_path, capsys):
    lines = (
        "lr: 1e-6\nbs: 32\nno_train_metrics: true\ntau: [10, 20]\nsavename: 010\ncrop_scale: [.1, 1]\npatience: null\n"
    )
    first = written(tmp_path / "a.yaml", lines)
    second = written(tmp_path / "b.yaml", "bs: 64\nloss_multisimilarity_margin: .inf\n")
    opt = read("--config", first, second, "--embed_dim 64")
    assert_flags(opt, lr=1e-6, bs=64, no_train_metrics=True, tau=[10, 20], embed_dim=64)
    assert_flags(opt, savename="010", crop_scale=[0.1, 1.0], patience=None)
    assert opt.loss_multisimilarity_margin == float("inf")
    for content, expected in {
        "lrr: 1": "'lr'",
        "no_train_metrics: 1": "switch",
        "bs: many": "bs",
        "optim: adm": "adm",
        "- 1": "flag: value",
        "a: [": "not YAML",
        "lr: &a [*a]": "occurs within the value of an anchor",
        "evaluation_metrics: [&a [x, x], &b [*a, *a], &c [*b, *b]]": "occurs within the value of an anchor",
        "savename: yes": "in quotes",
        "evaltypes: [on]": "in quotes",
        "lr: 1\nbs: 2\nlr: 3": "lr is there 2 times",
        "crop_scale: [0.1]": "2 values",
        "storage_metrics: []": "at least one value",
        "evaltypes: {a: 1}": "values",
        "bs: [1, 2]": "one value",
        "dry_run: true": "command line alone",
        "resume_or_start: true": "command line alone",
        "wandb_key: abc": "command line alone",
        "no_train_metrics: !!bool foo": "switch",
        "momentum: 1.5": "momentum: 1.5 must be below 1",
        'group: "a\\ud800"': "group",
    }.items():
        assert expected in error(capsys, "--config", written(tmp_path / "a.yaml", content + "\n")), content
    for folder in (tmp_path, "", tmp_path / "nowhere"):
        assert re.search("no such.*demo_glyphs", error(capsys, f"--config={folder}"))


def test_every_switch_can_be_switched_off(tmp_path):
    parser = parameters.get_parser()
    switches = [action for action in parser._actions if isinstance(action, argparse._StoreTrueAction)]
    assert len(switches) > 50
    for action in switches:
        name = action.option_strings[0].removeprefix("--")
        assert getattr(parser.parse_args([f"--{name}", f"--no-{name}"]), action.dest) is False, name
        assert getattr(parser.parse_args([f"--no-{name}", f"--{name}"]), action.dest) is True, name
    file = written(tmp_path / "all.yaml", dict.fromkeys(("use_tv_split", "no_records", "freeze_backbone"), True))
    opt = read("--config", file, "--no-use_tv_split --no-no_records")
    assert_flags(opt, use_tv_split=False, no_records=False, freeze_backbone=True)
    with refused("unrecognized argument --no-bs"):
        resolve("--no-bs")
    with refused("ignored explicit argument"):
        resolve("--no-use_tv_split=1")


def test_a_saved_run_wins_over_a_file_and_says_so(tmp_path):
    opt = read("--dataset glyphs --save_path", tmp_path, "--lr 1e-3")
    folder = tmp_path / "glyphs" / opt.savename
    folder.mkdir(parents=True)
    written(folder / "parameters.yaml", opt.saved())
    file = written(tmp_path / "a.yaml", "lr: 0.5\nbs: 16\nseed: 1\n")
    resumed = read("--resume_from", folder, "--config", file, "--bs 112")
    assert_flags(resumed, lr=1e-3, overruled={"lr": f"--config {file}"})
    assert resumed.set_by["lr"].endswith(f"the run {folder}")
    note = f"--config {file}: lr not as there, but as the run has it: the command line alone changes a run"
    assert idle.idle(resumed) == [note]
    equal = written(tmp_path / "b.yaml", "savename: group_plus_seed\nfc_lr: -1\nlr: 1e-3\nno_train_metrics: false\n")
    new_run = f"--config {equal} --save_path {tmp_path}/new --resume_or_start"
    for words in (f"--resume_from {folder} --config {equal}", f"--config {file}", new_run):
        assert not read("--dataset glyphs", words).overruled
    assert not idle.idle(read("--config", folder / "parameters.yaml", "--seed 7"))


def test_what_a_file_says_of_a_flag_stands_and_what_a_run_derived_follows(tmp_path):
    file = written(tmp_path / "file.yaml", "lr: 1e-3\nfc_lr: 1e-3\neval_bs: 16\nbs: 16\n")
    opt = read("--config", file, "--lr 0.5 --bs 32")
    assert_flags(opt, lr=0.5, fc_lr=1e-3, bs=32, eval_bs=16)
    run = written(tmp_path / "run.yaml", read("--lr 1e-3 --fc_decay 0.1").saved())
    opt = read("--config", run, written(tmp_path / "other.yaml", "lr: 0.5\n"), "--decay 0.2")
    assert_flags(opt, lr=0.5, fc_lr=0.5, decay=0.2, fc_decay=0.1)
    assert read("--decay 0.3").fc_decay == 0.3
    named = written(tmp_path / "named.yaml", "group: G\nseed: 1\nsavename: G_s1\n")
    assert read("--config", named).savename == "G_s1" and read("--config", named, "--seed 2").savename == "G_s2"
    older = "memory_size: 10\nmemory_weight: 0.5\nembed_regularizer_weight: 1.0\nscheduler: multistep\n"
    opt = read("--config", written(tmp_path / "old.yaml", older))
    assert_flags(opt, loss_weights=["memory_loss=0.5"], scheduler="step")
    assert "memory_weight" not in opt.saved()
    assert read("--memory_weight 2 --loss_weights memory_loss=3").loss_weights == ["memory_loss=3"]
    weighed = written(tmp_path / "weighed.yaml", "loss_weights: [memory_loss=3, embed_regularizer=2]\n")
    # the command line wins over a file
    weights = read("--config", weighed, "--memory_weight 2").loss_weights
    assert weights == ["embed_regularizer=2", "memory_loss=2"]
    assert read("--config", weighed, "--memory_weight 1").loss_weights == ["embed_regularizer=2"]


def test_derived_flags_are_resolved_and_follow_their_source(tmp_path):
    opt = read("--dataset glyphs --loss rankedlist --loss_rankedlist_margin .5 --trainer s2sd --eval_space hyperbolic")
    assert_flags(opt, loss_rankedlist_alpha=1.25, s2sd_target="rankedlist", eval_space_c=0.1, views=1)
    config = ["--config", written(tmp_path / "saved.yaml", opt.saved())]
    changed = read(*config, "--loss_rankedlist_margin 1 --lr 0.1")
    assert_flags(changed, loss_rankedlist_alpha=1.5, classifier_lr=0.1, s2sd_target="rankedlist")
    assert read(*config, "--loss_rankedlist_alpha 2").loss_rankedlist_alpha == 2
    semihard = read("--dataset glyphs --loss triplet --loss_triplet_margin .3 --batch_mining semihard")
    assert semihard.miner_semihard_margin == 0.3
    assert read("--loss softmax").miner_semihard_margin is None
    endless = read("--loss multisimilarity --loss_multisimilarity_margin inf --mine_pairs --batch_mining semihard")
    file = written(tmp_path / "endless.yaml", endless.saved())
    assert read("--config", file).miner_semihard_margin == float("inf")
    inside = read("--loss hier --loss_hier_base triplet --loss_triplet_margin .5 --batch_mining semihard")
    assert inside.miner_semihard_margin == 0.5, "of the loss that mines"
    # as older versions recorded it
    old = {**opt.saved(), "loss_rankedlist_alpha": None, "eval_space_c": None}
    assert derived.completed(vars(parameters.get_parser().parse_args([])), old) == opt.saved()
    for inner in ("--loss hier --loss_hier_base rankedlist", "--trainer s2sd --s2sd_target rankedlist"):
        assert read(inner).loss_rankedlist_alpha == 1.2


def test_print_config_reads_back_and_lists_have_captions(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    printed = written(tmp_path / "printed.yaml", parameters.answer(read("--print_config --loss triplet")))
    assert vars(read("--config", printed)) | {"config": []} == vars(read("--loss triplet"))
    for kind in parameters.LISTS:
        rows = parameters.answer(read("--list", kind)).splitlines()
        names = [name for name, _ in parameters.listing(kind)]
        assert [row.split()[0] for row in rows] == names and len(set(names)) == len(names)
        assert all(len(row.split()) > 2 for row in rows), f"{kind}: every plug-in has a caption"
    assert [path.name for path in tmp_path.iterdir()] == ["printed.yaml"], "reading has no side effects"


def printed(capsys, *words):
    """What main.py prints for flags that end the program before training, and its status."""
    try:
        print(parameters.answer(read(*words)))
        status = 0
    except SystemExit as stop:
        status = stop.code
    captured = capsys.readouterr()
    return captured.out + captured.err, status or 0


def test_help_has_a_first_screen_and_pages(capsys):
    parser = parameters.get_parser()
    groups = help_pages.groups(parser)
    first, status = printed(capsys, "--help")
    assert status == 0 and len(first.splitlines()) <= 45 and max(map(len, first.splitlines())) <= 120
    assert all(f"  --{name}" in first for name in help_pages.EVERYDAY)
    page, _ = printed(capsys, "--help all")
    assert re.findall(r"^(\S.*):$", page, re.MULTILINE) == list(groups), "each once"
    names = {action.dest for actions in groups.values() for action in actions}
    assert {*re.findall(r"^  --(\w+)", page, re.MULTILINE), "help"} == names and "(default: 0.0005)" in page
    margin, _ = printed(capsys, "--help loss margin")
    assert "1706.07567" in margin and margin.count("\n  --loss_margin_") == 6 and "--lr" not in margin
    assert printed(capsys, "--help --seed") == printed(capsys, "-h", "seed")
    wrong, status = printed(capsys, "--help margn")
    assert status == 2 and wrong.count("\n") == 1 and "Did you mean --help loss margin?" in wrong


def test_find_and_explain(tmp_path, capsys):
    output, status = printed(capsys, "--find Curvature")
    assert status == 0 and {"--eval_space_c", "--loss_hier_c"} <= set(re.findall(r"--\w+", output))
    assert "--lr" not in output
    with pytest.raises(UserError, match="no such word"):
        parameters.answer(read("--find", "no such word"))
    mine = written(tmp_path / "mine.yaml", "lr: 0.01\nbs: 16\n")
    output, _ = printed(capsys, "--explain --config", mine, "--bs 32 --dataset cub200")
    rows = {line.split()[0]: (line.split()[1], line.split(None, 2)[2]) for line in output.splitlines()}
    assert rows["--lr"] == ("0.01", f"--config {mine}") and rows["--bs"] == ("32", "command line")
    assert rows["--fc_lr"] == ("0.01", "derived") and rows["--eval_bs"][0] == "32" and "--dataset" not in rows


def test_each_choice_alone_is_read_or_refused_in_one_line(capsys):
    """No flag with choices ends in a traceback, whatever it needs beside it."""
    for action in parameters.get_parser()._actions:
        if not action.choices or action.dest == "list":
            continue
        for choice in {str(choice) for choice in action.choices if choice != action.default}:
            with contextlib.suppress(SystemExit):
                read(action.option_strings[0], choice)
            last_lines = [line for line in capsys.readouterr().err.splitlines() if "error:" in line]
            assert len(last_lines) <= 1, (action.dest, choice)
