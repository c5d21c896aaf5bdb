"""Class vectors in shards, drawn in part, in some coordinates: several processes give what one process gives."""

import copy
import itertools
from unittest import mock

import pytest
import scipy.stats
import torch

import criteria
from criteria import _shards
from engine.assembly import build_trainer
from engine.optimisers import build_optimizer
from engine.ranks import Ranks
from engine.runtime import Runtime
from engine.step import build_step
from runs import RunFolder
from tests import test_torchrun
from tests.criteria import test_registry_wide
from tests.engine import test_chunks
from tests.kit.processes import LoneRank, one_process, spawned, whole_run
from tests.kit.runs import assert_same_run, last_checkpoint, resolve, run_main
from tests.test_torchrun import succeed
from trainers import average_of
from utilities import shards
from utilities.errors import UserError
from utilities.processes import SingleProcess
from utilities.shards import Shard

ABLE = (
    "adaface arcface circle_softmax cosface curricularface magface proxyanchor softmax sphereface subcenter_arcface"
).split()
WITH_STATE = ["adaface", "curricularface", "magface"]
C = 7
D = 5
LABELS = torch.tensor([6, 0, 0, 3, 4, 4, 6, 2, 1, 0])


def build(loss, dtype=torch.float64, **flags):
    torch.manual_seed(0)
    return criteria.select(loss, loss=loss, arch="", n_classes=C, embed_dim=D, **flags).to(dtype)


def points(dtype=torch.float64):
    return torch.randn(len(LABELS), D, dtype=dtype, generator=torch.Generator().manual_seed(3))


def run(criterion, batch=None, labels=LABELS):
    """Loss, gradient of the embeddings, of the class vectors, of the learned hyperparameters."""
    rows = points() if batch is None else batch
    batch = rows.clone().requires_grad_()
    loss = criterion(batch, labels)
    loss.backward()
    hyperparameters = [p.grad for p in criterion.parameters() if p is not criterion.proxies]
    return loss.detach(), batch.grad, criterion.proxies.grad, hyperparameters


def near(actual, expected, tolerance=1e-12):
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


# ---------- steps
STEPS = "--warmup_steps 3 --clip_grad_norm .05 --ema_decay .9 --loss_decay .01"
OPTIMISERS = [
    "--optim sgd --momentum .9",
    # --momentum .9 is the default, which adam does not use
    "--optim adam --momentum .9",
    "--optim adamw --momentum .9",
    "--optim rmsprop --lr .002",
]


def trained(*flags, steps=5, dtype=torch.float64):
    """A step of the program itself after some batches, its optimiser, its results."""
    opt = test_chunks.read("--crop_size 4 --iterations_per_epoch 5", *flags).but(n_classes=C)
    torch.manual_seed(0)
    runtime = Runtime(opt)
    network = test_chunks.Network()
    trainer = build_trainer(opt, network, runtime).to(dtype)
    optimizer = build_optimizer(network, trainer.criterion, opt, trainer.param_groups(opt))
    step = build_step(opt, trainer, optimizer, runtime, test_chunks.Sampler(), average_of(network, opt))
    step.start_epoch(1)
    torch.manual_seed(1)
    return step, [step(batch) for batch in test_chunks.batches(steps=steps)]


def flat_state(step):
    """Every tensor of what a checkpoint holds of a step."""
    tensors = {}
    for name in step.parts.keys() & {"model", "trained", "criterion"}:
        tensors |= {f"{name} {key}": value for key, value in step.parts[name].state_dict().items()}
    for number, state in step.parts["optimizer"].state_dict()["state"].items():
        tensors |= {f"state {number} {key}": value for key, value in state.items() if torch.is_tensor(value)}
    return tensors


def same_steps(rank, block, cases):
    """Results of each step, statistics and the whole state are those of one process; each process has its rows."""
    wrong = []
    for words in cases:
        with one_process():
            alone_step, expected = trained(words)
        with mock.patch.object(_shards, "ENTRIES", block):
            shared_step, results = trained(words, "--shard_classes")
        state = flat_state(shared_step)
        expected_state = flat_state(alone_step)
        criterion = shared_step.trainer.criterion
        assert any(map(shards.divided, criterion.parameters())) and state.keys() == expected_state.keys()
        try:
            for a, b in zip(expected, results, strict=True):
                near((b.loss, b.gradient_norm), (a.loss, a.gradient_norm))
            stats = dict(alone_step.trainer.criterion.stats)
            near({name: criterion.stats[name] for name in stats}, stats)
            if rank == 0:
                for name, value in expected_state.items():
                    near(state[name], value)
            rows = criterion.proxies.detach().clone()
            vectors = alone_step.trainer.criterion.proxies
            assert rows.untyped_storage().nbytes() < vectors.untyped_storage().nbytes()
            criterion.load_state_dict(alone_step.trainer.criterion.state_dict())
            near(criterion.proxies.detach(), rows)
        except AssertionError as error:
            wrong.append(f"{words}: {error}")
    assert not wrong, "\n".join(wrong)


def of_every_criterion():
    learned = ["arcface angular_margin", "arcface feature_scale", "cosface margin", "softmax temperature"]
    plain = [name for name in ABLE if name not in WITH_STATE]
    words = [*plain, *(f"{name.replace(' ', ' --loss_learn ')} --loss_learn_per_class" for name in learned)]
    words += WITH_STATE
    for number, flags in enumerate(words):
        chunks = " --chunk_size 4" if number % 2 else ""
        network = "--arch conv4 " if flags in ("adaface", "magface") else ""
        yield f"--loss {flags} {network}{STEPS} {OPTIMISERS[number % 4]}{chunks}"


@pytest.mark.long
@pytest.mark.parametrize("n,block", [(2, 1 << 22), (3, 10), (4, 1 << 22)])
def test_five_steps_of_every_criterion_and_optimiser_are_those_of_one_process(n, block):
    """Four processes do not divide the seven classes. Also clipped gradients, and trainers with further criteria."""
    cases = [*of_every_criterion(), *(f"--loss cosface {how}" for how in OPTIMISERS)]
    cases += ["--loss softmax --clip_grad_each .01", "--loss softmax --clip_grad_value .001"]
    cases += ["--loss softmax --trainer s2sd --s2sd_dims 5"]
    cases += ["--loss proxyanchor --subset_mining maximum_loss --subset_size 6"]
    spawned(n, same_steps, block, cases)


# ---------- blocks
@pytest.mark.parametrize("loss", ABLE)
def test_blocks_of_classes_give_the_plain_loss_on_every_batch(loss):
    """Zero, equal, opposite and very long embeddings: cosines of 1 and -1. All coordinates drawn: in blocks."""
    plain = build(loss)
    in_blocks = build(loss, loss_dims=D)
    batches = [test_registry_wide.LABELS[kind] for kind in ("repeated", "one class", "one sample")]
    for labels, kind in itertools.product(batches, ("long", "identical", "opposite", "zero", "one zero")):
        batch = test_registry_wide.POINTS[kind](len(labels))[:, :D].double()
        labels = torch.tensor(labels)
        plain.zero_grad(), in_blocks.zero_grad()
        expected = run(plain, batch, labels)
        with mock.patch.object(_shards, "ENTRIES", 3 * len(labels)):
            actual = run(in_blocks, batch, labels)
        assert all(torch.isfinite(value).all() for value in actual[:3])
        for mine, theirs in zip(actual[:3], expected[:3], strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-10 * max(1, float(theirs.abs().max())))


# ---------- drawing
def rows_of(classes, per_class):
    return [c * per_class + k for c in classes for k in range(per_class)]


@pytest.mark.parametrize("loss", ABLE)
def test_a_drawn_loss_is_the_plain_one_of_the_drawn_classes(loss):
    """The batch has six of 7 classes: of a share of .86 these alone are drawn, whatever the seed."""
    classes = [0, 1, 2, 3, 4, 6]
    # the plain form is compared with loops in test_table.py
    criterion = build(loss, sample_classes=0.86)
    plain = build(loss)
    torch.manual_seed(2)
    actual = run(criterion)
    rows = rows_of(classes, criterion.per_class)
    plain.n_classes = len(classes)
    plain.proxies = torch.nn.Parameter(criterion.proxies.detach()[rows].clone())
    expected = run(plain, points(), torch.tensor([classes.index(int(label)) for label in LABELS]))
    assert criterion.shard.drawn[0].tolist() == rows
    near(actual[:2], expected[:2])
    near(actual[2][rows], expected[2])
    assert not actual[2][rows_of([5], criterion.per_class)].any()
    near({name: criterion.stats[name] for name in plain.stats}, dict(plain.stats))


def test_the_drawn_classes_hold_the_batchs_and_are_uniform_beside_them():
    """Chi-square of how often each other class is drawn, seeded."""
    torch.manual_seed(5)
    n_classes = 40
    n = 12
    draws = 1500
    labels = torch.tensor([3, 3, 17, 39, 0])
    shard = Shard(SingleProcess(), n_classes, share=0.3)
    counts = torch.zeros(n_classes)
    for _ in range(draws):
        classes, positions = shard.draw(labels)
        assert len(classes) == n and torch.equal(classes, classes.unique()) and torch.equal(classes[positions], labels)
        counts[classes] += 1
    absent = [c for c in range(n_classes) if c not in labels]
    assert (counts[labels] == draws).all()
    share = (n - 4) / len(absent)
    # without replacement: the counts of a class vary less than with it, by the share of the others that is not drawn
    statistic = ((counts[absent] - draws * share) ** 2 / (draws * share)).sum().item() / (1 - share)
    statistic *= (len(absent) - 1) / len(absent)
    assert 0.01 < scipy.stats.chi2.sf(statistic, len(absent) - 1) < 0.99


def test_of_foreign_classes_none_is_forced_in():
    torch.manual_seed(0)
    # The shard holds classes 4 to 8
    shard = Shard(LoneRank(1, 2), 9, share=0.5)
    assert (shard.start, shard.size) == (4, 5)
    draws = [shard.draw(torch.tensor([0, 3, 7])) for _ in range(200)]
    for classes, positions in draws:
        assert len(classes) == 2 and positions.tolist() == [2, 2, classes.tolist().index(3)]
    assert {tuple(classes.tolist()) for classes, _ in draws} == {(0, 3), (1, 3), (2, 3), (3, 4)}


def test_more_classes_in_a_batch_than_are_drawn_are_used_alone_and_said_once(capsys):
    shard = Shard(SingleProcess(), 10, share=0.2)
    for _ in range(2):
        classes, positions = shard.draw(torch.tensor([7, 1, 7, 4]))
        assert classes.tolist() == [1, 4, 7] and positions.tolist() == [2, 0, 2, 1]
    message = "--sample_classes 0.2: 2 of 10 classes are fewer than the 3 of a batch: these alone are used"
    assert capsys.readouterr().out.count(message) == 1
    assert shard.draw(torch.tensor([7, 7, 7]))[0].shape == (2,), "classes count, not samples"
    with torch.no_grad():
        shard.draw(torch.tensor([1]))
    assert len(shard.drawn) == 3, "what is only looked at is not trained"


# ---------- at rest
@pytest.mark.parametrize("words", OPTIMISERS, ids=lambda words: words.split()[1])
def test_vectors_that_are_not_drawn_rest_in_every_optimiser(words):
    """As torch's step on all rows, after which the undrawn get back what they were; two draws in one step count."""
    flags = "--momentum .9 --lr .02 --loss subcenter_arcface --loss_decay .01 --sample_classes .5"
    opt = test_chunks.read(words, flags).but(n_classes=40, embed_dim=D, loss_subcenter_arcface_lr=0.02)
    torch.manual_seed(0)
    criterion = criteria.select("subcenter_arcface", opt).double()
    network = torch.nn.Linear(D, D).double()
    runtime = Runtime(opt)
    moved = set()
    optimizer = build_optimizer(network, criterion, opt)
    plain = copy.deepcopy(optimizer)
    (twin,) = (p for group in plain.param_groups for p in group["params"] if p.shape == criterion.proxies.shape)

    def rows_with_state(parameter, optimizer):
        state = {name: value for name, value in optimizer.state[parameter].items() if value.ndim == 2}
        return {"vectors": parameter.detach(), **state}

    for t in range(1, 7):
        draws = 2 if t == 3 else 1
        loss = sum(criterion(network(points()), LABELS) for _ in range(draws))
        rows = torch.cat(criterion.shard.drawn).unique()
        runtime.step(loss, optimizer)
        twin.grad = criterion.proxies.grad.clone()
        before = {name: value.clone() for name, value in rows_with_state(twin, plain).items()}
        plain.step()
        undrawn = [row for row in range(120) if row not in rows]
        for name, value in rows_with_state(twin, plain).items():
            value[undrawn] = before[name][undrawn] if name in before else 0
        near(rows_with_state(criterion.proxies, optimizer), rows_with_state(twin, plain))
        moved |= set(rows.tolist())
        assert not criterion.shard.drawn and len(undrawn) > 0
    assert len(moved) > 100, "others in each step"


def test_a_step_that_a_scaler_skips_moves_nothing_and_forgets_its_draw():
    opt = test_chunks.read("--loss softmax --precision float16").but(n_classes=40, embed_dim=D, sample_classes=0.5)
    criterion = criteria.select("softmax", opt)
    network = torch.nn.Linear(D, D)
    optimizer = build_optimizer(network, criterion, opt)
    runtime = Runtime(opt)
    before = criterion.proxies.detach().clone()
    runtime.step(criterion(network(points(torch.float32)), LABELS) * 1e35, optimizer)
    assert torch.equal(criterion.proxies, before) and not criterion.shard.drawn
    runtime.step(criterion(network(points(torch.float32)), LABELS), optimizer)
    assert not torch.equal(criterion.proxies, before) and criterion.proxies.isfinite().all()


def overflow(rank):
    """A gradient of one process alone that is not finite skips the step of all."""
    step, _ = trained("--loss softmax --shard_classes --precision float16", steps=1, dtype=torch.float32)
    vectors = step.trainer.criterion.proxies
    value = float("inf") if rank else 1.0
    vectors.grad = torch.full_like(vectors, value)
    shards.share_overflow([vectors])
    assert not vectors.grad.isfinite().any()


# ---------- pins
X = torch.tensor([[1, 0, 0], [0.8, 0.6, 0], [0, 1, 0], [0, 0.6, 0.8]], dtype=torch.float64)
VECTORS = torch.tensor([[1, 0.2, 0], [0, 1, 0.3], [0.1, 0, 1]], dtype=torch.float64)


@pytest.mark.parametrize("dims", [None, 3], ids=["whole", "in blocks"])
@pytest.mark.parametrize(
    "loss,margin,scale,expected",
    [
        ("cosface", 0.4, 1, 0.9436270),
        ("cosface", 0.4, 64, 7.4266690),
        ("arcface", 0.5, 1, 0.8841481),
        ("arcface", 0.3, 32, 1.6249742),
    ],
)
def test_known_values_of_partial_fc(loss, margin, scale, expected, dims):
    names = {"cosface": ("margin", "scale"), "arcface": ("angular_margin", "feature_scale")}[loss]
    flags = dict(zip((f"loss_{loss}_{name}" for name in names), (margin, scale), strict=True))
    criterion = criteria.select(loss, n_classes=3, embed_dim=3, loss_dims=dims, **flags).double()
    with torch.no_grad():
        criterion.proxies.copy_(VECTORS)
    assert criterion(X, torch.tensor([0, 0, 1, 1])).item() == pytest.approx(expected, abs=1e-7)


def test_the_margins_backward_is_true():
    """Theirs, where the angle is widened outside the graph, gives -.1536."""
    labels = torch.tensor([0, 0, 1, 1])
    criterion = criteria.select("arcface", n_classes=3, embed_dim=3, loss_arcface_feature_scale=1)
    cosines = (torch.nn.functional.normalize(X) @ torch.nn.functional.normalize(VECTORS).T).requires_grad_()
    gradient = torch.autograd.grad(criterion.loss(cosines, labels, X), cosines)[0]
    assert gradient[1, 0].item() == pytest.approx(-0.2888, abs=5e-5)


# ---------- coordinates
def test_a_loss_in_some_coordinates_is_that_of_cut_embeddings_and_vectors():
    """Drawn anew in each step, unit length after the cut; a coordinate that is not drawn gets no gradient."""
    seen = set()
    for seed in range(6):
        criterion = build("arcface", loss_dims=3)
        torch.manual_seed(seed)
        dims = torch.randperm(D)[:3]
        torch.manual_seed(seed)
        actual = run(criterion)
        plain = criteria.select("arcface", n_classes=C, embed_dim=3).double()
        plain.proxies.data = criterion.proxies.data[:, dims]
        expected = run(plain, points()[:, dims])
        near(actual[0], expected[0])
        for mine, theirs in zip(actual[1:3], expected[1:3], strict=True):
            near(mine[:, dims], theirs)
            assert (mine != 0).any(0).sum() == 3
        seen.add(tuple(sorted(dims.tolist())))
    assert len(seen) > 1


def same_coordinates(rank):
    ranks = Ranks()
    criterion = build("cosface", loss_dims=2)
    criterion.shard_over(ranks)
    torch.manual_seed(8)
    coordinates = (run(criterion)[1] != 0).any(0)
    classes = Shard(ranks, 400, share=0.1).draw(torch.tensor([0, 399]))[0]
    gathered = ranks.gather({"used": coordinates[None], "drawn": classes[None]}, ranks.size)
    assert torch.equal(*gathered["used"]) and coordinates.sum() == 2, "the same coordinates"
    assert torch.isin(*gathered["drawn"]).sum() < 10, "of 20 each, counted from the first of its own"
    draw = torch.rand(3)
    assert torch.equal(ranks.share(draw), draw), "the generators stay equal"


def all_of_it(rank):
    # Every third case takes in each optimiser
    same_steps(rank, 2 * len(LABELS), [*of_every_criterion()][::3])
    overflow(rank)
    same_coordinates(rank)


def test_two_processes_are_one():
    """Loss and gradients, steps, an overflow in one of them, the same coordinates of other classes."""
    spawned(2, all_of_it)


# ---------- runs on the disk
MANY = "--loss arcface --optim adam --shard_classes --seed 2"


def vectors_and_moments(folder):
    content = last_checkpoint(folder)
    states = content["optimizer"]["state"].values()
    return content["criterion"]["proxies"], [value for state in states for value in state.values()]


@pytest.mark.long
def test_a_checkpoint_has_all_vectors_and_goes_on_with_another_number_of_processes(data, tmp_path):
    """Two processes, then one, then three: the run of one process, to rounding; where the numbers stay, to the bit."""
    single = run_main(*test_torchrun.words(data, tmp_path, MANY, "--savename One --n_epochs 2")).folder
    spawned(2, whole_run, test_torchrun.words(data, tmp_path, MANY, "--savename Parted --n_epochs 1"))
    parted = single.with_name("Parted")
    vectors, moments = vectors_and_moments(parted)
    assert vectors.shape == vectors_and_moments(single)[0].shape
    assert sum(value.shape == vectors.shape for value in moments) == 2
    run_main("--resume_from", parted, "--n_epochs 2 --resume_allow_changes")
    test_torchrun.assert_near_runs(single, parted)
    torch.testing.assert_close(vectors_and_moments(parted), vectors_and_moments(single), rtol=1e-3, atol=1e-5)


@pytest.mark.long
def test_what_was_killed_goes_on_to_the_bit(data, tmp_path):
    """kill -9 of both processes in the second epoch; then --resume best, whose checkpoint holds everything too."""
    cached = f"--decode_once --image_cache_side 18 --image_cache {tmp_path}/cache"
    words = test_torchrun.words(data, tmp_path, MANY, cached, "--sample_classes .5 --loss_dims 4 --n_epochs 3")
    del words[words.index("--resize_size") : words.index("--resize_size") + 2]
    succeed(2, *words, "--savename Whole")
    done = test_torchrun.torchrun(2, *words, "--savename Killed", fail="*:4:kill")
    whole_folder, folder = (tmp_path / "folder" / name for name in ("Whole", "Killed"))
    assert done.returncode and RunFolder(folder).progress.epochs == 1
    succeed(2, "--resume_from", folder)
    assert_same_run(whole_folder, folder)
    succeed(2, "--resume_from", folder, "--resume best --n_epochs 4 --resume_allow_changes")
    assert RunFolder(folder).progress.epochs == 4


# ---------- refused
def test_what_cannot_be_is_refused():
    able = f"margin cannot use a part of its class vectors; these can: {', '.join(ABLE)}"
    regular_face = "--loss softmax --sample_classes .1 --weight_regularizer regular_face"
    for words, message in (
        ("--loss margin --shard_classes", able),
        ("--loss proxynca --sample_classes .1", "--sample_classes 0.1: --loss proxynca cannot"),
        ("--loss hier --loss_dims 8", "--loss_dims 8: --loss hier cannot"),
        (regular_face, "regular_face needs all class vectors"),
    ):
        with pytest.raises(UserError, match=message):
            resolve("--dataset glyphs", words)
    with pytest.raises(UserError, match="--loss_dims 9 is more than the 5 dimensions"):
        build("softmax", loss_dims=9)
    with pytest.raises(UserError, match="2 classes are fewer than the 3 processes"):
        Shard(LoneRank(0, 3), 2)
