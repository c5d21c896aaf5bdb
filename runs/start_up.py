"""The start of a run: the summary on the console, and the software, hardware and data that environment.yaml records."""

import os
import platform
import sys

import torch

import criteria
import datasets
from architectures import _adaptation
from engine.determinism import WORKSPACE
from runs.idle import idle
from utilities import provenance
from utilities.console import wrapped
from utilities.counts import count_of
from utilities.files import expanded
from utilities.processes import kernels


def report(opt, runtime, data: str, trainer, optimizer, sampler, selection) -> None:
    """Print what is about to run: data, network, optimiser groups, trainer, criterion and miner, selection rule."""
    lines = [("device", runtime.description)]
    name = "data"
    for line in data.splitlines():
        lines.append((name, line.strip()))
        name = ""
    lines += _network_lines(opt, trainer)
    for group in optimizer.param_groups:
        parameters = f"{group.get('name', 'group')}, {_size(group['params']):,} parameters"
        lines.append(("optimiser", f"{opt.optim}: {parameters}, rate {group['lr']:g}, decay {group['weight_decay']:g}"))
    lines += _method_lines(opt, trainer)
    batches = opt.iterations_per_epoch or len(sampler)
    epochs = count_of(opt.n_epochs, "epoch")
    composition = f"{opt.bs} images by {opt.data_sampler}"
    if opt.trainer == "pairs":
        composition = f"{opt.bs // 2} graded pairs"
    lines.append(("batches", f"{composition}, {batches} per epoch, {epochs}"))
    lines += [("steps", text) for text in step_changes(opt)]
    published = datasets.evaluation_metrics(opt)
    if published is not None and list(published) == opt.evaluation_metrics:
        lines.append(("metrics", f"--evaluation_metrics: those published for {opt.dataset}: {' '.join(published)}"))
    lines.append(("selection", selection.rule))
    if criteria.only_miner(opt) is not None and opt.set_by.get("batch_mining") == "derived":
        lines.append(("note", f"--batch_mining {opt.batch_mining}, the only miner that --loss {opt.loss} takes"))
    lines += [("note", text) for text in idle(opt)]
    if kernels(opt.kernels) < opt.kernels:
        lines.append(("kernels", f"--kernels {opt.kernels} is capped at this machine's {kernels(opt.kernels)} CPUs"))
    width = max(len(name) for name, _ in lines)
    for name, text in lines:
        print(wrapped(f"{name:>{width}}  {text}", indent=width + 2))
    sys.stdout.flush()


def _network_lines(opt, trainer) -> list[tuple[str, str]]:
    """The network, and what of it is frozen."""
    network = trainer.network
    lines = [("network", described_network(opt, trainer))]
    if opt.freeze_backbone:
        start = " at its random initial weights" if network.weights_name == "random" else ""
        lines.append(("", f"--freeze_backbone: the backbone is frozen{start}; only the layers after it are trained"))
    if getattr(network, "takes_features", None) is not None:
        lines.append(("", "no backbone: rows of features are its input; pictures of queries are left out"))
    lines += [("", text) for text in partly_trained(opt, network)]
    return lines


def _method_lines(opt, trainer) -> list[tuple[str, str]]:
    """Criterion and miner, trainer, and the losses that flags add."""
    criterion = opt.loss
    if getattr(trainer.criterion, "batchminer", None) is not None:
        criterion += f" with miner {opt.batch_mining}"
    lines = [("criterion", criterion)]
    if opt.trainer != "metric_only":
        lines.append(("trainer", opt.trainer))
    for added in trainer.added_losses:
        lines.append(("beside it", f"{added.NAME}, {added.FLAG} {getattr(opt, added.FLAG[2:])}"))
    return lines


def described_network(opt, trainer) -> str:
    """The network's name, parameters (without those the trainer leaves out), weights and width of the embedding."""
    network = trainer.network
    heads = getattr(trainer, "evaluated_heads", None)
    size = _size(network.parameters())
    embedding = opt.embed_dim or "as the features"
    if getattr(network, "leaves_out_embedding", False):
        size -= sum(_size(module.parameters()) for module in network.embedding_layers.values())
    if getattr(heads, "CHANGES_MAIN", False):
        embedding = heads.embed_dim
    weights = getattr(network, "weights_name", "unknown")
    return f"{opt.arch}, {size / 1e6:.2f} M parameters, weights: {weights}, embedding {embedding}"


def partly_trained(opt, network) -> list[str]:
    """A line on how many parameters train, if a part of the backbone is frozen."""
    flags = " ".join(_adaptation.tuned(opt))
    if not flags and opt.freeze_blocks is not None:
        flags = f"--freeze_blocks {opt.freeze_blocks}"
    if not flags:
        return []
    total = _size(network.parameters())
    trained = total - _size(network.resting_parameters())
    return [f"{flags}: {trained:,} of {total:,} parameters are trained, {trained / total:.2%}; the others are frozen"]


def _size(parameters) -> int:
    return sum(p.numel() for p in parameters)


def step_changes(opt) -> list[str]:
    """A line for each flag that changes a step or the evaluated network."""
    scheduler = f"to those of --scheduler {opt.scheduler}"
    lines = []
    if opt.chunk_size and opt.chunk_size < opt.bs * opt.views:
        lines.append(f"in chunks of {opt.chunk_size} images")
    if opt.warmup_epochs:
        lines.append(f"rates rise linearly, step by step, over {count_of(opt.warmup_epochs, 'epoch')} {scheduler}")
    if opt.warmup_steps:
        lines.append(f"rates rise linearly over {count_of(opt.warmup_steps, 'step')} {scheduler}")
    if opt.freeze_backbone_steps:
        steps = count_of(opt.freeze_backbone_steps, "step")
        lines.append(f"the backbone is frozen for {steps}, including its BatchNorm statistics")
    if opt.warmup_head_epochs:
        epochs = count_of(opt.warmup_head_epochs, "epoch")
        lines.append(f"the backbone is frozen for {epochs}, including its BatchNorm statistics")
    if opt.ema_decay:
        lines.append(
            f"evaluated is a moving average of the weights and of BatchNorm's statistics, decay {opt.ema_decay}"
        )
    for name in ("channels_last", "compile", "tf32", "grad_checkpointing", "deterministic"):
        if getattr(opt, name):
            lines.append(f"--{name}")
    return lines


def environment(runtime, data: dict, network, opt) -> dict:
    """The content of environment.yaml: software, hardware, code, weights, transforms and counts as resolved."""
    record = {
        "python": platform.python_version(),
        "cuda": torch.version.cuda,
        "device": str(runtime.device),
        "gpu": torch.cuda.get_device_name(runtime.device) if runtime.device.type == "cuda" else None,
        "threads": torch.get_num_threads(),
    }
    if runtime.ranks.size > 1:
        record["processes"] = runtime.ranks.size
    record["weights"] = getattr(network, "weights_name", None)
    # with --embed_dim 0 no flag says how many dimensions embeddings have
    if isinstance(getattr(network, "last_linear", None), torch.nn.Identity):
        record["dimensions"] = network.embed_dim
    if hasattr(network, "data_config"):
        record["data_config"] = network.data_config
    record |= provenance.describe(getattr(network, "weights_file", None))
    if opt.deterministic:
        record["cublas_workspace"] = os.environ.get(WORKSPACE)
    if opt.language_vectors:
        record["language_vectors_sha256"] = provenance.sha256(expanded(opt.language_vectors))
    if opt.code_files():
        record["code_files"] = opt.code_files()
    record["data"] = data
    return record
