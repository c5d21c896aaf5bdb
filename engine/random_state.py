"""The states of the random generators: seeded at the start, kept in checkpoints, restored for a second computation."""

import random

import numpy as np
import torch


def seed_everything(seed: int) -> None:
    """Seed Python, NumPy and torch (all devices). Workers are seeded batch by batch (engine/loading.py)."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002  plug-ins of users may draw from NumPy's global generator
    torch.manual_seed(seed)


def random_states() -> dict:
    """The states of all random generators, as a checkpoint holds them (loadable with `weights_only=True`)."""
    version, words, gauss = random.getstate()
    name, keys, position, has_gauss, cached = np.random.get_state()  # noqa: NPY002
    return {
        "python": [version, list(words), gauss],
        "numpy": [name, torch.from_numpy(keys.astype(np.int64)), position, has_gauss, cached],
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }


def set_random_states(states: dict) -> None:
    """Restore what `random_states` gave."""
    version, words, gauss = states["python"]
    random.setstate((version, tuple(words), gauss))
    name, keys, position, has_gauss, cached = states["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), position, has_gauss, cached))  # noqa: NPY002
    torch.set_rng_state(states["torch"])
    if states["cuda"] and torch.cuda.is_available():
        # a run may go on with fewer GPUs than it had
        present = states["cuda"][: torch.cuda.device_count()]
        for device, state in enumerate(present):
            torch.cuda.set_rng_state(state, device)


def draw_state(device: torch.device) -> tuple:
    """The states of torch's generators, of the CPU and of `device`."""
    return torch.get_rng_state(), torch.cuda.get_rng_state(device) if device.type == "cuda" else None


def same_state(first: tuple, second: tuple) -> bool:
    """Whether two states of `draw_state` are equal: nothing was drawn in between."""
    return all(a is None or torch.equal(a, b) for a, b in zip(first, second, strict=True))


def set_draw_state(state: tuple, device: torch.device) -> None:
    """Restore what `draw_state` gave."""
    torch.set_rng_state(state[0])
    if state[1] is not None:
        torch.cuda.set_rng_state(state[1], device)
