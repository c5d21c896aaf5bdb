"""Every trainer keeps the contract of a step; a user's is one file; losses see one embedding, evaluation another."""

import inspect

import pytest
import torch

import architectures
import criteria
import datasampler
import datasets
import parameters
import trainers
from engine.assembly import build_trainer
from engine.loading import training_loader
from engine.runtime import Runtime
from engine.step import Step, StepSettings
from runs import checkpoint
from tests.kit import tiny
from tests.kit.documents import documented_example
from tests.kit.refusals import refused
from tests.kit.runs import run_main
from utilities.words import parse_weights


@pytest.fixture
def user_trainer(tmp_path, monkeypatch):
    """The trainer of CONTRIBUTING.md in one file of the folder."""
    folder = tmp_path / "plug_ins"
    folder.mkdir()
    (folder / "mine.py").write_text('"""Mine."""\n' + documented_example("class Trainer(Base):"))
    monkeypatch.setattr(trainers, "__path__", [*trainers.__path__, str(folder)])


@pytest.mark.parametrize("name", sorted(set(trainers.REGISTRY.names()) - {"cascaded", "diva"}))
def test_a_program_without_a_command_line_selects_a_trainer(name):
    """With flags that it leaves out at their defaults; cascades and DiVA need a network of several outputs."""
    network = architectures.select("conv4_normalize", embed_dim=8)
    assert trainers.select(name, None, network, criteria.select("triplet"), n_classes=4, embed_dim=8)


def test_a_users_trainer_in_one_file_trains_resumes_and_is_listed(user_trainer, data, tmp_path, capsys):
    """With what flags add to `super().losses`; the network rests in the first epoch."""
    flags = "--trainer mine --memory_size 20 --memory_start 0 --embed_regularizer zero_mean"
    assert ("mine", "Mine.") in parameters.listing("trainers")
    resumed_run = tiny.assert_resumes(data, tmp_path, flags)
    names = checkpoint.read(resumed_run.folder / checkpoint.LAST)["trainer"].keys()
    assert "head.0.weight" in names and not any(name.startswith(("network.", "criterion.")) for name in names)
    rows = tiny.values_of_training(resumed_run)
    for epoch in (1, 2):
        parts = sum(rows[epoch, name] for name in ("metric_loss", "memory_loss", "embed_regularizer"))
        assert rows[epoch, "loss"] == pytest.approx(parts + 0.5 * rows[epoch, "head_loss"], rel=1e-5)
    short_run = tiny.run(data, tmp_path, flags, "--n_epochs 1")
    for run, stepped in ((short_run, {"trainer"}), (resumed_run, {"backbone", "last_linear", "trainer"})):
        optimizer = checkpoint.read(run.folder / checkpoint.LAST)["optimizer"]
        groups = {group["name"]: group["params"] for group in optimizer["param_groups"] if group["params"]}
        assert {name for name, ids in groups.items() if ids[0] in optimizer["state"]} == stepped
    for changed in ("--mine_hidden 5", "--loss_weights head_loss=2"):
        with pytest.raises(SystemExit):
            run_main("--resume_from", short_run.folder, changed)
        assert "flags differ" in capsys.readouterr().err


def test_every_trainer_keeps_the_contract():
    for name, module in trainers.REGISTRY.modules().items():
        assert issubclass(module.Trainer, torch.nn.Module) and trainers.REGISTRY.caption(name).endswith(".")
        assert list(inspect.signature(module.Trainer.outputs).parameters) == ["self", "images"], name
        assert list(inspect.signature(module.Trainer.losses).parameters) == ["self", "outputs", "batch"], name


SUBSET = "--bs 10 --subset_mining maximum_loss --subset_size"
WITH_CLASSIFIER = "--loss_weights classifier_loss=1"
PAIRS = "--dataset csv --dataset_csv t.csv --dataset_csv_pairs p.csv"
REFUSED = [
    ("metric_only", "--subset_mining maximum_loss", "--subset_mining maximum_loss needs --subset_size"),
    ("metric_only", "--subset_size 8", "--subset_size 8 has no effect without --subset_mining maximum_loss"),
    ("metric_only", f"{SUBSET} 10", "--subset_size 10 is not below --bs 10"),
    ("metric_only", f"{SUBSET} 5", "--subset_size 5 is not a multiple of --samples_per_class 2"),
    ("metric_only", f"{SUBSET} 2", "2 is one class of --samples_per_class 2: --loss margin has no negatives there"),
    (
        "metric_only",
        f"{SUBSET} 4 --bs 12 --batch_mining packaged --data_sampler fixed_triplets",
        "splits triplets",
    ),
    ("metric_only", "--views 2 --augmentation none", "--views 2 with --augmentation none"),
    ("metric_only", "--classifier_lr .1", "--classifier_lr 0.1 has no effect: --trainer metric_only has no classifier"),
    ("unsupervised", "--loss ntxent --views 1", "--views 1 leaves every image without a positive"),
    ("unsupervised", "--loss ntxent --data_sampler hierarchical", "hierarchical goes by super-classes"),
    ("unsupervised", "--loss ntxent --augmentation none", "--views 2 with --augmentation none"),
    ("unsupervised", "--loss ntxent --classifier_input pooled", "--classifier_input pooled has no effect"),
    (
        "classifier",
        "--classifier_loss CrosEntropyLoss",
        "unknown class of torch.nn 'CrosEntropyLoss'. Did you mean 'CrossEntropyLoss'",
    ),
    ("classifier", "--classifier_loss NLLLoss", "NLLLoss takes log-probabilities"),
    ("classifier", "--classifier_kwargs reduction='none'", "reduction=.none. gives no finite scalar"),
    ("classifier", "--classifier_kwargs smoothing=.1", "smoothing=.1 cannot take logits"),
    ("cascaded", "--loss softmax", "--loss softmax takes none"),
    ("cascaded", "--cascade_sizes 4 4", "--cascade_percents names 3 of the levels, --cascade_sizes 2"),
    ("cascaded", "--cascade_stages block1", "--cascade_stages names 1 of the levels, --cascade_sizes 3"),
    ("cascaded", "--classifier_dropout .5", f"--classifier_dropout 0.5 has no effect: .* add {WITH_CLASSIFIER}"),
    ("cascaded", f"{WITH_CLASSIFIER} --classifier_loss NLLLoss", "--classifier_loss NLLLoss takes"),
    ("cascaded", "--loss multisimilarity --cascade_mining miner", "takes a miner's pairs under --mine_pairs"),
    ("cascaded", "--cascade_mining miner --cascade_percents 1 .3 .1", "--cascade_percents 1 0.3 0.1 has no effect"),
    (
        "cascaded",
        "--loss multisimilarity --mine_pairs --cascade_mining hardest",
        "--mine_pairs has no effect with --cascade_mining hardest",
    ),
    ("adversarial", "--loss lifted --batch_mining lifted", "--loss lifted takes neither"),
    ("adversarial", "--adversarial_losses synth_loss=lifted", "--adversarial_losses synth_loss=lifted takes neither"),
    ("adversarial", "--adversarial_losses synth_loss=angulr", "unknown loss 'angulr'. Did you mean 'angular'"),
    (
        "adversarial",
        "--adversarial_losses metric_loss=angular",
        "one of the keys synth_loss and g_adv_loss; metric_loss is --loss",
    ),
    ("adversarial", "--adversarial_losses angular", "--adversarial_losses angular: expected KEY=LOSS"),
    ("adversarial", "--adversarial_losses synth_loss=angular synth_loss=npair", "names synth_loss twice"),
    ("adversarial", "--adversarial_losses g_adv_loss=margin", "a loss on triplets without parameters"),
    (
        "adversarial",
        "--adversarial_losses g_adv_loss=angular --adversarial_margin 1",
        "--adversarial_margin 1 has no effect",
    ),
    ("adversarial", "--classifier_lr .1", f"--classifier_lr 0.1 has no effect: .* add {WITH_CLASSIFIER}"),
    ("adversarial", f"{WITH_CLASSIFIER} --classifier_loss NLLLoss", "--classifier_loss NLLLoss takes"),
    ("compatible", "", "--trainer compatible needs --compatible_with RUN or FILE.npz"),
    (
        "compatible",
        "--compatible_with old --compatible_form points --compatible_scale 8",
        "--compatible_scale 8.* has no effect",
    ),
    (
        "compatible",
        "--compatible_with old --compatible_logits linear --compatible_scale 8",
        "--compatible_scale 8.* has no effect",
    ),
    ("pairs", "--loss cosent", "--trainer pairs needs --dataset_csv_pairs FILE"),
    ("pairs", f"{PAIRS} --loss triplet", "--loss triplet compares no grades; these do: angle, cosent"),
    ("pairs", f"{PAIRS} --loss angle --memory_size 9", "--memory_size 9 goes by labels, and --trainer pairs by grades"),
    ("pairs", f"{PAIRS} --loss cosent --mine_pairs", "--mine_pairs True goes by labels"),
    ("pairs", f"{PAIRS} --loss cosent --data_sampler shuffle", "--data_sampler: --trainer pairs takes its batches"),
    ("pairs", "--dataset_csv_pairs p.csv --loss cosent", "--dataset_csv_pairs .* has no effect"),
    ("metric_only", f"{PAIRS} --loss cosent", "--dataset_csv_pairs .* has no effect"),
    ("s2sd", "--classifier_kwargs label_smoothing=.1", "label_smoothing=.1 has no effect: --trainer s2sd"),
    ("s2sd", "--s2sd_target arcfaces", "unknown loss 'arcfaces'"),
    ("diva", "--classifier_no_bias", "--classifier_no_bias has no effect: --trainer diva has no classifier"),
    ("diva", "--loss softmax", "--loss softmax takes none"),
    ("diva", "--views 1", "no other view"),
]


def test_what_cannot_work_is_refused_in_one_line():
    for name, words, message in REFUSED:
        with refused(message):
            tiny.resolve("--trainer", name, words)
    for name in ("adversarial", "diva"):
        with refused("pooled features"):
            tiny.trainer(name, "--loss triplet", network=torch.nn.Linear(3, 4))
    with refused("--intrabatch_heads 3 does not divide the embedding's 4 dimensions"):
        tiny.trainer("intrabatch", "--intrabatch_heads 3")
    # The loss of intrabatch does not read these flags
    for flag in ("--classifier_smoothing .1", "--classifier_layer circle_softmax"):
        with pytest.raises(SystemExit):
            tiny.trainer("intrabatch", flag)


# --- what losses see, what is evaluated
CASES = {
    "metric_only": "--memory_size 20 --memory_start 0 --memory_ema .5",
    "classifier": "",
    "adversarial": "--adversarial_triplets_per_anchor 2 --adversarial_margin=-9",
    "intrabatch": "--loss_weights metric_loss=1",
    "s2sd": "--s2sd_dims 5",
    "unsupervised": "--loss_margin_beta_shared",
    "diva": "--diva_queue 2 --bs 6",
}


@pytest.mark.parametrize("name", CASES)
def test_one_place_decides_what_losses_see_and_what_is_evaluated(name):
    """A trainer with layers between embedding and loss: all losses see their output, evaluation their input."""
    seen = []

    class DoublingTrainer(trainers.REGISTRY.module(name).Trainer):
        """Losses see twice the embedding."""

        def named(self, embeddings, features):
            outputs = super().named(embeddings, features)
            seen.append(2 * outputs["embeddings"])
            return {**outputs, "embeddings": seen[-1]}

    trainer, opt = tiny.trainer(name, "--loss margin", CASES[name])
    torch.manual_seed(0)
    trainer = DoublingTrainer(opt, tiny.Network(), trainer.criterion).double()
    handed = []
    criterion = trainer.criterion.forward
    trainer.criterion.forward = lambda batch, labels, **kwargs: (
        handed.append(batch) or criterion(batch, labels, **kwargs)
    )
    batch = tiny.batch(views=trainer.VIEWS)
    outputs, losses = tiny.losses(trainer, batch)
    plain = trainer.network(batch.images)[0]
    assert torch.equal(outputs["evaluated"], plain) and torch.equal(outputs["embeddings"], 2 * plain)
    assert torch.equal(trainer(batch.images), plain), "samplers with a memory store what is evaluated"
    of_batch = handed[-1] if name == "adversarial" else handed[0]
    assert torch.equal(of_batch, 2 * plain)
    if name == "metric_only":
        torch.testing.assert_close(trainer.added_losses[0].queue.rows, 2 * plain.detach())
    # Losses see twice the synthetic negatives too
    if name == "adversarial":
        assert len(seen) == 2 + 2 and len(seen[1]) == len(seen[2]) == len(outputs["pooled"]) * 2
    if name == "classifier":
        assert torch.equal(outputs["classifier_logits"], trainer.evaluated_heads.linear(plain))


class SeveralEmbeddings(torch.nn.Module):
    """Two embeddings of different widths."""

    embed_dim = 4
    embed_dims = {"wide": 4, "narrow": 2}

    def __init__(self, **says):
        super().__init__()
        self.last_linear = torch.nn.Linear(3, 4)
        self.other = torch.nn.Linear(3, 2)
        vars(self).update(says)

    def forward(self, images):
        pooled = images.float().mean((2, 3))
        return {"wide": self.last_linear(pooled), "narrow": self.other(pooled)}, {"pooled": pooled}


@pytest.mark.parametrize(
    ("evaltypes", "chosen"), [(["narrow", "wide"], "narrow"), (["none", "wide"], "wide"), (["discriminative"], "wide")]
)
def test_a_network_of_several_embeddings_is_trained_by_one_of_them(evaltypes, chosen):
    opt = parameters.read([*"--dataset glyphs --loss softmax --evaltypes".split(), *evaltypes])
    opt.n_classes = 3
    trainer = build_trainer(opt, SeveralEmbeddings(), Runtime(opt))
    outputs, losses = tiny.losses(trainer, tiny.batch())
    assert set(outputs) == {"embeddings", "evaluated", "pooled", "wide", "narrow"} and losses["metric_loss"].isfinite()
    assert all(torch.equal(outputs[name], outputs[chosen]) for name in ("embeddings", "evaluated"))
    assert trainer.criterion.proxies.shape == (3, {"wide": 4, "narrow": 2}[chosen]), "class vectors are as wide"
    trainer = build_trainer(opt.but(evaltypes=["narrow"]), SeveralEmbeddings(embed_dims=None), Runtime(opt))
    with refused("embeddings have 2 dimensions, class vectors 4"):
        tiny.losses(trainer, tiny.batch())


# --- the step's sum
class TwoLosses(trainers.Base):
    """Sums and squares."""

    def losses(self, outputs, batch):
        return {"sum_loss": outputs["embeddings"].sum(), "square_loss": outputs["embeddings"].square().sum()}


def own_trainer(trainer_class, *flags):
    """A user's trainer."""
    return tiny.trainer("metric_only", *flags, make=lambda _, *arguments: trainer_class(*arguments))


def two(*flags):
    return own_trainer(TwoLosses, "--optim sgd --lr .01 --momentum 0 --decay 0", *flags)


@pytest.mark.parametrize("weights", [[], ["sum_loss=.25"], ["sum_loss=2", "square_loss=0"]])
def test_a_step_minimises_the_weighted_sum(weights):
    trainer, opt = two("--loss_weights", *weights)
    reference, _ = two()
    step = tiny.step(opt, trainer)
    weights = parse_weights(weights)
    done = step(tiny.batch())
    embeddings = reference.network(tiny.batch().images)[0]
    loss = weights.get("sum_loss", 1) * embeddings.sum() + weights.get("square_loss", 1) * embeddings.square().sum()
    loss.backward()
    torch.optim.SGD(reference.network.parameters(), lr=0.01).step()
    assert torch.allclose(done.loss, loss) and set(done.losses) == {"sum_loss", "square_loss"} and done.images == 6
    assert all(map(torch.allclose, trainer.network.parameters(), reference.network.parameters()))
    assert torch.equal(step.sampler.embeddings, embeddings) and torch.equal(step.sampler.indices, tiny.batch().indices)


def test_weights_of_losses_that_there_are_not_are_refused():
    assert parse_weights(["a=1", "b_loss=.5"]) == {"a": 1.0, "b_loss": 0.5}
    for word in ("a", "=1", "a=x", "a=nan", "a=inf"):
        with refused("--loss_weights"):
            tiny.resolve("--loss_weights", word)
    trainer, opt = two()
    plain = tiny.step(opt, trainer)

    def step(weights):
        return Step(trainer, plain.optimizer, plain.runtime, plain.sampler, StepSettings(weights))

    with refused("no such loss.*sum_loss, square_loss"):
        step({"other": 1}).forward(tiny.batch())
    # of a later phase
    trainer.LOSSES = ("sum_loss", "square_loss", "late_loss")
    trainer.WEIGHTS = {"late_loss": 0.5}
    assert set(step({"late_loss": 2}).forward(tiny.batch())[1]) == {"sum_loss", "square_loss"}
    with refused("other: the trainer has no such loss"):
        step({"other": 1})
    base, opt = own_trainer(trainers.Base, "--memory_size 10 --memory_start 5 --loss_weights memory_loss=.5")
    assert set(tiny.step(opt, base)(tiny.batch()).losses) == {"metric_loss"}, "a loss that begins later has a weight"


def test_what_would_never_train_and_names_of_the_records_are_refused():
    class Forgetful(trainers.Base):
        """A head in no optimiser group."""

        def __init__(self, opt, network, criterion):
            super().__init__(opt, network, criterion)
            self.head = torch.nn.Linear(4, 2)

        def param_groups(self, opt):
            return []

        def losses(self, outputs, batch):
            return {"loss": self.head(outputs["embeddings"]).sum()}

    trainer, opt = own_trainer(Forgetful)
    with refused("head.weight requires a gradient and is in no optimiser group"):
        tiny.step(opt, trainer)
    trainer.head.requires_grad_(False)
    with refused("cannot be called 'loss'"):
        tiny.step(opt, trainer).forward(tiny.batch())


def test_a_batch_holds_the_views_that_a_trainer_asks_for(data, tmp_path):
    opt = tiny.read(data, tmp_path)
    splits = datasets.select(opt.dataset, opt, opt.source_path, 32)
    sampler = datasampler.for_training(opt, splits["training"])
    batch = next(iter(training_loader(splits["training"], sampler, opt, 2)))
    assert len(batch.images) == 2 * opt.bs
    equal = {part: torch.equal(*getattr(batch, part).split(opt.bs)) for part in ("indices", "labels", "images")}
    assert equal == {"indices": True, "labels": True, "images": False}
