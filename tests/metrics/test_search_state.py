"""The search for neighbours leaves torch's global state to the caller, also while the caller looks at a block."""

import numpy as np
import pytest
import torch

from metrics import _search, _space


@pytest.fixture
def medium():
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.usefixtures("medium")
def test_between_two_blocks_the_callers_precision_and_gradients_hold(monkeypatch):
    multiply, used = torch.mm, []
    monkeypatch.setattr(torch, "mm", lambda *args, **more: used.append(torch.get_float32_matmul_precision()) or multiply(*args, **more))
    features = np.random.default_rng(0).normal(size=(20, 3))
    space = _space.EmbeddingSpace(features, np.arange(20) % 4)
    search = _search.Search(space, _search.Limits(rows=4, columns=4, sample=5)).run([_search.Need(np.full(20, 3), "first")])
    seen = [(torch.get_float32_matmul_precision(), torch.is_grad_enabled()) for _ in search]
    assert len(seen) > 1 and set(seen) == {("medium", True)}
    assert used and set(used) == {"highest"}, "the products themselves are true float32"
