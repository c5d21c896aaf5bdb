"""The runs of the toy experiment on diagonal lines: points, network, loss, training and measurements.

All seeds of a run are trained at once: tensors of `S` seeds have the seed as their first dimension.
"""

from typing import NamedTuple

import numpy as np
import torch

import metrics

# A training class lies on x = y between these two values.
TRAIN_LINES = ((0.1, 0.3), (0.35, 0.55), (0.6, 0.8), (0.85, 1.05))
# A test class has one fixed coordinate (0: x, 1: y); the other one lies between these two values.
TEST_LINES = (
    (0, (0.2, 0.4)),
    (0, (0.55, 0.85)),
    (1, (0.4, 0.6)),
    (1, (0.7, 0.9)),
)
FIXED_AT = 0.2
# A line has this many evenly spaced points, of which a class gets some at random.
POINTS = 100
POINTS_OF_CLASS = 15
MARGIN = 0.1
RATE = 0.03
BATCH = 24
ITERATIONS = 200
PUBLISHED_FLIP = 0.001
# Further flip probabilities.
FLIPS = (0.01, 0.1, 0.2, 0.5)


class Loss(NamedTuple):
    """One kind of run: whether positives are pulled together, and how probably a negative is flipped."""

    pull: bool
    flip: float

    @property
    def name(self) -> str:
        """Description of the run."""
        kind = "pull and push" if self.pull else "push only"
        note = {BASE: " (base)", PUBLISHED: " (as published)"}.get(self, "")
        return f"{kind}, p = {self.flip:g}{note}"


BASE = Loss(True, 0.0)
PUBLISHED = Loss(False, PUBLISHED_FLIP)
NO_FLIPS = Loss(False, 0.0)
RUNS = [
    BASE,
    PUBLISHED,
    NO_FLIPS,
    Loss(True, PUBLISHED_FLIP),
    *(Loss(pull, flip) for pull in (True, False) for flip in FLIPS),
]


class Result(NamedTuple):
    """Measurements of a run for each seed, `(S,)` each, and the embeddings `(S, 60, 2)` of training and test points."""

    sigma_2: np.ndarray
    spread: np.ndarray
    recall: np.ndarray
    training: np.ndarray
    test: np.ndarray


def training_points(generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Points `(60, 2)` on the diagonal, and their labels `(60,)`."""
    points = []
    for line in TRAIN_LINES:
        coordinates = _random_points(*line, generator)
        points.append(torch.stack([coordinates, coordinates], 1))
    return torch.cat(points), _labels(TRAIN_LINES)


def test_points(generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Points `(60, 2)` on lines with x = .2 or y = .2, and their labels `(60,)`."""
    points = []
    for fixed, line in TEST_LINES:
        coordinates = [torch.full((POINTS_OF_CLASS,), FIXED_AT)]
        coordinates.insert(1 - fixed, _random_points(*line, generator))
        points.append(torch.stack(coordinates, 1))
    return torch.cat(points), _labels(TEST_LINES)


def _random_points(start: float, end: float, generator: torch.Generator) -> torch.Tensor:
    """A random 15 of 100 evenly spaced numbers, `(15,)`."""
    chosen = torch.randperm(POINTS, generator=generator)[:POINTS_OF_CLASS]
    return torch.linspace(start, end, POINTS)[chosen]


def _labels(lines: tuple) -> torch.Tensor:
    return torch.arange(len(lines)).repeat_interleave(POINTS_OF_CLASS)


def network() -> torch.nn.Sequential:
    """2-30-30-2 with ReLU; its output is normalised by `embed`."""
    return torch.nn.Sequential(
        torch.nn.Linear(2, 30),
        torch.nn.ReLU(),
        torch.nn.Linear(30, 30),
        torch.nn.ReLU(),
        torch.nn.Linear(30, 2),
    )


def contrastive(embeddings: torch.Tensor, labels: torch.Tensor, loss: Loss, draws: torch.Tensor) -> torch.Tensor:
    """Contrastive loss over all valid triplets of each of S batches, `(S,)`: mean d_ap + mean [margin - d_an]+.

    In a flipped triplet the positive replaces the negative.

    Args:
        embeddings: `(S, B, 2)`. labels: `(S, B)`.
        draws: uniform in [0, 1), `(S, B, B, B)`: triplet (a, p, n) is flipped where it is below the flip probability.
    """
    differences = embeddings[:, :, None] - embeddings[:, None, :]
    distances = differences.square().sum(-1).clamp(min=1e-12).sqrt()  # (S, B, B)
    same_class = labels[:, :, None] == labels[:, None, :]
    other_than_itself = ~torch.eye(labels.shape[1], dtype=torch.bool)
    triplets = (same_class & other_than_itself)[:, :, :, None] & ~same_class[:, :, None, :]  # (S, a, p, n)
    count = triplets.sum((1, 2, 3)).clamp(min=1)
    positive_distances = distances[:, :, :, None].expand(triplets.shape)
    negative_distances = torch.where(draws < loss.flip, positive_distances, distances[:, :, None, :])
    push = (torch.relu(MARGIN - negative_distances) * triplets).sum((1, 2, 3)) / count
    if not loss.pull:
        return push
    return push + (positive_distances * triplets).sum((1, 2, 3)) / count


def train(loss: Loss, seeds: list[int], iterations: int = ITERATIONS) -> Result:
    """Train one network per seed, all at once, and measure them.

    Every seed has its own generator for points, weights, batches and flips. Its run therefore does not depend on the
    other seeds, and starts from the same state for every loss.
    """
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    points = torch.stack([training_points(generator)[0] for generator in generators])  # (S, 60, 2)
    test = torch.stack([test_points(generator)[0] for generator in generators])  # (S, 60, 2)
    labels = _labels(TRAIN_LINES)
    networks = []
    for seed in seeds:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            networks.append(network())
    weights, buffers = torch.func.stack_module_state(networks)

    def call(weights_of_seed: dict, buffers_of_seed: dict, inputs_of_seed: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(networks[0], (weights_of_seed, buffers_of_seed), (inputs_of_seed,))

    def embed(inputs: torch.Tensor) -> torch.Tensor:
        """Each network on its own points: `(S, N, 2)` on the unit circle."""
        outputs = torch.func.vmap(call)(weights, buffers, inputs)
        return torch.nn.functional.normalize(outputs, dim=-1)

    optimizer = torch.optim.Adam(weights.values(), lr=RATE)
    for _ in range(iterations):
        # (S, B) points of each network's batch, (S, B, B, B) draws of the flips
        batches = torch.stack([torch.randperm(points.shape[1], generator=g)[:BATCH] for g in generators])
        draws = torch.stack([torch.rand(BATCH, BATCH, BATCH, generator=g) for g in generators])
        batch = points.gather(1, batches[:, :, None].expand(-1, -1, 2))
        optimizer.zero_grad()
        # the gradient of the sum is that of each network's own loss
        contrastive(embed(batch), labels[batches], loss, draws).sum().backward()
        optimizer.step()
    with torch.no_grad():
        return measured(embed(points).numpy(), embed(test).numpy(), _labels(TEST_LINES).numpy())


def measured(training: np.ndarray, test: np.ndarray, test_labels: np.ndarray) -> Result:
    """Second normalised singular value of training embeddings `(S, N, 2)`,
    spread and R@1 of test embeddings `(S, M, 2)`.
    """
    sigma_2 = []
    spread = []
    recall = []
    for training_of_seed, test_of_seed in zip(training, test, strict=True):
        one_class = np.zeros(len(training_of_seed), dtype=int)
        spectrum = metrics.compute("rho_spectrum@0", training_of_seed, one_class)["rho_spectrum@0"]
        sigma_2.append(spectrum[1])
        centres = np.stack([test_of_seed[test_labels == label].mean(0) for label in np.unique(test_labels)])
        first, second = np.triu_indices(len(centres), 1)
        spread.append(np.linalg.norm(centres[first] - centres[second], axis=1).mean())
        recall.append(metrics.compute("e_recall@1", test_of_seed, test_labels)["e_recall@1"])
    return Result(np.array(sigma_2), np.array(spread), np.array(recall), training, test)
