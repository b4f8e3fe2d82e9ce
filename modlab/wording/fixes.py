"""Advice, where no line of code says what to do."""

from __future__ import annotations

FIXES = {
    "keep units alive": "nn.LeakyReLU in its place, a smaller learning rate, or another seed, keeps units alive",
    "find the NaN": 'let modlab.watch(..., on_nan="hold") keep every step: it finds where the NaN is born',
    "route tokens": "if these are experts: a load-balancing loss, or noise in the router, sends tokens to all of them",
    "drop the bias": "take bias=False: the bias has no effect, and its memory is saved",
    "log the loss": "w.log(loss=loss)",
    "let rare units learn": "nn.LeakyReLU lets a unit that fires rarely learn",
    "ask why": "modlab.trace(model), then trace.why({path!r}), names the reason",
    "or leave it": "or requires_grad_(False) if it is to stay as it is",
    "zero the gradients": "optimizer.zero_grad() before loss.backward()",
    "carry the gradient": "residual connections, a normalization, or another initialization",
    "make it smaller": "smaller weights or inputs before it, or a normalization",
    "more bits": "keep the weights in float32 (torch.autocast for the rest), or a greater learning rate",
    "larger steps": "a greater learning rate",
    "smaller steps": "a smaller learning rate, if it is meant to fall",
    "some learning rate": "a learning rate above 0",
    "smaller last layer": "smaller weights in the last layer, or inputs scaled to about 1",
    "after sharding": "after fully_shard: that puts other parameters into the place of those that were there",
    "after the change": "after the change",
}
"""By the `kind` of a `Fix`; ``path`` is that of the finding."""
