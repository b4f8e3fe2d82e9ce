"""Evidence of the events about the exception that ended a trace: it counts for more than what the traceback makes likely."""

from __future__ import annotations

import re

from modlab import format
from modlab.records.structure import ROOT
from modlab.tracing.calls import Call
from modlab.tracing.event_log import one_line
from modlab.tracing.reasons import Ways
from modlab.tracing.recorded import Recorded
from modlab.wording import events


def explanation(recorded: Recorded, error: BaseException, known: bool) -> dict[str, object]:
    """The reason in two halves of a sentence, where it is proven; else nothing. `known`: the traceback has told one."""
    found = None
    with recorded.log.aside():
        found = _hook(recorded, error) or (None if known else _misfit(recorded, error)) or _graph(recorded)
    return {} if found is None else {"explanation": found}


def _hook(recorded: Recorded, error: BaseException) -> tuple[str, str] | None:
    """A hook of a module gave autograd what is no gradient, and there is no other that did."""
    message = str(error) if type(error) is TypeError else ""
    if "hook returned" not in message:
        return None
    odd = [call for call in recorded.log.calls if call.odd and not call.error]
    if len(odd) != 1 or f"'{odd[0].odd}'" not in message:
        return None
    call = odd[0]
    path = call.path or (ROOT if call.path == "" else "a module")
    kind = call.facts[0].facts
    where = kind["tensor"] or path
    said = f"The {events.hook(kind)} {_short(call)} on {where} returned {format.article(call.odd)}, which is not a gradient."
    return said, f"It is defined at {call.where}." if call.where else ""


def _misfit(recorded: Recorded, error: BaseException) -> tuple[str, str] | None:
    """A hook put something else into the place of a tensor, and then there was an error that speaks of such a thing."""
    odd = [call for call in recorded.log.calls if call.odd and not call.error and call.path is not None]
    message = str(error) if type(error) in (AttributeError, TypeError) else ""
    if len(odd) != 1 or not re.search(rf"'{odd[0].odd}'|not {odd[0].odd}\b", message):
        return None
    call = odd[0]
    where, given = call.path or ROOT, format.article(call.odd)
    said = f"The {events.said(call.facts[0])} {_short(call)} on {where} returned {given} instead of a tensor."
    return said, f"It is defined at {call.where}. After it: {one_line(error)}."


def _graph(recorded: Recorded) -> tuple[str, str] | None:
    """A backward pass began from what has no graph, and there is one event in which that had ended."""
    event = recorded.backward.raised
    roots = recorded.backward.roots.get(event, ())
    if not roots or recorded.log.calls[-1].index != event or any(seen.requires_grad for seen in roots):
        return None
    ways = Ways(recorded)
    lineage = [ways.of(event)]
    left = min(filter(None, (ways.cut(id(one.tensor), lineage) for one in recorded.index.parameters)), default=None)
    if left is None:
        return None
    call = recorded.log.calls[left.event]
    how = {
        "no_grad": ", under no_grad",
        "inference_mode": ", under inference_mode",
        "number": ", which gives a plain number",
        "whole": ", whose result carries no gradient",
    }
    place = f"{call.name}{f' in {call.path}' if call.path else ''}{f' at {call.where}' if call.where else ''}"
    return "The loss has no graph: there is nothing to go back through.", f"The graph ends in {place}{how.get(left.how, '')}."


def _short(call: Call) -> str:
    """The name of a hook's function, without the word for a function inside another one."""
    return call.name.replace(".<locals>", "")
