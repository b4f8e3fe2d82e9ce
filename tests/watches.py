"""Watches to test the faces with: plain numbers, made up, but such as a run gives them. No torch is needed."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from modlab import wording
from modlab.records.finding import Fact, Finding, Remedy
from modlab.records.slots import COLUMNS
from modlab.records.watch import (
    ACTIVATION,
    BINS,
    GRADIENT,
    PARAMETER,
    PARAMETER_GRADIENT,
    UPDATE,
    Alert,
    Check,
    HistoryRecord,
    Layer,
    NeuronsRecord,
    ScalarRecord,
    Series,
    UnitsRecord,
    Verdict,
    WatchRecord,
)
from modlab.wording import checks
from tests import zoo

BROKEN = ("nan", "inf", "not owned", "no gradient", "dead", "exploding")
CHECKS = (
    "data arrives",
    "the loss is sensible",
    "every module is called",
    "every trained parameter gets a gradient",
    "the optimizer owns it",
    "it moves",
    "by enough for its dtype",
    "the loss falls",
)


def verdict(texts: dict[str, str] | None = None, *findings: Finding, **checks: Check) -> Verdict:
    """All passed, with the given texts; `checks` (with _ for spaces) stand for others."""
    given = {name.replace("_", " "): check for name, check in checks.items()}
    return Verdict(tuple(given.get(name, check(name, "passed", (texts or {}).get(name, ""))) for name in CHECKS), findings)


def slots_of(steps: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The first and the last step of `count` slots that span `steps` steps."""
    edges = np.linspace(0, steps, count + 1).astype(np.int64)
    return edges[:-1], np.maximum(edges[1:] - 1, edges[:-1])


def history(series: list[Series], steps: int, slots: int, histograms: int, seed: int = 0) -> HistoryRecord:
    """Every series wanders a little; the deeper, the smaller the gradient."""
    random = np.random.default_rng(seed)
    first, last = slots_of(steps, slots)
    shape = (slots, len(series))
    walk = np.cumsum(random.normal(0, 0.03, shape), axis=0)
    size = {ACTIVATION: 0.5, GRADIENT: 2e-3, PARAMETER: 0.4, PARAMETER_GRADIENT: 1e-2, UPDATE: 4e-4}
    scale = np.array([size[one.role] for one in series]) * np.exp(walk)
    columns = {
        "samples": np.ones(shape),
        "mean": scale * random.normal(0, 0.2, shape),
        "var": scale**2,
        "low": -3 * scale,
        "high": 3 * scale,
        "zeros": np.where([one.role == ACTIVATION for one in series], np.clip(0.3 + walk / 5, 0, 1), 0.0),
        "bad": np.zeros(shape),
        "stuck": np.where([one.role == UPDATE for one in series], np.clip(0.02 + walk / 20, 0, 1), np.nan),
    }
    bins_first, bins_last = slots_of(steps, histograms)
    at = np.abs(np.arange(BINS) - 32)
    shares = np.exp(-(((at - 22 - 2 * random.random((histograms, len(series), 1))) / 5) ** 2))
    shares[..., 32] = 0.2
    return HistoryRecord(
        tuple(series),
        first,
        last,
        {name: columns[name].astype(np.float32) for name in COLUMNS},
        bins_first,
        bins_last,
        np.rint(shares * 90).astype(np.uint8),
        np.array([2] * len(series), dtype=np.int16),
    )


def scalar(name: str, steps: int, slots: int, begin: float, end: float, seed: int = 1) -> ScalarRecord:
    """A curve that falls from `begin` to `end`, with its noise as a band."""
    random = np.random.default_rng(seed)
    first, last = slots_of(steps, slots)
    mean = end + (begin - end) * np.exp(-np.linspace(0, 6, slots)) * np.exp(random.normal(0, 0.05, slots))
    sides = [(mean * factor).astype(np.float32) for factor in (1.0, 0.6, 1.7)]
    return ScalarRecord(name, first, last, *sides, np.zeros(slots, dtype=np.int64), steps, float(mean[-1]))


FACTS: dict[str, dict[str, Fact]] = {
    "dead": {"fired": 0},
    "starving": {"share": 0.02, "before": 0.33},
    "vanishing": {"first": 1.1e-8, "last": 1.2},
    "exploding": {"first": 1.2e5, "last": 1.2},
    "rounding": {"share": 0.96, "dtype": "bfloat16"},
    "nan": {"seen": "sample", "where": "", "role": ACTIVATION, "bad": 49_152, "numbers": 49_152},
    "not owned": {"optimizer": "SGD"},
    "no gradient": {"called": True},
    "saturated": {"share": 0.99},
}
"""What an alert of each kind may rest on."""


def alert(kind: str, path: str, step: int, *fixes: Remedy, **how: Any) -> Alert:
    facts = {**FACTS[kind], "inputs": how.get("inputs", 0)}
    return Alert(kind, path, facts, "broken" if kind in BROKEN else "careful", step, fixes=fixes, **how)


checks.CHECKS["as told"] = lambda facts: str(facts["told"])


def check(name: str, state: str, text: str = "", *fixes: Remedy, path: str = "", **facts: Fact) -> Check:
    """One whose words are given."""
    severity = state if state in ("broken", "careful") else "note"
    return Check("as told" if text else "", path, {"told": text, **facts}, severity, fixes=fixes, name=name, state=state)


def falls(one: ScalarRecord) -> Check:
    """The check of a curve that falls, in its own numbers."""
    first, last = one.ends()
    facts = {"first": first, "last": last, "averaged": one.averaged}
    return Check("falls", facts=facts, name="the loss falls", state="passed")


def sensible(one: ScalarRecord) -> Check:
    return Check("finite values", facts={"count": one.count}, name="the loss is sensible", state="passed")


def waiting() -> WatchRecord:
    none = np.zeros(0, dtype=np.int64)
    empty = HistoryRecord(
        (),
        none,
        none,
        {name: np.zeros((0, 0), dtype=np.float32) for name in COLUMNS},
        none,
        none,
        np.zeros((0, 0, BINS), dtype=np.uint8),
        np.zeros(0, dtype=np.int16),
    )
    checks = tuple(check(name, "not seen", "no training step yet") for name in CHECKS)
    return WatchRecord("Net", "", "waiting", 0, 0, 0, none, 0.0, 0.0, 0.02, empty, verdict=Verdict(checks), modules=3)


def without_steps() -> WatchRecord:
    return replace(waiting(), state="ended")


def net_series() -> list[Series]:
    shapes = {"l0": (3,), "l1": (1,), "": (1,)}
    parameters = {"l0.weight": (4, 3), "l0.bias": (3,), "l1.weight": (3, 1), "l1.bias": (1,)}
    kinds = {"l0": "linear", "l1": "linear", "": "own"}
    series = [Series(path, role, int(np.prod(s)), s, kinds[path]) for role in (ACTIVATION, GRADIENT) for path, s in shapes.items()]
    for role in (PARAMETER, PARAMETER_GRADIENT, UPDATE):
        series += [Series(path, role, int(np.prod(s)), s) for path, s in parameters.items()]
    return series


def units_of_net(steps: int, windows: int = 40) -> UnitsRecord:
    """Unit 0 fires on half of the inputs, unit 1 on none, unit 2 on 33 % at first and 2 % at last."""
    first, last = slots_of(steps, windows)
    inputs = last - first + 1
    rates = np.stack([np.full(windows, 0.5), np.zeros(windows), 0.02 + 0.31 * np.exp(-np.linspace(0, 8, windows))], axis=1)
    fired = np.rint(rates * inputs[:, None]).astype(np.int64)
    silent, flat = np.array([1, int(inputs.sum()), 40]), np.array([False, True, False])
    return UnitsRecord("l0", "the input of l1", first, last, inputs, fired, silent, flat)


def neurons_of_net(steps: int, slots: int = 60) -> NeuronsRecord:
    first, last = slots_of(steps, slots)
    fade = np.exp(-np.linspace(0, 3, slots))[:, None, None]
    w0 = np.random.default_rng(3).normal(0, 1, (1, 3, 4)) * fade
    w1 = np.array([[[-0.4, 0.4113, 0.95]]]) * np.concatenate([fade, 1 - 0.1 * (1 - fade), fade], axis=2)
    a0 = np.stack([0.4 * fade[:, 0, 0], np.zeros(slots), 0.2 * fade[:, 0, 0] ** 2], axis=1)
    flows = [(a0, a0 * 0.3), (a0[:, :1], np.ones((slots, 1)))]
    layers = [
        Layer(path, f"{path}.weight", w.astype(np.float32), a.astype(np.float32), g.astype(np.float32))
        for (path, w), (a, g) in zip((("l0", w0), ("l1", w1)), flows, strict=True)
    ]
    return NeuronsRecord(first, last, tuple(layers))


def net(steps: int = 10_000, slots: int = 64) -> WatchRecord:
    """The note's Net with seed 63: unit 1 of l0 is dead, unit 2 starves."""
    seen = min(steps, 9_640)
    dead = alert("dead", "l0", 310, Remedy("keep units alive"), unit=1, steps=seen, inputs=seen, last=steps - 1)
    starving = alert("starving", "l0", 7_200, unit=2, inputs=seen, steps=seen)
    facts = {"dead": 1, "units": 3, "which": (1,), "inputs": seen}
    gone = Finding("dead units", "l0", facts, "broken", 310, fixes=(Remedy("keep units alive"),))
    loss = scalar("loss", steps, 100, 1.2, 0.004)
    return WatchRecord(
        "Net",
        "SGD",
        "ended",
        steps,
        143,
        seen,
        np.unique(np.geomspace(1, steps, 143).astype(np.int64)) - 1,
        0.018,
        1.06,
        0.02,
        history(net_series(), steps, slots, slots // 2),
        (units_of_net(steps),),
        neurons_of_net(steps),
        (loss,),
        (dead, starving),
        verdict({"data arrives": f"{steps:,} steps"}, gone, the_loss_is_sensible=sensible(loss), the_loss_falls=falls(loss)),
        (),
        "",
        3,
    )


def well(steps: int = 10_000) -> WatchRecord:
    """Seed 1: nothing is wrong."""
    record = net(steps)
    return replace(record, alerts=(), units=(), neurons=None, verdict=replace(record.verdict, findings=(between(record),)))


def between(record: WatchRecord) -> Finding:
    return Finding("steps between looks", facts={"looks": record.samples, "steps": record.steps})


def unlogged() -> WatchRecord:
    hint = "add w.log(loss=loss)"
    unseen = {name.replace(" ", "_"): check(name, "not seen", hint) for name in ("the loss is sensible", "the loss falls")}
    return replace(well(), scalars=(), verdict=verdict({}, Finding("loss not seen", facts={"names": ()}), between(well()), **unseen))


def running() -> WatchRecord:
    return replace(well(1_200), state="running")


def gpt_series(blocks: int) -> list[Series]:
    inner = {"ln_1": ("norm", (8, 64, 96)), "attn": ("own", (8, 64, 96)), "mlp": ("linear", (8, 64, 96))}
    modules = [(f"h.{i}.{name}", kind, shape) for i in range(blocks) for name, (kind, shape) in inner.items()]
    modules = [("wte", "embedding", (8, 64, 96)), *modules, ("lm_head", "linear", (8, 64, 512)), ("", "own", (8, 64, 512))]
    series = [Series(path, role, int(np.prod(s)), s, kind) for role in (ACTIVATION, GRADIENT) for path, kind, s in modules]
    own = [(f"{path}.weight", (96, 96)) for path, kind, _ in modules if kind in ("linear", "norm", "embedding")]
    for role in (PARAMETER, PARAMETER_GRADIENT, UPDATE):
        series += [Series(path, role, int(np.prod(s)), s, note="≈ from 4,096 of its numbers" * (role == UPDATE)) for path, s in own]
    return series


def gpt(slots: int = 200, blocks: int = 8, steps: int = 20_000) -> WatchRecord:
    """About a hundred series in 200 slots, three curves, a gradient that vanishes, weights that do not move."""
    series = gpt_series(blocks)
    record = history(series, steps, slots, slots // 2, seed=5)
    for i, one in enumerate(series):
        block = int(one.path.split(".")[1]) if one.path.startswith("h.") else blocks
        if one.role in (GRADIENT, PARAMETER_GRADIENT):
            for name, power in (("mean", 1), ("var", 2), ("low", 1), ("high", 1)):
                record.columns[name][:, i] *= 0.25 ** ((blocks - block) * power)
    first, last = slots_of(steps, 50)
    fired = np.random.default_rng(2).integers(100, 4_000, (50, 96))
    units = UnitsRecord("h.1.mlp", "relu", first, last, np.full(50, 4_096), fired, np.zeros(96, dtype=np.int64), np.zeros(96, dtype=bool))
    alerts = (
        alert("vanishing", "h.0.attn", 400, Remedy("carry the gradient"), steps=200),
        alert("rounding", "lm_head.weight", 90, Remedy("more bits"), steps=150),
        alert("exploding", "wte", 12, Remedy("carry the gradient"), steps=10, over=True, last=60),
    )
    scalars = (scalar("loss", steps, slots, 6.2, 2.1), scalar("lr", steps, slots, 3e-4, 1e-5), scalar("accuracy", steps, slots, 0.01, 0.6))
    copy = Remedy(advice="keep a float32 copy")
    careful = check("by enough for its dtype", "careful", "96 % of its elements do not move", copy, path="lm_head.weight")
    return WatchRecord(
        "GPT2LMHeadModel",
        "AdamW",
        "ended",
        steps,
        4_000,
        2_560_000,
        np.arange(0, steps, 5),
        3.0,
        210.0,
        0.02,
        record,
        (units,),
        None,
        scalars,
        alerts,
        verdict({}, by_enough_for_its_dtype=careful, the_loss_falls=falls(scalars[0])),
        ("lm_head and wte share one weight: it is told once, at wte",),
        "",
        30,
    )


def nan() -> WatchRecord:
    """A NaN is born at step 612 in a layer in the middle, and spreads."""
    record = replace(gpt(40, 4, 1_000))
    born = 24
    for i, one in enumerate(record.history.series):
        if one.role == ACTIVATION and one.path in ("h.2.attn", "h.2.mlp", "lm_head", ""):
            for name in ("mean", "var", "low", "high"):
                record.history.columns[name][born:, i] = np.nan
            record.history.columns["bad"][born:, i] = one.count
    loss = scalar("loss", 1_000, 40, 6.2, 2.1)
    for side in (loss.mean, loss.low, loss.high):
        side[born:] = np.nan
    loss.bad[born:] = 25
    trace = "h.2.attn makes NaN: softmax of a row of -Inf."
    born = alert("nan", "h.2.attn", 612, Remedy(advice="leave no row masked whole"), steps=1, inputs=8, last=999, trace=trace)
    loss = replace(loss, final=float("nan"), nan=int(loss.bad.sum()), bad_step=612)
    facts = {"nan": loss.nan, "inf": 0, "count": loss.count, "last": "nan"}
    finding = Finding("loss not finite", "loss", facts, "broken", 612)
    insane = check("the loss is sensible", "broken", wording.said(finding))
    broken = Check("last value not finite", "", {"last": loss.final}, "broken", name="the loss falls", state="broken")
    told = verdict({}, finding, the_loss_is_sensible=insane, the_loss_falls=broken)
    return replace(record, scalars=(loss,), alerts=(born,), verdict=told, units=())


def failed() -> WatchRecord:
    """The watch itself failed."""
    return replace(well(812), state="failed", error="ValueError: a reading without a row")


def raised() -> WatchRecord:
    """The training failed."""
    return replace(well(812), state="ended", error="RuntimeError: mat1 and mat2 shapes cannot be multiplied (1x5 and 4x4)\nmore")


def interrupted() -> WatchRecord:
    return replace(net(5_121), state="interrupted")


def unowned() -> WatchRecord:
    """The optimizer was made before the layer was replaced."""
    text = "the optimizer holds 2 of 4 trained parameters"
    fix = Remedy(code="optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)")
    broken = check("the optimizer owns it", "broken", text, fix, path="l1.weight")
    lost = alert("not owned", "l1.weight", 0, Remedy("or leave it", "optimizer.add_param_group({'params': [...]})"), steps=30)
    record = well()
    told = verdict({}, the_optimizer_owns_it=broken, the_loss_falls=falls(record.scalars[0]))
    return replace(record, alerts=(lost,), verdict=told, state="stopped")


def hostile() -> WatchRecord:
    """The worst of names wherever a string can stand."""
    names = zoo.HOSTILE
    series = [Series(name, role, 4, (2, 2), "own", name) for role in (ACTIVATION, GRADIENT) for name in names]
    series += [Series(f"{name}.{name}", role, 4, (2, 2), "own", name) for role in (PARAMETER, UPDATE) for name in names]
    alerts = [alert("dead", name, 1, Remedy(code=name), unit=0, inputs=1_000, trace=name) for name in names]
    alerts += [replace(alert("not owned", names[1], 2, Remedy(advice=names[2])), facts={"optimizer": names[4]})]
    first, last = slots_of(100, 8)
    ones = np.ones((8, 2), dtype=np.int64)
    units = UnitsRecord(names[0], names[1], first, last, last - first + 1, ones, ones[0] * 0, np.zeros(2, dtype=bool))
    flows = np.ones((8, 2), dtype=np.float32)
    neurons = NeuronsRecord(first, last, (Layer(names[0], names[1], np.ones((8, 2, 3), dtype=np.float32), flows, flows),))
    checks = [check(CHECKS[0], "passed", names[1]), *(check(CHECKS[1], "broken", name, Remedy(code=name), path=name) for name in names)]
    return WatchRecord(
        names[0],
        names[1],
        "failed",
        100,
        8,
        100,
        np.arange(8),
        0.1,
        1.0,
        0.02,
        history(series, 100, 8, 4),
        (units,),
        neurons,
        tuple(replace(scalar("loss", 100, 8, 2, 1), name=name) for name in names),
        tuple(alerts),
        Verdict(tuple(checks)),
        tuple(names),
        names[4],
        len(names),
    )


def one_sample() -> WatchRecord:
    """A single step: one slot of everything."""
    return replace(net(1, 1), steps=1, samples=1, alerts=(), verdict=verdict(), history=history(net_series(), 1, 1, 1))


def large(modules: int = 3_000, slots: int = 60) -> WatchRecord:
    """More series and units than an output can hold."""
    series = [Series(f"layers.{i}", role, 4_096, (64, 64), "linear") for role in (ACTIVATION, GRADIENT) for i in range(modules)]
    series += [Series(f"layers.{i}.weight", role, 4_096, (64, 64)) for role in (PARAMETER, UPDATE) for i in range(modules)]
    first, last = slots_of(5_000, 32)
    random = np.random.default_rng(9)
    units = tuple(
        UnitsRecord(
            f"layers.{i}",
            "relu",
            first,
            last,
            last - first + 1,
            random.integers(0, 150, (32, 256)),
            np.zeros(256, dtype=np.int64),
            np.zeros(256, dtype=bool),
        )
        for i in range(100)
    )
    alerts = (alert("saturated", "layers.1234", 7, steps=20),)
    return replace(gpt(60, 2), history=history(series, 5_000, slots, 6), units=units, alerts=alerts, steps=5_000, modules=modules)


WATCHES: dict[str, Callable[[], WatchRecord]] = {
    "waiting": waiting,
    "without_steps": without_steps,
    "one_sample": one_sample,
    "net": net,
    "well": well,
    "unlogged": unlogged,
    "running": running,
    "gpt": gpt,
    "nan": nan,
    "failed": failed,
    "raised": raised,
    "interrupted": interrupted,
    "unowned": unowned,
    "hostile": hostile,
}


def earlier(record: WatchRecord, share: float = 0.6) -> WatchRecord:
    """The same watch at an earlier time: fewer slots, and the last one of each part not yet full."""

    def some(count: int) -> int:
        return max(1, int(count * share))

    def opened(last: np.ndarray) -> np.ndarray:
        made = last.copy()
        made[-1:] -= 1
        return made

    def part(one: object, *names: str) -> dict[str, np.ndarray]:
        return {name: getattr(one, name)[: some(len(one.first))] for name in names}

    old, net = record.history, record.neurons
    slots, bins = some(len(old.first)), some(len(old.bins_first))
    columns = {name: column[:slots].copy() for name, column in old.columns.items()}
    for column in columns.values():
        column[-1] *= 0.5
    seen = replace(
        old,
        first=old.first[:slots],
        last=opened(old.last[:slots]),
        columns=columns,
        bins=old.bins[:bins],
        bins_first=old.bins_first[:bins],
        bins_last=opened(old.bins_last[:bins]),
    )
    if net is not None:
        count = some(len(net.first))
        layers = [
            replace(one, weights=one.weights[:count], activations=one.activations[:count] * 2, gradients=one.gradients[:count])
            for one in net.layers
        ]
        for kept, one in zip(layers, net.layers, strict=True):
            kept.activations[:-1] = one.activations[: count - 1]
        net = replace(net, first=net.first[:count], last=opened(net.last[:count]), layers=tuple(layers))
    scalars = tuple(
        replace(one, **part(one, "first", "mean", "low", "high", "bad"), last=opened(part(one, "last")["last"])) for one in record.scalars
    )
    units = tuple(
        replace(one, **part(one, "first", "inputs", "fired"), last=opened(part(one, "last")["last"]), silent=one.silent // 2)
        for one in record.units
    )
    return replace(
        record,
        state="running",
        history=seen,
        neurons=net,
        scalars=scalars,
        units=units,
        steps=int(seen.last[-1]) + 1,
        alerts=record.alerts[:1],
    )


def fixtures() -> dict[str, tuple[WatchRecord, WatchRecord | None]]:
    """What the front end's tests read: watches, and for an update what the page has before it."""
    small = net(1_000, 24)
    return {
        "watch": (net(), None),
        "watch_part": (earlier(small), None),
        "watch_update": (small, earlier(small)),
        "watch_gpt": (gpt(48, 3), None),
        "watch_nan": (nan(), None),
        "watch_waiting": (waiting(), None),
        "watch_hostile": (hostile(), None),
    }
