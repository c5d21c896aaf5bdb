"""Spectral decay rho: how far the singular values of the features are from uniform (ICML 2020, arXiv 2002.08473).

The paper's rho is rho_spectrum@2 on training features. Its CPU code used D - 1 singular values, its GPU code D; here
all of them.
"""

import numpy as np

from metrics._metric import Metric as Base

# share of the largest singular value; what lies below it is rounding
FLOOR = 1e-8


class Metric(Base):
    """Divergence of the uniform distribution and the spectrum, the |m| - 1 largest singular values left out.

    m > 0: KL(uniform, spectrum), m < 0: KL(spectrum, uniform), in nats; m = 0: the spectrum itself, largest first, sum
    1. NaN where nothing is left.
    """

    NAMES = {
        "rho_spectrum@m": (
            "divergence of singular values from uniform, the |m| - 1 largest left out; @0: the spectrum, an array"
        )
    }
    RANGE = (0.0, np.inf)
    HIGHER_IS_BETTER = False
    CLASS_WISE = False

    @property
    def is_array(self) -> bool:
        return self.parameter == 0

    def value(self, space) -> "float | np.ndarray":
        """The divergence, or `(min(N, D),)` the normalised spectrum."""
        spectrum = space.singular_values[max(abs(self.parameter) - 1, 0) :]
        if not len(spectrum):
            return float("nan")
        # all features are zero: no direction is preferred
        if not space.singular_values[0] > 0:
            spectrum = np.ones_like(spectrum)
        spectrum = np.maximum(spectrum, FLOOR * space.singular_values[0])
        spectrum = spectrum / spectrum.sum()
        if self.parameter == 0:
            return spectrum
        uniform = 1.0 / len(spectrum)
        if self.parameter > 0:
            return max(0.0, float((uniform * np.log(uniform / spectrum)).sum()))
        return max(0.0, float((spectrum * np.log(spectrum / uniform)).sum()))
