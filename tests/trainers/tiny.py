"""A network of a few weights in float64, batches for it, short runs on real images, and what every trainer is held to."""

import contextlib

import pytest
import torch

import criteria
import main
import parameters
import trainers
from runs import RunFolder, checkpoint
from tests import builders
from training.loading import Batch
from training.optimisers import build_optimizer
from utilities.errors import UserError


class Network(torch.nn.Module):
    """Images of 4 x 4 pixels through one layer, with a BatchNorm: a map and six pooled features; `embed_dim` dimensions."""

    feature_dim, input_size = 6, 4

    def __init__(self, normalizes=False, embed_dim=4):
        super().__init__()
        self.embed_dim, self.normalizes = embed_dim, normalizes
        self.backbone = torch.nn.Sequential(torch.nn.Conv2d(3, 6, 1, bias=False), torch.nn.BatchNorm2d(6))
        self.last_linear = torch.nn.Linear(6, embed_dim)
        self.double()

    def embed(self, pooled):
        embeddings = self.last_linear(pooled)
        return embeddings / embeddings.norm(dim=1, keepdim=True) if self.normalizes else embeddings

    def forward(self, images):
        spatial = self.backbone(images.to(self.last_linear.weight.dtype) / 255).tanh()
        pooled = spatial.mean((2, 3))
        return self.embed(pooled), {"pooled": pooled, "spatial": spatial}


def batch(labels=(0, 0, 1, 1, 2, 2), views=1, seed=3):
    """Random images with these labels, their views one whole set behind the other."""
    images = torch.randint(0, 256, (len(labels) * views, 3, 4, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))
    return Batch(torch.tensor(labels).repeat(views), images, (torch.arange(len(labels)) + 20).repeat(views))


def trainer(name, *flags, network=None, n_classes=4):
    """A trainer of that network in float64, and its flags."""
    torch.manual_seed(0)
    opt = parameters.read([
        "--dataset", "glyphs", "--trainer", name, "--embed_dim", "4", "--loss", "multisimilarity", "--batch_mining", "none", *flags
    ])  # fmt: skip
    opt.n_classes = n_classes
    network = Network() if network is None else network
    criterion = criteria.select(opt.loss, opt, None)
    return trainers.select(name, opt, network, criterion).double(), opt


def losses(trainer, given):
    """Outputs and losses of a batch."""
    outputs = trainer.outputs(given.images)
    return outputs, trainer.losses(outputs, given)


def gradients(loss, module) -> set[str]:
    """The names of the parameters that a loss reaches."""
    module.zero_grad(set_to_none=True)
    loss.backward(retain_graph=True)
    return {name for name, parameter in module.named_parameters() if parameter.grad is not None and bool((parameter.grad != 0).any())}


def groups(opt, trainer) -> dict:
    """Group's name -> it; every parameter that is trained is in exactly one."""
    found = build_optimizer(trainer.network, trainer.criterion, opt, trainer.param_groups(opt)).param_groups
    grouped = [id(p) for group in found for p in group["params"]]
    wanted = {id(p) for p in trainer.parameters() if p.requires_grad}
    assert len(grouped) == len(set(grouped)) and wanted <= set(grouped)
    assert len({group["name"] for group in found}) == len(found)
    return {group["name"]: group for group in found}


def words(data, tmp_path, *more):
    """The command line of the shortest run on a folder of images."""
    return [
        "--dataset", "folder", "--dataset_folder_path", str(data), "--save_path", str(tmp_path / "runs"), *builders.SHORT_RUN,
        "--loss", "triplet", "--group", "Trainer", *more,
    ]  # fmt: skip


def read(data, tmp_path, *more):
    """Its flags."""
    return parameters.read(words(data, tmp_path, *more))


def run(data, tmp_path, *more):
    """Train it."""
    return main.main(read(data, tmp_path, *more))


def measured(run, *more):
    """What `--evaluate` says of it, without the pictures, which take longer than all else."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("evaluation.pictures.draw", lambda *arguments: [])
        return main.main(parameters.read(["--evaluate", "--resume_from", str(run.folder), *more]))


def assert_equal_states(one, other, name=""):
    """Nested dicts of tensors and other values, to the bit."""
    if isinstance(one, dict):
        assert one.keys() == other.keys(), name
        for key, value in one.items():
            assert_equal_states(value, other[key], f"{name}.{key}")
    else:
        assert torch.equal(one, other) if torch.is_tensor(one) else one == other, name


def assert_equal_runs(one, other):
    """The same last checkpoint and the same records, but for seconds."""
    states = [checkpoint.read(folder / checkpoint.LAST) for folder in (one, other)]
    for part in ("state_dict", "criterion", "trainer"):
        assert_equal_states(*(state.get(part, {}) for state in states), part)
    assert states[0]["run"]["last"] == states[1]["run"]["last"]
    values = [RunFolder(folder).metrics for folder in (one, other)]
    values = [rows[~rows.metric.str.contains("seconds|time")].reset_index(drop=True) for rows in values]
    assert values[0].equals(values[1])


def assert_resumes(data, tmp_path, *flags, epochs=3):
    """A run that stops after each epoch and goes on is, bit for bit, the one that does not. Returns the whole run."""
    whole = run(data, tmp_path, *flags, "--n_epochs", str(epochs), "--savename", "Whole")
    parted = run(data, tmp_path, *flags, "--n_epochs", "1", "--savename", "Parted")
    for epoch in range(2, epochs + 1):
        main.main(parameters.read(["--resume_from", str(parted.folder), "--n_epochs", str(epoch)]))
    assert_equal_runs(whole.folder, parted.folder)
    return whole


@contextlib.contextmanager
def refused(match):
    """A UserError of one line, raised inside or turned into the parser's exit."""
    with pytest.raises(UserError, match=match) as caught:
        yield
    assert "\n" not in str(caught.value)
