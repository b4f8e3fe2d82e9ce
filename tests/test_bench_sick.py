"""The benchmark of sick trainings: its cases are what they say, and its score counts as it says."""

from __future__ import annotations

import pytest
import torch

from bench.sick import case, cases_of, score
from bench.sick.causes import CAUSES, SOURCES
from bench.sick.modlab_tools import watch
from bench.sick.proof import prove
from bench.sick.tools import Answer, Named

WORKING = cases_of("working")


def test_each_cause_has_a_source():
    assert not [name for name, cause in CAUSES.items() if not cause.sources or not {*cause.sources} <= SOURCES.keys()]


def test_there_are_enough_cases():
    sick = [one for one in WORKING if one.cause]
    assert len(sick) >= 200 and len({one.cause for one in sick}) >= 40
    assert {one.family for one in sick} == {"mlp", "cnn", "recurrent", "transformer", "generative", "embedding"}
    assert len(WORKING) - len(sick) >= 50


def test_a_name_stands_for_one_case():
    assert len({one.name for one in WORKING}) == len(WORKING)


@pytest.mark.parametrize("name", ["spirals/step is forgotten", "spirals/warm up", "curves/as it is", "dot/divided by 255 twice"])
def test_the_sick_are_sick_and_the_healthy_learn(name):
    assert not prove(case("working", name), 0).objection


def test_a_training_repeats_itself():
    ends = []
    for _ in range(2):
        training = case("working", "spirals/half of the units dropped").training(1)
        training.steps = 5
        training.run()
        ends.append(torch.cat([one.detach().flatten() for one in training.model.parameters()]))
    assert torch.equal(*ends)


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
    assert score.worst(["first", "silent", "in three"]) == "silent"


def test_the_watch_is_asked():
    """A cause that has long been named: layers in a plain list."""
    asked = case("working", "wave/layers in a list")
    assert score.grade(asked, watch(lambda: asked.training(0))) == "first"
