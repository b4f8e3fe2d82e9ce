"""Adapters of peft: target modules that a model lacks, or that cannot be adapted; kinds of tasks that do not fit."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable
from difflib import SequenceMatcher
from typing import Any

from torch import nn
from torch.nn import Module

from modlab.explaining import suspects, written
from modlab.explaining.failure import Cause, Failure, Rule
from modlab.explaining.frames import Frame
from modlab.records.explanation import Fix

_LISTED = 8
_NEAR = 0.6
# names of the same thing in the attention of several libraries
_ALIKE = (
    ("q_proj", "query", "q", "q_lin", "wq", "to_q"),
    ("k_proj", "key", "k", "k_lin", "wk", "to_k"),
    ("v_proj", "value", "v", "v_lin", "wv", "to_v"),
    ("o_proj", "out_proj", "dense", "o", "out_lin", "wo", "c_proj"),
)
_JOINED = ("c_attn", "qkv", "query_key_value", "qkv_proj", "Wqkv", "in_proj")
_OF_TRANSFORMERS = ("prepare_inputs_for_generation", "config", "get_input_embeddings", "_prepare_encoder_decoder_kwargs_for_generation")
_KINDS = ("Linear", "Conv1D")


def _base(failure: Failure) -> Module | None:
    """The model that should be adapted: the user's own."""
    for frame in failure.frames:
        if _is_peft(frame) and isinstance(frame.names.get("model"), Module):
            found: Module = frame.names["model"]
            return found
    return None


def _adaptable(model: Module) -> list[str]:
    """The last parts of the names of its linear layers, the most frequent first."""
    found = Counter(
        path.rpartition(".")[2]
        for path, module in suspects.walk(model, 100_000)
        if path and (isinstance(module, nn.Linear) or type(module).__name__ in _KINDS)
    )
    return [name for name, _ in found.most_common()]


def _not_found(failure: Failure, match: re.Match[str]) -> Cause | None:
    model = _base(failure)
    if model is None:
        return None
    quoted = re.findall(r"'([^']*)'", match[1])
    wanted = sorted(quoted) if match[1].startswith(("{", "[")) else [match[1]]
    names = _adaptable(model)
    kind = type(model).__name__
    written_so = " or ".join(map(repr, wanted))
    there = f"Its linear layers are called {', '.join(names[:_LISTED])}{', …' if len(names) > _LISTED else ''}."
    return Cause(
        f"{kind} has no module called {written_so}, which target_modules asks for.",
        there if names else "It has no linear layer.",
        "",
        (("target_modules", ", ".join(wanted)), ("there is", ", ".join(names[:_LISTED]))),
        tuple(_targets(failure, wanted, names)),
    )


def _targets(failure: Failure, wanted: list[str], names: list[str]) -> Iterable[Fix]:
    near = list(dict.fromkeys(filter(None, (_nearest(one, names) for one in wanted))))
    if near:
        yield Fix("Names of the same kind in this model:", _retargeted(failure, near))
    elif names:
        yield Fix("For example all of its linear layers:", _retargeted(failure, names))


def _nearest(wanted: str, names: list[str]) -> str:
    last = wanted.rpartition(".")[2]
    for group in _ALIKE:
        if last in group:
            found = next((name for name in group if name in names), "") or next((name for name in _JOINED if name in names), "")
            if found:
                return found
    ratio, name = max(((SequenceMatcher(None, last.lower(), name.lower()).ratio(), name) for name in names), default=(0.0, ""))
    return name if ratio >= _NEAR else ""


def _retargeted(failure: Failure, names: list[str]) -> str:
    """The line that makes the configuration, with other target modules."""
    value = ast.parse(repr(names), mode="eval").body
    line = _reconfigured(failure.own, {"target_modules": value})
    return line or f"LoraConfig(target_modules={names!r}, ...)"


def _reconfigured(frame: Frame | None, words: dict[str, ast.expr | None]) -> str:
    for found in reversed(written.calls(frame, *_configurations(frame))) if frame is not None else ():
        new = found.call
        for name, value in words.items():
            new = written.with_word(new, name, value)
        return found.rewritten(new)
    return ""


def _configurations(frame: Frame) -> set[str]:
    nodes = [node for statement in written.statements(frame) for node in ast.walk(statement)]
    return {name for node in nodes if isinstance(node, ast.Call) and (name := written.name_of(node.func)).endswith("Config")}


def _unset(failure: Failure, _: re.Match[str]) -> Cause | None:
    model = _base(failure)
    if model is None:
        return None
    names = _adaptable(model)
    return Cause(
        f"The configuration names no target_modules, and peft has no default for {type(model).__name__}.",
        f"Its linear layers are called {', '.join(names[:_LISTED])}{', …' if len(names) > _LISTED else ''}.",
        "",
        (),
        (Fix("Name those to adapt:", _retargeted(failure, names)),) if names else (),
    )


def _unsupported(failure: Failure, match: re.Match[str]) -> Cause | None:
    model, target = _base(failure), failure.local("target")
    kind = type(target).__name__ if isinstance(target, Module) else match[1].split("(")[0]
    if model is None:
        return None
    config: Any = failure.local("lora_config") or failure.local("peft_config")
    names, name = _adaptable(model), failure.local("target_name")
    asked = getattr(config, "target_modules", None)
    kept = [one for one in (sorted(asked) if isinstance(asked, (set, list)) else []) if one in names]
    called = f"{name!r} is of class {kind}" if type(name) is str else f"a {kind} is among them"
    return Cause(
        f"target_modules: {called}, which peft cannot adapt.",
        "It adapts linear layers, embeddings, convolutions and attentions.",
        "",
        (("given", kind),),
        (Fix("Name those it can adapt:", _retargeted(failure, kept or names)),) if kept or names else (),
    )


def _task(failure: Failure, match: re.Match[str]) -> Cause | None:
    given, known = match[1], [one.strip() for one in match[2].split(",")]
    ratio, near = max((SequenceMatcher(None, given.lower(), one.lower()).ratio(), one) for one in known)
    near = near if ratio >= _NEAR else ""
    line = _reconfigured(failure.own, {"task_type": ast.Constant(near)}) if near else ""
    return Cause(
        f"peft knows no task_type {given!r}.",
        f"It knows {', '.join(known)}.",
        "",
        (("task_type", repr(given)),),
        (Fix(f"If you meant {near}:", line),) if near else (Fix("Use one of them, or leave it out."),),
    )


def _rank(failure: Failure, match: re.Match[str]) -> Cause | None:
    return Cause(
        f"LoRA's rank r is {match[1]}, but must be a whole number above 0.",
        "It is the width of the two matrices that are added.",
        "",
        (("r", match[1]),),
        (Fix("For example:", _reconfigured(failure.own, {"r": ast.Constant(8)}) or "LoraConfig(r=8, ...)"),),
    )


def _is_peft(frame: Frame) -> bool:
    return "/peft/" in frame.code.co_filename.replace("\\", "/")


def _no_language_model(failure: Failure, match: re.Match[str]) -> Cause | None:
    """A kind of task that asks the model for what only those of transformers have."""
    wrapper = next(
        (
            frame
            for frame in reversed(failure.frames)
            if _is_peft(frame) and frame.function == "__init__" and type(frame.names.get("self")).__name__.startswith("PeftModelFor")
        ),
        None,
    )
    own = wrapper.names.get("model") if wrapper is not None and match[2] in _OF_TRANSFORMERS else None
    if wrapper is None or not isinstance(own, Module) or hasattr(type(own), match[2]):
        return None
    name, task = type(own).__name__, getattr(wrapper.names.get("peft_config"), "task_type", None)
    task = getattr(task, "value", task)
    return Cause(
        f"task_type={task!r} needs a transformers model, but {name} is not one: it has no {match[2]}.",
        f"{type(wrapper.names['self']).__name__} asks it for that.",
        "",
        (("asked for", match[2]),),
        (Fix("For your own model, leave out task_type:", _reconfigured(failure.own, {"task_type": None})),)
        if match[2] == "prepare_inputs_for_generation"
        else (),
    )


_V = (ValueError,)
RULES = (
    Rule("adapter", _V, r"^Target modules? (.+?) not found in the base model", _not_found),
    Rule("adapter", _V, r"^Please specify `target_modules`", _unset),
    Rule("adapter", _V, r"^Target module (.*?) is not supported\. Currently", _unsupported),
    Rule("adapter", _V, r"^Invalid task type: '([^']*)'\. Must be one of the following task types: ([\w, ]+)", _task),
    Rule("adapter", _V, r"^`r` should be a positive integer value but the value passed is (\S+)", _rank),
    Rule("adapter", (AttributeError,), r"^'(\w+)' object has no attribute '(\w+)'", _no_language_model),
)
