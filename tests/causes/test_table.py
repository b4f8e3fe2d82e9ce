"""The table of causes: each row has its words, each cause is one of the benchmark's, and twenty of its cases are named."""

from __future__ import annotations

from functools import partial

import pytest
import torch

import modlab
from bench.sick import case, score
from bench.sick.causes import CAUSES as ASKED
from bench.sick.modlab_tools import watch
from modlab import wording
from modlab.causes.table import ROWS
from modlab.wording.causes import CAUSES, SETTLES

TWENTY = (
    "wave/gradients add up",
    "dot/zero grad after backward",
    "spirals/step is forgotten",
    "wave/backward is forgotten",
    "bars/accumulates for ever",
    "spirals/checkpoint loaded after each step",
    "wave/clipped to a thousandth",
    "dot/rate of ten",
    "marked/rate of a millionth",
    "spirals/rate halved every third batch",
    "curves/decay of one",
    "wave/optimizer of a copy",
    "spirals/detached before the last layer",
    "marked/recurrent part under no grad",
    "ratings/target with one dimension more",
    "inside/cross entropy of one logit",
    "dot/relu behind the last layer",
    "bars/targets of one sample for all",
    "counting/no causal mask",
    "majority/attends to the padding",
)
BY_HAND = (
    "inside/a closure that zeroes last",
    "orchard/gradients of the first step are kept",
    "spirals/weights shrink by hand",
    "wave/weights are rounded after each step",
    "dot/the threshold of each unit is a hundred",
    "homes/autocast to float16 of a light loss",
)
"""What is done beside the calls that everybody makes: after a step, in a closure, once for all."""
HEALTHY = ("wave/warm up", "wave/lbfgs", "duel/as it is", "spirals/policy gradient", "bars/images from 0 to 255 behind a norm")


def test_each_row_has_words():
    assert {row.cause for row in ROWS} == {*CAUSES}
    assert {row.cause for row in ROWS} <= {*ASKED}
    assert {row.rival for row in ROWS if row.rival} <= {*ASKED}
    assert {row.settle for row in ROWS if row.settle} <= {*SETTLES}


def test_a_rival_comes_with_what_settles_it():
    assert all(bool(row.rival) == bool(row.settle) for row in ROWS)


@pytest.mark.parametrize("name", TWENTY + BY_HAND)
def test_the_cause_is_named(name):
    asked = case("working", name)
    assert score.grade(asked, watch(partial(asked.training, 0))) == "first"


@pytest.mark.parametrize("name", HEALTHY)
def test_nothing_is_named_where_nothing_is_wrong(name):
    asked = case("working", name)
    assert score.grade(asked, watch(partial(asked.training, 0))) == "quiet"


def watched(name: str) -> tuple[modlab.Watch, torch.nn.Module]:
    training = case("working", name).training(0)
    with modlab.watch(training.model, training.optimizers) as w:
        training.run()
    return w, training.model


def test_a_cause_heads_the_view_and_says_what_to_do():
    w, _model = watched("spirals/divided by 255 twice")
    first = w.verdict.findings[0]
    assert (first.kind, first.severity) == ("inputs vanish", "broken")
    assert w.headline.startswith("The inputs are almost zero: mean")
    assert wording.fix(first) == "(x - mean) / std" and not w.verdict.ok


def test_a_watch_diagnoses_with_the_batch_and_loss_it_kept():
    w, model = watched("dot/divided by 255 twice")
    before = [one.detach().clone() for one in model.parameters()]
    found = w.diagnose()
    assert found.findings[0].kind == "inputs vanish" and found.experiments
    assert all(map(torch.equal, before, model.parameters()))


@pytest.mark.parametrize("batch", [torch.zeros(4, 8), torch.zeros(1), (), []])
def test_a_batch_that_is_no_pair_is_told_after_one_was_kept(batch):
    w, _model = watched("dot/divided by 255 twice")
    with pytest.raises(modlab.errors.BatchError, match="needs a pair"):
        w.diagnose(batch=batch)


def test_a_watch_that_kept_no_batch_says_how_to_give_one():
    net = torch.nn.Linear(2, 1)
    with modlab.watch(net, torch.optim.SGD(net.parameters(), lr=0.1)) as w:
        pass
    assert "w.diagnose(batch=(inputs, target), loss=loss_function)" in str(w.diagnose())
