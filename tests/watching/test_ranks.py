"""A watch and a trace of models that run on several ranks, in real gloo processes: bits, collectives, paths, and what is said.

One pair of processes goes through all rows. Each trains a model without modlab and one with it.
"""

from __future__ import annotations

import contextlib
import io
import re
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

import modlab
from modlab.records.watch import PARAMETER, PARAMETER_GRADIENT, UPDATE
from tests.judgements import is_judged_alike
from tests.kinds import collectives, mesh
from tests.ranks import run_ranks

STEPS = 6
PATHS = ["0", "1", "2", "0.weight", "0.bias", "2.weight", "2.bias"]


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def ddp(**options: Any) -> nn.Module:
    return nn.parallel.DistributedDataParallel(net(), **options)


def fsdp2(**options: Any) -> nn.Module:
    from torch.distributed.fsdp import fully_shard

    model, dp = net(), mesh(2)
    fully_shard(model[0], mesh=dp, **options)
    return fully_shard(model, mesh=dp, **options)  # whose own parameters are gathered with those of the last layer


def uneven() -> nn.Module:
    """A last layer of one row, of which the second rank has nothing."""
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    return fully_shard(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)), mesh=mesh(2))


def mixed() -> nn.Module:
    from torch.distributed.fsdp import MixedPrecisionPolicy

    return fsdp2(mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32))


def offloaded() -> nn.Module:
    from torch.distributed.fsdp import CPUOffloadPolicy

    return fsdp2(offload_policy=CPUOffloadPolicy(pin_memory=False))


def tensor_parallel(*, local: bool = True) -> nn.Module:
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    plan = {"0": ColwiseParallel(use_local_output=local), "2": RowwiseParallel()}
    return parallelize_module(net(), mesh(2, names=("tp",)), plan)


def both() -> nn.Module:
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    whole = mesh(2, 2, names=("dp", "tp"))
    model = parallelize_module(net(), whole["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    fully_shard(model[0], mesh=whole["dp"])
    return fully_shard(model, mesh=whole["dp"])


def fsdp1(*, original: bool) -> nn.Module:
    from torch.distributed.fsdp import FullyShardedDataParallel

    return FullyShardedDataParallel(net(), device_id=torch.device("cpu"), use_orig_params=original)


def checkpointed() -> nn.Module:
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
    from torch.distributed.fsdp import fully_shard

    model, dp = net(), mesh(2)
    model[0] = fully_shard(checkpoint_wrapper(model[0]), mesh=dp)
    return fully_shard(model, mesh=dp)


def plainly(model: nn.Module, optimizer: Any, x: torch.Tensor, y: torch.Tensor, step: int) -> None:
    optimizer.zero_grad()
    (model(x) - y).square().mean().backward()
    optimizer.step()


def accumulated(model: Any, optimizer: Any, x: torch.Tensor, y: torch.Tensor, step: int) -> None:
    """Gradients of two passes, which are added up over the ranks once."""
    optimizer.zero_grad()
    if hasattr(model, "no_sync"):
        with model.no_sync():
            (model(x) - y).square().mean().backward()
    else:
        model.set_requires_gradient_sync(False)
        (model(x) - y).square().mean().backward()
        model.set_requires_gradient_sync(True)
    (model(x) - y).square().mean().backward()
    optimizer.step()


def validated(model: nn.Module, optimizer: Any, x: torch.Tensor, y: torch.Tensor, step: int) -> None:
    """A validation pass leaves the root of FSDP2 with whole parameters."""
    plainly(model, optimizer, x, y, step)
    model.eval()
    with torch.no_grad():
        model(x)
    model.train()


Train = Callable[..., None]
QUICK: dict[str, tuple[Callable[[], nn.Module], Train, str]] = {
    "DDP": (ddp, plainly, "Replicated on 2 ranks; this is rank"),
    "FSDP2": (fsdp2, plainly, "Sharded over 2 ranks; this is rank"),
    "FSDP2, validated": (fsdp2, validated, "Sharded over 2 ranks; this is rank"),
    "TP": (tensor_parallel, plainly, "Sharded over 2 ranks; this is rank"),
}
LONG: dict[str, tuple[Callable[[], nn.Module], Train, str]] = {
    "DDP, static graph": (partial(ddp, static_graph=True), plainly, "Replicated"),
    "DDP, unused": (partial(ddp, find_unused_parameters=True), plainly, "Replicated"),
    "DDP, no_sync": (ddp, accumulated, "Replicated"),
    "FSDP2, kept after forward": (partial(fsdp2, reshard_after_forward=False), plainly, "Sharded"),
    "FSDP2, accumulated": (fsdp2, accumulated, "Sharded"),
    "FSDP2, bfloat16": (mixed, plainly, "Sharded"),
    "FSDP2, offloaded": (offloaded, plainly, "Sharded"),
    "FSDP2, checkpointing": (checkpointed, plainly, "Sharded"),
    "TP, DTensors between": (partial(tensor_parallel, local=False), plainly, "Sharded"),
    "FSDP1": (partial(fsdp1, original=True), plainly, "Sharded"),
}


def part(tensor: torch.Tensor) -> torch.Tensor:
    found = tensor.detach()
    return (found.to_local() if hasattr(found, "to_local") else found).clone()


def trained(build: Callable[[], nn.Module], train: Train, rank: int, around: Any) -> dict[str, Any]:
    """Weights after some steps, collectives that the steps made, and what was said on the error stream."""
    model = build()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    if train is validated:
        model.eval()
        with torch.no_grad():
            model(torch.ones(1, 8))  # so that the look begins at whole parameters
        model.train()
    generator = torch.Generator().manual_seed(0 if build in (tensor_parallel,) else rank)
    batches = [(torch.randn(6, 8, generator=generator), torch.randn(6, 4, generator=generator)) for _ in range(STEPS)]
    before, said = collectives(), io.StringIO()
    with contextlib.redirect_stderr(said), around(model, optimizer) as look:
        for step, (x, y) in enumerate(batches):
            train(model, optimizer, x, y, step)
    return {"weights": [part(one) for one in model.parameters()], "made": collectives() - before, "said": said.getvalue(), "look": look}


@contextlib.contextmanager
def nothing(model: nn.Module, optimizer: Any) -> Any:
    yield None


def look_at(rank: int, rows: str) -> list[tuple[str, str]]:
    """What went wrong on this rank, by row."""
    warnings.simplefilter("ignore")
    wrong = []
    for name, (build, train, headline) in {"quick": QUICK, "long": LONG}[rows].items():
        plain = trained(build, train, rank, nothing)
        watched = trained(build, train, rank, lambda model, optimizer: modlab.watch(model, optimizer, budget=1.0))
        traced = trained(build, train, rank, lambda model, optimizer: modlab.trace(model))
        for verb, found in (("watch", watched), ("trace", traced)):
            if not all(map(torch.equal, plain["weights"], found["weights"])):
                wrong.append((f"{name}, {verb}", "other bits"))
            if found["made"] != plain["made"]:
                wrong.append((f"{name}, {verb}", f"{found['made']} collectives, {plain['made']} without"))
        wrong += [(f"{name}, watch", text) for text in of_watch(watched["look"], watched["said"], rank, headline)]
        wrong += [(f"{name}, trace", text) for text in of_trace(traced["look"])]
    return wrong


def of_watch(w: Any, said: str, rank: int, headline: str) -> Any:
    record = w.record
    if record.error or record.steps != STEPS or record.samples != STEPS:
        yield f"{record.error} {record.steps} steps, {record.samples} samples"
    if record.verdict.broken is not None:
        yield str(record.verdict.broken)
    if not is_judged_alike(w):
        yield "the record, saved and loaded, is judged in another way"
    if headline not in w.headline:
        yield w.headline
    shown = sorted({path for path in w.history["path"].tolist() if path})
    if not set(shown) <= set(PATHS) or not {"0", "1", "2"} <= set(shown):
        yield f"paths {shown}"
    measured = set(zip(w.history["path"].tolist(), w.history["role"].tolist(), strict=True))
    lost = {(path, role) for path in ("0.weight", "2.weight") for role in (PARAMETER, PARAMETER_GRADIENT, UPDATE)} - measured
    if lost and "FSDP1" not in str(w):  # which may have nothing of a parameter here
        yield f"not measured: {lost}"
    if w["module.0"].record.history.series != w["0"].record.history.series:
        yield "module.0 is not 0"
    if bool(said) != (rank == 0):
        yield f"printed on rank {rank}: {said!r}"
    if "Sharded" in headline and ("norm" in str(w) or "this rank's part" not in str(w)):
        yield str(w)


def of_trace(t: Any) -> Any:
    if any("modlab failed" in remark for remark in t.record.remarks):
        yield str(t.record.remarks)
    odd = [event.name for event in t.events if re.search("all_gather|copy_in|fsdp|aten|c10d|as_strided|torch.empty", event.name)]
    if odd:
        yield f"machinery: {odd}"
    if sum(event.name == "FSDP" for event in t.events) > 1:
        yield "FSDP in several rows"
    if "NaN" in t.headline or "no gradient" in t.headline:
        yield t.headline
    if {event.path for event in t.events if event.path} != {"0", "1", "2"}:
        yield f"paths {sorted({event.path for event in t.events if event.path})}"
    if any(t.why(path).kind not in ("gradient", "not here") for path in ("0.weight", "2.bias", "module.2.weight")):
        yield str([t.why(path) for path in ("0.weight", "2.bias", "module.2.weight")])
    if t["module.0"][0].name != "Linear" or "ranks; this is rank" not in t.headline:
        yield f"{t['module.0'][0].name}: {t.headline}"


def test_a_watch_and_a_trace_of_sharded_models():
    assert run_ranks(look_at, 2, "quick") == [[], []]


@pytest.mark.long
def test_a_watch_and_a_trace_of_all_ways_to_shard():
    assert run_ranks(look_at, 2, "long") == [[], []]


def on_a_mesh(rank: int) -> list[str]:
    warnings.simplefilter("ignore")
    plain = trained(both, plainly, rank // 2, nothing)
    watched = trained(both, plainly, rank // 2, lambda model, optimizer: modlab.watch(model, optimizer, budget=1.0))
    traced = trained(both, plainly, rank // 2, lambda model, optimizer: modlab.trace(model))
    wrong = [verb for verb, one in (("watch", watched), ("trace", traced)) if one["made"] != plain["made"]]
    wrong += ["bits" for one in (watched, traced) if not all(map(torch.equal, plain["weights"], one["weights"]))]
    wrong += of_watch(watched["look"], watched["said"], rank, f"Sharded over 4 ranks; this is rank {rank}")
    return [*wrong, *of_trace(traced["look"])]


@pytest.mark.long
def test_a_watch_and_a_trace_on_a_mesh_of_four():
    assert run_ranks(on_a_mesh, 4) == [[], [], [], []]


def in_a_pipeline(rank: int) -> list[str]:
    """Its first step runs each stage on memory that nobody has written, to learn shapes: here all of that is NaN."""
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    warnings.simplefilter("ignore")
    torch.use_deterministic_algorithms(True)  # fills it
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
    model, inputs, target = net[:2] if rank == 0 else net[2:], torch.randn(6, 8), torch.randn(6, 4)
    schedule = ScheduleGPipe(PipelineStage(model, rank, 2, torch.device("cpu")), 2, loss_fn=nn.functional.mse_loss)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    with contextlib.redirect_stderr(io.StringIO()), modlab.watch(model, optimizer, on_nan="stop", budget=1.0) as w:
        for _ in range(3):
            optimizer.zero_grad()
            schedule.step(inputs) if rank == 0 else schedule.step(target=target)
            optimizer.step()
        model(inputs)  # by hand: it is a stage all the same
    torch.use_deterministic_algorithms(False)
    with modlab.trace(model) as t:
        schedule.step(inputs) if rank == 0 else schedule.step(target=target)
    alerts = [one.kind for one in w.alerts if one.kind in ("nan", "inf")]
    wrong = [str(w)] if w.record.steps != 3 or alerts or "NaN" in str(w) else []
    wrong += [str(one) for one in (w, t) if "this is one stage of a pipeline" not in str(one)]
    return wrong + [str(w)] * (("the last stage of the pipeline has it" in str(w)) is (rank == 1))


@pytest.mark.long
def test_what_a_pipeline_tries_on_memory_that_nobody_has_written_is_no_training():
    assert run_ranks(in_a_pipeline, 2) == [[], []]


def small_things(rank: int) -> list[str]:
    """Empty parts, a NaN that one rank brings in."""
    warnings.simplefilter("ignore")
    wrong = []
    model = uneven()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    with contextlib.redirect_stderr(io.StringIO()), modlab.watch(model, optimizer, budget=1.0) as w:
        for _ in range(3):
            plainly(model, optimizer, torch.randn(6, 8), torch.randn(6, 1), 0)
    trains = "every trained parameter gets a gradient  4 of 4" if rank == 0 else "every trained parameter gets a gradient  2 of 2"
    if trains not in str(w) or ("2 parameters have none here" in str(w)) != (rank == 1) or w.verdict.broken is not None:
        wrong.append(str(w))

    said = io.StringIO()
    model = fsdp2()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    with contextlib.redirect_stderr(said), modlab.watch(model, optimizer, budget=1.0) as w:
        for step in range(3):
            plainly(model, optimizer, torch.randn(6, 8) + (float("nan") if rank == step == 1 else 0.0), torch.randn(6, 4), 0)
    lines = said.getvalue().splitlines()
    if rank == 1 and (len(lines) > 1 or (w.verdict.broken is not None and "(rank 1)" not in said.getvalue())):
        wrong.append(said.getvalue())
    return wrong


@pytest.mark.long
def test_small_things_on_two_ranks():
    assert run_ranks(small_things, 2) == [[], []]
