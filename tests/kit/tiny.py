"""A network of a few weights in float64, batches for it, slow formulas on lists, and short runs on real images."""

import math

import torch

import criteria
import main
import parameters
import trainers
from engine.loading import Batch
from engine.optimisers import build_optimizer
from engine.runtime import Runtime
from engine.step import Step, StepSettings
from runs import RunFolder
from tests.kit.runs import equal_states, last_checkpoint, run_main, run_words, words_of
from utilities.words import parse_weights


class Network(torch.nn.Module):
    """Images of 4 x 4 pixels through one layer with a BatchNorm: a map, six pooled features, `embed_dim` dimensions."""

    feature_dim = 6
    input_size = 4

    def __init__(self, normalizes=False, embed_dim=4):
        super().__init__()
        self.embed_dim = embed_dim
        self.normalizes = normalizes
        self.backbone = torch.nn.Sequential(torch.nn.Conv2d(3, 6, 1, bias=False), torch.nn.BatchNorm2d(6))
        self.last_linear = torch.nn.Linear(6, embed_dim)
        self.double()

    def embed(self, pooled):
        embeddings = self.last_linear(pooled)
        return embeddings / embeddings.norm(dim=1, keepdim=True) if self.normalizes else embeddings

    def pool(self, spatial):
        return spatial.mean((2, 3))

    def forward(self, images):
        spatial = self.backbone(images.to(self.last_linear.weight.dtype) / 255).tanh()
        pooled = self.pool(spatial)
        return self.embed(pooled), {"pooled": pooled, "spatial": spatial}


class Against(torch.nn.Module):
    """-sum of products with positives: a criterion that is a plain module and takes a reference."""

    def forward(self, batch, labels, reference=None, reference_labels=None, **options):
        places = options.get("own")
        if reference is None:
            reference = batch
            reference_labels = labels
            places = torch.arange(len(batch), device=batch.device)
        is_positive = labels[:, None] == reference_labels[None]
        is_positive[(places >= 0).nonzero()[:, 0], places[places >= 0]] = False
        return -((batch @ reference.T) * is_positive).sum()


class Sampler:
    """Keeps what a step gives it."""

    def __len__(self):
        return 1

    def precompute_indices(self):
        pass

    def replace_storage_entries(self, embeddings, indices):
        self.embeddings = embeddings
        self.indices = indices


def batch(labels=(0, 0, 1, 1, 2, 2), views=1, seed=3):
    """Random images with these labels, their views one whole set behind the other."""
    images = torch.randint(
        0, 256, (len(labels) * views, 3, 4, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed)
    )
    return Batch(torch.tensor(labels).repeat(views), images, (torch.arange(len(labels)) + 20).repeat(views))


def trainer(name, *flags, network=None, n_classes=4, make=trainers.select):
    """A trainer of that network in float64, and its flags."""
    torch.manual_seed(0)
    words = f"--dataset glyphs --trainer {name} --embed_dim 4 --loss multisimilarity --batch_mining none"
    opt = parameters.read(words_of(words, *flags))
    opt.n_classes = n_classes
    network = Network() if network is None else network
    return make(name, opt, network, criteria.select(opt.loss, opt, None)).double(), opt


def step(opt, trainer):
    """The trainer's step, in its first epoch."""
    optimizer = build_optimizer(trainer.network, trainer.criterion, opt, trainers.groups_of(trainer, opt))
    step = Step(trainer, optimizer, Runtime(opt), Sampler(), StepSettings(parse_weights(opt.loss_weights)))
    step.start_epoch(1)
    return step


def losses(trainer, batch):
    """Outputs and losses of a batch."""
    outputs = trainer.outputs(batch.images)
    return outputs, trainer.losses(outputs, batch)


def gradients(loss, module) -> set[str]:
    """The names of the parameters that a loss reaches."""
    module.zero_grad(set_to_none=True)
    loss.backward(retain_graph=True)
    gradient_of = {name: parameter.grad for name, parameter in module.named_parameters()}
    return {name for name, gradient in gradient_of.items() if gradient is not None and gradient.any()}


def parameters_of(module, prefix) -> set[str]:
    """The names of the parameters that begin with this."""
    return {name for name, _ in module.named_parameters() if name.startswith(prefix)}


def groups(opt, trainer) -> dict:
    """Name -> group of parameters; every parameter that is trained is in exactly one."""
    of_trainer = trainers.groups_of(trainer, opt)
    param_groups = build_optimizer(trainer.network, trainer.criterion, opt, of_trainer).param_groups
    grouped = [id(p) for group in param_groups for p in group["params"]]
    assert sorted(grouped) == sorted(id(p) for p in trainer.parameters() if p.requires_grad)
    by_name = {group["name"]: group for group in param_groups}
    assert len(by_name) == len(param_groups)
    return by_name


# ---------- slow formulas on lists
def dot(x, y):
    return sum(a * b for a, b in zip(x, y, strict=True))


def unit(x):
    return [a / math.sqrt(dot(x, x)) for a in x]


def distance(x, y):
    return math.dist(x, y)


def linear(layer, rows):
    """A linear layer's outputs of a list of rows."""
    return [
        [dot(weights, row) + b for weights, b in zip(layer.weight.tolist(), layer.bias.tolist(), strict=True)]
        for row in rows
    ]


def rows_of(columns):
    """Tuples, such as mined triplets, of columns of indices."""
    return list(zip(*(column.tolist() for column in columns), strict=True))


# ---------- whole runs
def words(data, tmp_path, *flags):
    """The command line of the shortest run on a folder of images."""
    return run_words(data, tmp_path / "runs", "--loss triplet --group Trainer --no_train_metrics", *flags)


def resolve(*flags):
    """Flags of a command line, or a UserError."""
    return parameters.resolve(words_of("--dataset glyphs", *flags))


def read(data, tmp_path, *flags):
    """The flags of `words`."""
    return parameters.read(words(data, tmp_path, *flags))


def run(data, tmp_path, *flags):
    """The run of `words`, trained."""
    return main.main(read(data, tmp_path, *flags))


def measured(run, *flags):
    """The results of `--evaluate` on a run."""
    return run_main("--evaluate --resume_from", run.folder, *flags)


def values_of_training(run):
    """(epoch, metric) -> the recorded value of train."""
    frame = RunFolder(run.folder).metrics
    return {(row.epoch, row.metric): row.value for row in frame.itertuples() if row.split == "train"}


def assert_equal_runs(first, second):
    """The same last checkpoint and the same records, but for seconds."""
    a = last_checkpoint(first)
    b = last_checkpoint(second)
    for part in ("state_dict", "criterion", "trainer"):
        assert equal_states(a.get(part, {}), b.get(part, {})), part
    assert a["run"]["last"] == b["run"]["last"]
    records = []
    for folder in (first, second):
        rows = RunFolder(folder).metrics
        records.append(rows[~rows.metric.str.contains("seconds|time")].reset_index(drop=True))
    assert records[0].equals(records[1])


def assert_resumes(data, tmp_path, *flags, epochs=2):
    """A run that stops after each epoch and goes on equals the one that does not, to the bit. Returns the whole run."""
    whole_run = run(data, tmp_path, *flags, f"--n_epochs {epochs} --savename Whole")
    parted_run = run(data, tmp_path, *flags, "--n_epochs 1 --savename Parted")
    for epoch in range(2, epochs + 1):
        run_main("--resume_from", parted_run.folder, f"--n_epochs {epoch}")
    assert_equal_runs(whole_run.folder, parted_run.folder)
    return whole_run
