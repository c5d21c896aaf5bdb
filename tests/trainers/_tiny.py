"""A tiny network and batch in float64, short runs on real images, and what every trainer is held to."""

import contextlib

import pytest
import torch

import criteria
import main
import parameters
import trainers
from runs import RunFolder, checkpoint
from tests import builders
from utilities.errors import UserError
from utilities.loading import Batch
from utilities.optimisers import build_optimizer

CLASSES = 3


class Network(torch.nn.Module):
    """Grey values of 4 x 4 images through one layer; six features, four dimensions of unit length."""

    embed_dim, feature_dim, input_size, normalizes = 4, 6, 4, True

    def __init__(self):
        super().__init__()
        self.backbone = torch.nn.Conv2d(3, 6, 1)
        self.last_linear = torch.nn.Linear(6, 4)

    def forward(self, images):
        spatial = self.backbone(images.to(self.last_linear.weight.dtype) / 255).tanh()
        pooled = spatial.mean((2, 3))
        return torch.nn.functional.normalize(self.last_linear(pooled)), {"pooled": pooled, "spatial": spatial}


def batch(size=6, views=1, seed=3):
    """Images of three classes in order, with their views one whole set behind the other."""
    images = torch.randint(0, 256, (size * views, 3, 4, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))
    labels, indices = torch.arange(size) * CLASSES // size, torch.arange(size) + 20
    return Batch(labels.repeat(views), images, indices.repeat(views))


def made(name, *flags, seed=0):
    """(opt, trainer) of a tiny network, all in float64."""
    torch.manual_seed(seed)
    opt = parameters.read(["--dataset", "glyphs", "--trainer", name, "--loss", "multisimilarity", "--embed_dim", "4", *flags])
    opt.n_classes = CLASSES
    criterion = criteria.select(opt.loss, opt)
    return opt, trainers.select(name, opt, Network(), criterion).double()


def losses(trainer, given):
    """Outputs and losses of a batch."""
    outputs = trainer.outputs(given.images)
    return outputs, trainer.losses(outputs, given)


def with_gradient(trainer, loss) -> set[str]:
    """Names of the parameters that a scalar reaches."""
    names, parameters_ = zip(*trainer.named_parameters(), strict=True)
    found = torch.autograd.grad(loss, parameters_, allow_unused=True, retain_graph=True)
    return {name for name, gradient in zip(names, found, strict=True) if gradient is not None and bool((gradient != 0).any())}


def groups(opt, trainer) -> dict:
    """Group's name -> it; every parameter that is trained is in exactly one."""
    found = build_optimizer(trainer.network, trainer.criterion, opt, trainer.param_groups(opt)).param_groups
    grouped = [id(p) for group in found for p in group["params"]]
    wanted = {id(p) for p in trainer.parameters() if p.requires_grad}
    assert len(grouped) == len(set(grouped)) and wanted <= set(grouped)
    assert len({group["name"] for group in found}) == len(found)
    return {group["name"]: group for group in found}


def words(data, tmp_path, trainer, *more):
    """The command line of the shortest run."""
    return [
        "--dataset", "folder", "--dataset_folder_path", str(data), "--save_path", str(tmp_path / "runs"), *builders.SHORT_RUN,
        "--loss", "multisimilarity", "--group", "Tiny", "--trainer", trainer, *more,
    ]  # fmt: skip


def run(data, tmp_path, trainer, *more):
    """Train it."""
    return main.main(parameters.read(words(data, tmp_path, trainer, *more)))


def measured(run, *more):
    """What `--evaluate` says of it, without the pictures, which take longer than all else."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("evaluation.pictures.draw", lambda *arguments: [])
        return main.main(parameters.read(["--evaluate", "--resume_from", str(run.folder), *more]))


def resumes_bit_for_bit(data, tmp_path, trainer, *more):
    """Two epochs at once, and one and then another, leave the same checkpoint. Returns the first run."""
    whole = run(data, tmp_path, trainer, *more, "--n_epochs", "2", "--savename", "Whole")
    half = run(data, tmp_path, trainer, *more, "--n_epochs", "1", "--savename", "Half")
    main.main(parameters.read(["--resume_from", str(half.folder), "--n_epochs", "2"]))
    one, other = (checkpoint.read(folder / checkpoint.LAST) for folder in (whole.folder, half.folder))
    for part in ("state_dict", "criterion", "trainer"):
        assert (part in one) == (part in other)
        for name in one.get(part, {}):
            assert torch.equal(one[part][name], other[part][name]), (part, name)
    values = [RunFolder(folder).metrics for folder in (whole.folder, half.folder)]
    values = [rows[~rows.metric.str.contains("seconds|time")].reset_index(drop=True) for rows in values]
    assert values[0].equals(values[1])
    return whole


@contextlib.contextmanager
def refused(match):
    """A UserError of one line, raised inside or turned into the parser's exit."""
    with pytest.raises(UserError, match=match) as caught:
        yield
    assert "\n" not in str(caught.value)
