"""Spectral decay, against a singular value decomposition of all features at once."""

import numpy as np
import pytest

import metrics


def plain_rho(features, m):
    spectrum = np.linalg.svd(features.astype(np.float64), compute_uv=False)
    spectrum = np.maximum(spectrum, 1e-8 * spectrum[0])[max(abs(m) - 1, 0) :]
    spectrum = spectrum / spectrum.sum()
    uniform = np.full(len(spectrum), 1 / len(spectrum))
    first, second = (uniform, spectrum) if m > 0 else (spectrum, uniform)
    return spectrum if m == 0 else float(sum(p * np.log(p / q) for p, q in zip(first, second, strict=True)))


# 70,000 are more than is decomposed at once
@pytest.mark.parametrize("shape", [(50, 6), (5, 12), (1, 4), (70_000, 5), "low rank"], ids=str)
def test_rho_spectrum(shape):
    generator = np.random.default_rng(14)
    features = (
        generator.standard_normal((40, 2)) @ generator.standard_normal((2, 6))
        if shape == "low rank"
        else generator.standard_normal(shape)
    )
    names = {f"rho_spectrum@{m}": m for m in (1, -1, 2, -2, 5, 0)}
    measured = metrics.compute(list(names), features, np.zeros(len(features), int))
    for name, m in names.items():
        expected = np.nan if abs(m) > min(features.shape) else plain_rho(features, m)
        assert measured[name] == pytest.approx(expected, rel=1e-9, abs=1e-12, nan_ok=True), name
    assert metrics.compute("rho_spectrum@1", np.zeros((4, 3)), np.zeros(4, int))["rho_spectrum@1"] == 0.0
