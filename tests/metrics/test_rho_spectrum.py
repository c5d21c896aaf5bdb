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


@pytest.mark.parametrize("shape", [(50, 6), (5, 12), (1, 4), (70_000, 5)])  # the last is more than is decomposed at once
@pytest.mark.parametrize("m", [1, -1, 2, -2, 5, 0])
def test_rho_spectrum(shape, m):
    features = np.random.default_rng(14).standard_normal(shape).astype(np.float32)
    measured = metrics.compute([f"rho_spectrum@{m}"], features, np.zeros(shape[0], int))[f"rho_spectrum@{m}"]
    if abs(m) > min(shape):
        assert np.isnan(measured)
    else:
        assert measured == pytest.approx(plain_rho(features, m), rel=1e-9, abs=1e-12)


def test_rho_of_a_space_of_low_rank_is_floored():
    features = np.random.default_rng(15).standard_normal((40, 2)) @ np.random.default_rng(16).standard_normal((2, 6))
    measured = metrics.compute(["rho_spectrum@1", "rho_spectrum@0"], features, np.zeros(40, int))
    assert measured["rho_spectrum@1"] == pytest.approx(plain_rho(features, 1), rel=1e-9)
    assert measured["rho_spectrum@0"][-1] == pytest.approx(1e-8 * measured["rho_spectrum@0"][0])
    assert metrics.compute(["rho_spectrum@1"], np.zeros((4, 3)), np.zeros(4, int))["rho_spectrum@1"] == 0.0
