"""Every criterion on the embedded characters: `python benchmarks/methods.py`, for docs/methods_on_glyphs.md.

Each is trained for three epochs with a suitable miner and rate, conv4, seeds 0, 1, 2, through main.py; finished runs
are not repeated. `--peers` trains at least ten of them once more through pytorch-metric-learning's own implementation,
with the same initial network, seeds and batches, over five seeds, and gives the paired difference; class vectors start
where ours do. With `--own_starts` the losses with class vectors are compared each from its own start. `--trainers`:
every trainer beside metric_only with the same loss. `--miners`, `--samplers`: each of them with a loss that suits it.
`--memory`: small batches with and without a cross-batch memory, which starts late in the training (`settled`) or after
the first of three epochs (`early`). `--backbones`: conv4 and a small vision transformer from random weights, cosine and
hyperbolic, plain and as a cascade (docs/backbones_on_glyphs.md). `--costs FILE`: time and memory of a step of each
method of experiments/Recent_Runs.sh, for docs/study_recent.md.
"""

import argparse
import contextlib
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

import criteria
import main
import parameters
from benchmarks._common import CLASSES, built, medians
from benchmarks.criteria import peak
from engine.loading import Batch
from experiments.study import protocol
from runs.folder import RunFolder, run_folder
from utilities.errors import OneLineParser
from utilities.files import write_records
from utilities.numbers import whole

COMMON = (
    "--dataset glyphs --arch conv4_normalize --embed_dim 64 --bs 112 --samples_per_class 4 --data_sampler "
    "class_balanced --lr 0.001 --decay 0 --n_epochs 3 --save_interval 3 --no_train_metrics --evaluation_metrics "
    "e_recall@1 map_r --kernels 1 --no_records --plot_every 0"
)
RAW = "--arch conv4"  # for the losses that are meant for embeddings of any length
WITHOUT_FLAGS = (
    "circle contextual fastap gpw histogram intrapair_variance lifted_original multisimilarity ntxent pnp rankedlist "
    "recallatk smoothap snr_contrastive supcon threshold_consistent tupletmargin"
)
METHODS = {
    **dict.fromkeys(WITHOUT_FLAGS.split(), ""),
    "angular": f"--batch_mining npair {RAW}",
    "arcface": "--loss_arcface_lr 0.001",
    # beside a classifier, as published: by itself all embeddings fall together
    "center": f"--trainer classifier {RAW}",
    "circle_softmax": "--loss_circle_softmax_lr 0.01",
    "contrastive": "--batch_mining distance",
    "cosface": "--loss_cosface_lr 0.01 --loss_cosface_scale 16",
    "dynamic_softmargin": "--batch_mining batchhard",
    "happier": "--loss_happier_lr 0.01",
    "hier": f"--loss_proxyanchor_lrmulti 1 {RAW} --eval_space hyperbolic",
    "hist": f"--neck layernorm --loss_hist_lr 0.1 {RAW}",
    "hyperbolic": f"{RAW} --eval_space hyperbolic",
    "instance": "--loss_instance_lr 0.01",
    "largemargin_softmax": f"--loss_largemargin_softmax_lr 0.01 {RAW}",
    "lifted": f"--batch_mining lifted {RAW}",
    "manifold": "--loss_manifold_lr 0.01",
    "margin": "--batch_mining distance --loss_margin_beta 0.6 --loss_margin_beta_lr 0.001",
    "meanfield": "--loss_meanfield_lrmulti 10",
    "nca": "--loss_nca_scale 9",
    "npair": f"--batch_mining npair {RAW}",
    "p2sgrad": "--loss_p2sgrad_lr 0.01",
    "pml": "--loss_pml_class CircleLoss --loss_pml_kwargs m=0.4 gamma=80",
    "proxyanchor": "--loss_proxyanchor_lrmulti 1",
    "proxynca": "--loss_proxynca_lrmulti 10",
    "proxynca_pp": "--loss_proxynca_pp_lrmulti 10",
    "quadruplet": "--batch_mining distance",
    "snr": "--batch_mining distance",
    "softmax": "--loss_softmax_lr 0.01",
    "softtriplet": "--loss_softtriplet_lrmulti 10",
    "sphereface": f"--loss_sphereface_lr 0.01 {RAW}",
    "subcenter_arcface": "--loss_subcenter_arcface_lr 0.001 --loss_subcenter_arcface_feature_scale 16",
    "triplet": "--batch_mining distance",
    "vicreg": f"--samples_per_class 2 {RAW}",
}
PEERS = {  # ours -> how pytorch-metric-learning computes the same; none of them draws at random
    "arcface": lambda pml, o, n, d: (
        pml.ArcFaceLoss(
            n, d, margin=o.loss_arcface_angular_margin * 180 / torch.pi, scale=o.loss_arcface_feature_scale
        ),
        None,
    ),
    "circle": lambda pml, o, n, d: (pml.CircleLoss(m=o.loss_circle_m, gamma=o.loss_circle_gamma), None),
    "cosface": lambda pml, o, n, d: (
        pml.CosFaceLoss(n, d, margin=o.loss_cosface_margin, scale=o.loss_cosface_scale),
        None,
    ),
    "fastap": lambda pml, o, n, d: (pml.FastAPLoss(num_bins=o.loss_fastap_num_bins), None),
    "multisimilarity": lambda pml, o, n, d: (
        pml.MultiSimilarityLoss(
            o.loss_multisimilarity_pos_weight, o.loss_multisimilarity_neg_weight, o.loss_multisimilarity_thresh
        ),
        o.loss_multisimilarity_margin,
    ),
    "nca": lambda pml, o, n, d: (pml.NCALoss(softmax_scale=o.loss_nca_scale), None),
    "ntxent": lambda pml, o, n, d: (pml.NTXentLoss(temperature=o.loss_ntxent_temperature), None),
    "proxyanchor": lambda pml, o, n, d: (
        pml.ProxyAnchorLoss(n, d, margin=o.loss_proxyanchor_delta, alpha=o.loss_proxyanchor_alpha),
        None,
    ),
    "proxynca_pp": lambda pml, o, n, d: (pml.ProxyNCALoss(n, d, softmax_scale=o.loss_proxynca_pp_scale**2), None),
    "softmax": lambda pml, o, n, d: (pml.NormalizedSoftmaxLoss(n, d, temperature=o.loss_softmax_temperature), None),
    "supcon": lambda pml, o, n, d: (pml.SupConLoss(temperature=o.loss_supcon_temperature), None),
}
# each program starts their class vectors in its own way
WITH_VECTORS = ("arcface", "cosface", "proxyanchor", "proxynca_pp", "softmax")
MARGIN = f"--loss margin {METHODS['margin']}"
TWO_VIEWS = "--bs 56 --iterations_per_epoch 35"  # 112 embeddings a batch and 35 batches an epoch, as in the other runs
TRAINERS = {  # name -> flags shared with metric_only, the trainer's own flags, further embeddings to measure
    "classifier": ("--loss multisimilarity", "--classifier_lr 0.01", []),
    "s2sd": ("--loss multisimilarity", "--s2sd_dims 128 256 512", []),
    "intrabatch": ("--loss multisimilarity", f"{RAW} --intrabatch_heads 4", []),
    "unsupervised": ("--loss ntxent --loss_ntxent_temperature 0.1", TWO_VIEWS, []),
    "cascaded": ("--loss contrastive --batch_mining distance --embed_dim 192", "", ["level_1", "level_2", "level_3"]),
    "adversarial": (MARGIN, "--adversarial_triplets_per_anchor 10", []),
    "diva": (
        MARGIN,
        TWO_VIEWS,
        ["shared", "intra", "selfsimilarity", "Combined_discriminative_shared_intra_selfsimilarity-1-1-1-1"],
    ),
}
PAIRS = "--loss contrastive --batch_mining"
TRIPLETS = "--loss triplet --batch_mining"
MINERS = {  # name -> its loss and flags; lifted and npair are run with their losses
    "none": f"{PAIRS} none --loss_contrastive_reduction nonzero",
    "hdc": f"{PAIRS} hdc",
    "multisimilarity": f"{PAIRS} multisimilarity",
    "pairmargin": f"{PAIRS} pairmargin",
    "uniform_histogram": f"{PAIRS} uniform_histogram",
    "random": f"{TRIPLETS} random",
    "semihard": f"{TRIPLETS} semihard",
    "softhard": f"{TRIPLETS} softhard",
    "batchhard": f"{TRIPLETS} batchhard",
    "easy_hard": f"{TRIPLETS} easy_hard",
    "tripletmargin": f"{TRIPLETS} tripletmargin",
    "angular": f"{TRIPLETS} angular",
    "all": f"{TRIPLETS} all",
    "parametric": f"{TRIPLETS} parametric",
    "distance": f"{TRIPLETS} distance",
    "rho_distance": f"{TRIPLETS} rho_distance",
    "random_distance": f"{TRIPLETS} random_distance",
    "intra_random": f"{TRIPLETS} intra_random",
    "packaged": f"{TRIPLETS} packaged --data_sampler fixed_triplets --bs 111 --iterations_per_epoch 35",
    "pml": f"{TRIPLETS} pml --miner_pml_class TripletMarginMiner",
}
OF_SAMPLERS = "--loss multisimilarity --data_sampler"
SAMPLERS = {  # name -> its loss and flags
    "class_balanced": f"{OF_SAMPLERS} class_balanced",
    "class_groups": f"{OF_SAMPLERS} class_groups",
    "class_random": f"{OF_SAMPLERS} class_random",
    "full_random": f"{OF_SAMPLERS} full_random",
    "shuffle": f"{OF_SAMPLERS} shuffle",
    "hierarchical": f"{OF_SAMPLERS} hierarchical",
    # a domain: letters of one kind, or digits
    "domain_balanced": f"{OF_SAMPLERS} domain_balanced",
    "domain_round_robin": f"{OF_SAMPLERS} domain_round_robin",
    "domain_size": f"{OF_SAMPLERS} domain_size",
    "d2_coreset": f"{OF_SAMPLERS} d2_coreset",
    "greedy_coreset": f"{OF_SAMPLERS} greedy_coreset",
    "disthist_batchmatch": f"{OF_SAMPLERS} disthist_batchmatch",
    "fid_batchmatch": f"{OF_SAMPLERS} fid_batchmatch",
    "fixed_triplets": MINERS["packaged"],
    "hard_triplets": f"{TRIPLETS} packaged --data_sampler hard_triplets --bs 111 --iterations_per_epoch 35",
}
SMALL_BATCHES = "--bs 28 --iterations_per_epoch 35"  # as many steps an epoch as with 112
OF_MEMORY = {"multisimilarity": "", "ntxent": "--loss_ntxent_temperature 0.1"}
MEMORIES = {  # start of the memory -> flags of both runs, the memory's flags, loss -> its flags
    "early": (
        SMALL_BATCHES,
        "--memory_size 512 --memory_start 35",
        {"contrastive": "--batch_mining distance", **OF_MEMORY, "margin": METHODS["margin"]},
    ),
    "settled": (  # the memory starts with a tenth of the rate, when the weights move slowly
        f"{SMALL_BATCHES} --n_epochs 9 --save_interval 9 --scheduler step --tau 5 --gamma 0.1",
        "--memory_size 1024 --memory_start 175",
        {"contrastive": "--batch_mining none --loss_contrastive_reduction nonzero", **OF_MEMORY},
    ),
}
BACKBONES = {  # name -> its arch, its own flags, those of its cascade; all with random weights and 192 dimensions
    "conv4": ("conv4", "--embed_dim 192", "--trainer cascaded"),
    "vit_tiny": (  # 48 x 48 pixels are 9 patches of 16
        "timm:vit_tiny_patch16_224",
        "--embed_dim 192 --not_pretrained --crop_size 48 --lr 0.0003",
        "--trainer cascaded --cascade_stages blocks.3 blocks.7 blocks.11",
    ),
}

R50 = "resnet50_frozen"
VIT = "timm:vit_small_patch16_224"
PLAIN = "--loss multisimilarity --embed_dim 512"
OPERATIONS = {  # name -> arch, flags; the first of an arch is what the others are compared with
    "multisimilarity": (R50, PLAIN),
    "intrabatch": (R50, f"{PLAIN} --trainer intrabatch"),
    "hist": (R50, "--loss hist --embed_dim 512"),
    "contextual, projection 2048": (R50, "--loss contextual --loss_contextual_projection 2048 --embed_dim 512"),
    "meanfield": (R50, "--loss meanfield --embed_dim 512"),
    "proxyanchor + anticollapse": (R50, "--loss proxyanchor --weight_regularizer anticollapse --embed_dim 512"),
    "language guidance, 5 vectors of 512 a class": (R50, f"{PLAIN} --language_vectors"),
    "metrix, embed": (R50, f"{PLAIN} --metrix 0.4"),
    "metrix, feature": (R50, f"{PLAIN} --metrix 0.4 --metrix_level feature"),
    "multisimilarity, ViT-S/16": (VIT, PLAIN),
    "10 prompts in 12 blocks, biases": (VIT, f"{PLAIN} --prompts 10 --train_biases"),
    "90 prompts in 12 blocks, biases": (VIT, f"{PLAIN} --prompts 90 --train_biases"),
}
BATCH = 128  # of --operations, images of 224 x 224, four of a class
STUDIED = {method.name: method for method in protocol.RECENT_METHODS.methods}
# of the study's training data, batches and images (configs/study_emoji.yaml)
STUDY_CLASSES = 336
STUDY_BATCH = 112
STUDY_SIDE = 64


class Peer(torch.nn.Module):
    """pytorch-metric-learning's loss as a criterion.

    Its class vectors start where ours start, or with `own_start` its own way.
    """

    def __init__(self, ours: torch.nn.Module, theirs: torch.nn.Module, epsilon: float | None, own_start: bool):
        super().__init__()
        from pytorch_metric_learning.miners import MultiSimilarityMiner

        self.loss = theirs
        self.stats = {}
        self.miner = MultiSimilarityMiner(epsilon) if epsilon is not None else None
        if not own_start:
            for our_parameter, parameter in zip(ours.parameters(), theirs.parameters(), strict=True):
                start = our_parameter.detach()
                if start.shape != parameter.shape:
                    start = start.T
                parameter.data.copy_(start.reshape(parameter.shape))
        parameters = list(theirs.parameters())
        self.optim_dict_list = [{**group, "params": parameters} for group in getattr(ours, "optim_dict_list", [])]

    def forward(self, batch, labels, **kwargs):
        pairs = self.miner(batch, labels) if self.miner is not None else None
        return self.loss(batch, labels, pairs)


def options(loss: str, seed: int, save_path: str, group: str):
    words = f"{COMMON} --loss {loss} {METHODS[loss]} --seed {seed} --group {group} --resume_or_start --save_path"
    return parameters.read([*words.split(), save_path])


@contextlib.contextmanager
def computed_by_the_peer(loss: str, own_start: bool):
    """Context in which main.py trains with pytorch-metric-learning's loss instead of ours."""
    from pytorch_metric_learning import losses

    ours = criteria.select

    def select(name, opt, batchminer, **flags):
        mine = ours(name, opt, batchminer, **flags)
        with torch.random.fork_rng():  # random numbers of their start must not change the batches
            return Peer(mine, *PEERS[loss](losses, opt, opt.n_classes, opt.embed_dim), own_start)

    criteria.select = select
    try:
        yield
    finally:
        criteria.select = ours


def result(loss: str, seed: int, save_path: str, peer: str = "") -> tuple[float, float, float]:
    """Test e_recall@1, map_r and seconds after the last epoch; a missing run is made first.

    `peer`: "" is ours, "pml" the package's from our start, "pml_own_start" from its own.
    """
    group = f"{loss}_{peer}" if peer else loss
    opt = options(loss, seed, save_path, group)
    if RunFolder(run_folder(opt)).progress.epochs < opt.n_epochs:
        with contextlib.ExitStack() as stack:
            if peer:
                stack.enter_context(computed_by_the_peer(loss, own_start=peer == "pml_own_start"))
            main.main(opt)
    summary = json.loads((run_folder(opt) / "summary.json").read_text(encoding="utf-8"))
    values = summary["last"]["test"]
    return values["e_recall@1"], values["map_r"], summary["seconds"]


def measured(flags: str, seed: int, save_path: str) -> tuple[dict, float]:
    """(embedding -> test e_recall@1 and map_r, seconds) of the run with the common flags and `flags`.

    A missing run is made first.
    """
    group = re.sub(r"\W+", "_", flags).strip("_")
    words = [*f"{COMMON} {flags} --seed {seed} --group {group} --resume_or_start --save_path".split(), save_path]
    opt = parameters.read(words)
    if RunFolder(run_folder(opt)).progress.epochs < opt.n_epochs:
        main.main(opt)
    summary = json.loads((run_folder(opt) / "summary.json").read_text(encoding="utf-8"))
    values = summary["last"]["test"]
    results = {}
    for name in opt.evaltypes:
        prefix = f"{name}/" if len(opt.evaltypes) > 1 else ""
        results[name] = values[f"{prefix}e_recall@1"], values[f"{prefix}map_r"]
    return results, summary["seconds"]


def spread(values: list[float]) -> str:
    deviation = f" ± {100 * statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{100 * statistics.mean(values):.2f}{deviation}"


def operations(arch: str, flags: list[str]) -> tuple[int, int]:
    """Operations of a step at BATCH, forward and backward: of the network and of the losses.

    The network's are those for two images, scaled: they grow with the number of images.
    """
    step, _ = built(arch, "--bs", str(BATCH), "--samples_per_class", "4", *flags)
    trainer = step.trainer.train()
    with FlopCounterMode(display=False) as network_counter:
        outputs = trainer.outputs(torch.zeros(2, 3, 224, 224, dtype=torch.uint8))
        sum(value.sum() for value in outputs.values() if value.requires_grad).backward()
    random_outputs = {
        name: torch.randn(BATCH, *value.shape[1:]).requires_grad_(value.requires_grad)
        for name, value in outputs.items()
    }
    batch = Batch(torch.arange(BATCH) // 4, None, torch.arange(BATCH))
    with FlopCounterMode(display=False) as loss_counter:
        sum(trainer.losses(random_outputs, batch).values()).backward()
    return network_counter.get_total_flops() * BATCH // 2, loss_counter.get_total_flops()


def write_vectors(path: str, n_classes: int, dimensions: int) -> None:
    """A file for --language_vectors: five random vectors of each class."""
    names = [f"class {label}" for label in range(n_classes)]
    np.savez(path, names=names, vectors=np.random.default_rng(0).normal(size=(n_classes, 5, dimensions)))


def operations_table(names: list[str]) -> None:
    print("| method | network, Gflop | losses, Gflop | of the plain step |\n|-|-|-|-|")
    plain_total = {}  # arch -> operations of its first method
    for name, (arch, flags) in OPERATIONS.items():
        if name not in names and arch in plain_total:
            continue
        with tempfile.NamedTemporaryFile(suffix=".npz") as vectors:
            if "--language_vectors" in flags:
                write_vectors(vectors.name, CLASSES, 512)
                flags += f" {vectors.name}"
            network, losses = operations(arch, flags.split())
        total = network + losses
        ratio = total / plain_total.setdefault(arch, total)
        print(f"| {name} | {network / 1e9:,.0f} | {losses / 1e9:.2f} | {ratio:.3f} |", flush=True)


def study_step(name: str):
    """A function that takes one step of a method of Recent_Runs.sh, on random images and from random weights."""
    shape = f"--embed_dim 128 --bs {STUDY_BATCH} --samples_per_class 4 --crop_size {STUDY_SIDE} --channels_last"
    line = protocol.line(protocol.DATA[0]._replace(flags=shape), STUDIED[name], "Costs", 0, "")
    with tempfile.NamedTemporaryFile(suffix="_rows.npz") as vectors:
        write_vectors(vectors.name, STUDY_CLASSES, 1280)
        words = re.sub(r"\S+_rows\.npz", vectors.name, line).split()[2:]
        step, _ = built("timm:tf_efficientnet_lite0_frozen_normalize", *words, n_classes=STUDY_CLASSES)
    images = torch.randint(0, 256, (STUDY_BATCH, 3, STUDY_SIDE, STUDY_SIDE), dtype=torch.uint8)
    batch = Batch(torch.arange(STUDY_BATCH) // 4, images, torch.arange(STUDY_BATCH))
    return lambda: step(batch)


def write_costs(path: str, repeats: int) -> None:
    """Write median milliseconds of a step of each method, taken in turns, and its megabytes to a CSV file.

    The megabytes are measured in a process of its own for each method.
    """
    times = medians({name: study_step(name) for name in STUDIED}, 2, repeats)
    rows = []
    for name, seconds in times.items():
        command = [sys.executable, __file__, "--peak", name]
        megabytes = float(subprocess.run(command, capture_output=True, check=True, text=True).stdout.splitlines()[-1])
        rows.append(
            {
                "method": name,
                "milliseconds": f"{1000 * seconds:.1f}",
                "megabytes": f"{megabytes:.0f}",
                "threads": torch.get_num_threads(),
            }
        )
        print(rows[-1], flush=True)
    write_records(Path(path), list(rows[0]), rows)


def table(names: list[str], seeds: range, save_path: str) -> None:
    print("| loss | flags besides the common ones | e_recall@1 | map_r | seconds |\n|-|-|-|-|-|")
    for name in names:
        results = [result(name, seed, save_path) for seed in seeds]
        recall, map_r, seconds = (list(column) for column in zip(*results, strict=True))
        flags = METHODS[name] or "–"
        time_text = f"{statistics.median(seconds):.0f}"
        print(f"| `{name}` | `{flags}` | {spread(recall)} | {spread(map_r)} | {time_text} |", flush=True)


def peer_table(names: list[str], seeds: range, save_path: str, peer: str) -> None:
    print("| loss | ours | pytorch-metric-learning | paired difference | two standard errors |\n|-|-|-|-|-|")
    for name in names:
        ours, theirs = ([result(name, seed, save_path, side)[0] for seed in seeds] for side in ("", peer))
        differences = [a - b for a, b in zip(ours, theirs, strict=True)]
        mean = f"{100 * statistics.mean(differences):+.2f}"
        error = 2 * statistics.stdev(differences) / len(differences) ** 0.5
        print(f"| `{name}` | {spread(ours)} | {spread(theirs)} | {mean} | {100 * error:.2f} |", flush=True)


def rows_of(heading: str, flags: str, seeds: range, save_path: str, single: str = "–") -> None:
    """Print the rows of a setting, one per embedding, with its name in the second column; `single` if it is alone."""
    results, seconds = zip(*[measured(flags, seed, save_path) for seed in seeds], strict=True)
    for embedding in results[0]:
        recall, map_r = zip(*[values[embedding] for values in results], strict=True)
        name = f"`{embedding}`" if len(results[0]) > 1 else single
        time_text = f"{statistics.median(seconds):.0f}"
        print(f"| {heading} | {name} | {spread(recall)} | {spread(map_r)} | {time_text} |", flush=True)


def trainer_table(names: list[str], seeds: range, save_path: str) -> None:
    """Every trainer below the row of metric_only with the same loss."""
    print("| flags besides the common ones | embedding | e_recall@1 | map_r | seconds |\n|-|-|-|-|-|")
    for shared in dict.fromkeys(TRAINERS[name][0] for name in names):
        rows_of(f"`{shared}`", shared, seeds, save_path)
        for name in [name for name in names if TRAINERS[name][0] == shared]:
            _, trainer_flags, embeddings = TRAINERS[name]
            flags = f"--trainer {name} {trainer_flags}".strip()
            evaltypes = f" --evaltypes discriminative {' '.join(embeddings)}" if embeddings else ""
            rows_of(f"the same with `{flags}`", f"{shared} {flags}{evaltypes}", seeds, save_path)


def table_of(settings: dict[str, str], names: list[str] | None, seeds: range, save_path: str) -> None:
    """Every miner, or every sampler, with a loss that suits it."""
    print("| flags besides the common ones | embedding | e_recall@1 | map_r | seconds |\n|-|-|-|-|-|")
    for flags in [settings[name] for name in names or settings]:
        rows_of(f"`{flags}`", flags, seeds, save_path)


def memory_table(kind: str, names: list[str] | None, seeds: range, save_path: str) -> None:
    """Small batches without and with a memory."""
    print("| flags besides the common ones | embedding | e_recall@1 | map_r | seconds |\n|-|-|-|-|-|")
    common, memory, losses = MEMORIES[kind]
    for name in names or losses:
        flags = f"--loss {name} {losses[name]}".strip()
        rows_of(f"`{flags}`", f"{flags} {common}", seeds, save_path)
        rows_of(f"the same with `{memory}`", f"{flags} {common} {memory}", seeds, save_path)


def backbone_table(names: list[str], seeds: range, save_path: str) -> None:
    """Each backbone, cosine and hyperbolic, plain and as a cascade.

    A cascade hands pairs to its loss; hyperbolic loss takes none.
    """
    print("| flags besides the common ones | seeds | e_recall@1 | map_r | seconds |\n|-|-|-|-|-|")
    for name in names:
        arch, backbone_flags, cascade = BACKBONES[name]
        cosine = f"--arch {arch}_normalize {backbone_flags} --loss"
        raw = f"--arch {arch} {backbone_flags} --loss"
        ball = "--eval_space hyperbolic"
        plain = (
            f"{cosine} ntxent",
            f"{cosine} supcon",
            f"{raw} hyperbolic {ball}",
            f"{raw} triplet --batch_mining semihard {ball}",
        )
        for flags in (*plain, f"{cosine} ntxent {cascade}", f"{raw} triplet --batch_mining semihard {ball} {cascade}"):
            rows_of(f"`{flags}`", flags, seeds, save_path, single=str(len(seeds)))


def get_parser() -> argparse.ArgumentParser:
    parser = OneLineParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    text = "these losses, trainers, miners, samplers or backbones (default: all)"
    add("--only", nargs="+", default=None, help=text)
    add("--peers", action="store_true", help="the comparison with pytorch-metric-learning instead of the table")
    text = "with --peers: class vectors of each program start its own way"
    add("--own_starts", action="store_true", help=text)
    add("--trainers", action="store_true", help="every trainer beside metric_only instead of the table")
    add("--miners", action="store_true", help="every miner with contrastive or triplet loss instead of the table")
    text = "every sampler with multisimilarity, or triplet loss, instead of the table"
    add("--samplers", action="store_true", help=text)
    text = "cross-batch memory on small batches instead of the table"
    add("--memory", nargs="?", const="settled", choices=list(MEMORIES), help=text)
    text = "the backbones, cosine, hyperbolic and cascaded, instead of the table"
    add("--backbones", action="store_true", help=text)
    text = "operations of a step of the methods since 2021 instead of the table"
    add("--operations", action="store_true", help=text)
    text = "time and memory of a step of each method of Recent_Runs.sh, written to a CSV file, instead of the table"
    add("--costs", default=None, metavar="FILE", help=text)
    add("--repeats", type=whole(1), default=15, help="with --costs: steps of each method")
    add("--peak", default=None, choices=STUDIED, help=argparse.SUPPRESS)  # for the processes that --costs starts
    add("--seeds", type=whole(1, 1000), default=None, help="how many seeds (default: 3; 5 with --peers)")
    add("--save_path", default="Training_Results/Methods", help="where the runs lie")
    return parser


def print_tables(arguments) -> None:
    """Make the table that the flags ask for."""
    chosen = arguments.only
    save_path = arguments.save_path
    n_seeds = 5 if arguments.peers else 3
    seeds = range(arguments.seeds or n_seeds)
    if arguments.peers:
        names, peer = (WITH_VECTORS, "pml_own_start") if arguments.own_starts else (list(PEERS), "pml")
        peer_table(chosen or names, seeds, save_path, peer)
    elif arguments.costs:
        write_costs(arguments.costs, arguments.repeats)
    elif arguments.operations:
        operations_table(chosen or list(OPERATIONS))
    elif arguments.trainers:
        trainer_table(chosen or list(TRAINERS), seeds, save_path)
    elif arguments.miners:
        table_of(MINERS, chosen, seeds, save_path)
    elif arguments.samplers:
        table_of(SAMPLERS, chosen, seeds, save_path)
    elif arguments.backbones:
        backbone_table(chosen or list(BACKBONES), seeds, save_path)
    elif arguments.memory:
        memory_table(arguments.memory, chosen, seeds, save_path)
    else:
        table(chosen or sorted(METHODS), seeds, save_path)


if __name__ == "__main__":
    parser = get_parser()
    arguments = parser.parse_args()
    if arguments.peers and arguments.seeds == 1:
        parser.error("--seeds 1: a paired difference has an error from two seeds on")
    if arguments.peak:
        print(peak(study_step(arguments.peak)))
        sys.exit()
    missing = set(criteria.REGISTRY.names()) - set(METHODS)
    if missing:
        sys.exit(f"no setting for {', '.join(sorted(missing))}: add them to METHODS")
    began = time.monotonic()
    print_tables(arguments)
    print(f"{time.monotonic() - began:.0f} s on {torch.get_num_threads()} threads")
