"""The run scripts line by line: each parses, and its flags mean what the published tables say. And published
commands.
"""

import functools
import math
import shlex
from pathlib import Path

import pytest

import parameters
from launch import __main__ as launcher
from tests.kit import runs as kit
from tests.kit.data_sets import make_cars196, make_cub200, make_online_products
from tests.kit.runs import assert_flags, pass_dry_run, read, run_main

ROOT = Path(__file__).resolve().parent.parent
PUBLISHED = ROOT / "docs" / "published"
RHO_SWEEP = ROOT / "experiments" / "Rho_Sweep.sh"
COUNTS = {"cub200": 23, "cars196": 23, "online_products": 21}
MLRC_DATASETS = {
    "mlrc_cub200": "cub200",
    "mlrc_cars196": "cars196",
    "mlrc_sop": "online_products",
    "mlrc_cub200_bs256": "cub200_bs256",
}


@functools.cache
def rows_of(name):
    return kit.rows_of(PUBLISHED / name)


def runs_of(name, datapath="DATA"):
    """(comment lines above the block, flags of main.py) of every run, read without the project's own reader."""
    runs = []
    comments = []
    for line in (ROOT / name).read_text().splitlines():
        if line.startswith("#"):
            comments.append(line)
        elif line.startswith("python main.py "):
            runs.append((list(comments), shlex.split(line.replace("$datapath", datapath))[2:]))
        else:
            assert not line or line.startswith("datapath="), line
            comments = []
    return runs


def printed_name(method, parameter):
    """What the printed table calls a parameter of the search reports."""
    rate = {"ProxyNCA": "proxy lr", "Margin": "beta lr", "Margin / class": "beta lr"}
    names = {"lr": rate.get(method, "weights lr"), "beta": "init beta" if method.startswith("Margin") else "beta"}
    return names.get(parameter, parameter)


def best_values(method, setting):
    """Published parameter -> its best value: in full if it was searched, else as printed, or None if missing."""
    value = {}
    for row in rows_of("mlrc_hyperparameters.csv"):
        if row["method"] == method:
            value[row["parameter"]] = float(row[setting]) if row[setting] else None
    for row in rows_of("mlrc_search.csv"):
        if (row["method"], row["setting"]) == (method, setting):
            assert printed_name(method, row["parameter"]) in value
            value[printed_name(method, row["parameter"])] = float(row["best"])
    return value


REVISIT = runs_of("Revisit_Runs.sh")
MLRC = runs_of("experiments/MLRC_Runs.sh")


@pytest.fixture(scope="module")
def defaults():
    return vars(parameters.read([]))


def differing(opt, defaults):
    """Flags that are not at their default; where one only follows another, the other tells."""
    follow = {"savename", "eval_bs", "fc_lr", "fc_decay", "flags", "miner_semihard_margin"}
    return {name: value for name, value in vars(opt).items() if name not in follow and value != defaults[name]}


def test_every_line_of_the_icml_runs_means_its_row(defaults):
    rows = rows_of("revisit_runs.csv")
    published = {row["group"]: row for row in rows_of("ledger.csv") if row["group"]}
    assert len(REVISIT) == 5 * len(rows) == 335
    assert {name: sum(row["dataset"] == name for row in rows) for name in COUNTS} == COUNTS
    # the published script's names
    renamed = {"CUBreg_Margin_b12_Distance_3", "CUBreg_Triplet_Distance_3", "CUBreg_SNR_Distance_3"}
    assert renamed == {row["group"] for row in rows if row["group"].endswith("_3")}
    runs = iter(REVISIT)
    for row in rows:
        fact = published[row["group"]]
        assert (fact["dataset"], fact["method"], fact["seeds"]) == (row["dataset"], row["method"], row["seeds"])
        comments, argv = next(runs)
        assert f"R@1 {fact['value']} +- {fact['deviation']}" in comments[0] and row["group"] in comments[0]
        for seed in range(1, 5):
            place = argv.index("--seed") + 1
            assert argv[place] == "0" and next(runs)[1] == [*argv[:place], str(seed), *argv[place + 1 :]]
        opt = read(*argv)
        expected = {name: row[name] for name in ("group", "loss", "dataset", "arch", "batch_mining") if row[name]}
        expected |= {"source_path": "DATA", "project": "RevisitDML", "seed": 0, "n_epochs": int(row["n_epochs"])}
        expected |= {"bs": 112, "lr": 1e-5, "embed_dim": 128, "samples_per_class": 2, "data_sampler": "class_random"}
        words = row["flags"].split()
        expected |= {flag.removeprefix("--"): float(value) for flag, value in zip(words[::2], words[1::2], strict=True)}
        assert_flags(opt, **expected)
        assert set(differing(opt, defaults)) <= set(expected), "a flag that the table does not name"
        assert opt.savename == f"{row['group']}_s0"
    assert next(runs, None) is None


OF_MARGIN = {"beta_lr": "beta lr", "margin": "margin", "beta": "init beta"}
OF_MS = {
    "pos_weight": "alpha",
    "neg_weight": "beta",
    "thresh": "base",
    "margin": lambda values: values.get("epsilon", math.inf),
}
# method -> loss; flags that are the same everywhere; flags of the loss, each with its published parameter or a function
# of all
METHODS = {
    "Contrastive": (
        "contrastive",
        {"batch_mining": "none", "loss_contrastive_reduction": "nonzero"},
        {"pos_margin": "pos_margin", "neg_margin": "neg_margin"},
    ),
    "Triplet": (
        "triplet",
        {"batch_mining": "all", "loss_triplet_reduction": "nonzero", "loss_triplet_distance": "euclidean"},
        {"margin": "margin"},
    ),
    "NTXent": ("ntxent", {}, {"temperature": "temperature"}),
    "ProxyNCA": (
        "proxynca_pp",
        {},
        {"lrmulti": lambda values: values["proxy lr"] * 1e6, "scale": lambda values: values["softmax_scale"] ** 0.5},
    ),
    "Margin": ("margin", {"batch_mining": "all", "loss_margin_beta_shared": True}, OF_MARGIN),
    "Margin / class": ("margin", {"batch_mining": "all", "loss_margin_beta_shared": False}, OF_MARGIN),
    "Normalized Softmax": ("softmax", {}, {"lr": "weights lr", "temperature": "temperature"}),
    "CosFace": ("cosface", {}, {"lr": "weights lr", "margin": "margin", "scale": "scale"}),
    "ArcFace": (
        "arcface",
        {},
        {
            "lr": "weights lr",
            "angular_margin": lambda values: values["margin"] * math.pi / 180,
            "feature_scale": "scale",
        },
    ),
    "FastAP": ("fastap", {}, {"num_bins": "num_bins"}),
    "SNR Contrastive": (
        "snr_contrastive",
        {"batch_mining": "none"},
        {name: name for name in ("pos_margin", "neg_margin", "regularizer_weight")},
    ),
    "Multi Similarity": ("multisimilarity", {}, OF_MS),
    "Multi Similarity + Miner": ("multisimilarity", {}, OF_MS),
    "SoftTriple": (
        "softtriplet",
        {"loss_softtriplet_n_centroids": 10},
        {
            "lrmulti": lambda values: values["weights lr"] * 1e6,
            "lambda": "la",
            "gamma": "gamma",
            "margin_delta": "margin",
            "reg_weight": lambda values: values["reg_weight"] or 0,
        },
    ),
}


def expected_method(method, value):
    """The flags of a Reality Check method. `value`: published parameter -> number, None where it was not searched."""
    loss, constants, published = METHODS[method]
    flags = {"loss": loss, **constants}
    for flag, source in published.items():
        flags[f"loss_{loss}_{flag}"] = source(value) if callable(source) else value[source]
    return flags


def test_every_line_of_the_reality_check_means_its_column(defaults):
    methods = list(dict.fromkeys(row["method"] for row in rows_of("mlrc_hyperparameters.csv")))
    protocols = {config: set(differing(read("--config", config), defaults)) for config in MLRC_DATASETS}
    results = {(row["group"], row["metric"]): row for row in rows_of("ledger.csv")}
    seen = {}
    for comments, argv in MLRC:
        opt = read(*argv)
        assert argv[0] == "--config"
        assert_flags(opt, config=[argv[1]], source_path="DATA", project="MLRC", seed=0)
        setting = MLRC_DATASETS[argv[1]]
        method = comments[-1].removeprefix("# ").partition(":")[0]
        assert results[opt.group, "val/map_r"]["method"] == method
        assert f"{float(results[opt.group, 'val/map_r']['value']) / 100:.4f}" in comments[-1]
        if setting != "cub200_bs256":
            assert f"on test about {float(results[opt.group, 'map_r']['value']) / 100:.4f}" in comments[-1]
        expected = expected_method(method, best_values(method, setting))
        for name, value in expected.items():
            expected_value = value if isinstance(value, str) else pytest.approx(value, rel=1e-9)
            assert getattr(opt, name) == expected_value, (method, setting, name)
        classification = method in ("ProxyNCA", "Normalized Softmax", "CosFace", "ArcFace", "SoftTriple")
        assert opt.bs == (256 if setting == "cub200_bs256" else 32)
        assert opt.samples_per_class == (1 if classification else 4)
        by_chance = setting == "cub200_bs256" and classification
        assert opt.data_sampler == ("class_random" if by_chance else "class_balanced")
        named = set("config source_path project group seed samples_per_class data_sampler".split())
        named |= protocols[argv[1]] | set(expected)
        assert set(differing(opt, defaults)) <= named, "a flag that neither the protocol nor the table names"
        seen[method, setting] = opt.group
    assert len(MLRC) == len(seen) == 56 and {method for method, _ in seen} == set(methods) and len(methods) == 14
    assert len(set(seen.values())) == 56
    temperature = read(*words_of_group(MLRC, "MLRC_SOP_NTXent")).loss_ntxent_temperature
    assert temperature == 0.000240119, "the table prints 0.0002, a fifth less"


@pytest.mark.parametrize(
    ("config", "schedule"), [("cub200", (2, 9)), ("cars196", (5, 14)), ("sop", (20, 39)), ("cub200_bs256", (2, 9))]
)
def test_the_protocol(config, schedule):
    opt = read("--config", f"mlrc_{config}")
    assert (opt.save_interval, opt.patience) == schedule
    assert_flags(opt, arch="bninception_frozen_normalize", embed_dim=128, optim="rmsprop", momentum=0.9)
    assert_flags(opt, lr=1e-6, fc_lr=1e-6, decay=1e-4, fc_decay=1e-4, loss_decay=1e-4, precision="float32")
    assert_flags(opt, scheduler="none", iterations_per_epoch=100, n_epochs=1000, clip_grad_norm=None, mine_pairs=False)
    # the published rates belong to vectors of that length; 8 classes x 4 images
    assert_flags(opt, loss_vectors_start="pml", data_sampler="class_balanced", samples_per_class=4)
    assert opt.bs == (256 if config.endswith("bs256") else 32)
    assert_flags(opt, split_scheme="mlrc", split_partitions=4, split_sets=4, split_test_size=0.5, split_test_start=0.5)
    # test is looked at once, with the selected epochs
    assert_flags(opt, final_test=True, splits_to_eval=["val"], check_untrained_accuracy=True, storage_metrics=["map_r"])
    assert_flags(opt, evaluation_metrics=["precision@1", "r_precision", "map_r"], evaltypes=["discriminative"])
    assert_flags(opt, eval_reference_set="compared_to_self", tester="global", eval_pca=None, eval_no_normalize=False)
    # as the augmentation mlrc has them
    assert_flags(opt, augmentation="mlrc", resize_size=None, crop_size=None, crop_scale=None, crop_ratio=None)


def test_published_tables_agree_with_each_other():
    """Best values in full precision, cut to the digits that are printed, are the printed ones."""
    printed = {(row["method"], row["parameter"]): row for row in rows_of("mlrc_hyperparameters.csv")}
    compared = 0
    for row in rows_of("mlrc_search.csv"):
        name = printed_name(row["method"], row["parameter"])
        text = printed[row["method"], name][row["setting"]]
        best = float(row["best"])
        digits = text.partition("e")[0].partition(".")[2]
        step = 10.0 ** -len(digits) * 10.0 ** int(text.partition("e")[2] or 0)
        assert float(row["low"]) <= best <= float(row["high"])
        assert -1e-6 * abs(best) < abs(best) - abs(float(text)) < step * 1.001, (row, text)
        compared += 1
    assert compared == 140


# ---------- dry runs
@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """All three data sets, with what batches of 64 classes and 256 images need once validation is cut off."""
    path = tmp_path_factory.mktemp("tiny")
    make_cub200(path, n_classes=172, n_images=5)
    make_cars196(path, n_classes=172, n_images=2)
    make_online_products(path, n_train=86, n_test=12, n_images=2)
    return path


def kind(argv):
    opt = read(*argv)
    margin = opt.loss == "multisimilarity" and opt.loss_multisimilarity_margin
    return opt.dataset, opt.loss, opt.batch_mining, opt.arch, opt.bs, margin


def words_of_group(runs, group):
    return next(argv for _, argv in runs if group in argv)


@pytest.mark.long
def test_a_line_of_the_rho_sweep_passes_a_dry_run(capsys):
    line = next(line for line in launcher.read_lines(RHO_SWEEP, {}) if "Glyphsreg_SNR" in line.argv)
    run_main(*line.argv, "--dry_run --kernels 0")
    output = capsys.readouterr().out
    assert "dry run: one batch of 112 images" in output and "loss nan" not in output


@pytest.mark.long
def test_every_kind_of_line_passes_a_dry_run(tiny, capsys):
    kinds = {}
    for _, argv in REVISIT + MLRC:
        kinds.setdefault(kind(argv), argv)
    assert len(kinds) > 90
    for argv in kinds.values():
        pass_dry_run([word.replace("DATA", str(tiny)) for word in argv], capsys)


# ---------- the ICML pipeline's own command lines, word for word
BASIC = (
    "--loss margin --batch_mining distance --log_online --project DML_Project --group Margin_with_Distance --seed 0 "
    "--gpu 0 --bs 112 --data_sampler class_random --samples_per_class 2 --arch resnet50_frozen_normalize "
    "--source $datapath --n_epochs 150 --lr 0.00001 --embed_dim 128 --evaluate_on_gpu"
)
ADVANCED = (
    "--loss margin --batch_mining distance --loss_margin_beta 0.6 --miner_distance_lower_cutoff 0.5 --source $datapath"
)
SPECTRAL = (
    "--loss margin --batch_mining rho_distance --miner_rho_distance_cp 0.2 --source $datapath --use_tv_split "
    "--tv_split_perc 0.8 --no_train_metrics"
)


def test_published_commands_are_read_and_one_passes_a_dry_run(tmp_path, capsys):
    make_cub200(tmp_path, layout="icml", n_classes=20, n_images=14)
    basic, advanced, spectral = (line.replace("$datapath", str(tmp_path)) for line in (BASIC, ADVANCED, SPECTRAL))
    assert read(basic).evaluate_on_gpu and read(advanced).miner_distance_lower_cutoff == 0.5
    assert "dry run: one batch of 112 images" in pass_dry_run([spectral, "--arch conv4_normalize"], capsys)


# ---------- Rho_Sweep.sh
def flags_apart(a, b):
    return {name for name in a if a[name] != b[name]}


def test_the_rho_sweep_is_one_protocol_and_pairs_differ_in_the_miner_alone():
    runs = {}
    for line in launcher.read_lines(RHO_SWEEP, {}):
        opt = read(*line.argv)
        name, _, method = opt.group.partition("_")
        runs.setdefault((method, name), []).append(opt.saved())
    methods = {method for method, _ in runs}
    miners = {"Glyphs": "distance", "Glyphsreg": "rho_distance"}
    assert len(methods) >= 8 and set(runs) == {(method, name) for method in methods for name in miners}
    for (method, name), of_seeds in runs.items():
        assert [flags["seed"] for flags in of_seeds] == [0, 1, 2], method
        assert all(flags_apart(of_seeds[0], flags) <= {"seed", "savename"} for flags in of_seeds)
        assert of_seeds[0]["batch_mining"] == miners[name] and of_seeds[0]["miner_rho_distance_cp"] == 0.2
        pair = (runs[method, name][0] for name in miners)
        assert flags_apart(*pair) == {"batch_mining", "group", "savename"}
    cutoffs = runs["Triplet", "Glyphsreg"][0]
    for end in ("lower", "upper"):
        assert cutoffs[f"miner_rho_distance_{end}_cutoff"] == cutoffs[f"miner_distance_{end}_cutoff"]
    assert runs["SNR", "Glyphs"][0]["loss_snr_reg_lambda"] == 0, "the distance miner alone would take it as 0"
    first = [of_seeds[0] for (_, name), of_seeds in runs.items() if name == "Glyphs"]
    for number, flags in enumerate(first):
        for earlier in first[:number]:
            changed = flags_apart(flags, earlier) - {"group", "savename"}
            assert changed and all(name == "loss" or name.startswith("loss_") for name in changed), changed
    assert first[0]["dataset"] == "glyphs" and not first[0]["no_train_metrics"]
    assert first[0]["splits_to_eval"] == ["train", "test"]
    names = "e_recall@1 map_r nmi dists@intra dists@inter dists@intra_over_inter rho_spectrum@1 rho_spectrum@2"
    assert set(first[0]["evaluation_metrics"]) == set(names.split())
