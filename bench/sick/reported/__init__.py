"""The half that is reported: no detector is tuned to it."""

from bench.sick.reported import (  # noqa: F401
    data,
    further_nets,
    generative,
    graph,
    loop,
    loss,
    model,
    nets,
    numbers,
    optimizer,
    sequence,
    strange,
    strange_too,
)
from bench.sick.reported.half import HALF

__all__ = ["HALF"]
