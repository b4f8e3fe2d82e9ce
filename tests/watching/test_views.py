"""The faces of a watch say the same as its record, hold to their sizes, and an update is the full payload in two parts.

`MODLAB_GOLDEN=write pytest tests/watching/test_views.py` writes tests/fixtures/watch*.bin, which the front end's tests read, anew.
"""

import gzip
import pickle
import re
import subprocess
import sys
from dataclasses import replace
from html import unescape
from urllib.parse import unquote
from xml.etree import ElementTree

import numpy as np
import pytest

from modlab import wording
from modlab.errors import UnknownFigureError
from modlab.records.finding import Finding
from modlab.records.sharding import Axis, Ranks
from modlab.records.slots import COLUMNS
from modlab.records.watch import ACTIVATION, GRADIENT, PARAMETER, UPDATE, Check, Layer, NeuronsRecord
from modlab.results import page
from modlab.views import html as frame
from modlab.views.watch import columns, headline, html, layers, limits, merging, payload, pictures, text, words
from tests import watches
from tests.views import test_faces
from tests.views.test_faces import HERE, agree, unpack

MADE = {name: make() for name, make in watches.WATCHES.items()}
every = pytest.mark.parametrize("name", MADE)
FIXTURES = watches.fixtures()
FELL = "The loss falls from 0.939 to 0.00794, averaged over its first and last tenth."


class Page(test_faces.Page):
    """With the tags that have no end."""

    def handle_starttag(self, tag, attrs):
        super().handle_starttag(tag, attrs)
        if tag in ("img", "br"):
            self.open.pop()


def packed(record, **how):
    return payload.of_watch(record, "modlab.watch(net, optimizer)", "0", **how)


# Sentences


@pytest.mark.parametrize(
    ("name", "strong", "rest"),
    [
        ("waiting", "Waiting for the first step:", "Net has not made a training step yet."),
        ("without_steps", "Nothing was seen:", "no training step of Net was seen."),
        ("net", "Unit 1 of l0 is dead:", f"zero on all 9,640 inputs up to step 9,999. Unit 2 of l0 starves. {FELL}"),
        ("well", "No problem found:", f"143 of 10,000 steps of Net were measured. {FELL}"),
        (
            "unlogged",
            "No problem found:",
            "143 of 10,000 steps of Net were measured. The loss was not seen: w.log(loss=loss) shows it.",
        ),
        ("running", "No problem found so far:", f"143 of 1,200 steps of Net were measured. {FELL}"),
        (
            "nan",
            "NaN from step 612 on, first in h.2.attn:",
            "h.2.attn makes NaN: softmax of a row of -Inf. The last value of the loss is NaN.",
        ),
        (
            "failed",
            "Not seen from step 812 on:",
            f"the watch failed, but training went on. ValueError: a reading without a row. {FELL}",
        ),
        (
            "raised",
            "Step 812 ended in an error:",
            f"RuntimeError: mat1 and mat2 shapes cannot be multiplied (1x5 and 4x4). {FELL}",
        ),
        (
            "unowned",
            "l1.weight gets a gradient, but SGD does not hold it:",
            f"it never moves. {FELL} Stopped after 10,000 steps.",
        ),
    ],
)
def test_the_headline_is_the_conclusion(name, strong, rest):
    assert headline.of_watch(MADE[name]) == (strong, rest)


def test_a_broken_check_leads_when_no_alert_says_it_more_closely():
    broken = watches.verdict(the_loss_falls=watches.check("the loss falls", "broken", "1.2 → 1.3 in 10,000 steps"))
    strong, rest = headline.of_watch(replace(MADE["net"], verdict=broken))
    assert (strong, rest) == ("The loss does not fall:", "1.2 → 1.3 in 10,000 steps.")
    anonymous = watches.verdict(data_arrives=watches.check("data arrives", "broken", "the model is not called"))
    assert headline.of_watch(replace(MADE["well"], verdict=anonymous))[0] == "No data arrives:"


def test_the_payload_marks_the_causes_that_the_headline_is_about():
    why, maybe = (Finding("no step", "", {"tier": 0, "backwards": 9}, severity) for severity in ("broken", "careful"))
    broken = watches.verdict(None, why, maybe, the_loss_falls=watches.check("the loss falls", "broken", "1.2 → 1.3 in 10,000 steps"))
    record = replace(MADE["net"], verdict=broken)
    assert headline.of_watch(record)[0] == "optimizer.step() is never called:"
    verdict = unpack(packed(record))[0]["verdict"]
    assert [one["state"] for one in verdict] == [*["passed"] * 7, "broken", "broken", "careful"]
    assert [i for i, one in enumerate(verdict) if "cause" in one] == [8]


def test_many_alike_are_counted():
    dead = tuple(watches.alert("dead", "l0", 5, unit=unit, inputs=2_000) for unit in range(3))
    assert headline.of_watch(replace(MADE["well"], alerts=dead))[0] == "3 units of l0 are dead:"
    ungraded = tuple(watches.alert("no gradient", f"l{i}.weight", 5) for i in range(3))
    assert (
        headline.of_watch(replace(MADE["well"], alerts=ungraded))[0]
        == "l0.weight got no gradient in any step that was measured, like 2 others."
    )


def test_what_is_over_comes_last_and_is_told_as_past():
    over = watches.alert("dead", "l0", 5, unit=0, inputs=2_000, over=True, last=90)
    now = watches.alert("starving", "l0", 400, unit=2)
    record = replace(MADE["well"], alerts=(over, now))
    few = "No problem found apart from a few units that fire rarely or no more:"
    assert (headline.of_watch(record)[0], record.verdict.exit_code) == (few, 0)  # its loss falls well
    slow = watches.verdict(the_loss_falls=watches.check("the loss falls", "passed", "1.2 → 0.9", first=1.2, last=0.9))
    slow = replace(slow, cares=("starving",))
    assert (headline.of_watch(replace(record, verdict=slow))[0], slow.exit_code) == ("Unit 2 of l0 starves:", 2)
    assert "step 5 to 90: unit 0 of l0 was dead: zero on all 2,000 inputs." in text.of_watch(record)
    assert layers.accused(record) == {"l0": "careful"}


@pytest.mark.parametrize(("dead", "code"), [(1, 0), (5, 0), (9, 2)])
def test_a_few_dead_units_beside_a_loss_that_falls_do_not_head_the_view(dead, code):
    """Of samples that are told apart a loss never comes near 0, and one unit of 24 is no more missed than 5 of 32."""
    few = Finding("dead units", "l0", {"dead": dead, "units": 32, "which": tuple(range(dead)), "inputs": 900}, "careful")
    falls = watches.check("the loss falls", "passed", "4.8 → 3.1", first=4.8, last=3.1)
    found = watches.verdict(None, few, the_loss_falls=falls)
    alert = watches.alert("dead", "l0", 5, unit=0, inputs=900)
    record = replace(MADE["well"], verdict=found, alerts=(replace(alert, severity="careful"),))
    assert found.exit_code == code and headline.of_watch(record)[0].startswith("No problem found apart from") is (code == 0)


def test_a_few_dead_units_of_two_that_play_against_each_other_do_not_head_the_view():
    untold = Check("loss not told", facts={"names": ("judge", "maker")}, name="the loss falls")
    few = Finding("dead units", "l0", {"dead": 2, "units": 32, "which": (1, 2), "inputs": 900}, "careful")
    dead = watches.alert("dead", "l0", 5, unit=1, inputs=900)
    record = replace(MADE["well"], verdict=watches.verdict(None, few, the_loss_falls=untold), alerts=(replace(dead, severity="careful"),))
    assert headline.of_watch(record)[0] == "No problem found apart from a few units that fire rarely or no more:"
    one = replace(untold, facts={"names": ("loss",)})
    assert "dead" in headline.of_watch(replace(record, verdict=watches.verdict(None, few, the_loss_falls=one)))[0]


@pytest.mark.parametrize(
    ("kind", "given", "told"),
    [
        ("dead", {"unit": 1, "inputs": 9}, ("unit 1 of l0 is dead", "zero on all 9 inputs.")),
        ("dead", {"unit": 1, "inputs": 9, "over": True}, ("unit 1 of l0 was dead", "zero on all 9 inputs.")),
        ("no gradient", {}, ("l0 got no gradient in any step that was measured", "")),
        ("no gradient", {"over": True, "steps": 5}, ("l0 got no gradient", "l0 got no gradient in the first 5 looks.")),
        ("nan", {}, ("the output of l0 is the first with NaN", "49,152 numbers of 49,152, in the sample of step 1.")),
        (
            "saturated",
            {"path": ""},
            (
                "(root) is saturated",
                "99 % of the outputs of the activation function at the model are within 2 % of its limits, "
                "where hardly any gradient passes.",
            ),
        ),
        ("rounding", {}, ("96 % of the elements of l0 (bfloat16) have a gradient but do not move", "the step is lost to rounding.")),
    ],
)
def test_an_alert_names_its_place_once(kind, given, told):
    assert words.told(watches.alert(kind, **{"path": "l0", "step": 1, **given})) == told


@pytest.mark.parametrize(
    ("value", "told"),
    [(0.0, "0 %"), (1.0, "100 %"), (0.9999, ">99.9 %"), (0.0002, "<0.1 %"), (0.996, "99.6 %"), (0.333, "33 %"), (0.0204, "2.0 %")],
)
def test_only_none_is_0_and_only_all_is_100(value, told):
    assert words.share(value) == told


# One record, several faces


@every
def test_every_face_is_the_same_each_time_and_of_nothing_but_the_record(name):
    record, again = MADE[name], watches.WATCHES[name]()
    for face in (headline.of_watch, text.of_watch, html.of_watch, packed):
        assert face(record) == face(again)
    told = text.of_watch(record)
    other = replace(record, seconds=record.seconds * 7 + 1, loop=record.loop * 3 + 1)
    assert text.of_watch(other) == told
    assert html.of_watch(other) == html.of_watch(record)


@every
def test_text_and_html_say_the_same(name):
    record = MADE[name]
    told, page = text.of_watch(record), Page(html.of_watch(record))
    assert not page.open
    shown = " ".join("".join(page.words).split())
    for check in record.verdict.checks:
        said = words.said(wording.said(check))
        assert said in told and " ".join(said.split()) in shown
    for alert in sorted(record.alerts, key=words.rank)[: html.ALERTS]:
        assert words.told(alert)[0] in told and " ".join(words.told(alert)[0].split()) in shown
    for layer in layers.of_history(record.history):
        for number in layers.names([layer]):
            if number != "weight gradient":
                assert layer.told(number) in told and layer.told(number) in shown
    assert told.splitlines()[0] == " ".join(headline.of_watch(record)).rstrip()


def test_the_numbers_of_a_layer_are_those_of_the_record():
    history = MADE["net"].history
    found = {layer.path: layer for layer in layers.of_history(history)}
    assert list(found) == ["l0", "l1", ""]
    row = history.row("l0", ACTIVATION)
    assert found["l0"].ends("mean") == (history.columns["mean"][0, row], history.columns["mean"][-1, row])
    assert found["l0"].ends("std") == pytest.approx(tuple(history.columns["var"][[0, -1], row] ** 0.5), rel=1e-6)
    assert found["l1"].curves["gradient"] == pytest.approx(history.norm(history.row("l1", GRADIENT)), rel=1e-6)
    weights, updates = ([history.row(f"l0.{name}", role) for name in ("weight", "bias")] for role in (PARAMETER, UPDATE))
    norms = [np.sqrt(sum(history.norm(row).astype(float) ** 2 for row in rows)) for rows in (weights, updates)]
    assert found["l0"].curves["weights"] == pytest.approx(norms[0], rel=1e-6)
    assert found["l0"].curves["update / weights"] == pytest.approx(norms[1] / norms[0], rel=1e-6)
    stuck = history.columns["stuck"][:, updates].astype(float) @ [12 / 15, 3 / 15]
    assert found["l0"].curves["not moved"] == pytest.approx(stuck, rel=1e-6)
    assert set(found[""].curves) == {"mean", "std", "zeros", "gradient"}


def test_where_nothing_was_sampled_the_first_and_last_sample_are_told():
    history = watches.history(watches.net_series(), 100, 10, 5)
    for column in history.columns.values():
        column[[0, 1, 9], 0] = np.nan
    first = layers.of_history(history)[0]
    assert first.ends("mean") == (history.columns["mean"][2, 0], history.columns["mean"][8, 0])


@pytest.mark.parametrize(("at", "told"), [(9, "0.5 → NaN or Inf"), (1, "0.5 → 0.7")], ids=["at last", "meanwhile"])
def test_where_numbers_were_not_finite_the_last_one_is_none(at, told):
    history = watches.history(watches.net_series(), 100, 10, 5)
    history.columns["mean"][:, 0], history.columns["bad"][:, 0] = np.linspace(0.5, 0.7, 10), 0
    history.columns["bad"][at, 0] = 3
    first = layers.of_history(history)[0]
    assert first.told("mean") == told
    assert ("NaN or Inf" in first.told("zeros")) is (at == 9)


def test_values_that_are_not_finite_one_after_the_other_are_one_area():
    bad = np.array([0, 1, 1, 0, 0, 1], bool)
    drawn = pictures._not_finite(np.array([0.0, 10, 40, 50, 60, 100]), bad, (0, 100), 0, 50)
    assert re.search(r" d='([^']*)'", drawn).group(1) == "M0 0H50v50H0ZM90 0H100v50H90Z"


def test_what_is_not_finite_is_told_with_its_step():
    record = MADE["nan"]
    broken = next(layer for layer in layers.of_history(record.history) if layer.path == "h.2.attn")
    assert broken.odd() == "49,152, seen first at step 600"
    assert broken.odd() in text.of_watch(record) and broken.odd() in html.of_watch(record)


def test_of_many_layers_some_are_left_out_and_that_is_said():
    record = watches.large(500, 10)
    record = replace(record, alerts=(watches.alert("saturated", "layers.250", 7),))
    told = text.of_watch(record)
    rows = [line for line in told.splitlines() if re.match(r"  layers\.\d", line)]
    assert len(rows) == text.ROWS and any("layers.250 " in row and "saturated" in row for row in rows)
    left = [int(count) for count in re.findall(r"(\d+) more layers: w\.history", told)]
    assert sum(left) + len(rows) == 500
    shown = html.of_watch(record)
    assert sum(int(count) for count in re.findall(r"(\d+) more layers: w\.history", shown)) + html.ROWS == 500


# The payload


@pytest.mark.parametrize("cut", [False, True])
def test_the_page_knows_whether_it_is_about_this_ranks_part(cut):
    record = replace(MADE["well"], ranks=Ranks((Axis("dp", 2, 0, cut),), 0))
    assert unpack(packed(record))[0].get("part", False) is cut


@every
def test_the_payload_holds_the_record(name):
    record = MADE[name]
    content, arrays = unpack(packed(record))
    history = record.history
    assert (content["view"], content["schema"], content["state"], content["steps"]) == ("watch", 1, record.state, record.steps)
    assert content["headline"] == list(headline.of_watch(record)) and "from" not in content
    assert [(one["path"], one["role"], one["count"]) for one in content["series"]] == [(s.path, s.role, s.count) for s in history.series]
    checks = [(name, state, wording.said(found)) for name, state, found in words.entries(record.verdict)]
    assert [(one["name"], one["state"], one["text"]) for one in content["verdict"]] == checks
    for alert, sent in zip(record.alerts, content["alerts"], strict=True):
        assert [sent[field] for field in ("kind", "path", "unit", "step", "last", "over", "text", "fix", "advice", "steps", "inputs")] == [
            alert.kind,
            alert.path,
            alert.unit,
            alert.step,
            alert.last,
            alert.over,
            wording.said(alert),
            *wording.fix_parts(alert),
            alert.steps,
            alert.inputs,
        ]
    for column in payload.COLUMNS:
        expected = np.sqrt(history.columns["var"]) if column == "std" else history.columns[column]
        assert arrays[column].dtype == np.float32 and arrays[column].shape == (len(history.first), len(history.series))
        np.testing.assert_array_equal(arrays[column], expected)
    for field in ("first", "last", "bins first", "bins last", "sampled"):
        given = record.sampled if field == "sampled" else getattr(history, field.replace(" ", "_"))
        assert arrays[field].dtype == np.uint32 and (arrays[field] == given).all()
    assert arrays["bins"].dtype == np.uint8 and (arrays["bins"] == history.bins).all()
    assert arrays["top"].dtype == np.float32 and (arrays["top"] == history.top).all()
    for i, scalar in enumerate(record.scalars):
        np.testing.assert_array_equal(arrays[f"scalar {i}"], np.stack([scalar.mean, scalar.low, scalar.high], axis=1))
        assert content["scalars"][i]["count"] == scalar.count
    for i, units in enumerate(record.units):
        assert (arrays[f"units {i} fired"] == units.fired).all() and (arrays[f"units {i} silent"] == units.silent).all()
        assert arrays[f"units {i} flat"].dtype == np.uint8 and content["units"][i]["units"] == units.fired.shape[1]
    if record.neurons is None:
        assert content["neurons"] is None
    else:
        for i, layer in enumerate(record.neurons.layers):
            assert (arrays[f"neurons {i} weights"] == layer.weights).all()
            sent = content["neurons"]["layers"][i]
            assert (sent["path"], sent["weight"], sent["units"], sent["inputs"]) == (layer.path, layer.weight, *layer.weights.shape[1:])


def spliced(old, update):
    """As the page does it: the slots before `from` stay, the rest is replaced."""
    (_, before), (content, arrays) = old, update
    begin = content["from"]

    def part(name):
        if name.startswith("scalar "):
            return begin["scalars"][int(name.split()[1])]
        if name.startswith("units "):
            return 0 if name.endswith(("silent", "flat")) else begin["units"][int(name.split()[1])]
        if name.startswith("neurons"):
            return begin["neurons"]
        return 0 if name in ("top", "sampled") else begin["bins"] if name.startswith("bins") else begin["history"]

    return {name: np.concatenate([before[name][: part(name)], array]) if part(name) else array for name, array in arrays.items()}


@pytest.mark.parametrize("name", ["net", "gpt", "nan", "one_sample", "hostile"])
@pytest.mark.parametrize("share", [0.01, 0.6, 1.0])
def test_what_the_page_has_and_an_update_are_the_full_payload(name, share):
    record = MADE[name]
    before = watches.earlier(record, share)
    update = packed(record, since=payload.Marks.open_ends(before), live=True)
    full = unpack(packed(record, live=True))
    content, _ = made = unpack(update)
    rebuilt = spliced(unpack(packed(before, live=True)), made)
    assert set(rebuilt) == set(full[1])
    for field, array in full[1].items():
        np.testing.assert_array_equal(rebuilt[field], array, field)
    assert {key: value for key, value in content.items() if key not in ("from", "arrays")} == {
        key: value for key, value in full[0].items() if key != "arrays"
    }
    assert share < 0.5 or len(update) < len(packed(record, live=True))


def test_a_curve_that_came_later_is_sent_whole():
    record = MADE["gpt"]
    marks = replace(payload.Marks.open_ends(record), scalars=(5,))
    content, arrays = unpack(packed(record, since=marks))
    assert content["from"]["scalars"] == [5, 0, 0]
    assert len(arrays["scalar 0"]) == len(record.scalars[0].mean) - 5 and len(arrays["scalar 1"]) == len(record.scalars[1].mean)


# Sizes


@every
def test_an_output_at_rest_is_small(name):
    record = MADE[name]
    made = payload.fitting(record, "w", "0")
    assert len(gzip.compress(made, 9, mtime=0)) <= payload.BUDGET
    assert len(html.of_watch(record).encode()) <= 120_000


def test_a_run_of_a_hundred_series_fits_and_says_what_it_merged():
    record = MADE["gpt"]
    assert len(record.history.series) >= 100 and len(record.history.first) == 200
    content, arrays = unpack(payload.fitting(record, "w", "0"))
    assert len(content["series"]) == len(record.history.series)
    assert 50 <= len(arrays["first"]) <= 200
    if len(arrays["first"]) < 200:
        assert any("slots of the history are merged" in remark for remark in content["remarks"])


def test_of_a_huge_model_layers_are_left_out_and_alerts_are_not():
    record = watches.large(1_500)
    made = payload.fitting(record, "w", "0")
    assert len(gzip.compress(made, 9, mtime=0)) <= payload.BUDGET
    content, arrays = unpack(made)
    kept = {one["path"] for one in content["series"]}
    assert "layers.1234" in kept and len(arrays["first"]) >= 8
    assert arrays["mean planes"].shape == (4, len(content["series"]), len(arrays["first"]))
    assert len(content["series"]) < len(record.history.series)
    assert [alert["path"] for alert in content["alerts"]] == ["layers.1234"]
    assert any("layers left out to keep this output small" in remark for remark in content["remarks"])
    assert len(html.of_watch(record).encode()) <= 120_000


def test_as_many_slots_are_kept_as_fit():
    """Neighbours are merged by any number, and the size is asked of what is rounded: neither halves the slots once too often."""
    record = watches.gpt(150, 24)
    content, arrays = unpack(made := payload.fitting(record, "w", "0"))
    slots = len(arrays["first"])
    assert len(content["series"]) == len(record.history.series) and slots < len(record.history.first)
    assert 0.7 * payload.BUDGET < len(gzip.compress(made, 6, mtime=0)) <= payload.BUDGET
    assert slots >= 35 and len(record.history.series) > 250
    assert [len(merging.starts(150, most)) for most in (1, 30, 34, 75, 149, 150)] == [1, 30, 30, 75, 75, 150]


def test_a_small_output_has_the_bytes_of_its_numbers_apart():
    record = MADE["nan"]
    _, arrays = unpack(packed(record, limit=10))
    for name, column in limits.of_watch(record, 10)[0].history.columns.items():
        if name in payload.COLUMNS:
            planes = arrays[f"{name} planes"]
            numbers = np.ascontiguousarray(planes.transpose(2, 1, 0)).view("<f4")[..., 0]
            np.testing.assert_array_equal(numbers, column.astype(np.float32), name)
            assert name not in arrays


def test_a_net_of_many_wide_layers_is_a_small_picture():
    random = np.random.default_rng(3)
    made = [
        Layer(f"l{i}", f"l{i}.weight", *(random.normal(size=(2, *shape)).astype(np.float32) for shape in ((64, 64), (64,), (64,))))
        for i in range(6)
    ]
    net = NeuronsRecord(np.array([0, 1]), np.array([0, 1]), tuple(made))
    drawn = pictures.neurons(net, {}, "a net")
    assert len(drawn) <= 70_000 and drawn.count("%3Cpath") == 6 * (320 // 6)
    assert pictures.neurons(replace(net, layers=(made[0],)), {}, "").count("%3Cpath") == 240


def test_many_alerts_are_cut_and_that_is_said():
    alerts = tuple(watches.alert("dead", "l0", step, unit=step) for step in range(2_000))
    record, said = limits.of_watch(replace(MADE["net"], alerts=alerts), 64)
    assert len(record.alerts) == limits.ALERTS and any("1,500 alerts" in one for one in said)
    assert len(html.of_watch(replace(MADE["net"], alerts=alerts)).encode()) <= 120_000


# Merging


def test_merged_slots_keep_extremes_counts_and_moments():
    record = MADE["nan"]
    history = record.history
    merged = merging.of_history(history, 10)
    assert len(merged.first) == 10 and merged.first[0] == 0 and merged.last[-1] == history.last[-1]
    for name in COLUMNS:
        old, new = (one.columns[name].astype(float) for one in (history, merged))
        groups = old.reshape(10, 4, -1)
        with np.errstate(all="ignore"):
            if name == "samples":
                expected = groups.sum(axis=1)
            elif name in ("high", "bad"):
                expected = np.fmax.reduce(groups, axis=1)
            elif name == "low":
                expected = np.fmin.reduce(groups, axis=1)
            elif name == "var":
                means = history.columns["mean"].astype(float).reshape(10, 4, -1)
                expected = (groups + means**2).mean(axis=1) - means.mean(axis=1) ** 2
            else:
                expected = groups.mean(axis=1)
        np.testing.assert_allclose(new, expected, rtol=2e-4, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 9, 64, 100, 255])
@pytest.mark.parametrize("most", [1, 2, 8, 63])
def test_merging_covers_every_step_once(count, most):
    record = watches.net(1_000, count)
    history = merging.of_history(record.history, most)
    assert len(history.first) <= most or count <= most
    assert history.first[0] == 0 and history.last[-1] == record.history.last[-1]
    assert set(history.first) <= set(record.history.first) and (np.diff(history.first) > 0).all()
    assert np.nansum(history.columns["samples"]) == np.nansum(record.history.columns["samples"])
    units = merging.of_units(record.units[0], most)
    assert (units.fired.sum(axis=0) == record.units[0].fired.sum(axis=0)).all() and units.inputs.sum() == record.units[0].inputs.sum()
    scalar = merging.of_scalar(record.scalars[0], most)
    assert headline.extremes(scalar) == headline.extremes(record.scalars[0])
    assert float(np.average(scalar.mean, weights=np.diff(np.append(scalar.first, 1_000)))) == pytest.approx(
        float(np.average(record.scalars[0].mean, weights=np.diff(np.append(record.scalars[0].first, 1_000)))), rel=1e-5
    )
    bins = merging.of_bins(record.history, most)
    assert ((bins.bins > 0).any(axis=0) == (record.history.bins > 0).any(axis=0)).all()


def test_nothing_that_is_given_is_changed():
    record = watches.gpt(64, 2)
    before = pickle.dumps(record)
    limits.of_watch(record, 10)
    payload.fitting(record, "w", "0")
    text.of_watch(record), html.of_watch(record), columns.of_history(record)
    assert pickle.dumps(record) == before


# Hostile names


_STYLES = {"text-align:left", "text-align:left;white-space:normal;min-width:17em"}  # ours: what a user wrote is in none


def test_what_users_wrote_is_text():
    record = MADE["hostile"]
    page = html.of_watch(record)
    read = Page(page)
    assert not read.open
    tags = {tag for tag, _ in read.tags}
    assert tags <= {
        "style",
        "div",
        "ul",
        "li",
        "em",
        "strong",
        "i",
        "br",
        "code",
        "figure",
        "figcaption",
        "img",
        "p",
        "b",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "small",
    }
    assert sum(tag == "style" for tag, _ in read.tags) == 1
    for tag, attributes in read.tags:
        names = {name for name, _ in attributes}
        assert names <= {"class", "title", "src", "alt", "width", "height", "style"}, tag
        assert all(value in _STYLES for name, value in attributes if name == "style"), tag
    for source in (value for tag, attributes in read.tags for name, value in attributes if name == "src"):
        assert source.startswith("data:image/svg+xml,")
    told = text.of_watch(record)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", told)
    assert max(map(len, told.splitlines())) < 4_000


@pytest.mark.parametrize("name", ["net", "gpt", "nan", "hostile", "one_sample"])
def test_the_pictures_are_drawings_of_finite_numbers(name):
    sources = re.findall(r'<img src="([^"]*)"', html.of_watch(MADE[name]))
    assert sources
    for source in sources:
        drawn = unquote(unescape(source).removeprefix("data:image/svg+xml,"))
        root = ElementTree.fromstring(drawn)
        assert root.tag.endswith("svg") and len(root)
        assert not re.search(r" (d|x|y|cx|cy|r|width|height|stroke-width)='[^']*(nan|inf)", drawn)
        assert {child.tag.rpartition("}")[2] for child in root.iter()} <= {"svg", "g", "path", "text", "circle", "image"}


def test_every_picture_is_told_in_words():
    for name in ("net", "gpt", "nan"):
        for tag, attributes in Page(html.of_watch(MADE[name])).tags:
            assert tag != "img" or dict(attributes)["alt"]
    assert "unit 1 of l0 is dead" in html.of_watch(MADE["net"])


def test_without_style_and_pictures_it_can_be_read():
    page = re.sub(r"<style>.*?</style>|<img[^>]*>", "", html.of_watch(MADE["net"]), flags=re.S)
    words_left = "".join(Page(page).words)
    assert "✕ its units fire" in words_left and "unit 2 of l0 starves, step 7,200:" in words_left and "0.502 → 0.362" in words_left


def test_a_watch_has_its_own_front_end(monkeypatch):
    asked = []
    monkeypatch.setattr(frame, "_packed", lambda name: asked.append(name) or "AAAA")
    page = frame.frame("watch", ("a", "b"), "", b"x", "1.2")
    assert asked == ["watch.js"] and '(document.currentScript,"1.2+watch","' in page
    frame.frame("tree", ("a", "b"), "", b"x", "1.2")
    assert asked == ["watch.js", "still.js"]
    frame.frame("watch", ("a", "b"), "", None, "1.2")
    assert len(asked) == 2


# Columns


@pytest.mark.parametrize("name", ["waiting", "net", "gpt", "nan", "hostile"])
def test_the_columns_are_the_history(name):
    record = MADE[name]
    found = columns.of_history(record)
    assert tuple(found) == columns.NAMES and len({len(column) for column in found.values()}) == 1
    history = record.history
    assert len(found["path"]) == np.nansum(history.columns["samples"] > 0)
    for i, one in enumerate(history.series[:7]):
        mine = np.array([(path, role) == (one.path, one.role) for path, role in zip(found["path"], found["role"], strict=True)])
        if sum((other.path, other.role) == (one.path, one.role) for other in history.series) > 1:
            continue
        np.testing.assert_array_equal(found["first"][mine], history.first)
        np.testing.assert_array_equal(found["mean"][mine], history.columns["mean"][:, i])
        np.testing.assert_allclose(found["l2"][mine], history.norm(i), rtol=1e-5)


def test_the_ratio_is_told_of_updates_alone():
    record = MADE["net"]
    found, history = columns.of_history(record), record.history
    mine = (found["path"] == "l1.weight") & (found["role"] == UPDATE)
    expected = history.norm(history.row("l1.weight", UPDATE)) / history.norm(history.row("l1.weight", PARAMETER))
    np.testing.assert_allclose(found["ratio"][mine], expected, rtol=1e-5)
    assert np.isnan(found["ratio"][found["role"] != UPDATE]).all()


# Figures


@every
@pytest.mark.parametrize("which", ["gradients", "activations", "updates", "loss", "units"])
def test_every_watch_can_be_drawn(name, which):
    pytest.importorskip("matplotlib")
    from modlab.views.watch import figure

    made = figure.of_watch(MADE[name], which)
    made.canvas.draw()
    assert made.axes and all(ax.get_title("left") for ax in made.axes if ax.get_label() != "<colorbar>")


def test_a_figure_shows_the_record():
    pytest.importorskip("matplotlib")
    from modlab.views.watch import figure

    history = MADE["net"].history
    ax = figure.of_watch(MADE["net"], "gradients").axes[0]
    lines = {line.get_label(): line.get_ydata() for line in ax.lines}
    np.testing.assert_allclose(lines["l0"], history.norm(history.row("l0", GRADIENT)), rtol=1e-5)
    heat = figure.of_watch(MADE["gpt"], "gradients").axes[0].collections[0].get_array()
    history = MADE["gpt"].history
    np.testing.assert_allclose(heat[0], history.norm(history.row("wte", GRADIENT)), rtol=1e-5)
    texts = [text.get_text().strip() for text in figure.of_watch(MADE["net"], "units").axes[0].texts]
    assert texts == ["l0[1] dead", "l0[2] starving"]


def test_a_figure_takes_axes_and_knows_its_names():
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    from modlab.views.watch import figure

    ax = Figure().add_subplot()
    for which in ("gradients", "updates", "loss", "units"):
        assert figure.of_watch(MADE["net"], which, ax=ax) is ax.get_figure()
    with pytest.raises(UnknownFigureError, match=r"'gradient'.*\n.*Nearest: 'gradients'"):
        figure.of_watch(MADE["net"], "gradient")
    with pytest.raises(UnknownFigureError, match="'gradients', 'activations'"):
        figure.of_watch(MADE["net"], 3)


def test_the_name_of_a_mark_stands_above_the_curves():
    drawn = unquote(pictures.curves([("fork", np.arange(5.0), "red")], (0, 4), [(2, "with lr = 0.1")], "loss", "alt"))
    (at,) = re.findall(r"y='(\d+)'[^>]*>with lr = 0.1<", drawn)
    assert int(at) < 26


def test_a_small_picture_has_its_words_in_full_and_as_large():
    curve = np.linspace(1, 2, 5)
    marks, lines = [(2, "with 1.p = 0.25 and lr = 0.001")], [("original", curve, "red"), ("unchanged fork", curve, "red")]
    drawn = unquote(pictures.curves(lines, (0, 4), marks, "loss", "alt", 330, 190))
    (x, y, said) = re.findall(r"<text x='([\d.]+)' y='(\d+)'[^>]*>(with [^<]*)<", drawn)[0]
    assert float(x) + 6.2 * len(said) < 330 and said == marks[0][1]  # in a line of their own, below the names
    assert 17 < int(y) < min(float(at) for at in re.findall(r"L[\d.]+ ([\d.]+)", drawn))
    assert set(re.findall(r"font-size='(\d+)'", drawn)) == {"11"}


def test_time_is_even_and_nothing_is_known_behind_the_last_sample():
    first, last = np.array([0, 1, 50, 99]), np.array([0, 1, 50, 99])
    found = pictures.over_time(np.array([1.0, 2.0, 3.0, np.nan]), first, last, 100, 10)
    assert np.array_equal(found, [2, 2, 2, 2, 2, 3, *[np.nan] * 4], equal_nan=True)
    assert np.isnan(pictures.over_time(np.full(4, np.nan), first, last, 100, 10)).all()
    assert pictures.over_time(np.array([1.0, np.inf]), np.array([0, 2]), np.array([1, 2]), 3, 160).tolist() == [1, 1, np.inf]


def test_a_picture_at_rest_of_a_training_that_goes_on_says_that_it_does_not_move():
    said = "a picture of this moment, which does not move on"
    feet = [unpack(payload.of_watch(MADE[name], "w", "1", live=live))[0]["foot"] for name in ("waiting", "net") for live in (False, True)]
    assert [said in foot for foot in feet] == [True, False, False, False]
    assert [said in html.of_watch(MADE[name]) for name in ("waiting", "net")] == [True, False]


@pytest.mark.parametrize(("seconds", "loop", "says"), [(0.11, 1.0, True), (0.01, 1.0, False), (11.0, 100.0, False)])
def test_the_foot_says_why_a_short_run_costs_more_than_its_budget(seconds, loop, says):
    foot = payload.foot(replace(MADE["net"], seconds=seconds, loop=loop, budget=0.02))
    assert f"cost {words.share(seconds / loop)} of the loop (budget 2.0 %" in foot
    assert ("which a run this short cannot keep to)" in foot) == says


def luminance(colour: str, brighter: float = 1.0) -> float:
    """As WCAG has it."""
    shares = [min(1.0, int(colour[i : i + 2], 16) / 255 * brighter) for i in (1, 3, 5)]
    red, green, blue = (one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in shares)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("ink", [pictures.INK, pictures.BAD])
def test_what_is_written_in_a_picture_can_be_read_on_light_and_on_dark_ground(ink):
    assert 1.05 / (luminance(ink) + 0.05) >= 4.5
    for ground, style in (("#111111", frame.static_file("watch.css")), ("#16191d", page._STYLE)):  # JupyterLab's, and a saved page's
        (brighter,) = re.findall(r"\.modlab-static img\{filter:brightness\(([\d.]+)\)\}", style)
        assert (luminance(ink, float(brighter)) + 0.05) / (luminance(ground) + 0.05) >= 4.5


def test_a_curve_with_more_steps_than_pixels_shows_its_extremes():
    values = np.ones(3000)
    values[1500], values[1800], values[2999] = 1e9, 1e-3, np.nan
    drawn = unquote(pictures.curves([("fork", values, "red")], (0, 2999), [], "loss", "alt"))
    assert {words.number(1e9), words.number(1e-3)} < set(re.findall(r">([^<>]+)</text>", drawn))
    (band,) = re.findall(r"<path d='([^']+)Z' fill='red'", drawn)
    heights = [float(one) for one in re.findall(r"[ML][\d.]+ ([\d.]+)", band)]
    assert (min(heights), max(heights)) == (26, 150)  # the edges of the plot: what the axis says is reached
    mean, low, high = pictures.binned(values, 100)
    assert (low.min(), high.max(), np.isnan(mean).sum()) == (1e-3, 1e9, 1)
    assert pictures.binned(np.array([1.0, np.inf]), 9).tolist()[0] == [1.0, np.inf]


@pytest.mark.parametrize(("values", "said"), [(np.arange(5.0), "loss"), (10.0 ** np.arange(5), "loss, log")])
def test_an_axis_says_what_it_has_and_whether_its_scale_is_logarithmic(values, said):
    drawn = unquote(pictures.curves([("fork", values, "red")], (0, 4), [], "loss", "alt"))
    assert re.findall(r">(loss[^<]*)<", drawn) == [said]


def test_a_figure_touches_no_global_state():
    pytest.importorskip("matplotlib")
    code = """
import sys, matplotlib
from tests import watches
from modlab.views.watch import figure
def settings():
    return {name: dict.__getitem__(matplotlib.rcParams, name) for name in matplotlib.rcParams}  # asking plainly would choose a backend
before = settings()
figure.of_watch(watches.gpt(20, 2), "gradients")
print("matplotlib.pyplot" in sys.modules, before == settings())
"""
    answer = subprocess.run([sys.executable, "-c", code], cwd=HERE.parent, capture_output=True, text=True, check=True)
    assert answer.stdout.split() == ["False", "True"]


# Fixtures of the front end


@pytest.mark.parametrize("name", FIXTURES)
def test_fixtures_of_the_front_end(name):
    record, before = FIXTURES[name]
    since = payload.Marks.open_ends(before) if before is not None else None
    agree(HERE / "fixtures" / f"{name}.bin", packed(record, live=name in ("watch_part", "watch_update"), since=since))


def test_the_loss_is_read_closely_however_large_the_history_is():
    record = MADE["net"]
    fewer = merging.of_watch(record, 4)
    assert len(fewer.history.first) <= 4 < len(record.history.first)
    assert [len(one.first) for one in fewer.scalars] == [len(one.first) for one in record.scalars]
    many = replace(record, scalars=record.scalars * 100)
    assert max(len(one.first) for one in merging.of_watch(many, 4).scalars) <= 2048 // len(many.scalars)
