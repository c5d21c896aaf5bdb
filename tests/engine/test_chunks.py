"""Steps in chunks: the parameters are those of plain steps, for all criteria and trainers; what must not move twice."""

import functools

import pytest
import torch
import torchvision
from torch.testing import assert_close

import architectures
import batch_mining
import criteria
import parameters
import trainers
from engine.loading import Batch
from engine.optimisers import build_optimizer
from engine.runtime import Runtime
from engine.step import Step, StepSettings
from tests.kit.refusals import refused
from tests.kit.runs import equal_states, words_of
from tests.kit.tiny import Against

N = 12
CLASSES = 6
WIDTH = 6
# what a criterion cannot guess; and few of HIER's proxies, whose triplets take a second each time
NEEDED = {"pml": "--loss_pml_class ContrastiveLoss", "hier": "--loss_hier_n_proxies 25"}
PREFIXES = f"--embed_dim {WIDTH} --matryoshka 2 4 {WIDTH}".split()
DIVA = f"--bs {N} --diva_queue 2 --diva_hidden 3"
EMA = "--memory_size 40 --memory_start 0 --memory_ema .5"
# name -> flags, for each way of training that it has
OF_TRAINERS = {
    "adversarial": [
        "--adversarial_triplets_per_anchor 3",
        "--adversarial_generator_epochs 1",
        "--loss_weights classifier_loss=1",
        "--loss softmax",
    ],
    "cascaded": ["--cascade_sizes 2 3 --cascade_percents 1 .5"],
    "compatible": [f"--compatible_with old.npz --compatible_form {form}" for form in ("classes", "points")],
    "classifier": ["--classifier_input pooled", "--memory_size 30 --memory_start 1"],
    "diva": [DIVA, f"{DIVA} --views 3 --memory_size 40 --memory_start 1 --memory_ema .5"],
    "intrabatch": [
        "--intrabatch_heads 3",
        "--intrabatch_heads 2 --intrabatch_layers 2 --intrabatch_join --loss_weights metric_loss=1",
    ],
    "pairs": ["--dataset csv --dataset_csv t.csv --dataset_csv_pairs p.csv --loss cosent"],
    "s2sd": [
        "--s2sd_dims 5 8 --s2sd_features --s2sd_features_after 1",
        "--s2sd_dims 3 --s2sd_pool_both --memory_size 20 --memory_start 0 --memory_ema .5",
    ],
    "unsupervised": ["--loss_margin_beta_shared"],
}
WAYS = [(name, flags.split()) for name in trainers.REGISTRY.names() for flags in OF_TRAINERS.get(name, [""])]


class Network(torch.nn.Module):
    """Two layers of its own, two stages; with `noise` dropout of three kinds, stochastic depth, draws."""

    embed_dim = WIDTH
    feature_dim = 5
    input_size = 4
    normalizes = False
    name = "noisy"
    STAGES = {"map": "norm", "hidden": "hidden"}

    def __init__(self, norm=False, noise=False):
        super().__init__()
        self.backbone = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.Tanh())
        self.norm = torch.nn.BatchNorm2d(4) if norm else torch.nn.Identity()
        self.residual = torch.nn.Conv2d(4, 4, 1)
        self.depth = torchvision.ops.StochasticDepth(0.4, "row")
        self.dropouts = torch.nn.Sequential(torch.nn.Dropout2d(0.2), torch.nn.Flatten(), torch.nn.Dropout(0.3))
        self.hidden = torch.nn.Linear(64, 5)
        self.last_linear = torch.nn.Linear(5, WIDTH)
        self.noise = noise

    def give_stages(self, names):
        return [{"map": 4, "hidden": 5}[name] for name in names]

    def pool(self, x):
        return torch.tanh(self.hidden(x.flatten(1)))

    def embed(self, pooled):
        return self.last_linear(pooled)

    def forward(self, images):
        x = spatial = self.norm(self.backbone(images.to(self.last_linear.weight.dtype) / 255))
        if self.noise:
            x = x + self.depth(self.residual(x))
            x = self.dropouts(x)
            x = x + 0.1 * torch.randn(len(x), 1, dtype=x.dtype, device=x.device)
            x = x + 0.1 * torch.rand_like(x) + 0.1 * torch.bernoulli(torch.full_like(x, 0.3))
        pooled = self.pool(x)
        return self.embed(pooled), {"pooled": pooled, "spatial": spatial, "stages": [spatial.mean((2, 3)), pooled]}


class Noisy(Network):
    """The same with its noise."""

    def __init__(self):
        super().__init__(noise=True)


class Sampler:
    """One with a memory."""

    def precompute_indices(self):
        pass

    def replace_storage_entries(self, embeddings, indices):
        self.embeddings = embeddings.clone()


def conv4():
    """A network of the project, whose BatchNorm rests."""
    return architectures.select("conv4_frozen_normalize", not_pretrained=True, embed_dim=WIDTH)


def batches(views=1, steps=3, side=4, label_sets=False):
    """`label_sets`: images have several labels, of which the last one is shared."""
    generator = torch.Generator().manual_seed(5)
    for _ in range(steps):
        images = torch.randint(0, 256, (N * views, 3, side, side), dtype=torch.uint8, generator=generator)
        batch = Batch((torch.arange(N) // 2).repeat(views), images, torch.arange(N).repeat(views))
        if label_sets:
            relevance = torch.nn.functional.one_hot(batch.labels, CLASSES) > 0
            relevance[::5, -1] = True
            batch = batch._replace(relevance=relevance)
        yield batch


@functools.cache
def read(*flags):
    return parameters.read(words_of(*["--dataset glyphs --arch conv4 --optim sgd --lr .02 --momentum .5", *flags]))


def rows_of_old(opt):
    """How many old embeddings a loss reads: one a class, or one an image."""
    return CLASSES if opt.compatible_form == "classes" else 100


def trained(
    chunk_size,
    *flags,
    dtype=torch.float64,
    network=Network,
    trainer=None,
    steps=3,
    norm=False,
    side=4,
    stand_in=True,
    **of_batches,
):
    """A trainer after some steps, its step, their results, the next draw. `stand_in`: a criterion for memories."""
    class_names = {label: f"class {label}" for label in range(CLASSES)}
    opt = read(f"--crop_size {side}", *flags).but(n_classes=CLASSES, class_names=class_names)
    torch.manual_seed(0)
    model = network(norm) if network is Network else network()
    miner = batch_mining.select(opt.batch_mining, opt) if criteria.takes_miner(opt.loss, opt) else None
    criterion = Against() if opt.memory_size and stand_in else criteria.of_run(opt.but(embed_dim=WIDTH), miner, model)
    trainer = trainer(opt, model, criterion) if trainer else trainers.select(opt.trainer, opt, model, criterion)
    trainer = trainer.to(Runtime(opt).device, dtype)
    # vectors of a narrower old space, in place of those that main.py embeds
    if opt.trainer == "compatible":
        trainer.take_old(torch.rand(100, WIDTH - 1, generator=torch.Generator().manual_seed(2))[: rows_of_old(opt)])
    if opt.trainer == "pairs":
        trainer.set_pairs(torch.arange(N).view(-1, 2), torch.arange(N // 2) % 3 / 2)
    optimizer = build_optimizer(model, criterion, opt, trainer.param_groups(opt))
    step = Step(trainer, optimizer, Runtime(opt), Sampler(), StepSettings(chunk_size=chunk_size))
    step.start_epoch(1)
    torch.manual_seed(1)
    results = [step(batch) for batch in batches(trainer.VIEWS, steps, side, **of_batches)]
    return trainer, step, results, torch.rand(())


def rounding(name):
    """How much more than embeddings a part of the state is moved by their rounding."""
    # of dynamic_softmargin: distances times 512 nodes on 4 are places, where each of N triplets has a share of 1 / N
    return 512 / 4 / N if name.endswith("histogram") else 1


# relative and absolute
TOLERANCES = {torch.float64: (1e-10, 1e-11), torch.float32: (1e-5, 1e-6)}


def assert_same_steps(expected, result, rtol, atol):
    """What `trained` gives, twice: the state, the result of each step, the next draw."""
    reference, _, expected_steps, expected_draw = expected
    trainer, _, steps, draw = result
    state = trainer.state_dict()
    for name, value in reference.state_dict().items():
        if torch.is_tensor(value):
            say = lambda message, name=name: f"{name}: {message}"  # noqa: E731
            assert_close(state[name], value, rtol=rtol, atol=atol * rounding(name), msg=say)
    for a, b in zip(expected_steps, steps, strict=True):
        assert_close((b.loss, b.gradient_norm), (a.loss, a.gradient_norm), rtol=10 * rtol, atol=10 * atol)
        assert a.images == b.images and a.gradient_norm > 0
    assert torch.equal(draw, expected_draw), "the next draw is that after a plain step"


def assert_equal_steps(chunk_size, *flags, tolerances=None, **how):
    plain, cut = (trained(size, *flags, **how) for size in (0, chunk_size))
    assert_same_steps(plain, cut, *(tolerances or TOLERANCES[how.get("dtype", torch.float64)]))
    trainer, step, *_ = cut
    assert len(step.sampler.embeddings) == N * trainer.VIEWS and not step.sampler.embeddings.requires_grad
    return plain[0]


def of_loss(loss):
    module = criteria.REGISTRY.module(loss)
    return [
        "--loss",
        loss,
        "--batch_mining",
        (module.ALLOWED_MINING_OPS or ["distance"])[0],
        *NEEDED.get(loss, "").split(),
    ]


def failures(cases, check):
    """What fails of `check(*case)`, each in a line: one test of a registry names all that are wrong."""
    messages = []
    for case in cases:
        try:
            check(*case)
        except Exception as error:  # noqa: BLE001  whatever it is
            messages.append(f"{case}: {type(error).__name__} {str(error)[:300]}")
    return messages


# which draw, have a state or parameters
SOME = ["dynamic_softmargin", "hier", "hist", "margin", "softtriplet", "triplet"]


@pytest.mark.parametrize(
    ("names", "dtype"),
    [
        (SOME, torch.float64),
        pytest.param(criteria.REGISTRY.names(), torch.float64, marks=pytest.mark.long),
        pytest.param(criteria.REGISTRY.names(), torch.float32, marks=pytest.mark.long),
    ],
    ids=["some", "all", "all in float32"],
)
def test_parameters_are_those_of_plain_steps_for_every_criterion(names, dtype):
    torch.manual_seed(0)
    start = Network().to(dtype).last_linear.weight

    def check(loss):
        plain = assert_equal_steps(5, *of_loss(loss), dtype=dtype, steps=1)
        assert not torch.equal(start, plain.network.last_linear.weight), "the step moved the network"

    assert not failures(((loss,) for loss in names), check)


def way_id(part):
    return part if isinstance(part, str) else " ".join(part[:1])


def way_param(name, flags):
    """A trainer and its flags, as a parameter of a test that is long for most of them."""
    marks = () if name in ("metric_only", "cascaded") else pytest.mark.long
    return pytest.param(name, flags, marks=marks)


@pytest.mark.parametrize(("name", "flags"), WAYS, ids=way_id)
def test_every_trainer_in_chunks(name, flags):
    assert_equal_steps(5, "--loss margin --trainer", name, *flags)


@pytest.mark.parametrize(("name", "flags"), [way_param(*way) for way in WAYS], ids=way_id)
def test_every_trainer_in_chunks_of_any_size_and_of_a_network_of_the_project(name, flags):
    for size in (1, 11):
        assert_equal_steps(size, "--loss margin --trainer", name, *flags)
    stages = "--cascade_stages block2 block4" if name == "cascaded" else ""
    assert_equal_steps(5, "--loss margin --trainer", name, *flags, stages, network=conv4, side=16)


def test_with_clipping_memory_regularisers_random_miners_and_half_precision():
    cases = [
        "--loss margin --clip_grad_norm .05",
        "--loss contrastive --memory_size 20 --memory_start 1",
        "--loss contrastive --memory_size 20 --memory_start 0 --memory_ema .5",
        "--loss proxyanchor --arch resnet50_frozen --embed_regularizer lp --weight_regularizer regular_face",
        "--loss triplet --batch_mining random",
        "--loss softmax --optim adamw --momentum .9",
        f"--loss softmax {' '.join(PREFIXES)}",
        f"--loss margin {' '.join(PREFIXES)} --matryoshka_weights 2 .5 1 --matryoshka_heads own",
        "--loss multisimilarity --metrix .4",
        "--loss contrastive --metrix .4 --metrix_level feature",
        "--loss proxyanchor --metrix .4 --weight_regularizer anticollapse",
    ]
    messages = failures([(flags,) for flags in cases], lambda flags: assert_equal_steps(5, flags))
    # chunks are added in float32; what one gives is rounded, as the whole batch's is
    for precision, error in (("bfloat16", 2**-8), ("float16", 2**-11)):
        how = {"dtype": torch.float32, "tolerances": (error, error / 10), "steps": 2}
        cases = [(5, f"--loss margin --precision {precision}")]
        messages += failures(cases, functools.partial(assert_equal_steps, **how))
    assert not messages


def test_what_a_users_trainer_may_give_and_take():
    class Views(trainers.Base):
        """Two views; a loss through the last layer, one of a nested output, an output without a gradient, a word."""

        VIEWS = 2

        def outputs(self, images):
            outputs = super().outputs(images)
            nested = {"doubled": 2 * outputs["embeddings"]}
            return {**outputs, "nested": nested, "mean": images.double().mean((1, 2, 3)), "word": "x"}

        def losses(self, outputs, batch):
            doubled = outputs["nested"]["doubled"]
            assert outputs["word"] == "x" and not outputs["mean"].requires_grad and doubled.requires_grad
            first, second = doubled.chunk(2)
            direct = self.network.last_linear(outputs["pooled"].tanh()).square().mean()
            view_loss = (first - second).square().mean() + outputs["mean"].mean() + direct
            return {**super().losses(outputs, batch), "view_loss": view_loss}

    class Wrong(trainers.Base):
        """A mean over the batch among the outputs."""

        def outputs(self, images):
            outputs = super().outputs(images)
            return {**outputs, "centre": outputs["embeddings"].mean(0)}

    assert_equal_steps(7, "--loss margin", trainer=Views)
    with refused(r"--chunk_size: the trainer's centre is \(6,\) of 5 images"):
        trained(5, "--loss margin", trainer=Wrong)


def test_a_chunk_of_the_batch_or_more_is_the_plain_step_to_the_bit():
    plain, cut = (trained(size, "--loss margin", network=Noisy)[0].state_dict() for size in (0, N))
    assert equal_states(dict(plain), dict(cut))


def test_batch_statistics_move_once_a_chunk_and_are_said(capsys):
    """The reference is a step on each chunk's own graph; the moving average sees each chunk once too."""
    averaging, reference = (trained(4, f"--loss contrastive {EMA}", norm=True, steps=steps)[0] for steps in (1, 0))
    assert "BatchNorm takes its batch statistics from each chunk" in capsys.readouterr().out
    torch.manual_seed(1)
    for images in next(batches(steps=1)).images.split(4):
        reference.outputs(images)
    for network_of in (lambda trainer: trainer.network, lambda trainer: trainer.added_losses[0].average.network):
        norm, expected = (network_of(trainer).norm for trainer in (averaging, reference))
        assert norm.num_batches_tracked == expected.num_batches_tracked == 3
        torch.testing.assert_close(norm.running_mean, expected.running_mean)
    assert all(layer.track_running_stats for layer in averaging.modules() if isinstance(layer, torch.nn.BatchNorm2d))


@pytest.mark.parametrize("flags", [EMA, f"--trainer diva {DIVA}", f"--trainer diva {DIVA} {EMA}"])
def test_a_momentum_encoder_runs_once_a_chunk(flags):
    trainer, step, _, _ = trained(6, flags, "--loss contrastive", steps=0)
    calls = []
    averages = [*([trainer.average] if "diva" in flags else []), *(added.average for added in trainer.added_losses)]
    for name, networks in (("average", averages), ("network", [trainer.network])):
        for network in networks:
            network.register_forward_hook(lambda *_, name=name: calls.append(name))
    for batch in batches(trainer.VIEWS, steps=2):
        step(batch)
    chunks = 2 * 2 * trainer.VIEWS
    assert calls.count("average") == chunks * len(averages) > 0 and calls.count("network") == 2 * chunks
    assert "diva" not in flags or (trainer.enqueued == 2 * 2 * N and len(trainer.queue) == 4 * N)


def test_a_network_that_rests_runs_once_a_chunk():
    flags = "--trainer adversarial --loss margin --adversarial_generator_epochs 1"
    trainer, step, _, _ = trained(4, flags, steps=0)
    calls = []
    before = [p.detach().clone() for p in trainer.network.parameters()]
    trainer.network.register_forward_hook(lambda *_: calls.append("network"))
    first, second = (step(batch) for batch in batches(steps=2))
    assert set(first.losses) == {"g_hard_loss", "g_reg_loss", "g_adv_loss"}
    assert len(calls) == 2 * 3 and first.gradient_norm > 0
    assert equal_states(before, [*trainer.network.parameters()])
    step.start_epoch(2)
    step(next(batches(steps=1)))
    assert len(calls) == 2 * 3 + 2 * 3 and not torch.equal(before[0], next(trainer.network.parameters()))


def check_draws_of_chunks():
    """The reference: the chunks one after the other, whose graphs are kept, and one backward pass through all."""
    cut = trained(5, "--loss margin", network=Noisy, steps=1)[0]
    trainer, step, _, _ = trained(0, "--loss margin", network=Noisy, steps=0)
    batch = next(batches(steps=1))
    torch.manual_seed(1)
    parts = [trainer.outputs(step.runtime.to_device(images)) for images in batch.images.split(5)]
    outputs = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    batch = batch._replace(labels=step.runtime.to_device(batch.labels))
    step.runtime.step(sum(trainer.losses(outputs, batch).values()), step.optimizer)
    for a, b in zip(trainer.network.parameters(), cut.network.parameters(), strict=True):
        assert_close(b, a, rtol=1e-10, atol=1e-11)


def test_each_chunk_draws_for_itself_the_same_in_both_of_its_runs(capsys):
    check_draws_of_chunks()
    assert capsys.readouterr().out.count("--chunk_size 5: dropout and stochastic depth draw for each chunk") == 1
    trained(5, "--loss margin", steps=1)
    assert "--chunk_size" not in capsys.readouterr().out
