"""A small net as units: its biases are seen, and two units that cancel are said to in every face, as a remark."""

import re
from dataclasses import replace
from urllib.parse import unquote

import numpy as np
import pytest
import torch
from torch import nn

import modlab
from modlab.records.watch import Alert, Layer, NeuronsRecord, UnitsRecord
from modlab.views.watch import html, limits, merging, pairs, payload, pictures, text
from tests import watches
from tests.views.test_faces import unpack


def trained(net, inputs, steps=40):
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    with modlab.watch(net, optimizer, budget=1.0) as w:
        for _ in range(steps):
            loss = net(torch.randn(8, inputs)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return w.record


class Scaled(nn.Linear):
    def __init__(self):
        super().__init__(4, 3)
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x):
        return super().forward(x) * self.scale


@pytest.mark.parametrize("first", [nn.Linear(4, 3), nn.Linear(4, 3, bias=False), Scaled()], ids=["bias", "none", "unknown"])
def test_biases_are_what_is_added_or_unknown(first):
    record = trained(nn.Sequential(first, nn.ReLU(), nn.Linear(3, 2)), 4)
    one, other = record.neurons.layers
    assert (one.weights[-1] == first.weight.detach().numpy()).all()
    if isinstance(first, Scaled):
        assert np.isnan(one.biases).all()
    else:
        assert (one.biases[-1] == (0 if first.bias is None else first.bias.detach().numpy())).all()
    assert other.biases.shape == (len(record.neurons.first), 2) and np.isfinite(other.biases).all()
    _, arrays = unpack(payload.of_watch(record, "", "0"))
    np.testing.assert_array_equal(arrays["neurons 0 biases"], one.biases)


SEEN = [[1, 2, -1], [2, 4, -2]]


def made(incoming=SEEN, outgoing=((2, -1),), biases=(0.1, 0.2), fired=(50, 50), counted=True):
    first = np.array([0, 100])
    arrays = [np.stack([np.array(one, np.float32)] * 2) for one in (incoming, outgoing, biases)]
    flows = np.zeros((2, len(incoming)), np.float32), np.zeros((2, len(outgoing)), np.float32)
    one = Layer("a", "a.weight", arrays[0], flows[0], flows[0], None if biases is None else arrays[2])
    net = NeuronsRecord(first, first + 99, (one, Layer("b", "b.weight", arrays[1], flows[1], flows[1])))
    units = UnitsRecord(
        "a" if counted else "c", "b", first, first + 99, np.full(2, 100), np.array([fired] * 2), np.zeros(2, int), np.zeros(2, bool)
    )
    return replace(watches.well(), neurons=net, units=(units,))


@pytest.mark.parametrize(
    ("changed", "count"),
    [
        ({}, 1),
        ({"outgoing": ((0.1, -1),)}, 0),
        ({"outgoing": ((2, 1),)}, 0),
        ({"incoming": [[1, 2, -1], [2, 4, -0.5]]}, 0),
        ({"incoming": [[1, 2, -1], [-2, -4, 2]], "outgoing": ((2, 1),)}, 0),
        ({"biases": (1, -4)}, 0),  # a step
        ({"biases": (np.nan, np.nan)}, 0),
        ({"biases": None}, 0),
        ({"fired": (50, 60)}, 0),
        ({"fired": (100, 100)}, 0),
        ({"fired": (0, 0)}, 0),
        ({"counted": False}, 0),
        ({"incoming": [[0, 0, 0], [0, 0, 0]]}, 0),
        ({"incoming": [[np.nan, 2, -1], [2, 4, -2]]}, 0),
    ],
)
def test_two_cancel_only_where_it_is_certain(changed, count):
    assert len(pairs.of_watch(made(**changed))) == count


def test_biases_stay_where_a_record_is_made_smaller():
    record = made()
    rounded, _ = limits.of_watch(record, 64)
    fewer = merging.of_neurons(record.neurons, 1)
    for net in (rounded.neurons, fewer):
        np.testing.assert_allclose(net.layers[0].biases[-1], (0.1, 0.2), rtol=1e-4)
        assert net.layers[1].biases is None
    assert len(pairs.of_watch(replace(record, neurons=fewer))) == 1


def test_the_layers_stand_in_the_order_in_which_they_were_called():
    record = trained(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)), 4)
    told = text.of_watch(record).partition("layers, from")[2].splitlines()[2:]
    assert [line.split()[0] for line in told[:4]] == ["0", "1", "2", "(root)"]


def test_weights_that_are_no_numbers_are_drawn_and_said():
    record = made(incoming=[[np.nan, 2, -1], [np.inf, 4, -2]])
    page = html.of_watch(record)
    assert "; magenta: NaN, Inf" in page and page.count("stroke-dasharray='1 6'") == 2
    assert "magenta" not in html.of_watch(made())


def test_of_weights_that_are_no_numbers_as_many_are_drawn_of_each_unit():
    places = [(0.0, float(i)) for i in range(32)], [(9.0, float(j)) for j in range(32)]
    drawn = pictures._connections(np.full((32, 32), np.nan), *places, set(), set(), 96)
    ends = [re.search(r"L9.0 (\d+)'", line).group(1) for line in drawn.split("<path")[1:]]
    assert len(ends) == 96 and min(ends.count(str(j)) for j in range(32)) >= 2


def test_units_that_give_no_numbers_are_told_in_the_picture_at_rest():
    record = made()
    one, other = record.neurons.layers
    bad = replace(one, activations=np.array([[0, 0], [np.nan, np.nan]], np.float32))
    said = "2 of 2 units of a give NaN or infinity"
    assert said not in html.of_watch(record)
    page = html.of_watch(replace(record, neurons=replace(record.neurons, layers=(bad, other))))
    assert said in page and "magenta: NaN, Inf" in page
    discs = re.findall("<circle [^>]*>", unquote(page))
    assert sum(f"fill='{pictures.BAD}'" in disc for disc in discs) == 2


def test_units_that_one_alert_is_about_are_dead_in_each_picture():
    alert = Alert("dead", "a", {"units": 2, "inputs": 545}, "broken", 3, unit=None, inputs=545, units=(0, 1))
    record = replace(made(fired=(0, 0)), alerts=(alert,))
    assert "2 units of a are dead" in html.of_watch(record)
    told, _ = unpack(payload.of_watch(record, "", "0"))
    assert told["alerts"][0]["units"] == [0, 1]
