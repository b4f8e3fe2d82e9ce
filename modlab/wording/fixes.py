"""Advice, for when no line of code says what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from modlab.wording import batch_causes
from modlab.wording.names import Words

INTRODUCING = frozenset(("if new", "if new, again"))
"""Kinds whose words end where the line of code begins."""

_REGAINED = {
    "no_grad": "Take it out of `with torch.no_grad()` there.",
    "inference_mode": "Take it out of `with torch.inference_mode()` there.",
    "detached": "Remove the detach there (or whatever turns it into plain numbers).",
    "off the path": "Use its result for the loss, or remove it.",
    "not called": "Call it in forward, or remove it.",
    "not used": "Use it in forward, or remove it.",
    ".forward called": "Call the module itself, not its .forward.",
}
_LOOKS = "looks further with one batch: can it be learned, what does the output depend on, do the labels matter"
_MASK = "; under torch.where, mask its input, not its output"


def _regained(reasons: Sequence[Mapping[str, Any]]) -> str:
    """What to do in each case; with names if there are several."""
    if len(reasons) == 1:
        return _REGAINED.get(reasons[0]["kind"], "")
    return " ".join(f"{one['path']}: {_REGAINED[one['kind']]}" for one in reasons if one["kind"] in _REGAINED)


FIXES: dict[str, Words] = {
    **_REGAINED,
    "keep units alive": "nn.LeakyReLU, a smaller learning rate or a different seed keeps units alive",
    "find the NaN": 'modlab.watch(..., on_nan="hold") keeps every step and finds where the NaN first appears',
    "route tokens": "if these are experts: a load-balancing loss, or noise in the router, sends tokens to all of them",
    "drop the bias": "use bias=False: the bias has no effect and only takes memory",
    "log the loss": "w.log(loss=loss)",
    "made once": "make the optimizer once, before the loop",
    "no half": "torch.autocast with dtype=torch.bfloat16, which needs no scaler, or float32 for the operation that overflows",
    "less by heart": "stop at that step; or more data, weight decay, dropout or a smaller model",
    "ask the batch": f"w.diagnose() {_LOOKS}",
    "ask a batch": f"w.diagnose(batch=(inputs, target), loss=loss) {_LOOKS}",
    "ask without a watch": "modlab.diagnose(model, optimizer, batch=(inputs, target), loss=loss) looks further with one batch",
    "let rare units learn": "nn.LeakyReLU lets a unit that fires rarely learn",
    "ask why": "modlab.trace(model), then trace.why({path!r}), names the reason",
    "or leave it": "or requires_grad_(False) if it should not change",
    "zero the gradients": lambda facts: f"{'model' if facts.get('by hand') else 'optimizer'}.zero_grad() before loss.backward()",
    "carry the gradient": "residual connections, a normalization, or a different initialization",
    "make it smaller": "smaller weights or inputs before it, or a normalization",
    "more bits": "keep the weights in float32 (torch.autocast for the rest), or use a larger learning rate",
    "larger steps": "a larger learning rate",
    "any steps": "a larger learning rate; where that moves nothing either, look at what step() does",
    "smaller steps": "a smaller learning rate, if it should fall",
    "some learning rate": "a learning rate above 0",
    "smaller last layer": "smaller weights in the last layer, or inputs scaled to about 1",
    "after sharding": "after fully_shard, which replaces the parameters",
    "after the change": "after the change",
    "nearest optimizer": "give what is missing to the optimizer that holds the layers beside it: optimizer.add_param_group",
    "a class of your own": "Hold both in your own class.",
    "keep apart": "For two separate ones: nn.Parameter({code}.detach().clone()).",
    "keep one, or apart": (
        "For one, keep only {other}, and make the other from it in forward, where it is used. "
        "For two separate ones: nn.Parameter({code}.detach().clone())."
    ),
    "one optimizer": "Give {each} to one optimizer.",
    "then load": "Then load or initialize its values.",
    "if left over": "If it is left over: modlab.hooks(model).remove([row for row in modlab.hooks(model) if row.doubt])",
    "if new": "If it was just made by skip_init or to_empty, initialize it. If it was trained:",
    "if new, again": "If it was just made by skip_init or to_empty, initialize it: {again}. If it was trained:",
    "if not meant": "If this is not intended: {again}",
    "same shape": "Give both the same shape before the loss.",
    "one sigmoid": "Remove the sigmoid at the end of forward (apply it only when predicting), or use nn.BCELoss().",
    "look at the ranges": "Look at its input: modlab.trace(model) shows the range of each tensor on the way.",
    "ask the trace": "modlab.trace(model) around a pass, its loss and backward(): t.why({asked!r}) says where the gradient is lost.",
    "gradient lost": lambda facts: _regained(facts["reasons"]),
    "scale the inputs": "Scale the inputs to about 1, and let the last layer start with small weights",
    "start anew": (
        "Scale the inputs to about 1, and let the last layer start with small weights, or restart it: nn.init.normal_({last}, std=0.02)"
    ),
    "no log-probabilities": "Use nn.CrossEntropyLoss(), or end forward with F.log_softmax over the classes.",
    "softmax twice": ("Remove the softmax at the end of forward: the loss applies it. Apply it yourself only when predicting."),
    "detect anomaly": "torch.autograd.set_detect_anomaly(True) says which function's gradient is NaN.",
    "trace the input": "modlab.trace(model) shows where the input is lost.",
    "register it": "Register the {class}: as an attribute, or in an nn.ModuleList instead of a list.",
    "ask the module": "A hook receives the module: module.training says which mode it is in.",
    "keep in a buffer": "Keep it in a buffer: self.register_buffer(name, tensor), without persistent=False.",
    "keep dimension 0": "To keep samples separate, keep dimension 0 in each view, and give softmax and mean a different dim.",
    "trace what is lost": (
        "Look for something multiplied by zero, replaced, or computed from something else: modlab.trace(model) shows each step."
    ),
    "scale, or trace": "modlab.trace(model) shows where the inputs are lost; if they are large, scale them to about 1.",
    "make positive": "make its input positive, as F.softplus(x) or exp does, or let the model give the logarithm itself",
    "keep above zero": "keep its input above zero: torch.log(x.clamp_min(1e-8))",
    "add to the divisor": "keep what it divides by above zero: x / y.clamp(min=1) for a count, else x / (y + 1e-8)",
    "keep at zero or above": "keep its input at zero or above: torch.sqrt(x.clamp_min(0))",
    "leave one in each row": "let the mask leave at least one position in each row",
    "wider dtype": "run this part in float32: with torch.autocast(device_type, enabled=False), or use bfloat16",
    "smaller numbers": "make what comes in there smaller: a lower learning rate, torch.nn.utils.clip_grad_norm_, a normalization",
    "root above zero": f"keep what is under the root above zero: torch.sqrt(x + 1e-8){_MASK}",
    "away from zero": f"keep it away from zero: add 1e-8{_MASK}",
    "inside its range": f"keep its input inside: x.clamp(-1 + 1e-6, 1 - 1e-6){_MASK}",
    "look at the data": "look at the data where this batch is made",
    "look at the loss": "look at the loss: the log of a probability that is 0, the mean of nothing, a target that is NaN",
    "look after backward": "look at the code between loss.backward() and optimizer.step()",
    "hook": "remove the hook, or let it return a finite gradient",
    "loss scale": "a GradScaler skips such a step and lowers its scale: a problem only if it keeps happening",
    **batch_causes.FIXES,
    "keep the tensor": "Return the tensor itself, without .item() or float().",
    "a real number": "Take .abs() or .real of it.",
    "all arguments": "The loss is called as loss(output, target). If it takes more, write loss=lambda output, target: … with all of them.",
    "as forward takes them": "Give what forward takes: a tuple for several arguments, a dict for arguments by name.",
    "nothing is asked": "Look at where targets are made: a mean over none is 0 / 0. Leave such a batch out.",
    "one number": "Let the loss end with .mean(), or make it with reduction='mean'.",
}
"""By the `kind` of a `Remedy`; names in braces are facts of the finding, or its ``path``."""
