"""Several processes: a group that was not made, parameters that DistributedDataParallel waits for, tensors that are not spread."""

from __future__ import annotations

import ast
import re
from typing import Any

from torch.nn import Module

from modlab.explaining import operands, source_code, written
from modlab.explaining.failure import Cause, Failure, Rule
from modlab.inspection import stores
from modlab.records.explanation import Fix

_LISTED = 6
_ALONE = 'torch.distributed.init_process_group("gloo", init_method="file:///tmp/meeting", rank=0, world_size=1)'


def _unused(failure: Failure, _: re.Match[str]) -> Cause | None:
    """DistributedDataParallel waits in backward for the gradient of every parameter; those of some never came."""
    call = failure.failing
    inner = stores.contents(call.module).get("_modules", {}).get("module") if call is not None else None
    if not isinstance(inner, Module):
        return None
    trained = [name for name, parameter in inner.named_parameters() if parameter.requires_grad]
    numbers = re.search(r"did not receive grad for rank (\d+): ([\d ]+)", failure.message)
    names = [trained[i] for i in map(int, numbers[2].split()) if i < len(trained)] if numbers is not None else []
    shown = ", ".join(names[:_LISTED]) + (", …" if len(names) > _LISTED else "")
    got = f"{shown} got no gradient" if names else "some parameters got no gradient"
    return Cause(
        f"In the step before, {got}, and DistributedDataParallel waits for all of them.",
        f"{type(inner).__name__}'s forward does not use them for the loss" + (f" (rank {numbers[1]})." if numbers is not None else "."),
        "no gradient",
        (("no gradient", shown),),
        (
            Fix("If that is intended, let it check which are used in each step:", _wrapped_with(failure, "find_unused_parameters")),
            Fix("Otherwise use them, or freeze the untrained ones with requires_grad_(False) before wrapping."),
        ),
    )


def _twice(failure: Failure, _: re.Match[str]) -> Cause:
    """A gradient was ready twice in one backward, as where a block is run again by a checkpoint of the old way."""
    number = re.search(r"Parameter at index (\d+)", failure.message)
    model: Any = next((model for _, model in failure.models if type(model).__name__ == "DistributedDataParallel"), None)
    trained = [name for name, parameter in model.module.named_parameters() if parameter.requires_grad] if model is not None else []
    name = trained[int(number[1])] if number is not None and int(number[1]) < len(trained) else "a parameter"
    return Cause(
        f"DistributedDataParallel was told twice in one backward that the gradient of {name} is ready.",
        "This happens if checkpoint(..., use_reentrant=True) runs it again, or if it is used outside the wrapped model's forward.",
        "",
        (("ready twice", name),),
        (
            Fix("With use_reentrant=False, checkpoint does not do that."),
            Fix("If each step uses the same parameters, the same number of times:", _wrapped_with(failure, "static_graph")),
        ),
    )


def _wrapped_with(failure: Failure, option: str) -> str:
    """The line that wraps the model, with one more option."""
    frame = failure.own
    found = written.calls(frame, "DistributedDataParallel", "DDP") if frame is not None else []
    if len(found) != 1:
        return f"DistributedDataParallel(..., {option}=True)"
    return found[0].rewritten(written.with_word(found[0].call, option, ast.Constant(True)))


def _nothing_to_train(failure: Failure, _: re.Match[str]) -> Cause:
    frame = failure.own
    call = written.expression(frame)
    plain = call.args[0] if isinstance(call, ast.Call) and call.args else None
    code = source_code.rewritten(frame, call, plain) if frame is not None and call is not None and plain is not None else ""
    return Cause(
        "DistributedDataParallel got a model without trained parameters: there is no gradient to share.",
        "",
        "",
        (),
        (Fix("Leave out the wrapper:", code),),
    )


def _no_group(failure: Failure, _: re.Match[str]) -> Cause:
    return Cause(
        "There is no process group yet: torch.distributed.init_process_group was not called in this process.",
        "",
        "",
        (),
        (
            Fix("Call it first, once in each process; torchrun says how many there are:", 'torch.distributed.init_process_group("gloo")'),
            Fix("To try it in a single process:", _ALONE),
        ),
    )


def _no_environment(failure: Failure, match: re.Match[str]) -> Cause:
    return Cause(
        f"init_process_group looks for its rank and its partners in the environment, but {match[1]} is not set.",
        "torchrun sets them; plain python does not.",
        "",
        (("missing", match[1]),),
        (Fix("Start the script with torchrun --nproc-per-node=2 script.py."), Fix("To try it in a single process:", _ALONE)),
    )


def _no_backend(failure: Failure, match: re.Match[str]) -> Cause:
    frame = failure.own
    call = written.expression(frame)
    nodes = ast.walk(call) if call is not None else ()
    named = next((node for node in nodes if isinstance(node, ast.Constant) and node.value == match[1].lower()), None)
    code = written.exchanged(ast.Expr(call), named, ast.Constant("gloo")) if call is not None and named is not None else ""
    return Cause(
        f"This torch was built without {match[1]}.",
        "On a CPU, processes talk through gloo.",
        "",
        (("backend", match[1].lower()),),
        (Fix("Use the other backend:", code),),
    )


def _mixed(failure: Failure, match: re.Match[str]) -> Cause:
    frame = failure.user
    names = [one.text for one in (operands.of_frame(frame) if frame is not None else []) if type(one.thing).__name__ == "DTensor"]
    told = f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'} spread over processes" if names else "one tensor is spread"
    return Cause(
        f"{match[1]} got a plain tensor beside a DTensor: {told}, the other is not{failure.within}.",
        "An operation takes either plain tensors or DTensors.",
        "mixed",
        (("DTensor", ", ".join(names)),),
        (
            Fix("Spread the other one over the same mesh (Replicate: a copy in each process): distribute_tensor(x, mesh, [Replicate()])."),
            Fix("Or work only on this process's part: .to_local()."),
        ),
    )


_R, _V = (RuntimeError,), (ValueError,)
RULES = (
    Rule("distributed", _R, r"^Expected to have finished reduction in the prior iteration", _unused),
    Rule("distributed", _R, r"^Expected to mark a variable ready only once", _twice),
    Rule("distributed", _R, r"^DistributedDataParallel is not needed when a module doesn't have any parameter", _nothing_to_train),
    Rule("distributed", (ValueError, RuntimeError), r"^Default process group has not been initialized", _no_group),
    Rule("distributed", _V, r"using env:// rendezvous: environment variable (\w+) expected", _no_environment),
    Rule("distributed", _R, r"^Distributed package doesn't have (\w+) built in", _no_backend),
    Rule("distributed", _R, r"^([\w.]+):? got mixed torch\.Tensor and DTensor", _mixed),
)
