"""The conclusion of a watch in one sentence: what is worst first, then whether the loss falls, then how it ended."""

from __future__ import annotations

import re
from itertools import takewhile

import numpy as np

from modlab import format
from modlab.records.watch import Alert, Rung, ScalarRecord, WatchRecord
from modlab.views.watch import words

_AT = {
    "every module is called": "{} is never called:", "every trained parameter gets a gradient": "{} gets no gradient:",
    "the optimizer owns it": "{} is not owned by the optimizer:", "it moves": "{} does not move:",
    "by enough for its dtype": "{} moves by too little for its dtype:",
}  # fmt: skip
_ALL = {
    "data arrives": "No data arrives:", "the loss is sensible": "The loss is not sensible:", "the loss falls": "The loss does not fall:",
    "every module is called": "Not every module is called:",
    "every trained parameter gets a gradient": "Not every trained parameter gets a gradient:",
    "the optimizer owns it": "The optimizer does not own every trained parameter:",
    "it moves": "Not every trained parameter moves:", "by enough for its dtype": "The steps are too small for the dtype:",
}  # fmt: skip
FALLS = "the loss falls"
_FROM_TO = re.compile(r"^(\S+) → (\S+?)[.,;:]?(?:\s|$)")
_NAN = ("nan", "inf")
_MUCH = 0.9  # of what a loss was, below which it falls


def of_watch(record: WatchRecord) -> tuple[str, str]:
    """The sentence in two halves; the first is printed bold."""
    if not record.steps:
        return _nothing(record)
    if record.error and not record.alerts and record.verdict.broken is None:
        strong, why = _error(record)  # nothing is worse than that
        return strong, f"{why} {loss(record)}".strip()
    strong, facts, tells_loss = _worst(record)
    if not tells_loss:
        facts.append(loss(record))
    facts.append(_ending(record))
    return strong, " ".join(fact for fact in facts if fact)


def _nothing(record: WatchRecord) -> tuple[str, str]:
    title = words.said(record.title, words.LONG_NAME)
    if record.state in ("waiting", "running"):
        return "Waiting for the first step:", f"{title} has made no training step yet."
    why = f" {_ending(record)}" if record.error else ""
    return "Nothing was seen:", f"{title} made no training step while it was watched.{why}"


def _worst(record: WatchRecord) -> tuple[str, list[str], bool]:
    """The bold half, what is to be said of it, and whether that is about the loss already."""
    alerts = sorted(record.alerts, key=words.rank)
    worst, broken = alerts[0] if alerts else None, record.verdict.broken
    if worst and (broken is None or worst.kind in _NAN or _explains(worst, broken)):
        return *_of_alert(worst, alerts, record), False
    if broken:
        return _of_rung(broken), _rest(broken), broken.name == FALLS
    careful = next((rung for rung in record.verdict.rungs if rung.state == "careful"), None)
    title = words.said(record.title, words.LONG_NAME)
    if careful:
        where = f", {words.place(careful.path)}" if careful.path else ""
        return f"{title} learns, with one thing to look at:", [words.sentence(f"{careful.name}{where}: {careful.text}")], False
    return _well(record)


def _of_rung(rung: Rung) -> str:
    if rung.path and rung.name in _AT:
        return _AT[rung.name].format(words.place(rung.path))
    return _ALL.get(rung.name, f"{words.said(rung.name)}: no.")


def _rest(rung: Rung) -> list[str]:
    return [words.sentence(rung.text)] if rung.text else []


def _explains(alert: Alert, rung: Rung) -> bool:
    """Whether a broken rung is what an alert says more closely: of the same module, and as bad as that."""
    owner = rung.path.rpartition(".")[0]
    return words.mark(alert) == "broken" and bool(rung.path) and alert.path in (rung.path, owner)


def _of_alert(worst: Alert, alerts: list[Alert], record: WatchRecord) -> tuple[str, list[str]]:
    alike = [alert for alert in alerts if (alert.kind, alert.over) == (worst.kind, worst.over)]
    strong, rest = words.told(worst)
    if worst.kind in _NAN:
        begin = f"{words.kind(worst.kind)} {'at' if worst.over else 'from'} step {worst.step:,}{'' if worst.over else ' on'}"
        where = f", first in {words.place(worst.path)}" if worst.path else ""
        return f"{begin}{where}:", [words.sentence(words.replay(worst) or worst.text or rest)]
    if len(alike) == 1:
        others = [alert for alert in alerts if alert.kind != worst.kind and not alert.over]
        return _bold(strong, rest), [rest, _beside(others)]
    paths = list(dict.fromkeys(alert.path for alert in alike))
    if all(alert.unit is not None for alert in alike):
        where = words.place(paths[0]) if len(paths) == 1 else f"{len(paths):,} modules"
        first = f"unit {worst.unit} of {words.place(worst.path)} first"
        many = f"{len(alike):,} units of {where} {'were' if worst.over else 'are'} {worst.kind}:"
        return many, [f"{first}, {rest}" if rest else f"{first}."]
    return _bold(f"{strong}, like {format.plural(len(alike) - 1, 'other')}", rest), [rest]


def _bold(strong: str, rest: str) -> str:
    return _capital(f"{strong}:" if rest else f"{strong}.")


def _beside(others: list[Alert]) -> str:
    """The next alert, in passing."""
    if len(others) == 1:
        return f"{_capital(words.told(others[0])[0])}."
    return f"{len(others):,} more alerts." if others else ""


def _capital(text: str) -> str:
    """``unit 1 of l0`` begins a sentence; a user's own name stays as it is."""
    return text[0].upper() + text[1:] if text.startswith(("unit ", "the ", "gradients ")) else text


def _well(record: WatchRecord) -> tuple[str, list[str], bool]:
    rungs = record.verdict.rungs
    title = words.said(record.title, words.LONG_NAME)
    so_far = " so far" if record.state == "running" else ""
    steps = format.plural(record.steps, "step")
    unseen = [rung for rung in rungs if rung.state == "not seen"]
    if not rungs or len(unseen) == len(rungs):
        return f"{title} was watched for {steps}:", ["too few were measured for a verdict."], False
    if not unseen:
        return f"All is well{so_far}:", [f"in {steps} of {title} nothing is wrong."], False
    names = {rung.name for rung in unseen}
    if names <= {"the loss is sensible", FALLS} and FALLS in names:
        return f"All that was seen is well{so_far}:", [f"{steps} of {title}; the loss was not logged."], True
    about = f"{steps} of {title}; {unseen[0].name}: not seen" if len(unseen) == 1 else f"{steps} of {title}; {len(unseen)} rungs not seen"
    return f"All that was seen is well{so_far}:", [f"{about}."], False


def loss(record: WatchRecord) -> str:
    """Whether it falls, in the numbers of the verdict where that has them."""
    rung = next((rung for rung in record.verdict.rungs if rung.name == FALLS), None)
    if rung is not None and rung.state == "not seen":
        return ""
    scalar = the_loss(record)
    told = _FROM_TO.match(rung.text) if rung is not None else None
    if told:
        begin, end = told.groups()
    elif scalar is not None:
        begin, end = map(words.number, scalar_ends(scalar))
    else:
        return ""
    if "NaN" in (begin, end):
        return f"The loss goes from {begin} to {end}."
    fell = rung.state == "passed" if rung is not None else _fell(scalar)
    return f"The loss falls from {begin} to {end}." if fell else f"The loss goes from {begin} to {end}."


def the_loss(record: WatchRecord) -> ScalarRecord | None:
    """The curve that is the loss: by its name, or by a name that has the word in it."""
    exact = (scalar for scalar in record.scalars if scalar.name.lower() == "loss")
    like = (scalar for scalar in record.scalars if "loss" in scalar.name.lower())
    return next(exact, None) or next(like, None)


def _fell(scalar: ScalarRecord | None) -> bool:
    begin, end = scalar_ends(scalar) if scalar is not None else (0.0, 0.0)
    return end < begin - (1 - _MUCH) * abs(begin)


def scalar_ends(scalar: ScalarRecord) -> tuple[float, float]:
    """The means of its first and of its last tenth."""
    if not len(scalar.mean):
        return float("nan"), float("nan")
    some = max(1, len(scalar.mean) // 10)
    begin, end = scalar.mean[:some].astype(np.float64), scalar.mean[-some:].astype(np.float64)
    return _mean(begin), _mean(end)


def extremes(scalar: ScalarRecord) -> tuple[float, float]:
    """The least and the greatest finite value."""
    low, high = (side[~np.isnan(side)] for side in (scalar.low, scalar.high))
    return (float(low.min()), float(high.max())) if len(low) and len(high) else (float("nan"), float("nan"))


def _mean(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    there = values[~np.isnan(values)]
    return float(there.mean()) if len(there) else float("nan")


def _ending(record: WatchRecord) -> str:
    if record.error:
        return " ".join(_error(record)).rstrip()
    after = f"after {format.plural(record.steps, 'step')}"
    return {"interrupted": f"Interrupted {after}.", "stopped": f"Stopped {after}."}.get(record.state, "")


def _error(record: WatchRecord) -> tuple[str, str]:
    """What ended it, the training's own error or one of the watch, and the first line of that."""
    why = "".join(takewhile(lambda sign: sign not in "\r\n", record.error.strip()))
    if record.state == "failed":
        return f"Not seen from step {record.steps:,} on:", f"the watch failed and the training went on. {words.sentence(why)}"
    return f"Step {record.steps:,} ended in an error:", words.sentence(why)
