"""A network of a few float64 weights, batches for it, and short runs of a trainer: what the trainers' tests share."""

import torch

import criteria
import main
import parameters
import trainers
from runs import checkpoint
from tests import builders
from utilities.loading import Batch


class Network(torch.nn.Module):
    """Images -> pooled features (B, 5), with a BatchNorm, -> embeddings (B, 4), of the shape of the project's networks."""

    def __init__(self, normalizes=False, embed_dim=4):
        super().__init__()
        self.feature_dim, self.embed_dim, self.normalizes = 5, embed_dim, normalizes
        self.backbone = torch.nn.Sequential(torch.nn.Linear(12, 5), torch.nn.BatchNorm1d(5))
        self.last_linear = torch.nn.Linear(5, embed_dim)
        self.double()

    def embed(self, pooled):
        embeddings = self.last_linear(pooled)
        return embeddings / embeddings.norm(dim=1, keepdim=True) if self.normalizes else embeddings

    def forward(self, images):
        pooled = self.backbone(images.double().flatten(1) / 255)
        return self.embed(pooled), {"pooled": pooled}


def batch(labels, seed=3):
    """Random images of 2 x 2 pixels with these labels."""
    images = torch.randint(0, 256, (len(labels), 3, 2, 2), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))
    return Batch(torch.tensor(labels), images, torch.arange(len(labels)))


def trainer(name, *flags, network=None, n_classes=4):
    """A trainer of that network in float64."""
    torch.manual_seed(0)
    opt = parameters.read(["--dataset", "glyphs", "--trainer", name, "--embed_dim", "4", "--batch_mining", "none", *flags])
    opt.n_classes = n_classes
    network = Network() if network is None else network
    criterion = criteria.select(opt.loss, opt, None)
    return trainers.select(name, opt, network, criterion).double(), opt


def gradients(loss, module) -> set[str]:
    """The names of the parameters that a loss reaches."""
    module.zero_grad(set_to_none=True)
    loss.backward(retain_graph=True)
    return {name for name, parameter in module.named_parameters() if parameter.grad is not None and bool((parameter.grad != 0).any())}


def read(data, tmp_path, *more):
    """The flags of a short run on a folder of images."""
    return parameters.read([
        "--dataset", "folder", "--dataset_folder_path", str(data), "--save_path", str(tmp_path / "runs"), *builders.SHORT_RUN,
        "--loss", "triplet", "--group", "Trainer", *more,
    ])  # fmt: skip


def assert_resumes(data, tmp_path, *flags, epochs=3):
    """A run that stops after each epoch and goes on is, bit for bit, the one that does not. Returns the whole run."""
    whole = main.main(read(data, tmp_path, *flags, "--n_epochs", str(epochs), "--savename", "Whole"))
    parted = main.main(read(data, tmp_path, *flags, "--n_epochs", "1", "--savename", "Parted"))
    for epoch in range(2, epochs + 1):
        main.main(parameters.read(["--resume_from", str(parted.folder), "--n_epochs", str(epoch)]))
    one, two = (checkpoint.read(run.folder / checkpoint.LAST) for run in (whole, parted))
    for part in ("state_dict", "criterion", "trainer"):
        assert set(one[part]) == set(two[part]), part
        assert all(torch.equal(one[part][name], two[part][name]) for name in one[part]), part
    assert one["run"]["last"] == two["run"]["last"]
    return whole
