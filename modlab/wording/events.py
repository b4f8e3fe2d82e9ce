"""What is notable about an event of a trace, in English: one table of kinds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from modlab import format
from modlab.records.tensor import TensorStats
from modlab.records.trace import EventFact, Uncalled

Facts = Mapping[str, Any]
_NAMED = 3  # names that are written in a row
_SUBJECTS = {  # what a hook of each kind can change
    "forward pre-hook": "the input",
    "forward hook": "the output",
    "backward hook": "the gradient of the input",
    "full backward pre-hook": "the gradient of the output",
    "legacy backward hook": "the gradient of its last operation's input",
    "tensor hook": "the gradient",
    "post-accumulate-grad hook": ".grad",
}
_CHANGES = {
    "in place": "changes {what} in place{by}",
    "puts others": "changes {what} in place: puts different tensors there{by}",
    "other values": "changes {what}{by}",
    "same values": "returns the values of {what} in a different tensor",
    "not compared": "replaces {what}; how much it differs was not compared",
    "cannot be seen": "whether it changes something in place cannot be seen under inference_mode",
    "given back": "returns {what} unchanged",
    "nothing": "changes nothing",
}
_TURNS = {"left": "out of the graph", "joined": "now requires grad"}
_SYSTEMS = {
    "FSDP": "gathers parameters before use, frees them afterwards, and reduces gradients when they are synchronized",
    "DDP": "broadcasts buffers to all ranks, and reduces gradients outside no_sync()",
}


def said(fact: EventFact) -> str:
    """A clause without a full stop.

    >>> said(EventFact("moves", {"moved": 0, "parameters": 4, "graded": True}))
    'moves 0 of 4 parameters'
    """
    return _WORDS[fact.kind](fact.facts)


def of_value(fact: EventFact) -> str:
    """What to know about a value."""
    return _OF_VALUES[fact.kind](fact.facts)


def note(fact: EventFact | None, owner: str, shape: tuple[int, ...] | None, stats: TensorStats | None) -> str:
    """The same, or its owner, or why it was not measured."""
    if fact is not None:
        return of_value(fact)
    if owner:
        return f"is {owner}" if shape is not None else f"is {owner}, lazy"
    return stats.note if stats is not None and not stats.measured else ""


def uncalled(one: Uncalled) -> str:
    """Why a module did not run, or was not seen to run."""
    return _UNCALLED[one.kind](one.facts)


def hook(facts: Facts) -> str:
    """What kind of hook it is."""
    return f"{'global ' * facts['everywhere']}{facts['stage']}"


def caught(by: str) -> str:
    """Who caught an exception."""
    return f"caught by {by}" if by else "caught outside the model"


def moved(far: float | None) -> str:
    """How far a step moved a parameter; None where that was not compared."""
    if far is None:
        return "moved"
    return f"moved by up to {format.number(far)}" if far else "written, but the same as before"


def _few(names: Sequence[str], between: str = ", ") -> str:
    return between.join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")


def _doing(facts: Facts) -> str:
    """What a hook did to what it could change: its nesting, its values, and anything else."""
    what, far, nest, change = _SUBJECTS[facts["stage"]], facts.get("far", 0.0), facts.get("nest", ""), facts.get("change", "")
    by = "" if not far else " to NaN" if far != far else f" by up to {format.number(far)}"
    turns = "".join(f", {_TURNS.get(turn, turn)}" for turn in facts.get("turns", ()))
    changed = _CHANGES[change].format(what=what, by=by) if change else ""
    if not nest:
        return changed + turns
    if change == "in place":
        return f"{_NESTS[nest](what, facts)}, and changes it in place{by}{turns}"
    return f"{_NESTS[nest](what, facts)}{'; ' * bool(changed)}{changed}{turns}"


def _counted(what: str, facts: Facts) -> str:
    return f"returns {facts['now']} values instead of {facts['was']}: {what}"


_NESTS: Mapping[str, Callable[[str, Facts], str]] = {
    "names": lambda what, facts: f"nests {what} differently: {_few(facts['now'])} instead of {_few(facts['was'])}",
    "count": _counted,
    "into": lambda what, facts: f"puts {what} into {format.article(facts['now'])}",
    "out of": lambda what, facts: f"takes {what} out of its {facts['was']}",
    "otherwise": lambda what, facts: f"nests {what} differently: {format.article(facts['now'])} instead of {format.article(facts['was'])}",
    "instead": lambda what, facts: f"replaces {what} with {format.article(facts['now'])}",
}


def _beside(facts: Facts) -> str:
    """What a hook did that left its subject unchanged."""
    done = [f"sets {_few(facts['sets'])}"] if facts["sets"] else []
    done += [f"runs {format.plural(facts['runs'], 'function')}"] if facts["runs"] else []
    return "; ".join([f"leaves {_SUBJECTS[facts['stage']]} unchanged", *done])


def _there(facts: Facts) -> str:
    return f"{_few(facts['names'], ' and ')} {'is' if len(facts['names']) == 1 else 'are'} there"


def _awaited(facts: Facts) -> str:
    why = " (its input requires no gradient, so it runs before the others)" if facts["early"] else ""
    return f"{_few(facts['names'], ' and ')} not there yet{why}"


def _adds(facts: Facts) -> str:
    return f"adds to {format.plural(facts['gradients'], 'existing gradient')}"


def _moves(facts: Facts) -> str:
    why = "" if facts["graded"] else ": none that it holds has a gradient"
    return f"moves {facts['moved']:,} of {format.plural(facts['parameters'], 'parameter')}{why}"


def _unlike(facts: Facts) -> str:
    return f"unlike {facts['first'] or 'the first'}, but what ran inside was not recorded (fold=True)"


def _text(words: str) -> Callable[[Facts], str]:
    return words.format_map


_WORDS: Mapping[str, Callable[[Facts], str]] = {
    "not part of the model": _text("not part of the model"),
    "not registered": _text("not registered in the model"),
    "opaque": _text("{why}: nothing inside is seen"),
    "computed again": _text("recomputed for the backward pass (checkpointing)"),
    "called in backward": _text("called in the backward pass"),
    "under": _text("under {mode}"),
    "stopped early": _text("stopped early: everything needed had been computed"),
    "has": lambda facts: f"{facts['name']} {format.shape(facts['shape'])}",
    "unlike": _unlike,
    "differ": lambda facts: f"they differ in {', '.join(facts['names'])}",
    "changes its input": _text("changes its input in place"),
    "buffer joins": _text("buffer {buffer} joins the graph: from now on it carries the history of its inputs"),
    "gives its buffer": _text("its output is the buffer {buffer} itself: changing one in place changes the other"),
    "has left the graph": _text("its output has left the graph"),
    "past its module": _text("in a .forward that was called directly: no hook ran"),
    "in place": _text("in place"),
    "leaves the graph": lambda facts: f"leaves the graph{', under ' * bool(facts['mode'])}{facts['mode']}",
    "gives gradients back": _text("returns gradients; changes no .grad"),
    "inputs": _text("only for some tensors (inputs=)"),
    "adds": _adds,
    "is added": _text("is added to the existing one"),
    "moves": _moves,
    "holds none": _text("holds none of the model's parameters"),
    "caught": lambda facts: caught(facts["by"]),
    "wrapper": lambda facts: _SYSTEMS[facts["system"]],
    "hook": lambda facts: f"{hook(facts)}{' on ' * bool(facts['tensor'])}{facts['tensor']}",
    "put there": _text("added by {by}"),
    "sets grad to None": _text("sets .grad to None"),
    "does": _doing,
    "does beside": _beside,
    "gradients there": _there,
    "gradients awaited": _awaited,
}

_OF_VALUES: Mapping[str, Callable[[Facts], str]] = {
    "empty": _text("empty"),
    "not looked into": _text("not looked into"),
    "used up": _text("not looked into: reading would use it up"),
    "deep": _text("nested too deeply to look into"),
    "raises": _text("not looked into: {error}"),
    "more": _text("more than {most} values: the rest are not looked at"),
    "raw": _text("not measured: nothing has been written to this memory yet"),
    "moved": lambda facts: moved(facts.get("far")),
    "set to None": _text("set to None before the pass ended"),
}


def _at(facts: Facts) -> str:
    return f" at {facts['at']}" if facts["at"] else ""


_UNCALLED: Mapping[str, Callable[[Facts], str]] = {
    "never called": _text("never called in this trace"),
    "stopped before": _text("not called before the pass stopped"),
    ".forward called": lambda facts: f"called through .forward{_at(facts)}: its hooks were skipped",
    "its tensor used": lambda facts: f"not called; its {facts['tensor']} is used in {facts['by']}{_at(facts)}",
    "inside a fused step": _text("{around} ran as one fused step, without calling its parts"),
    "its weights used": _text("{around} uses its weights without calling it"),
    "compiled": _text("compiled: whether it ran cannot be seen"),
    "inside compiled": _text("inside {around}, which is {what}: not seen"),
    "in another thread": _text("called in another thread, which is not traced"),
    "in what is compiled": _text("not seen: inside something compiled that is not part of the model and was called"),
    "perhaps": _text("no call was seen, but a function that torch.compile runs may have called it"),
}
