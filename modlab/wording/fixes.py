"""Advice, where no line of code says what to do."""

from __future__ import annotations

FIXES = {
    "keep units alive": "nn.LeakyReLU in its place, a smaller learning rate, or another seed, keeps units alive",
    "find the NaN": 'let modlab.watch(..., on_nan="hold") keep every step: it finds where the NaN is born',
    "route tokens": "if these are experts: a load-balancing loss, or noise in the router, sends tokens to all of them",
    "drop the bias": "take bias=False: the bias has no effect, and its memory is saved",
    "log the loss": "w.log(loss=loss)",
}
"""By the `kind` of a `Fix`."""
