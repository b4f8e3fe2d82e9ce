"""The half to which detectors may be tuned."""

from bench.sick.working import data, generative, graph, loop, loss, model, more_loops, more_nets, nets, numbers, sequence, strange  # noqa: F401
from bench.sick.working.half import HALF

__all__ = ["HALF"]
