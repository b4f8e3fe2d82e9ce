"""The benchmark of sick trainings: its cases are what they say, and its score counts as it says."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from bench.sick import __main__, case, cases_of, misses, modlab_tools, score
from bench.sick.causes import CAUSES, SOURCES
from bench.sick.modlab_tools import watch
from bench.sick.proof import prove
from bench.sick.tools import Answer, Named
from tests.test_layout import ROOT

WORKING, REPORTED = cases_of("working"), cases_of("reported")
LATER = {"stale weights"}
"""Causes that came up after the reported half was committed: it has no case of them."""


def test_each_cause_has_a_source():
    assert not [name for name, cause in CAUSES.items() if not cause.sources or not {*cause.sources} <= SOURCES.keys()]


def test_there_are_enough_cases():
    sick = [one for one in WORKING if one.cause]
    assert len(sick) >= 200 and len({one.cause for one in sick}) >= 40
    assert {one.family for one in sick} == {"mlp", "cnn", "recurrent", "transformer", "generative", "embedding"}
    assert len(WORKING) - len(sick) >= 50


def test_each_half_has_each_cause_and_both_have_it_three_times():
    working, reported = (Counter(one.cause for one in half if one.cause) for half in (WORKING, REPORTED))
    assert not [cause for cause in CAUSES if not (reported[cause] or cause in LATER) or working[cause] + reported[cause] < 3]


def test_the_reported_half_is_as_large():
    sick = [one for one in REPORTED if one.cause]
    assert len(sick) >= 200 and len(REPORTED) - len(sick) >= 100
    assert {one.family for one in sick} == {"mlp", "cnn", "recurrent", "transformer", "generative", "embedding"}


def test_the_pages_say_how_many_there_are():
    halves = [(sum(bool(one.cause) for one in half), sum(not one.cause for one in half)) for half in (WORKING, REPORTED)]
    rows = [(*some, sum(some)) for some in zip(*halves, strict=True)]
    page, changes = ((ROOT / name).read_text(encoding="utf-8") for name in ("docs/sick.md", "CHANGELOG.md"))
    assert all(f" | {' | '.join(f'{one:,}' for one in row)} |" in page for row in rows)
    (*_, sick), (*_, healthy) = rows
    assert f"{sick:,} sick trainings beside their healthy twins and {healthy:,} strange but healthy ones" in changes


def test_no_net_is_in_both_halves():
    assert not {one.net.__name__ for one in WORKING} & {one.net.__name__ for one in REPORTED}
    assert not {one.net.__module__ for one in REPORTED} & {one.net.__module__ for one in WORKING}


def test_a_name_stands_for_one_case():
    assert len({one.name for one in [*WORKING, *REPORTED]}) == len(WORKING) + len(REPORTED)


@pytest.mark.parametrize("name", ["spirals/step is forgotten", "spirals/warm up", "curves/as it is", "dot/divided by 255 twice"])
def test_the_sick_are_sick_and_the_healthy_learn(name):
    assert not prove(case("working", name), 0).objection


@pytest.mark.parametrize(
    "name",
    [
        "topics/padding idx is a word",
        "clusters/weights by the counts of the batch",
        "kin/strangers are of the same kind",
        "topics/as it is",
    ],
)
def test_so_are_the_reported_ones(name):
    assert not prove(case("reported", name), 0).objection


@pytest.mark.parametrize(
    ("side", "name"), [("working", "spirals/half of the units dropped"), ("reported", "mirror/as it is"), ("reported", "churn/as it is")]
)
def test_a_training_repeats_itself(side, name):
    ends = []
    for _ in range(2):
        training = case(side, name).training(1)
        training.steps = 5
        training.run()
        ends.append(torch.cat([one.detach().flatten() for one in training.model.parameters()]))
    assert torch.equal(*ends)


def test_the_same_steps_are_looked_at_on_a_slow_machine():
    looked_at = []
    for wait in (0.0, 0.003):
        training = case("working", "lookup/the mean of a gradient is kept and not taken off").training(0)
        first = next(training.model.children())
        with held_up(first, wait):
            _, w = modlab_tools._watched(training)
        looked_at.append((w.record.sampled.tolist(), w.record.inputs))
    assert looked_at[0] == looked_at[1] and len(looked_at[0][0]) > 10


@contextmanager
def held_up(module: torch.nn.Module, seconds: float) -> Iterator[None]:
    handle = module.register_forward_hook(lambda *_: time.sleep(seconds))
    try:
        yield
    finally:
        handle.remove()


SICK = case("working", "wave/rate of ten")  # the rate is too high; that it is not finite is right as well


@pytest.mark.parametrize(
    ("answer", "grade"),
    [
        (Answer([Named(("rate too high",))], alarm=True), "first"),
        (Answer([Named(("frozen", "rate too high"), settle="requires_grad")], alarm=True), "first"),
        (Answer([Named(("frozen", "rate too high"))], alarm=True), "wrong"),  # the second candidate counts only with what settles it
        (Answer([Named(("frozen", "leak", "rate too high"), settle="x")], alarm=True), "wrong"),  # and a third one never
        (Answer([Named(("frozen",)), Named(("not finite by the rate",))], alarm=True), "in three"),
        (Answer([Named(("frozen",))] * 3 + [Named(("rate too high",))], alarm=True), "hinted"),
        (Answer(hints=["rate too high"]), "hinted"),
        (Answer(alarm=True), "symptom"),
        (Answer(), "silent"),
    ],
)
def test_how_an_answer_is_counted(answer, grade):
    assert score.grade(SICK, answer) == grade


def test_an_alarm_on_a_healthy_training_is_false():
    healthy = case("working", "wave/as it is")
    assert score.grade(healthy, Answer(alarm=True)) == "false alarm"
    assert score.grade(healthy, Answer(hints=["frozen"])) == "quiet"


def test_the_worst_seed_counts():
    results = [score.Result(grade, "", false=False) for grade in ("first", "silent", "in three")]
    assert score.worst(results).grade == "silent"


@pytest.mark.parametrize(
    ("name", "seed", "grade"),
    [
        ("wave/layers in a list", 0, "first"),
        ("tumours/a range test and nothing is reset", 0, "first"),  # the weights have grown five hundred times
        ("a rate of five for prices/as it is", 0, "quiet"),
        ("shelf/one of two kinds is the padding", 0, "first"),
        ("spirals/sorted by label", 1, "first"),  # one batch seen holds the end of one class and the beginning of the next
        ("one at a time/as it is", 1, "quiet"),  # the last batches are hard ones
        ("inside/logarithm of a sigmoid", 1, "first"),  # when a loss is read next, all is NaN
    ],
)
def test_the_watch_is_asked(name, seed, grade):
    asked = case("working", name)
    assert score.grade(asked, watch(lambda: asked.training(seed))) == grade


def test_each_cause_has_what_a_person_would_look_at():
    assert {*misses.LOOKS} == {*CAUSES}


def test_a_page_of_misses_names_each_case_that_was_not_named_first():
    sick = [one for one in cases_of("working") if one.cause][:3]
    results = [score.Result(grade, "rate too low", False) for grade in ("first", "wrong", "silent")]
    text = misses.page("both", 3, zip(sick, results, strict=True))
    assert sick[0].name not in text and all(one.name in text and misses.LOOKS[one.cause] in text for one in sick[1:])


@pytest.mark.parametrize("given", [["--only", "no such words"], ["--seeds", "0"]])
def test_what_asks_for_no_case_is_refused(given, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["bench.sick", *given])
    with pytest.raises(SystemExit) as end:
        __main__.main()
    assert end.value.code == 2 and given[0] in capsys.readouterr().err


@pytest.mark.parametrize("make", [lambda: Named("frozen"), lambda: Named(("frost",)), lambda: Answer(hints=["frost"])])
def test_a_cause_that_is_none_is_refused_by_its_name(make):
    with pytest.raises((TypeError, KeyError), match=r"frozen|frost"):
        make()


def test_what_became_of_a_healthy_case_has_no_empty_brackets(capsys):
    __main__._print([case("working", "wave/as it is")], {"watch": [score.Result("quiet", "", false=False)]}, tell=True)
    said = capsys.readouterr().out
    assert "wave/as it is: " in said and "–" in said and "()" not in said
