"""The recipes of today: presets in configs/, Frontier_Runs.sh and docs/recipes.md agree, and each preset passes a dry
run on tiny data.
"""

import math
import re
from pathlib import Path

import numpy as np
import pytest
import yaml

import datasets
import parameters
from launch import __main__ as launcher
from tests.datasets import layouts
from tests.kit.data_sets import make_cars196, make_cub200, make_online_products
from tests.kit.runs import pass_dry_run

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "experiments/Frontier_Runs.sh"
SETS = ("cub200", "cars196", "online_products", "inshop", "market1501", "inaturalist2018")
CLASSIFIERS = ("dml", "fastretri", "bot", "sbs")  # families of classification baselines, measured by cosines
BY_COSINE = (*CLASSIFIERS, "hist", "intrabatch")
SOURCES = {  # beginning of a preset's name -> paper and repository
    "hyp_dino": ("2203.10833", "htdt/hyp_metric"),
    "hier_dino": ("2212.14258", "tjddus9597/HIER-CVPR23"),
    "proxyanchor": ("2003.13911", "tjddus9597/Proxy-Anchor-CVPR2020"),
    "recallatk_r50": ("2108.11179", "yash0307/RecallatK_surrogate"),
    "s2sd_r50": ("2009.08348", "MLforHealth/S2SD"),
    "diva_r50": ("2004.13458", "Confusezius/ECCV2020_DiVA_MultiFeature_DML"),
    "happier_r50": ("2207.04873", "elias-ramzi/HAPPIER"),
    "xbm": ("1912.06798", "MalongTech/research-xbm"),
    "dml_ce": ("2003.08983", "jeromerony/dml_cross_entropy"),
    "fastretri": ("2003.08983", "JDAI-CV/fast-reid"),
    "bot": ("1903.07071", "JDAI-CV/fast-reid"),
    "sbs": ("2006.02631", "JDAI-CV/fast-reid"),
    "unicom": ("2304.05884", "deepglint/unicom"),
    "meanfield": ("2306.15368", None),  # its README and train.py, read without the name of their repository
    "anticollapse": ("2407.03106", "NUST-Machine-Intelligence-Laboratory/Anti-Collapse-Loss"),
    "hist": (None, "ljin0429/HIST"),
    "contextual": ("2210.01908", "Chris210634/metric-learning-using-contextual-similarity"),
    "intrabatch": ("2102.07753", "dvl-tum/intra_batch"),
    "language": ("2203.08543", "ExplainableML/LanguageGuidance_for_DML"),
    "metrix": ("2106.04990", "billpsomas/metrix"),
    "vpt": ("2402.02340", "Noahsark/ParameterEfficient-DML"),
}
# What the authors' code says: published R@1; images a batch and a class; rate, decay; epochs, batches an epoch, epochs
# whose end lowers the rate; width
FACTS = {
    "hyp_dino_cub200": ("80.9", 900, 9, 1e-5, 0.01, 50, 1, None, 384),
    "hyp_dino_cars196": ("89.2", 882, 9, 1e-5, 0.01, 300, 1, None, 384),
    "hyp_dino_online_products": ("85.1", 900, 2, 1e-5, 0.01, 200, 25, None, 384),
    "hyp_dino_inshop": ("92.4", 900, 2, 1e-5, 0.01, 400, 8, None, 384),
    "hier_dino_cub200": ("81.1", 180, 2, 5e-6, 1e-2, 100, None, None, 384),
    "hier_dino_cars196": ("91.3", 180, 2, 5e-6, 1e-2, 100, None, None, 384),
    "hier_dino_online_products": ("85.7", 180, 2, 5e-6, 1e-4, 150, None, None, 384),
    "hier_dino_inshop": ("92.5", 180, 2, 5e-6, 1e-4, 150, None, None, 384),
    "proxyanchor_r50_cub200": ("69.9", 120, None, 1e-4, 1e-4, 60, None, range(5, 60, 5), 512),
    "proxyanchor_r50_cars196": ("87.7", 120, None, 1e-4, 1e-4, 60, None, range(10, 60, 10), 512),
    "proxyanchor_bninception_online_products": ("79.2", 180, None, 6e-4, 1e-4, 60, None, range(20, 60, 20), 512),
    "proxyanchor_bninception_inshop": ("91.9", 180, None, 6e-4, 1e-4, 60, None, range(20, 60, 20), 512),
    "recallatk_r50_cub200": ("unknown", 400, 4, 1e-4, 4e-4, 40, None, (10, 20, 30), 512),
    "recallatk_r50_cars196": ("88.3", 392, 4, 1e-4, 4e-4, 170, None, (80, 140), 512),
    "recallatk_r50_online_products": ("82.7", 4000, 4, 2e-4, 4e-4, 55, None, (25, 50), 512),
    "happier_r50_online_products": ("81.0", 256, 4, 5e-5, 1e-4, 100, 330, None, 512),
    "happier_r50_inaturalist2018": ("70.7", 256, 4, 1e-5, 4e-4, 100, None, None, 512),
    "s2sd_r50_cub200": ("70.1", 112, 2, 1e-5, 4e-4, 150, None, None, 512),
    "s2sd_r50_cars196": ("89.5", 112, 2, 1e-5, 4e-4, 150, None, None, 512),
    "s2sd_r50_online_products": ("81.0", 112, 2, 1e-5, 4e-4, 150, None, None, 512),
    "diva_r50_cub200": ("69.2", 112, 2, 1e-5, 4e-4, 350, None, (55,), 128),
    "diva_r50_cars196": ("87.6", 112, 2, 1e-5, 4e-4, 350, None, (70,), 128),
    "diva_r50_online_products": ("79.6", 112, 2, 1e-5, 4e-4, 150, None, (70,), 128),
    "dml_ce_cub200": ("69.2", 128, None, 0.02, 5e-4, 30, None, None, 0),
    "dml_ce_cars196": ("89.3", 128, None, 0.05, 5e-4, 100, None, None, 0),
    "dml_ce_online_products": ("81.1", 128, None, 0.01, 5e-4, 100, None, None, 0),
    "dml_ce_inshop": ("90.6", 128, None, 0.01, 5e-4, 100, None, None, 0),
    "fastretri_cub200": ("69.46", 128, None, 0.02, 5e-4, 30, None, None, 0),
    "fastretri_cars196": ("92.31", 128, None, 0.05, 5e-4, 100, None, None, 0),
    "fastretri_online_products": ("82.46", 128, None, 0.003, 5e-4, 100, None, None, 0),
    "fastretri_inshop": ("91.97", 128, None, 0.003, 5e-4, 100, None, None, 0),
    "bot_market1501": ("94.4", 64, 4, 3.5e-4, 5e-4, 120, None, (49, 99), 0),
    "sbs_market1501": ("95.4", 64, 16, 3.5e-4, 5e-4, 60, None, None, 0),
    "unicom_sop": ("88.8", 64, None, 1e-5, 0.0, 64, None, None, 0),
    "unicom_inshop": ("95.5", 64, None, 1e-5, 0.0, 128, None, None, 0),
    "meanfield_r50_cub200": ("unknown", 120, None, 0.0001, 0.0001, 60, None, range(5, 60, 5), 512),
    "meanfield_r50_cars196": ("unknown", 120, None, 0.0001, 0.0001, 60, None, range(10, 60, 10), 512),
    "anticollapse_r50_cub200": ("unknown", 90, 2, 1e-05, 0.0004, 100, None, (100,), 512),
    "anticollapse_r50_cars196": ("unknown", 90, 2, 1e-05, 0.0004, 300, None, (100,), 512),
    "hist_r50_cub200": ("71.4", 32, None, 0.00012, 5e-05, 41, None, range(6, 41, 5), 512),
    "hist_r50_cars196": ("89.6", 32, None, 0.0001, 0.0001, 51, None, range(11, 51, 10), 512),
    "hist_r50_online_products": ("81.4", 32, None, 0.0001, 0.0001, 61, None, range(11, 61, 10), 512),
    "contextual_r50_cub200": ("71.9", 128, 4, 0.00014, 0.0001, 60, None, range(10, 60, 10), 512),
    "contextual_r50_cars196": ("91.1", 64, 4, 8e-05, 0.0001, 160, None, range(20, 160, 20), 512),
    "contextual_r50_online_products": ("unknown", 128, 4, 6e-05, 0.0001, 80, 660, range(15, 80, 15), 512),
    "intrabatch_r50_cub200": ("70.3", 54, 9, 0.0001563663718906821, 6.059722614369727e-06, 70, None, (30,), 512),
    "intrabatch_r50_cars196": ("88.1", 70, 7, 0.00036683239911604993, 2.551918610962277e-09, 70, None, (30,), 512),
    "intrabatch_r50_online_products": (
        "81.4",
        90,
        6,
        0.0002472471515853406,
        2.7650277063275255e-13,
        70,
        None,
        (30,),
        512,
    ),
    "intrabatch_r50_inshop": ("92.8", 56, 4, 0.00011265974954242144, 1.0554824926510768e-07, 70, None, (30,), 512),
    "language_r50_cub200": ("unknown", 90, 2, 1e-05, 0.0004, 150, None, None, 512),
    "language_r50_cars196": ("unknown", 108, 2, 1e-05, 0.0004, 250, None, None, 512),
    "metrix_r50_cub200": ("71.4", 100, None, 0.0001, 0.0001, 100, None, range(10, 100, 10), 512),
    "metrix_r50_cars196": ("89.6", 100, None, 0.0001, 0.0001, 60, None, range(5, 60, 5), 512),
    "metrix_r50_online_products": ("81.0", 100, 5, 0.0006, 0.0001, 60, None, range(20, 60, 20), 512),
    "metrix_r50_inshop": ("92.2", 100, 5, 0.0006, 0.0001, 60, None, range(20, 60, 20), 512),
    "vpt_vits_cub200": ("unknown", 64, 2, 0.005, 1e-06, 15, None, None, 384),
    "vpt_vits_cars196": ("unknown", 64, 2, 0.0005, 0.0, 50, None, None, 384),
    "vpt_vits_online_products": ("unknown", 32, 1, 0.0001, 0.0001, 120, None, None, 384),
    "vpt_vits_inshop": ("unknown", 32, 1, 0.0001, 1e-07, 80, None, None, 384),
    "xbm_sop": ("80.6", 64, 4, 1e-4, 5e-4, 35, 1000, (25,), 128),
}
PICKED = ["xbm_sop"]  # whose dry run is quick enough for every day


def remarks_of(name):
    """The comments above a preset's flags, as one line."""
    lines = (ROOT / "configs" / f"{name}.yaml").read_text(encoding="utf-8").splitlines()
    return " ".join(line.removeprefix("# ") for line in lines if line.startswith("#"))


def dataset_of(name):
    return "online_products" if name.endswith("_sop") else next(dataset for dataset in SETS if name.endswith(dataset))


@pytest.fixture(scope="module")
def opts():
    """Preset -> its flags, read as a command's."""
    return {name: parameters.read(["--config", name]) for name in FACTS}


def test_a_preset_says_where_it_comes_from():
    assert {path.stem for path in (ROOT / "configs").glob("*.yaml") if path.stem.startswith(tuple(SOURCES))} == set(
        FACTS
    )
    for name, (published, *_) in FACTS.items():
        remarks = remarks_of(name)
        paper, repository = next(source for start, source in SOURCES.items() if name.startswith(start))
        assert paper is None or f"arXiv {paper}" in remarks, name
        assert repository is None or f"github.com/{repository}" in remarks, name
        assert re.search(r"Published R@1 (\S+?):", remarks)[1] == published, name
        assert name.startswith("hyp_dino") or repository is None or re.search(r"commit [0-9a-f]{7}\b", remarks), (
            f"{name}: the commit that was read"
        )
        assert re.search(r"Code or paper: \S.*Not as there: \S", remarks), (
            f"{name}: which of the two it follows, and what differs"
        )
        assert "dimensions" in remarks and re.search(r"ViT-[SB]/16|ResNet-50|BN-Inception", remarks), (
            f"{name}: conditions of the figure"
        )


def test_a_preset_has_the_authors_settings(opts):
    for name, (_, bs, per_class, lr, decay, epochs, batches, tau, width) in FACTS.items():
        opt = opts[name]
        assert (opt.dataset, opt.bs, opt.lr, opt.decay, opt.n_epochs, opt.embed_dim) == (
            dataset_of(name),
            bs,
            lr,
            decay,
            epochs,
            width,
        ), name
        assert opt.iterations_per_epoch == batches and (per_class is None or opt.samples_per_class == per_class), name
        assert (opt.data_sampler == "shuffle") == (per_class is None) and bs % (per_class or 1) == 0, name
        lowered = [epoch for epoch in opt.tau if epoch <= epochs] if opt.scheduler == "step" else []
        assert lowered == list(tau or []), name
        written = set(yaml.safe_load((ROOT / "configs" / f"{name}.yaml").read_text(encoding="utf-8")))
        assert {"dataset", "arch", "loss", "lr", "decay", "n_epochs", "bs", "optim", "evaluation_metrics"} <= written, (
            name
        )
        recall = "c_recall" if name.startswith(BY_COSINE) else "e_recall"
        assert opt.evaluation_metrics[0] == f"{recall}@1" == opt.storage_metrics[0] and opt.no_train_metrics, name
        ranks = {"online_products": 1000, "inshop": 40, "market1501": 10, "inaturalist2018": 32}
        assert f"{recall}@{ranks.get(opt.dataset, 8)}" in opt.evaluation_metrics, name


def check_classifiers(opt, name, family, large):
    person = opt.dataset == "market1501"
    eps = {"cub200": 0.3, "cars196": 0.4}.get(opt.dataset, 0.1) if family == "fastretri" else 0.1
    assert (opt.trainer, opt.classifier_smoothing, opt.classifier_smoothing_over) == (
        "classifier",
        eps,
        "others",
    )
    assert opt.last_stride == (2 if family == "dml" else 1) and opt.neck == (
        "none" if name == "dml_ce_cub200" else "bn"
    )
    assert opt.pool == {"dml": None, "fastretri": "gem", "bot": None, "sbs": "gem_learned"}[family]
    assert (opt.optim, opt.nesterov) == (("adam", False) if person else ("sgd", large)) and opt.clip_grad_each == (
        5 if family == "fastretri" else None
    )
    assert person or opt.momentum == ({"dml": 0.9, "fastretri": 0.99}[family] if large else 0)
    assert (opt.warmup_steps, opt.warmup_start) == {"dml": (100, 0), "fastretri": (1000, 0.1)}.get(family, (2000, 0.1))
    assert opt.resize_size == (384 if family == "sbs" else opt.resize_size)
    assert opt.crop_size == {"bot": [256, 128], "sbs": [384, 128]}.get(family) and opt.random_erasing == (
        0.5 if person else 0
    )
    assert person == (opt.loss == "triplet" and not opt.loss_weights) and (opt.neck_feature == "before") == (
        family == "bot"
    )


def check_hyperbolic(opt, name, family, large):
    assert (opt.freeze_blocks, opt.head_init, opt.crop_scale, opt.optim) == (
        0,
        "orthogonal",
        [0.2, 1.0],
        "adamw",
    )


def check_hyp(opt, name, family, large):
    assert opt.eval_resize_size == (None if opt.dataset == "cub200" else 224) and opt.resize_size is None
    assert (opt.loss, opt.clip_grad_norm, opt.loss_hyperbolic_T, opt.save_interval) == (
        "hyperbolic",
        3,
        0.2,
        opt.n_epochs,
    )


def check_hier(opt, name, family, large):
    assert (opt.loss_hier_n_proxies, opt.loss_hier_weight, opt.loss_hier_topk) == (512, 0.5, 20)
    assert (opt.warmup_head_epochs, opt.fc_lr) == ((5, 5e-4) if large else (1, 5e-6)) and opt.loss_decay == opt.decay
    assert opt.loss_proxyanchor_lrmulti * opt.lr == pytest.approx(0.05) and "layernorm" in opt.arch


def check_proxyanchor(opt, name, family, large):
    assert opt.loss_proxyanchor_lrmulti == 100 and ("frozen" in opt.arch) == (opt.pool == "avgmax") == (
        "resnet50" in opt.arch
    )
    assert opt.warmup_head_epochs == (5 if "resnet50" in opt.arch else 1) and opt.gamma == (
        0.5 if "resnet50" in opt.arch else 0.25
    )


def check_recallatk(opt, name, family, large):
    assert opt.chunk_size == {4000: 200, 400: 100, 392: 98}[opt.bs] and opt.loss_recallatk_simix == (opt.bs < 4000)


def check_happier(opt, name, family, large):
    of_products = opt.dataset == "online_products"
    step = (
        opt.loss_happier_temperature,
        opt.loss_happier_rho,
        opt.loss_happier_delta,
        opt.loss_happier_offset,
        opt.loss_happier_start,
    )
    assert step == (0.01, 100, 0.05, *((1.44, 0.5) if of_products else (1.0, 0.0))) and "layernorm" in opt.arch
    assert (opt.loss_happier_weight, opt.loss_happier_cluster_temperature, opt.fc_lr) == (0.1, 0.05, 2 * opt.lr)
    assert (opt.loss_happier_lr, opt.loss_decay, opt.min_lr) == ((10, 0, 0) if of_products else (2e-5, 4e-4, 1e-6))
    assert opt.data_hierarchical_supers == (2 if of_products else 1) and {
        "h_ap",
        "asi",
        "ndcg",
        "ap_level1",
    } <= set(opt.evaluation_metrics)


def check_s2sd(opt, name, family, large):
    of_products = opt.dataset == "online_products"
    assert (
        opt.s2sd_features
        and opt.s2sd_pool_both != of_products
        and opt.loss == ("margin" if of_products else "multisimilarity")
    )
    assert opt.loss_weights == (["feature_loss=5"] if of_products else [])


def check_diva(opt, name, family, large):
    assert (
        len(opt.diva_decorrelation) == 3
        and opt.diva_temperature == 0.01
        and opt.evaltypes[0].startswith("Combined_discriminative")
    )


def check_unicom(opt, name, family, large):
    assert (opt.loss, opt.loss_arcface_angular_margin, opt.loss_arcface_feature_scale, opt.loss_arcface_lr) == (
        "arcface",
        0.25,
        32,
        10 * opt.lr,
    )
    assert (opt.loss_dims, opt.sample_classes, opt.loss_decay, opt.optim, opt.clip_grad_norm) == (
        512,
        1.0,
        0,
        "adamw",
        None,
    )
    assert (opt.scheduler, opt.onecycle_rise) == ("onecycle", 0.1) and opt.min_lr == pytest.approx(opt.lr / 25 / 1e4)
    assert (opt.augmentation, opt.resize_size) == (("none", 224) if name == "unicom_sop" else ("base", 256))
    assert (opt.randaugment, opt.random_erasing) == ((None, 0) if name == "unicom_sop" else ([2, 27], 0.25))


def check_meanfield(opt, name, family, large):
    assert (
        opt.loss_meanfield_alpha,
        opt.loss_meanfield_beta,
        opt.loss_meanfield_margin,
        opt.loss_meanfield_lrmulti,
    ) == (0.01, 80, 0.8, 2000)
    assert (opt.warmup_head_epochs, opt.gamma, opt.loss_decay) == (5, 0.5, 1e-4)


def check_anticollapse(opt, name, family, large):
    assert (opt.weight_regularizer, opt.loss_weights) == (
        "anticollapse",
        ["metric_loss=0.0035"],
    ) and opt.loss_proxyanchor_alpha == 64


def check_hist(opt, name, family, large):
    assert (opt.loss_hist_tau, opt.loss_hist_alpha) == {"cub200": (32, 1.1), "cars196": (32, 0.9)}.get(
        opt.dataset, (16, 2)
    )
    assert (opt.loss_hist_lr, opt.loss_hist_network_lrmulti) == (
        0.01 if large else 0.1,
        5 if opt.dataset == "cub200" else 10,
    )
    assert (opt.neck, opt.warmup_head_epochs, opt.loss_decay) == ("layernorm", 1, opt.decay) and (
        "frozen" in opt.arch
    ) != large


def check_contextual(opt, name, family, large):
    lam = 0.05 if opt.dataset == "cub200" else 0.2
    assert (
        opt.loss_contextual_context_weight,
        opt.loss_contextual_contrastive_weight,
        opt.loss_contextual_mean_weight,
    ) == (1 - lam, lam, 0.1)
    assert (opt.loss_contextual_k, opt.loss_contextual_projection, opt.pool) == (
        opt.samples_per_class,
        0 if large else 2048,
        "gem",
    )
    assert opt.loss_contextual_eps == (0.04 if opt.dataset == "cub200" else 0.05)


def check_intrabatch(opt, name, family, large):
    facts = {
        "cub200": (1, 2, False),
        "cars196": (2, 8, True),
        "online_products": (1, 8, False),
        "inshop": (1, 4, False),
    }
    assert (opt.intrabatch_layers, opt.intrabatch_heads, opt.intrabatch_join) == facts[opt.dataset] and (
        opt.optim,
        opt.gamma,
    ) == ("radam", 0.1)
    assert (
        opt.data_sampler == "class_groups"
        and opt.data_class_groups_draw == (opt.dataset == "cub200")
        and opt.crop_size == 227
    )
    assert (opt.loss_weights == ["graph_loss=0"]) == (opt.dataset == "online_products")


def check_language(opt, name, family, large):
    weight = {"cub200": 10, "cars196": 5.5}[opt.dataset]
    assert opt.loss_weights == [f"language_loss={weight:g}"] and (
        opt.language_direction,
        opt.language_shift,
        opt.language_T,
    ) == ("backward", 1, 1)


def check_metrix(opt, name, family, large):
    assert (opt.metrix, opt.metrix_level) == (0.4, "feature")
    assert (opt.clip_grad_value, opt.warmup_head_epochs, opt.gamma) == (
        10,
        1 if large else 5,
        0.25 if large else 0.5,
    )


def check_vpt(opt, name, family, large):
    prompts = {"cub200": (10, 12, 0), "cars196": (80, 11, 2)}.get(opt.dataset, (90, 12, 0))
    assert (
        (opt.prompts, opt.prompt_depth, opt.prompt_step) == prompts and opt.train_biases and opt.loss_decay == opt.decay
    )
    rate = {"cub200": 0.1, "cars196": 0.01}.get(opt.dataset, 0.05)
    assert opt.loss_proxyanchor_lrmulti * opt.lr == pytest.approx(rate) and (opt.scheduler, opt.momentum) == (
        "cosine",
        0.9,
    )
    period, least = {
        "cub200": (50, 1e-8),
        "cars196": (50, 1e-6),
        "online_products": (120, 5e-5),
        "inshop": (100, 5e-6),
    }[opt.dataset]
    assert opt.min_lr == pytest.approx(
        least + (opt.lr - least) * (1 + math.cos(math.pi * opt.n_epochs / period)) / 2, rel=3e-3
    )


def check_xbm(opt, name, family, large):
    assert (opt.memory_size, opt.memory_start, opt.loss_gpw_weights, opt.loss_gpw_threshold) == (
        55000,
        1000,
        "contrastive",
        0.5,
    )


CHECKS = (
    ("CLASSIFIERS", check_classifiers),
    (("hyp", "hier"), check_hyperbolic),
    (("hyp",), check_hyp),
    (("hier",), check_hier),
    (("proxyanchor",), check_proxyanchor),
    (("recallatk",), check_recallatk),
    (("happier",), check_happier),
    (("s2sd",), check_s2sd),
    (("diva",), check_diva),
    (("unicom",), check_unicom),
    (("meanfield",), check_meanfield),
    (("anticollapse",), check_anticollapse),
    (("hist",), check_hist),
    (("contextual",), check_contextual),
    (("intrabatch",), check_intrabatch),
    (("language",), check_language),
    (("metrix",), check_metrix),
    (("vpt",), check_vpt),
    (("xbm",), check_xbm),
)


def test_what_makes_each_method(opts):
    for name, opt in opts.items():
        family = name.partition("_")[0]
        assert (
            (family in ("hyp", "hier"))
            == (opt.eval_space == "hyperbolic")
            == ("vit_small_patch16_224.dino" in opt.arch)
        )
        of_any_length = family in ("hyp", "hier", *BY_COSINE)
        assert of_any_length == ("normalize" not in opt.arch), (
            "points of the ball and a classifier take embeddings of any length"
        )
        large = opt.dataset in ("online_products", "inshop")
        for families, check in CHECKS:
            if family in families:
                check(opt, name, family, large)


# ------------------------------------------------------------------------------------------- the script and the page
def test_every_preset_is_run_with_five_seeds_and_the_script_and_the_page_say_what_it_says(capsys, tmp_path):
    comment = ""
    seeds = {}
    for line in SCRIPT.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            comment = line
        elif line.startswith("python main.py"):
            name, group, seed = re.fullmatch(
                r"\S+ main.py --config (\S+) --source \$datapath --project Frontier --group (\S+) --seed (\d)", line
            ).groups()
            assert re.search(r"published R@1 (\S+) \(", comment)[1] == FACTS[name][0] and comment.startswith(
                f"# {group}, "
            )
            seeds.setdefault((name, group), []).append(int(seed))
    assert list(seeds.values()) == [list(range(5))] * len(FACTS) and {name for name, _ in seeds} == set(FACTS)
    assert len({group for _, group in seeds}) == len(FACTS), "a group is one configuration"
    # `opts` reads all presets
    status = launcher.main([str(SCRIPT), "--list", "--filter", r"DiVA.*seed 4\b", "--", "--save_path", str(tmp_path)])
    output = capsys.readouterr().out
    assert (
        status == 0
        and "failed" not in output
        and output.count("python main.py --config") == sum(name.startswith("diva") for name in FACTS)
    )
    rows = [
        line
        for line in (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("| ")
    ]
    for name, (published, *_) in FACTS.items():
        assert any(
            f"`{name}`" in row and f"| {'not found' if published == 'unknown' else published} |" in row for row in rows
        ), name


# -------------------------------------------------------------------------------------------------------------- dry
# runs
@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    path = tmp_path_factory.mktemp("tiny")
    make_cub200(path, n_classes=8, n_images=9)
    make_cars196(path, n_classes=8, n_images=9)
    make_online_products(path, n_train=6, n_test=4, n_images=4)
    layouts.make_inshop(path, n_train=8, n_test=3)
    layouts.make_market1501(path)
    layouts.make_inaturalist2018(path)
    return path


def dry_run(name, tiny, capsys):
    """A preset's own network and method on images of 32 x 32, in batches that so few classes can fill."""
    per_class = FACTS[name][2] or 4
    bs = str(4 * per_class if per_class < 5 else 2 * per_class)
    chunks = ["--chunk_size", str(2 * per_class)] if name.startswith("recallatk") else []
    small = ["--bs", bs]
    if name.endswith("market1501"):  # of two persons
        small = ["--bs", "4", "--samples_per_class", "2"]
    elif name.endswith("inaturalist2018"):
        small = ["--bs", "8"]
    resized = ["--resize_mode", "short"] if FACTS[name][8] == 0 else []  # the dry run's own --resize_size
    if name.startswith("language"):
        splits = datasets.select(dataset_of(name), source_path=str(tiny), allow_partial_dataset=True)
        names = list(splits["training"].class_names.values())
        np.savez(tiny / "vectors.npz", names=names, vectors=np.eye(len(names)))
        chunks = ["--language_vectors", str(tiny / "vectors.npz")]
    words = ["--config", name, "--source", str(tiny), *small, *chunks, *resized]
    pass_dry_run([*words, *"--eval_bs 8 --iterations_per_epoch 1".split()], capsys)


@pytest.mark.parametrize(
    "name", [name if name in PICKED else pytest.param(name, marks=pytest.mark.long) for name in FACTS]
)
def test_a_preset_passes_a_dry_run(name, tiny, capsys):
    dry_run(name, tiny, capsys)
