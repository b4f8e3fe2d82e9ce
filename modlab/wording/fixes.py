"""Advice, where no line of code says what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from modlab.wording.names import Words

_REGAINED = {
    "no_grad": "Take it out of `with torch.no_grad()` there.",
    "inference_mode": "Take it out of `with torch.inference_mode()` there.",
    "detached": "Remove the detach there (or whatever turns it into plain numbers).",
    "off the path": "Let what it gives go into the output, or leave it away.",
    "not called": "Call it in forward, or leave it away.",
    "not used": "Use it in forward, or leave it away.",
    ".forward called": "Call the module itself, not its .forward.",
}
_MASK = "; if it stands under torch.where, mask what goes into it, not what comes out"


def _regained(reasons: Sequence[Mapping[str, Any]]) -> str:
    """What to do in each case; with names, where there are several."""
    if len(reasons) == 1:
        return _REGAINED.get(reasons[0]["kind"], "")
    return " ".join(f"{one['path']}: {_REGAINED[one['kind']]}" for one in reasons if one["kind"] in _REGAINED)


FIXES: dict[str, Words] = {
    **_REGAINED,
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
    "a class of your own": "Hold both in a class of your own.",
    "keep apart": "For two that are apart: nn.Parameter({code}.detach().clone()).",
    "keep one, or apart": (
        "For one, keep {other} alone, and make the other from it in forward, where it is used. "
        "For two that are apart: nn.Parameter({code}.detach().clone())."
    ),
    "one optimizer": "Give {each} to one optimizer.",
    "then load": "Then load or initialise its values.",
    "if left over": "If it is left over: modlab.hooks(model).remove([row for row in modlab.hooks(model) if row.doubt])",
    "if new": "If it was just made by skip_init or to_empty, initialise it. If it was trained:",
    "if new, again": "If it was just made by skip_init or to_empty, initialise it: {again}. If it was trained:",
    "if not meant": "If it is not meant: {again}",
    "same shape": "Give both the same shape before the loss.",
    "one sigmoid": "Leave the sigmoid at the end of forward away (it belongs to predicting), or take nn.BCELoss().",
    "look at the ranges": "Look at what it takes: modlab.trace(model) shows the range of each tensor on the way.",
    "ask the trace": "modlab.trace(model) around a pass, its loss and backward(): t.why({asked!r}) says where the gradient is lost.",
    "gradient lost": lambda facts: _regained(facts["reasons"]),
    "scale the inputs": "Scale the inputs to about 1, and let the last layer start with small weights",
    "start anew": (
        "Scale the inputs to about 1, and let the last layer start with small weights, or start it anew: nn.init.normal_({last}, std=0.02)"
    ),
    "no log-probabilities": "Take nn.CrossEntropyLoss(), or end forward with F.log_softmax over the classes.",
    "softmax twice": ("Leave the softmax at the end of forward away: the loss makes it, and predictions can have it where they are used."),
    "detect anomaly": "torch.autograd.set_detect_anomaly(True) says which function's gradient is NaN.",
    "trace the input": "modlab.trace(model) shows where the input is lost.",
    "register it": "Register the {class}: as an attribute, or in an nn.ModuleList in place of a list.",
    "ask the module": "A hook gets the module: module.training says which mode it is in.",
    "keep in a buffer": "Keep it in a buffer: self.register_buffer(name, tensor), without persistent=False.",
    "keep dimension 0": "If each sample is to stand for itself: keep dimension 0 in each view, and give softmax and mean another dim.",
    "trace what is lost": (
        "Look for what is multiplied by zero, replaced or computed of something else: modlab.trace(model) shows the way."
    ),
    "scale, or trace": "Scale the inputs to about 1; modlab.trace(model) shows where they are lost.",
    "keep above zero": "keep its input above zero: torch.log(x.clamp_min(1e-8))",
    "add to the divisor": "add a small number to what it divides by: x / (y + 1e-8)",
    "keep at zero or above": "keep its input at zero or above: torch.sqrt(x.clamp_min(0))",
    "leave one in each row": "let the mask leave at least one place in each row",
    "wider dtype": "run this part in float32: with torch.autocast(device_type, enabled=False), or use bfloat16",
    "smaller numbers": ("make what goes in smaller: a lower learning rate, torch.nn.utils.clip_grad_norm_, a normalization before it"),
    "root above zero": f"keep what is under the root above zero: torch.sqrt(x + 1e-8){_MASK}",
    "away from zero": f"keep it away from zero: add 1e-8{_MASK}",
    "inside its range": f"keep its input inside: x.clamp(-1 + 1e-6, 1 - 1e-6){_MASK}",
    "look at the data": "look at the data where this batch is made",
    "look at the loss": "look at the loss: the log of a probability that is 0, the mean of nothing, a target that is NaN",
    "look after backward": "look at what stands between loss.backward() and optimizer.step()",
    "loss scale": "a GradScaler skips such a step and lowers its scale: look at it only if it goes on",
    "one number": "Let the loss end with .mean(), or make it with reduction='mean'.",
}
"""By the `kind` of a `Remedy`; what stands in braces is a fact of the finding, or its ``path``."""
