"""Every criterion on the embedded characters: `python benchmarks/methods.py`, for docs/methods_on_glyphs.md.

Each is trained for three epochs with a suitable miner and rate, conv4, seeds 0, 1, 2, through main.py; finished runs
are not repeated. `--peers` trains at least ten of them once more through pytorch-metric-learning's own implementation,
with the same initial network, seeds and batches, over five seeds, and gives the paired difference; class vectors start
as ours. With `--own_starts` the losses with class vectors are compared, each from its own start. `--trainers`: every
trainer and metric_only with the same loss. `--miners`, `--samplers`: each of them with a loss that suits it.
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
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

import criteria
import main
import parameters
from benchmarks._method_costs import OPERATIONS, STUDIED, operations_table, study_step, write_costs
from benchmarks._method_peers import PEERS, WITH_VECTORS, computed_by_the_peer
from benchmarks._method_settings import BACKBONES, COMMON, MEMORIES, METHODS, MINERS, SAMPLERS, TRAINERS
from benchmarks.criteria import peak
from runs.folder import RunFolder, run_folder
from utilities.errors import OneLineParser
from utilities.numbers import whole


def options(loss: str, seed: int, save_path: str, group: str):
    """The options of a run with the setting of a loss."""
    words = f"{COMMON} --loss {loss} {METHODS[loss]} --seed {seed} --group {group} --resume_or_start --save_path"
    return parameters.read([*words.split(), save_path])


def result(loss: str, seed: int, save_path: str, peer: str = "") -> tuple[float, float, float]:
    """Test e_recall@1, map_r and seconds after the last epoch; a missing run is made first.

    `peer`: "" is our loss, "pml" the package's from our start, "pml_own_start" from its own.
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
    if "c_map_r" in values:
        return values["c_recall@1"], values["c_map_r"], summary["seconds"]
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
    """Mean and deviation (of two or more) of values, in percent."""
    deviation = f" ± {100 * statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{100 * statistics.mean(values):.2f}{deviation}"


def table(names: list[str], seeds: range, save_path: str) -> None:
    """Every loss with its setting."""
    print("| loss | flags besides the common ones | e_recall@1 | map_r | seconds |\n|-|-|-|-|-|")
    for name in names:
        results = [result(name, seed, save_path) for seed in seeds]
        recall, map_r, seconds = (list(column) for column in zip(*results, strict=True))
        flags = METHODS[name] or "–"
        time_text = f"{statistics.median(seconds):.0f}"
        print(f"| `{name}` | `{flags}` | {spread(recall)} | {spread(map_r)} | {time_text} |", flush=True)


def peer_table(names: list[str], seeds: range, save_path: str, peer: str) -> None:
    """Losses beside pytorch-metric-learning's; `peer` as `result` takes it."""
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
    """The flags of the program."""
    parser = OneLineParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    text = "these losses, trainers, miners, samplers or backbones (default: all)"
    add("--only", nargs="+", default=None, help=text)
    add("--peers", action="store_true", help="the comparison with pytorch-metric-learning instead of the table")
    text = "with --peers: class vectors of each program start its own way"
    add("--own_starts", action="store_true", help=text)
    add("--trainers", action="store_true", help="every trainer and metric_only with its loss, instead of the table")
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
    # for the processes that --costs starts
    add("--peak", default=None, choices=STUDIED, help=argparse.SUPPRESS)
    add("--seeds", type=whole(1, 1000), default=None, help="how many seeds (default: 3; 5 with --peers)")
    add("--save_path", default="Training_Results/Methods", help="folder of the runs")
    return parser


def print_tables(arguments) -> None:
    """Print the table that the flags request."""
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
        sys.exit(f"no setting for {', '.join(sorted(missing))}: add them to METHODS in benchmarks/_method_settings.py")
    began = time.monotonic()
    print_tables(arguments)
    print(f"{time.monotonic() - began:.0f} s on {torch.get_num_threads()} threads")
