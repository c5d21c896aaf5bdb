"""What is computed once, before the first step: --feature_cache, and the old embeddings of --compatible_with.

--feature_cache: a frozen backbone embeds each image once a run; afterwards its pooled features replace the image.
"""

from pathlib import Path

import torch

import datasets
import evaluation
from engine.loading import evaluation_loader
from evaluation.old_embeddings import OldEmbeddings
from utilities.console import say
from utilities.errors import UserError
from utilities.evaltypes import BARE
from utilities.splits import evaluated


class ComputedOnce:
    """Both, of one run. Raises UserError, before anything is trained, where network, trainer or files do not serve.

    Args:
        splits: what `datasets.select` gives. Under `--augmentation none` the training images are those of evaluation.
    """

    def __init__(self, trainer: torch.nn.Module, splits: dict, opt, runtime):
        check(trainer, opt, runtime)
        self.old_embeddings = OldEmbeddings(trainer, splits, opt, runtime)
        self.splits = splits
        self.opt = opt
        self.runtime = runtime

    def fill(self, network: torch.nn.Module, folder: Path) -> None:
        """Compute them for the run in `folder`. The network must have its weights already."""
        fill(self.splits, network, self.opt, self.runtime)
        self.old_embeddings.fill(folder)


def check(trainer: torch.nn.Module, opt, runtime) -> None:
    """Raise UserError, before anything is trained, where the network or the trainer needs more than pooled features."""
    flag = "--feature_cache"
    if datasets.width(opt) is not None:
        flag = f"--dataset {opt.dataset}"
    elif not opt.feature_cache:
        return
    modes = {module: module.training for module in trainer.modules()}
    trainer.eval()
    try:
        with torch.no_grad(), torch.random.fork_rng(), runtime.autocast():
            trainer.outputs(runtime.to_device(torch.zeros(2, trainer.network.feature_dim)))
    except (ValueError, RuntimeError, AttributeError, KeyError) as error:
        raise UserError(
            f"{flag}: {opt.arch} with --trainer {opt.trainer} cannot use features instead of images: {error}"
        ) from error
    finally:
        for module, mode in modes.items():
            module.training = mode


def fill(splits: dict, network: torch.nn.Module, opt, runtime) -> None:
    """Set the features of the training data and of `--splits_to_eval`. The network must have its weights already.

    Args:
        splits: what `datasets.select` gives. Under `--augmentation none` the training images are those of evaluation.
    """
    if not opt.feature_cache:
        return
    seconds = 0.0
    settings = evaluation.EmbedSettings(bare=True, normalize=False)
    datasets = evaluated(splits)
    counts = {}
    for split in dict.fromkeys(["train", *opt.splits_to_eval]):
        loader = evaluation_loader(datasets[split], opt, runtime.ranks)
        embedded = evaluation.embed(network, loader, runtime, f"features of {split}", settings)
        datasets[split].features = torch.from_numpy(embedded.features[BARE])
        counts[split] = f"{len(datasets[split]):,} of {split}"
        seconds += embedded.seconds
    splits["training"].features = splits["evaluation"].features
    cached = ", ".join(counts[split] for split in datasets if split in counts)
    say(f"--feature_cache: {network.feature_dim:,} features of each image, {cached}, in {seconds:.1f} s")
