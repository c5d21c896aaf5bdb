"""Language guidance: its formula and pins, the file and its damages, a run, the command that makes pseudo-labels."""

import hashlib
import shlex

import numpy as np
import pytest
import torch
import torchvision
import yaml
from torch.testing import assert_close

import datasets
import parameters
import trainers
from tests.criteria._table import PINNED, PINNED_LABELS
from tests.kit import tiny
from tests.kit.data_sets import make_folder
from tests.kit.refusals import refused
from tests.kit.runs import words_of
from tools import pseudo_labels
from trainers import _language

NAMES = {0: "gull", 1: "tern", 2: "auk", 3: "skua"}


def file(tmp_path, names=("skua", "auk", "tern", "gull"), vectors=None, k=2, **arrays):
    generator = np.random.default_rng(0)
    vectors = generator.standard_normal((len(names), k, 5)) if vectors is None else vectors
    np.savez(tmp_path / "vectors.npz", names=np.array(names), vectors=vectors, **arrays)
    return str(tmp_path / "vectors.npz")


def built(path, *flags, trainer="metric_only", names=NAMES):
    def make(name, opt, *modules):
        return trainers.select(name, opt.but(class_names=names), *modules)

    return tiny.trainer(trainer, "--language_vectors", path, *flags, make=make)


def cosine(a, b):
    return a @ b / (a.norm() * b.norm())


def slow(x, labels, vectors, direction="backward", shift=1.0, temperature=1.0):
    """`vectors`: label -> list of K vectors."""
    n = len(x)
    total = 0.0
    for i in range(n):
        images = []
        language = []
        for j in range(n):
            pairs = list(zip(vectors[int(labels[i])], vectors[int(labels[j])], strict=True))
            similarity = sum(cosine(a, b) for a, b in pairs) / len(pairs) + shift
            images.append(cosine(x[i], x[j]))
            language.append(similarity)
            if labels[i] == labels[j]:
                images[j] = language[j] = x.new_tensor(1 + shift)
        p, q = (torch.softmax(torch.stack(row) / temperature, 0) for row in (images, language))
        if direction == "forward":
            p, q = q, p
        total = total + sum(p[j] * torch.log(p[j] / q[j]) for j in range(n))
    return temperature**2 / n * total


@pytest.mark.parametrize(
    ("flags", "how"),
    [
        ("", {}),
        (
            "--language_direction forward --language_shift .3 --language_T .5",
            {"direction": "forward", "shift": 0.3, "temperature": 0.5},
        ),
        ("--language_T 2", {"temperature": 2.0}),
    ],
)
@pytest.mark.parametrize("k", [None, 3])
def test_the_loss_is_that_of_loops(flags, how, k, tmp_path):
    shape = (4, 5) if k is None else (4, k, 5)
    vectors = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    trainer, opt = built(file(tmp_path, vectors=vectors), flags, "--loss_weights language_loss=2")
    batch = tiny.batch([0, 0, 1, 3, 3, 3])
    outputs, losses, total = tiny.step(opt, trainer).forward(batch)
    # the file is in reverse order
    by_label = {label: torch.tensor(vectors[3 - label], dtype=torch.float64).reshape(-1, 5) for label in NAMES}
    expected = slow(outputs["embeddings"], batch.labels, by_label, **how)
    # the vectors are float32
    assert_close(losses["language_loss"], expected, rtol=1e-6, atol=1e-7)
    assert_close(total, losses["metric_loss"] + 2 * losses["language_loss"])
    weight = trainer.network.last_linear.weight
    values = losses["language_loss"], expected
    gradients = [torch.autograd.grad(value, weight, retain_graph=True) for value in values]
    assert_close(*gradients, rtol=1e-5, atol=1e-7)
    assert tiny.losses(trainer, tiny.batch([1, 1, 1]))[1]["language_loss"] == 0, "all pairs are masked"


def test_the_authors_function_gives_the_same(tmp_path):
    """Rank with rank: all pairs of the two vectors would give .6 for .8."""
    path = file(tmp_path, ["tern", "gull"], np.array([[[0.6, 0.8], [0, 1]], [[1, 0], [0, 1]]]))
    vectors = _language.read(path, ["gull", "tern"])
    assert round(float(vectors[0] @ vectors[1]), 6) == 0.8
    for direction, expected in (("backward", 0.2095187), ("forward", 0.2674219)):
        trainer, _ = built(path, "--language_direction", direction, names={0: "gull", 1: "tern"})
        value = trainer.added_losses[0].loss(
            trainer, {"embeddings": PINNED}, tiny.batch([0])._replace(labels=PINNED_LABELS)
        )
        assert round(value.item(), 6) == round(expected, 6)


def begun(trainer, steps):
    """Whether each of some steps has the loss."""
    return ["language_loss" in tiny.losses(trainer, tiny.batch([0, 1, 2]))[1] for _ in range(steps)]


@pytest.mark.parametrize("delay", [0, 1, 3])
def test_it_begins_with_the_step_that_the_authors_count_and_counts_on(tmp_path, delay):
    """Their counter is raised before it is compared: `iter_count >= activation_iter`."""
    trainer, resumed = (built(file(tmp_path), f"--language_delay {delay}")[0] for _ in range(2))
    expected = [step >= delay for step in range(1, 5)]
    assert begun(trainer, 2) == expected[:2]
    state = trainer.state_dict()
    assert not any(name.endswith("vectors") for name in state), "the file is read again, and is not in the checkpoint"
    resumed.load_state_dict(state)
    assert begun(trainer, 2) == begun(resumed, 2) == expected[2:]


def test_a_file_that_cannot_serve_is_refused_in_one_line(tmp_path):
    four = list(NAMES.values())
    vectors = np.ones((4, 3))
    (tmp_path / "text.npz").write_text("gull 1 2 3")
    for make_file, message in (
        (lambda: str(tmp_path / "gone.npz"), "not an .npz file with names"),
        (lambda: str(tmp_path / "text.npz"), "not an .npz file with names"),
        (lambda: file(tmp_path, ["gull", "auk"], np.ones((2, 3))), "lacks 2 of 4 training classes: tern, skua"),
        (lambda: file(tmp_path, four, np.ones((3, 3))), r"4 names and vectors \(3, 3\)"),
        (lambda: file(tmp_path, four, np.array(["a"] * 4)), "not an .npz file with names"),
        (lambda: file(tmp_path, [*four, "gull"], np.ones((5, 3))), "names gull more than once"),
        (lambda: file(tmp_path, four, vectors * [[1], [1], [0], [1]]), "a vector of auk is 0 or not finite"),
        (lambda: file(tmp_path, four, vectors * [[1], [np.nan], [1], [1]]), "a vector of tern is 0 or not finite"),
    ):
        with refused(message):
            built(make_file())
    with refused("joined to the training classes by their names"):
        built(file(tmp_path), names=None)
    trainer, _ = built(file(tmp_path), "--loss ntxent", trainer="unsupervised")
    with refused("this --trainer looks at no labels"):
        tiny.losses(trainer, tiny.batch([0, 1], views=2))


# --- the command, a run
@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """A classifier of random weights, as a file."""
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("weights") / "classifier.pth"
    torch.save(torchvision.models.mobilenet_v3_small().state_dict(), path)
    return path


@pytest.fixture(scope="module")
def few_classes(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("few") / "things", n_classes=12, n_images=2)


def command(data, weights, out, *flags):
    words = ["--dataset folder --dataset_folder_path", data, "--classifier tv:mobilenet_v3_small --weights", weights]
    return pseudo_labels.main(words_of(*words, "--out", out, "--top 3 --eval_kernels 0", *flags))


def test_pseudo_labels_are_those_of_the_mean_logits_and_guide_a_run(few_classes, weights, tmp_path, capsys):
    path = command(few_classes, weights, tmp_path / "plg.npz")
    output = capsys.readouterr().out
    assert "not the paper's text vectors" in output
    opt = parameters.read(shlex.split(output.splitlines()[-1].removeprefix("next: python main.py")))
    assert (opt.language_vectors, opt.dataset_folder_path, opt.weights) == (str(path), str(few_classes), None)
    with np.load(path) as arrays:
        names, indices, scores, vectors = (arrays[name] for name in ("names", "indices", "scores", "vectors"))
    network = torchvision.models.mobilenet_v3_small()
    network.load_state_dict(torch.load(weights, weights_only=True))
    network.eval()
    images = datasets.select("folder", dataset_folder_path=str(few_classes), input_size=224)["evaluation"]
    mean = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
    std = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
    logits = {}
    with torch.no_grad():
        for label, image, _ in map(images.__getitem__, range(len(images))):
            logits.setdefault(int(label), []).append(network(((image / 255 - mean) / std)[None])[0].double())
    assert names.tolist() == [images.class_names[label] for label in range(len(names))]
    assert indices.shape == (len(names), 3)
    for label, rows in logits.items():
        mean_logits = torch.stack(rows).mean(0)
        for scores_of_label in (torch.from_numpy(scores[label]), mean_logits[torch.from_numpy(indices[label])]):
            assert_close(scores_of_label, mean_logits.topk(3).values, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(vectors, network.classifier[-1].weight.detach().numpy()[indices])
    flags = ["--loss multisimilarity --language_vectors", path]
    run = tiny.run(few_classes, tmp_path / "runs", *flags, "--language_delay 1 --chunk_size 3 --n_epochs 2")
    environment = yaml.safe_load((run.folder / "environment.yaml").read_text())
    assert environment["language_vectors_sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert {(epoch, "language_loss") for epoch in (1, 2)} <= tiny.values_of_training(run).keys()
    other_data = make_folder(tmp_path / "others", n_classes=14, n_images=2)
    with refused("lacks 2 of 7 training classes: class_12, class_13"):
        tiny.run(other_data, tmp_path, *flags)


def test_text_vectors_are_taken_by_the_index_of_the_label(few_classes, weights, tmp_path):
    vectors = np.random.default_rng(0).standard_normal((1000, 4)).astype(np.float32)
    np.savez(tmp_path / "names.npz", vectors=vectors)
    with np.load(command(few_classes, weights, tmp_path / "plg.npz", "--vectors", tmp_path / "names.npz")) as arrays:
        np.testing.assert_array_equal(arrays["vectors"], vectors[arrays["indices"]])
    np.savez(tmp_path / "few.npz", vectors=vectors[:9])
    for flags, message in (
        (f"--vectors {tmp_path}/few.npz", r"vectors \(9, 4\): expected a row for each of the classifier's 1000 labels"),
        ("--classifier tv:resnet5000", "expected tv:NAME"),
        ("--classifier tv:resnet18", "its weights cannot be had"),
    ):
        with refused(message):
            command(few_classes, weights, tmp_path / "out.npz", flags)
    assert not (tmp_path / "out.npz").exists()


@pytest.mark.long
def test_a_classifier_of_timm(data, tmp_path):
    timm = pytest.importorskip("timm")
    torch.save(timm.create_model("resnet10t", num_classes=1000).state_dict(), tmp_path / "timm.pth")
    path = command(data, tmp_path / "timm.pth", tmp_path / "plg.npz", "--classifier timm:resnet10t")
    with np.load(path) as arrays:
        assert arrays["vectors"].shape == (6, 3, 512)
