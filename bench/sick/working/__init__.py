"""The half to which detectors may be tuned."""

from bench.sick.working import (  # noqa: F401
    data,
    fifth_hooks,
    fifth_loops,
    fifth_nets,
    fifth_sequences,
    fourth_data,
    fourth_losses,
    fourth_nets,
    fourth_strange,
    generative,
    graph,
    loop,
    loss,
    model,
    more_loops,
    more_models,
    more_nets,
    more_strange,
    nets,
    numbers,
    other_data,
    other_losses,
    other_nets,
    other_sequences,
    other_strange,
    sequence,
    sixth_data,
    strange,
    third_nets,
    third_sequences,
    third_strange,
    third_transformers,
)
from bench.sick.working.half import HALF

__all__ = ["HALF"]
