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
from launch import __main__ as launcher
from tests.datasets import layouts
from tests.kit.data_sets import make_cars196, make_cub200, make_online_products
from tests.kit.runs import assert_flags, pass_dry_run, read

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "experiments/Frontier_Runs.sh"
SETS = ("cub200", "cars196", "online_products", "inshop", "market1501", "msmt17", "inaturalist2018")
PERSONS = ("market1501", "msmt17")
# families of classification baselines, measured by cosines
CLASSIFIERS = ("dml", "fastretri", "bot", "sbs", "transreid")
BY_COSINE = (*CLASSIFIERS, "hist", "intrabatch")
# beginning of a preset's name -> paper and repository
SOURCES = {
    "hyp_dino": ("2203.10833", "htdt/hyp_metric"),
    "hier_dino": ("2212.14258", "tjddus9597/HIER-CVPR23"),
    "proxyanchor": ("2003.13911", "tjddus9597/Proxy-Anchor-CVPR2020"),
    "recallatk_r50": ("2108.11179", "yash0307/RecallatK_surrogate"),
    "s2sd_r50": ("2009.08348", "MLforHealth/S2SD"),
    "diva_r50": ("2004.13458", "Confusezius/ECCV2020_DiVA_MultiFeature_DML"),
    "happier_r50": ("2207.04873", "elias-ramzi/HAPPIER"),
    "roadmap": ("2110.01445", "elias-ramzi/ROADMAP"),
    "xbm": ("1912.06798", "MalongTech/research-xbm"),
    "dml_ce": ("2003.08983", "jeromerony/dml_cross_entropy"),
    "fastretri": ("2003.08983", "JDAI-CV/fast-reid"),
    "bot": ("1903.07071", "JDAI-CV/fast-reid"),
    "sbs": ("2006.02631", "JDAI-CV/fast-reid"),
    "osnet": ("1905.00953", "KaiyangZhou/deep-person-reid"),
    "transreid": ("2102.04378", "damo-cv/TransReID"),
    "unicom": ("2304.05884", "deepglint/unicom"),
    # its README and train.py, read without the name of their repository
    "meanfield": ("2306.15368", None),
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
    "roadmap_r50_cub200": ("unknown", 128, 4, 1e-6, 4e-4, 200, None, None, 512),
    "roadmap_r50_online_products": ("unknown", 128, 4, 1e-5, 1e-4, 100, 660, (30, 70), 512),
    "roadmap_r50_inaturalist2018": ("unknown", 384, 4, 1e-5, 4e-4, 90, None, (30, 70), 512),
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
    "osnet_x1_0_market1501": ("94.2", 64, None, 0.0015, 5e-4, 150, None, (60, 120), 0),
    "osnet_x0_25_market1501": ("91.2", 128, None, 0.003, 5e-4, 180, None, (80, 160), 0),
    "transreid_market1501": ("unknown", 64, 4, 8e-3, 1e-4, 120, None, None, 0),
    "transreid_msmt17": ("unknown", 64, 4, 8e-3, 1e-4, 120, None, None, 0),
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
# presets whose dry run is quick enough for every day
PICKED = ["xbm_sop"]


def remarks_of(name):
    """The comments above a preset's flags, as one line."""
    lines = (ROOT / "configs" / f"{name}.yaml").read_text(encoding="utf-8").splitlines()
    return " ".join(line.removeprefix("# ") for line in lines if line.startswith("#"))


def dataset_of(name):
    return "online_products" if name.endswith("_sop") else next(dataset for dataset in SETS if name.endswith(dataset))


@pytest.fixture(scope="module")
def opts():
    """Preset -> its flags, read as a command's."""
    return {name: read("--config", name) for name in FACTS}


def test_a_preset_says_where_it_comes_from():
    names = {path.stem for path in (ROOT / "configs").glob("*.yaml")}
    assert {name for name in names if name.startswith(tuple(SOURCES))} == set(FACTS)
    for name, (published, *_) in FACTS.items():
        remarks = remarks_of(name)
        paper, repository = next(source for start, source in SOURCES.items() if name.startswith(start))
        assert paper is None or f"arXiv {paper}" in remarks, name
        assert repository is None or f"github.com/{repository}" in remarks, name
        assert re.search(r"Published R@1 (\S+?):", remarks)[1] == published, name
        # the commit that was read; which of the two it follows; conditions of the figure
        has_commit = repository is None or re.search(r"commit [0-9a-f]{7}\b", remarks)
        assert has_commit or name.startswith("hyp_dino"), name
        assert re.search(r"Code or paper: \S.*Not as there: \S", remarks), name
        assert "dimensions" in remarks and re.search(r"ViT-[SB]/16|ResNet-50|BN-Inception|OSNet", remarks), name


def test_a_preset_has_the_authors_settings(opts):
    for name, (_, bs, per_class, lr, decay, epochs, batches, tau, width) in FACTS.items():
        opt = opts[name]
        assert_flags(opt, dataset=dataset_of(name), bs=bs, lr=lr, decay=decay, n_epochs=epochs)
        assert_flags(opt, embed_dim=width, iterations_per_epoch=batches)
        assert per_class is None or opt.samples_per_class == per_class, name
        assert (opt.data_sampler == "shuffle") == (per_class is None) and bs % (per_class or 1) == 0, name
        lowered = [epoch for epoch in opt.tau if epoch <= epochs] if opt.scheduler == "step" else []
        assert lowered == list(tau or []), name
        written = set(yaml.safe_load((ROOT / "configs" / f"{name}.yaml").read_text(encoding="utf-8")))
        assert set("dataset arch loss lr decay n_epochs bs optim evaluation_metrics".split()) <= written, name
        recall = "c_recall" if name.startswith(BY_COSINE) else "e_recall"
        assert opt.evaluation_metrics[0] == f"{recall}@1" == opt.storage_metrics[0] and opt.no_train_metrics, name
        ranks = {"online_products": 1000, "inshop": 40, "market1501": 10, "msmt17": 10, "inaturalist2018": 32}
        assert f"{recall}@{ranks.get(opt.dataset, 8)}" in opt.evaluation_metrics, name


OF_CLASSIFIERS = {
    "dml": dict(last_stride=2, pool=None, warmup_steps=100, warmup_start=0, crop_size=None),
    "fastretri": dict(last_stride=1, pool="gem", warmup_steps=1000, warmup_start=0.1, crop_size=None, clip_grad_each=5),
    "bot": dict(last_stride=1, pool=None, warmup_steps=2000, warmup_start=0.1, crop_size=[256, 128]),
    "sbs": dict(last_stride=1, pool="gem_learned", warmup_steps=2000, warmup_start=0.1, crop_size=[384, 128]),
}
OF_CLASSIFIERS["bot"] |= dict(neck_feature="before")
OF_CLASSIFIERS["sbs"] |= dict(resize_size=384)
OF_CLASSIFIERS["transreid"] = dict(
    **dict(crop_size=[256, 128], patch_stride=12, neck_feature="before", eval_use_trunk_output=True),
    **dict(warmup_epochs=5, warmup_start=0.01, classifier_smoothing=0, loss_triplet_smooth=True, optim="sgd"),
    classifier_smoothing_over="all",
    **dict(min_lr=pytest.approx(0.002 * 8e-3), momentum=0.9),
)


def classifiers(opt, family, large):
    person = opt.dataset in PERSONS
    assert person == (opt.loss == "triplet" and not opt.loss_weights)
    smoothing = 0.1
    if family == "fastretri":
        smoothing = {"cub200": 0.3, "cars196": 0.4}.get(opt.dataset, 0.1)
    flags = dict(trainer="classifier", classifier_smoothing=smoothing, classifier_smoothing_over="others", neck="bn")
    flags |= dict(clip_grad_each=None, neck_feature="after") | OF_CLASSIFIERS[family]
    if (family, opt.dataset) == ("dml", "cub200"):
        flags |= dict(neck="none")
    if person:
        return dict(optim="adam", nesterov=False, random_erasing=0.5) | flags
    momentum = {"dml": 0.9, "fastretri": 0.99}[family] if large else 0
    return flags | dict(optim="sgd", nesterov=large, momentum=momentum, random_erasing=0)


def hyperbolic(opt, family, large):
    return dict(freeze_blocks=0, head_init="orthogonal", crop_scale=[0.2, 1.0], optim="adamw")


def hyp(opt, family, large):
    size = None if opt.dataset == "cub200" else 224
    flags = dict(eval_resize_size=size, resize_size=None, loss="hyperbolic", loss_hyperbolic_T=0.2)
    return flags | dict(clip_grad_norm=3, save_interval=opt.n_epochs)


def hier(opt, family, large):
    assert "layernorm" in opt.arch
    flags = dict(loss_hier_n_proxies=512, loss_hier_weight=0.5, loss_hier_topk=20, loss_decay=opt.decay)
    flags |= dict(warmup_head_epochs=5, fc_lr=5e-4) if large else dict(warmup_head_epochs=1, fc_lr=5e-6)
    return flags | dict(loss_proxyanchor_lrmulti=pytest.approx(0.05 / opt.lr))


def proxyanchor(opt, family, large):
    resnet = "resnet50" in opt.arch
    assert ("frozen" in opt.arch) == (opt.pool == "avgmax") == resnet
    schedule = dict(warmup_head_epochs=5, gamma=0.5) if resnet else dict(warmup_head_epochs=1, gamma=0.25)
    return schedule | dict(loss_proxyanchor_lrmulti=100)


def recallatk(opt, family, large):
    return dict(chunk_size={4000: 200, 400: 100, 392: 98}[opt.bs], loss_recallatk_simix=opt.bs < 4000)


def happier(opt, family, large):
    assert "layernorm" in opt.arch and {"h_ap", "asi", "ndcg", "ap_level1"} <= set(opt.evaluation_metrics)
    flags = dict(loss_happier_temperature=0.01, loss_happier_rho=100, loss_happier_delta=0.05, fc_lr=2 * opt.lr)
    flags |= dict(loss_happier_weight=0.1, loss_happier_cluster_temperature=0.05)
    if opt.dataset == "online_products":
        flags |= dict(loss_happier_offset=1.44, loss_happier_start=0.5, data_hierarchical_supers=2)
        return flags | dict(loss_happier_lr=10, loss_decay=0, min_lr=0)
    flags |= dict(loss_happier_offset=1.0, loss_happier_start=0.0, data_hierarchical_supers=1)
    return flags | dict(loss_happier_lr=2e-5, loss_decay=4e-4, min_lr=1e-6)


def roadmap(opt, family, large):
    flags = dict(loss_roadmap_temperature=0.01, loss_roadmap_rho=100, loss_roadmap_delta=0.05, crop_scale=[0.16, 1.0])
    flags |= dict(loss_roadmap_pos_margin=0.9, loss_roadmap_neg_margin=0.6, precision="float16", save_interval=5)
    offset, start = (1.0, 0.0) if opt.dataset == "inaturalist2018" else (1.44, 0.5)
    flags |= dict(loss_roadmap_offset=offset, loss_roadmap_start=start)
    if opt.dataset == "cub200":
        assert "layernorm" in opt.arch
        return flags | dict(pool="max", fc_lr=1e-6, crop_size=256, resize_size=288)
    supers = 2 if large else 1
    return flags | dict(pool=None, fc_lr=2e-5, gamma=0.3, data_hierarchical_supers=supers)


def s2sd(opt, family, large):
    if opt.dataset == "online_products":
        method = dict(s2sd_pool_both=False, loss="margin", loss_weights=["feature_loss=5"])
    else:
        method = dict(s2sd_pool_both=True, loss="multisimilarity", loss_weights=[])
    return method | dict(s2sd_features=True)


def diva(opt, family, large):
    assert len(opt.diva_decorrelation) == 3 and opt.evaltypes[0].startswith("Combined_discriminative")
    return dict(diva_temperature=0.01)


def osnet(opt, family, large):
    flags = dict(trainer="classifier", loss_weights=["metric_loss=0"], optim="amsgrad", warmup_head_epochs=10)
    flags |= dict(classifier_smoothing=0.1, classifier_smoothing_over="all", classifier_start="normal", gamma=0.1)
    return flags | dict(crop_size=[256, 128], resize_mode="squash", pad_crop=0, random_erasing=0, neck="none")


def unicom(opt, family, large):
    flags = dict(loss="arcface", loss_arcface_angular_margin=0.25, loss_arcface_feature_scale=32)
    flags |= dict(loss_arcface_lr=10 * opt.lr, loss_dims=512, sample_classes=1.0, loss_decay=0, optim="adamw")
    flags |= dict(clip_grad_norm=None, scheduler="onecycle", onecycle_rise=0.1, min_lr=pytest.approx(opt.lr / 25e4))
    if opt.dataset == "online_products":
        return flags | dict(augmentation="none", resize_size=224, randaugment=None, random_erasing=0)
    return flags | dict(augmentation="base", resize_size=256, randaugment=[2, 27], random_erasing=0.25)


def meanfield(opt, family, large):
    flags = dict(loss_meanfield_alpha=0.01, loss_meanfield_beta=80, loss_meanfield_margin=0.8)
    return flags | dict(loss_meanfield_lrmulti=2000, warmup_head_epochs=5, gamma=0.5, loss_decay=1e-4)


def anticollapse(opt, family, large):
    weights = dict(weight_regularizer="anticollapse", loss_weights=["metric_loss=0.0035"])
    return weights | dict(loss_proxyanchor_alpha=64)


def hist(opt, family, large):
    assert ("frozen" in opt.arch) != large
    facts = {"cub200": (32, 1.1, 0.1, 5), "cars196": (32, 0.9, 0.1, 10), "online_products": (16, 2, 0.01, 10)}
    tau, alpha, lr, lrmulti = facts[opt.dataset]
    flags = dict(loss_hist_tau=tau, loss_hist_alpha=alpha, loss_hist_lr=lr, loss_hist_network_lrmulti=lrmulti)
    return flags | dict(neck="layernorm", warmup_head_epochs=1, loss_decay=opt.decay)


def contextual(opt, family, large):
    weight, eps = (0.05, 0.04) if opt.dataset == "cub200" else (0.2, 0.05)
    projection = 0 if large else 2048
    flags = dict(loss_contextual_context_weight=1 - weight, loss_contextual_contrastive_weight=weight)
    flags |= dict(loss_contextual_mean_weight=0.1, loss_contextual_k=opt.samples_per_class)
    return flags | dict(loss_contextual_projection=projection, pool="gem", loss_contextual_eps=eps)


def intrabatch(opt, family, large):
    heads = {"cub200": 2, "cars196": 8, "online_products": 8, "inshop": 4}[opt.dataset]
    assert (opt.loss_weights == ["graph_loss=0"]) == (opt.dataset == "online_products")
    flags = dict(intrabatch_layers=1 + (opt.dataset == "cars196"), intrabatch_join=opt.dataset == "cars196")
    flags |= dict(intrabatch_heads=heads, optim="radam", gamma=0.1, crop_size=227, data_sampler="class_groups")
    return flags | dict(data_class_groups_draw=opt.dataset == "cub200")


def language(opt, family, large):
    weight = {"cub200": "10", "cars196": "5.5"}[opt.dataset]
    direction = dict(language_direction="backward", language_shift=1, language_T=1)
    return direction | dict(loss_weights=[f"language_loss={weight}"])


def metrix(opt, family, large):
    schedule = dict(warmup_head_epochs=1, gamma=0.25) if large else dict(warmup_head_epochs=5, gamma=0.5)
    return schedule | dict(metrix=0.4, metrix_level="feature", clip_grad_value=10)


def vpt(opt, family, large):
    prompts, depth, step = {"cub200": (10, 12, 0), "cars196": (80, 11, 2)}.get(opt.dataset, (90, 12, 0))
    rate = {"cub200": 0.1, "cars196": 0.01}.get(opt.dataset, 0.05)
    schedules = dict(cub200=(50, 1e-8), cars196=(50, 1e-6), online_products=(120, 5e-5), inshop=(100, 5e-6))
    period, least = schedules[opt.dataset]
    end = least + (opt.lr - least) * (1 + math.cos(math.pi * opt.n_epochs / period)) / 2
    flags = dict(prompts=prompts, prompt_depth=depth, prompt_step=step, train_biases=True, loss_decay=opt.decay)
    flags |= dict(loss_proxyanchor_lrmulti=pytest.approx(rate / opt.lr), scheduler="cosine", momentum=0.9)
    return flags | dict(min_lr=pytest.approx(end, rel=3e-3))


def xbm(opt, family, large):
    memory = dict(memory_size=55000, memory_start=1000)
    return memory | dict(loss_gpw_weights="contrastive", loss_gpw_threshold=0.5)


# beginning of a preset's name -> what gives its flags
METHODS = {
    **dict.fromkeys(CLASSIFIERS, [classifiers]),
    "hyp": [hyperbolic, hyp],
    "hier": [hyperbolic, hier],
}
for method in (proxyanchor, recallatk, happier, s2sd, diva, roadmap, unicom, meanfield, anticollapse, hist, contextual):
    METHODS[method.__name__] = [method]
for method in (intrabatch, language, metrix, osnet, vpt, xbm):
    METHODS[method.__name__] = [method]


def test_what_makes_each_method(opts):
    for name, opt in opts.items():
        family = name.partition("_")[0]
        in_ball = family in ("hyp", "hier")
        assert in_ball == (opt.eval_space == "hyperbolic") == ("vit_small_patch16_224.dino" in opt.arch)
        # points of the ball and a classifier take embeddings of any length
        assert (in_ball or family in (*BY_COSINE, "osnet")) == ("normalize" not in opt.arch)
        for method in METHODS[family]:
            expected = method(opt, family, large=opt.dataset in ("online_products", "inshop"))
            assert_flags(opt, **expected)


# ---------- the script and the page
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
            assert re.search(r"published R@1 (\S+) \(", comment)[1] == FACTS[name][0]
            assert comment.startswith(f"# {group}, ")
            seeds.setdefault((name, group), []).append(int(seed))
    assert list(seeds.values()) == [list(range(5))] * len(FACTS) and {name for name, _ in seeds} == set(FACTS)
    assert len({group for _, group in seeds}) == len(FACTS), "a group is one configuration"
    # `opts` reads all presets
    status = launcher.main([str(SCRIPT), "--list", "--filter", r"DiVA.*seed 4\b", "--", "--save_path", str(tmp_path)])
    output = capsys.readouterr().out
    assert status == 0 and "failed" not in output
    assert output.count("python main.py --config") == sum(name.startswith("diva") for name in FACTS)
    page = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    for name, (published, *_) in FACTS.items():
        value = "not found" if published == "unknown" else published
        rows = [line for line in page.splitlines() if line.startswith("| ") and f"`{name}`" in line]
        assert any(f"| {value} |" in row for row in rows), name


# ---------- dry runs
@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    path = tmp_path_factory.mktemp("tiny")
    make_cub200(path, n_classes=8, n_images=9)
    make_cars196(path, n_classes=8, n_images=9)
    make_online_products(path, n_train=6, n_test=4, n_images=4)
    layouts.make_inshop(path, n_train=8, n_test=3)
    layouts.make_market1501(path)
    layouts.make_msmt17(path)
    layouts.make_inaturalist2018(path)
    return path


def dry_run(name, tiny, capsys):
    """A preset's own network and method on images of 32 x 32, in batches that so few classes can fill."""
    per_class = FACTS[name][2] or 4
    bs = 4 * per_class if per_class < 5 else 2 * per_class
    words = f"--config {name} --source {tiny} --eval_bs 8 --iterations_per_epoch 1"
    # batches of two persons
    if name.endswith(PERSONS):
        words += " --bs 4 --samples_per_class 2"
    else:
        words += " --bs 8" if name.endswith("inaturalist2018") else f" --bs {bs}"
    if name.startswith("recallatk"):
        words += f" --chunk_size {2 * per_class}"
    # Some presets without an embedding layer resize nothing, and would leave the dry run's --resize_size unused
    if FACTS[name][8] == 0:
        words += " --resize_mode short"
    if name.startswith("language"):
        splits = datasets.select(dataset_of(name), source_path=str(tiny), allow_partial_dataset=True)
        names = list(splits["training"].class_names.values())
        np.savez(tiny / "vectors.npz", names=names, vectors=np.eye(len(names)))
        words += f" --language_vectors {tiny}/vectors.npz"
    pass_dry_run([words], capsys)


FURTHER = [pytest.param(name, marks=pytest.mark.long) for name in FACTS if name not in PICKED]


@pytest.mark.parametrize("name", [*PICKED, *FURTHER])
def test_a_preset_passes_a_dry_run(name, tiny, capsys):
    dry_run(name, tiny, capsys)
