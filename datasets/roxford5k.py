"""Revisited Oxford 5k: 5,063 photographs, 70 queries with boxes (Radenovic et al., CVPR 2018, arXiv 1803.11285)."""

import functools

from datasets import _revisitop
from datasets._layout import Published

NAME = "roxford5k"
FOLDERS = (NAME,)
TEST_ONLY = True
EXPECTED = _revisitop.expected(NAME)
PUBLISHED = Published(classes=(0, 0), images=(0, 5063), query=(70, 0), gallery=(4993, 0))
DOWNLOAD = _revisitop.source(NAME)
EVALUATION_METRICS = _revisitop.EVALUATION_METRICS
derived = _revisitop.unset
published = functools.partial(_revisitop.published, PUBLISHED)
recognises = functools.partial(_revisitop.recognises, NAME)
read = functools.partial(_revisitop.read, NAME)
