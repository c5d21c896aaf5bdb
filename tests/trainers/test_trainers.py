"""Every trainer keeps the contract of a step's two halves; a step sums weighted losses; what is the trainer's own is trained and kept."""

import inspect
import json

import pytest
import torch

import main
import parameters
import trainers
from runs import RunFolder, checkpoint
from tests import builders
from training.loading import Batch
from training.runtime import Runtime
from training.step import Step
from utilities.errors import UserError
from utilities.words import parse_weights

OWN_TRAINER = '''"""A classifier beside the criterion, which rests in the first epoch."""

import torch

from trainers import Base


def add_arguments(group):
    """Its flag."""
    group.add_argument("--mine_hidden", type=int, default=4, help="units of the head")


class Trainer(Base):
    """Two networks, two losses, a phase."""

    WEIGHTS = {"head_loss": 0.5}

    def __init__(self, opt, network, criterion):
        super().__init__(opt, network, criterion)
        self.head = torch.nn.Sequential(torch.nn.Linear(opt.embed_dim, opt.mine_hidden), torch.nn.ReLU(), torch.nn.Linear(opt.mine_hidden, opt.n_classes))
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    def outputs(self, images):
        outputs = super().outputs(images)
        return {**outputs, "logits": self.head(outputs["embeddings"])}

    def losses(self, outputs, batch):
        return {"metric_loss": self.metric_loss(outputs, batch), "head_loss": torch.nn.functional.cross_entropy(outputs["logits"], batch.labels)}

    def start_epoch(self, epoch):
        self.head.requires_grad_(epoch > 1)

    def after_step(self):
        self.steps += 1
'''


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A user's trainer in one file of the folder."""
    folder = tmp_path / "plug_ins"
    folder.mkdir()
    (folder / "mine.py").write_text(OWN_TRAINER)
    monkeypatch.setattr(trainers, "__path__", [*trainers.__path__, str(folder)])
    names, caption = type(trainers.REGISTRY).names, type(trainers.REGISTRY).caption
    found = lambda self: sorted([*names(self), "mine"]) if self.package == "trainers" else names(self)  # noqa: E731
    monkeypatch.setattr(type(trainers.REGISTRY), "names", found)
    monkeypatch.setattr(type(trainers.REGISTRY), "caption", lambda self, name: "Mine." if name == "mine" else caption(self, name))


def read(data, tmp_path, *more):
    return parameters.read([
        "--dataset", "folder", "--dataset_folder_path", str(data), "--save_path", str(tmp_path / "runs"), *builders.SHORT_RUN,
        "--loss", "margin", "--group", "Own", *more,
    ])  # fmt: skip


class Network(torch.nn.Module):
    """Two embeddings of one layer."""

    def __init__(self):
        super().__init__()
        self.last_linear = torch.nn.Linear(3, 4)

    def forward(self, images):
        pooled = images.float().mean((2, 3))
        embedding = self.last_linear(pooled)
        return {"first": embedding, "second": -2 * embedding}, {"pooled": pooled}


class Criterion(torch.nn.Module):
    """Keeps what it is handed."""

    def forward(self, batch, labels, **kwargs):
        self.seen = batch
        return batch.square().mean()


class Recording:
    """A sampler with a memory."""

    def replace_storage_entries(self, embeddings, indices):
        self.embeddings, self.indices = embeddings, indices


def batch(size=6):
    images = torch.randint(0, 256, (size, 3, 4, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(3))
    return Batch(torch.arange(size) // 2, images, torch.arange(size))


@pytest.mark.parametrize("name", trainers.REGISTRY.names())
def test_every_trainer_keeps_the_contract(name):
    module = trainers.REGISTRY.module(name)
    assert issubclass(module.Trainer, torch.nn.Module) and trainers.REGISTRY.caption(name).endswith(".")
    assert list(inspect.signature(module.Trainer.outputs).parameters) == ["self", "images"]
    assert list(inspect.signature(module.Trainer.losses).parameters) == ["self", "outputs", "batch"]


@pytest.mark.parametrize(
    ("evaltypes", "chosen"),
    [(["discriminative"], "first"), (["second"], "second"), (["nothing", "second"], "second"), (["nothing"], "first")],
)
def test_a_network_of_several_embeddings_is_trained_by_one_of_them(evaltypes, chosen):
    network, criterion = Network(), Criterion()
    opt = parameters.read(["--dataset", "glyphs", "--evaltypes", *evaltypes])
    trainer = trainers.select("metric_only", opt, network, criterion)
    outputs = trainer.outputs(batch().images)
    assert torch.equal(outputs["embeddings"], outputs[chosen]) and set(outputs) == {"embeddings", "evaluated", "pooled", "first", "second"}
    trainer.losses(outputs, batch())
    assert torch.equal(criterion.seen, outputs[chosen]) and torch.equal(trainer(batch().images), outputs[chosen])


class Uneven(torch.nn.Module):
    """Two embeddings of different widths."""

    embed_dim, embed_dims = 4, {"wide": 4, "narrow": 2}

    def __init__(self, **says):
        super().__init__()
        self.last_linear, self.other = torch.nn.Linear(3, 4), torch.nn.Linear(3, 2)
        vars(self).update(says)

    def forward(self, images):
        pooled = images.float().mean((2, 3))
        return {"wide": self.last_linear(pooled), "narrow": self.other(pooled)}, {"pooled": pooled}


@pytest.mark.parametrize(("evaltypes", "width"), [(["narrow", "wide"], 2), (["wide"], 4), (["discriminative"], 4)])
def test_class_vectors_are_as_wide_as_the_embedding_that_is_trained(evaltypes, width):
    opt = parameters.read(["--dataset", "glyphs", "--loss", "softmax", "--evaltypes", *evaltypes])
    opt.n_classes = 3
    runtime = Runtime(opt)
    trainer = main.build_trainer(opt, Uneven(), runtime)
    assert trainer.criterion.proxies.shape == (3, width) and trainers.width(Network4(), opt) == 4
    assert trainer.losses(trainer.outputs(runtime.to_device(batch().images)), batch())["metric_loss"].isfinite()


class Network4(torch.nn.Module):
    embed_dim = 4


def test_a_width_that_the_network_does_not_give_is_refused_in_one_line():
    opt = parameters.read(["--dataset", "glyphs", "--loss", "softmax", "--evaltypes", "narrow"])
    opt.n_classes = 3
    trainer = main.build_trainer(opt, Uneven(embed_dims=None), Runtime(opt))
    with pytest.raises(UserError, match="embeddings of 2 dimensions, class vectors of 4") as error:
        trainer.losses(trainer.outputs(batch().images), batch())
    assert "\n" not in str(error.value)


class TwoLosses(trainers.Base):
    """Sums and squares."""

    def losses(self, outputs, batch):
        return {"sum_loss": outputs["embeddings"].sum(), "square_loss": outputs["embeddings"].square().sum()}


@pytest.mark.parametrize("weights", [{}, {"sum_loss": 0.25}, {"sum_loss": 2.0, "square_loss": 0.0}])
def test_a_step_minimises_the_weighted_sum(weights):
    from training.runtime import Runtime

    opt = parameters.read(["--dataset", "glyphs", "--evaltypes", "first"])
    trainer, reference = TwoLosses(opt, Network(), Criterion()), Network()
    reference.load_state_dict(trainer.network.state_dict())
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.01) for model in (trainer.network, reference)]
    runtime, sampler = Runtime(opt), Recording()
    step = Step(trainer, optimizers[0], runtime, sampler, weights)
    step.runtime.start_epoch(1)
    done = step(batch())
    embeddings = reference(batch().images)[0]["first"]
    loss = weights.get("sum_loss", 1) * embeddings.sum() + weights.get("square_loss", 1) * embeddings.square().sum()
    loss.backward()
    optimizers[1].step()
    assert torch.allclose(done.loss, loss) and set(done.losses) == {"sum_loss", "square_loss"} and done.images == 6
    assert all(torch.allclose(a, b) for a, b in zip(trainer.network.parameters(), reference.parameters(), strict=True))
    assert torch.equal(sampler.embeddings, embeddings) and torch.equal(sampler.indices, batch().indices)
    with pytest.raises(UserError, match="no such loss.*sum_loss, square_loss"):
        Step(trainer, optimizers[0], runtime, sampler, {"other": 1}).forward(batch())
    trainer.LOSSES, trainer.WEIGHTS = ("sum_loss", "square_loss", "late_loss"), {"late_loss": 0.5}  # of a later phase
    assert set(Step(trainer, optimizers[0], runtime, sampler, {"late_loss": 2}).forward(batch())[1]) == {"sum_loss", "square_loss"}
    with pytest.raises(UserError, match="other: the trainer has no such loss"):
        Step(trainer, optimizers[0], runtime, sampler, {"other": 1})


def test_weights_are_read_or_refused_in_one_line(data, tmp_path, capsys):
    assert parse_weights(["a=1", "b_loss=.5"]) == {"a": 1.0, "b_loss": 0.5}
    for word in ("a", "=1", "a=x", "a=nan", "a=inf"):
        with pytest.raises(SystemExit):
            read(data, tmp_path, "--loss_weights", word)
        assert capsys.readouterr().err.count("\n") == 1
    with pytest.raises(UserError, match="metric_los: the trainer has no such loss; it has metric_loss"):
        main.main(read(data, tmp_path, "--loss_weights", "metric_los=1", "--dry_run"))


def test_a_users_trainer_in_one_file_trains_resumes_and_is_listed(own, data, tmp_path):
    assert ("mine", "Mine.") in parameters.listing("trainers")
    assert "--mine_hidden" in parameters.get_parser().format_help()
    whole = main.main(read(data, tmp_path, "--trainer", "mine", "--n_epochs", "3"))
    content = checkpoint.read(whole.folder / checkpoint.LAST)
    assert {"head.0.weight", "steps"} <= set(content["trainer"]) and content["trainer"]["steps"] == 6
    assert "criterion" in content and not any(name.startswith(("network.", "criterion.")) for name in content["trainer"])
    recorded = RunFolder(whole.folder).metrics
    rows = {(row.epoch, row.metric): row.value for row in recorded.itertuples() if row.split == "train"}
    for epoch in (1, 2, 3):
        assert rows[epoch, "loss"] == pytest.approx(rows[epoch, "metric_loss"] + 0.5 * rows[epoch, "head_loss"], rel=1e-5)
    resumed = main.main(read(data, tmp_path, "--trainer", "mine", "--n_epochs", "2", "--savename", "Resumed"))
    main.main(parameters.read(["--resume_from", str(resumed.folder), "--n_epochs", "3"]))
    again = checkpoint.read(resumed.folder / checkpoint.LAST)
    for part in ("state_dict", "criterion", "trainer"):
        assert all(torch.equal(content[part][name], again[part][name]) for name in content[part]), part


def test_a_network_that_rests_in_a_phase_is_left_as_it_is(own, data, tmp_path):
    runs = [main.main(read(data, tmp_path, "--trainer", "mine", "--n_epochs", "1", "--savename", f"Phase{n}")) for n in range(2)]
    one = checkpoint.read(runs[0].folder / checkpoint.LAST)
    main.main(parameters.read(["--resume_from", str(runs[0].folder), "--n_epochs", "2"]))
    two = checkpoint.read(runs[0].folder / checkpoint.LAST)
    assert not torch.equal(one["trainer"]["head.0.weight"], two["trainer"]["head.0.weight"])
    group = next(g for g in one["optimizer"]["param_groups"] if g["name"] == "trainer")
    assert all(number not in one["optimizer"]["state"] for number in group["params"]), "in epoch 1 no step was made on the head"
    assert all(number in two["optimizer"]["state"] for number in group["params"])
    assert json.loads((runs[0].folder / "summary.json").read_text())["parameters"]["mine_hidden"] == 4


def test_other_weights_and_flags_of_a_trainer_are_changes(own, data, tmp_path, capsys):
    run = main.main(read(data, tmp_path, "--trainer", "mine", "--n_epochs", "1"))
    for changed in (["--mine_hidden", "5"], ["--loss_weights", "head_loss=2"]):
        with pytest.raises(SystemExit):
            parameters.read(["--resume_from", str(run.folder), *changed])
        assert "flags differ" in capsys.readouterr().err
    main.main(read(data, tmp_path, "--trainer", "mine", "--dry_run"))
    assert "dry run: one batch of" in capsys.readouterr().out


class Views(trainers.Base):
    """Two views of each image."""

    VIEWS = 2


def test_a_batch_holds_the_views_that_a_trainer_asks_for(data, tmp_path):
    import datasampler
    import datasets
    from training.loading import training_loader

    opt = read(data, tmp_path)
    splits = datasets.select(opt.dataset, opt, opt.source_path, 32)
    sampler = datasampler.for_training(opt, splits["training"])
    sampler.precompute_indices()
    found = next(iter(training_loader(splits["training"], sampler, opt, Views.VIEWS)))
    half = opt.bs
    assert len(found.images) == 2 * half and torch.equal(found.indices[:half], found.indices[half:])
    assert torch.equal(found.labels[:half], found.labels[half:]) and not torch.equal(found.images[:half], found.images[half:])


class Forgetful(trainers.Base):
    """A head in no optimiser group."""

    def __init__(self, opt, network, criterion):
        super().__init__(opt, network, criterion)
        self.head = torch.nn.Linear(4, 2)

    def param_groups(self, opt):
        return []

    def losses(self, outputs, batch):
        return {"loss": self.head(outputs["embeddings"]).sum()}


def test_what_would_never_train_and_names_of_the_records_are_refused():
    from training.runtime import Runtime

    opt = parameters.read(["--dataset", "glyphs"])
    trainer = Forgetful(opt, Network(), Criterion())
    sampler = Recording()
    sampler.precompute_indices = lambda: None
    optimizer = torch.optim.SGD(trainer.network.parameters(), lr=0.1)
    step = Step(trainer, optimizer, Runtime(opt), sampler, {})
    with pytest.raises(UserError, match="head.weight requires a gradient and is in no optimiser group"):
        step.start_epoch(1)
    with pytest.raises(UserError, match="cannot be called 'loss'"):
        step.forward(batch())
    trainer.head.requires_grad_(False)
    step.start_epoch(1)
