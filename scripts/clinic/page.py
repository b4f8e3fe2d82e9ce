"""The page: what the recordings say of each case, what modlab says, and the frame around it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from string import Template
from typing import Any

from bench.sick import case, modlab_tools, score
from bench.sick.cases import Case
from bench.sick.causes import CAUSES
from modlab.format import rough, share
from scripts.clinic import evidence, looks
from scripts.clinic.cases import CASES, NETS, OFFERED, SEED
from scripts.clinic.facts import Facts
from scripts.clinic.recording import record

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PAGE = ROOT / "docs" / "clinic.html"
MOST_BYTES = 3_000_000

KINDS = {
    "mlp": "MLP",
    "cnn": "CNN",
    "recurrent": "recurrent",
    "transformer": "transformer",
    "generative": "autoencoder",
    "embedding": "embedding",
}
GRADES = {
    "first": "names the cause first",
    "in three": "names the cause among its first three",
    "hinted": "has the cause among what is worth a look, but not as what is wrong",
    "symptom": "says that something is wrong, but not why",
    "silent": "finds nothing",
    "wrong": "names another cause",
}
CALM = re.compile(r"(No problem|Nothing certain|Nothing) found\b")
"""How a headline begins that tells of nothing wrong."""
PARTS = re.compile(r"(Nothing certain found in .*?); worth a look: (.*)\. (\d+ kinds of mistakes checked .*)", re.DOTALL)
OURS = re.compile(r" at bench/[\w/]+\.py:\d+| \d+ more findings? below\.")
"""What a headline says for somebody who has the code, or the findings, before him."""
DATA = re.compile(r'(?<=<script type="application/json" id="cases">).*?(?=</script>)', re.DOTALL)


def made(name: str, number: int) -> dict[str, Any]:
    """All that the page holds of one case."""
    asked = case("working", name)
    recorded, twin = record(asked, SEED)
    net = NETS[name.partition("/")[0]]
    return of_facts(asked, Facts(recorded, twin, net.quality), number) | {"modlab": by_modlab(name)}


def of_facts(asked: Case, facts: Facts, number: int) -> dict[str, Any]:
    """The same without modlab's answer."""
    net = NETS[asked.name.partition("/")[0]]
    _, shown = evidence.SHOWN[asked.cause](facts)
    return {
        "number": number,
        "name": asked.name,
        "kind": KINDS[asked.family],
        "task": net.task,
        "complaint": complaint(facts, net.says),
        "looks": looks.of(facts),
        "causes": offered(asked, facts),
        "shown": [*shown],
    }


def complaint(facts: Facts, says: str) -> str:
    """What somebody notices."""
    before, after = facts.run.fresh[0][1], facts.run.fresh[-1][1]
    if says:
        return (
            f"After {facts.run.steps} steps {share(after)} {says}; before training it was {share(before)}. "
            f"The same training without the fault gets to {share(facts.twin)}."
        )
    return (
        f"After {facts.run.steps} steps the {facts.quality} on fresh data is {rough(after)}; before training it was {rough(before)}. "
        f"The same training without the fault gets to {rough(facts.twin)}."
    )


def offered(asked: Case, facts: Facts) -> list[dict[str, Any]]:
    """The right cause among those that the recording rules out, in an order that tells nothing."""
    ruled = [(cause, why) for cause in CASES[asked.name] if (why := evidence.RULED_OUT[cause](facts))]
    if len(ruled) < OFFERED:
        raise ValueError(f"{asked.name}: only {len(ruled)} wrong causes are ruled out; offer others in scripts/clinic/cases.py")
    if wrongly := {cause for cause, _ in ruled} & {*asked.causes}:
        raise ValueError(f"{asked.name}: {wrongly} is right")
    every = [*((cause, why, False) for cause, why in ruled[:OFFERED]), (asked.cause, evidence.SHOWN[asked.cause](facts)[0], True)]
    order = [*CAUSES]
    return [
        {"says": capital(CAUSES[cause].says), "right": right, "why": why}
        for cause, why, right in sorted(every, key=lambda one: order.index(one[0]))
    ]


def by_modlab(name: str) -> dict[str, Any]:
    """What `watch` and `diagnose` say of a case's training, and how good that is.

    A cause counts as named only where a headline tells of something wrong.
    """
    asked = case("working", name)
    answers = modlab_tools.modlab_answers(partial(asked.training, SEED))
    answer, watch = answers["both"], answers["watch"].text
    diagnosis = answer.text.removeprefix(watch).strip()
    grade = score.grade(asked, answer)
    if grade in ("first", "in three") and CALM.match(watch) and CALM.match(diagnosis):
        grade = "hinted"
    named = list(dict.fromkeys(one.causes[0] for one in answer.named if one.causes))[:3] if grade != "hinted" else []
    training = asked.training(SEED)
    groups = sum(len(one.param_groups) for one in (training.optimizer, *training.others))
    said = said_once(*(for_strangers(one, groups) for one in (watch, diagnosis)))
    return {
        "grade": GRADES[grade],
        "first": grade == "first",
        "hinted": grade == "hinted",
        "named": "; ".join(CAUSES[one].says for one in named),
        "says": [(who, *parted(what)) for who, what in said],
    }


def for_strangers(text: str, groups: int) -> str:
    """A headline without a line of the benchmark's code, and without the number of a parameter group that is the only one."""
    text = OURS.sub("", text)
    return re.sub(r"(?<=\w) #0\b", "", text) if groups == 1 else text


def parted(text: str) -> tuple[str, list[str]]:
    """What is worth a look as a list, and what goes before and behind it."""
    found = PARTS.fullmatch(text)
    if not found:
        return text, []
    start, looked, checked = found.groups()
    return f"{start}. {checked} Worth a look:", re.split(r"; (?!and \d+ more)", looked)


def said_once(watch: str, diagnosis: str) -> list[tuple[str, str]]:
    """Both headlines, each with who says it; of the diagnosis's only what the watch does not say already."""
    counted = r"(?:\d+ findings?(?: and \d+ failed checks?)?|\d+ checks? failed)"
    found = re.fullmatch(counted + r": (.*?\.)(?: With the batch: .*)?", diagnosis, re.DOTALL)
    if not found:
        return [("The watch", watch), ("The diagnosis", diagnosis)]
    known, said = watch.partition(". ")[0].removesuffix("."), found[1]
    end = said[len(known) :] if said[: len(known)].casefold() == known.casefold() else ""
    if end == ".":
        return [("The watch", watch)]
    return [("The watch", watch), ("The diagnosis adds", end[2:]) if end.startswith("; ") else ("The diagnosis", said)]


def capital(text: str) -> str:
    """With a capital, unless it begins with a name from code."""
    return text if re.match(r"\w+[_.(]", text) else text[:1].upper() + text[1:]


def written(cases: Sequence[dict[str, Any]]) -> str:
    """The whole page."""
    data = json.dumps(cases, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return Template((HERE / "frame.html").read_text(encoding="utf-8")).substitute(
        fingerprint=fingerprint(),
        cases=data.replace("</", "<\\/"),
        script=(HERE / "clinic.js").read_text(encoding="utf-8").strip().replace("</", "<\\/"),
    )


def kept() -> list[dict[str, Any]]:
    """What the page at hand holds."""
    found = DATA.search(PAGE.read_text(encoding="utf-8"))
    assert found, f"{PAGE} has no cases"
    cases: list[dict[str, Any]] = json.loads(found[0])
    return cases


def fingerprint() -> str:
    """Of what the recordings are made from, without modlab itself and what the page looks like."""
    sick = ROOT / "bench" / "sick"
    files = [
        *(HERE / f"{name}.py" for name in ("cases", "evidence", "facts", "looks", "recording")),
        sick / "changes.py",
        sick / "training.py",
    ]
    files += [one for one in sorted((sick / "working").glob("*.py")) if one.stem != "strange"]
    return hashlib.sha256(b"\0".join(one.read_bytes() for one in files)).hexdigest()[:16]
