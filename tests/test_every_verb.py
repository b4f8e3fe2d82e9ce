"""Every verb on every kind of model: no crash, no hang, no collective of ours, and the training keeps its bits.

A column of the table in docs/safety.md is one kind of model, trained in processes of its own. What only looks is called on rank 0 alone,
while the others go on: if it communicated, it would hang. What is said of the kinds in `TRUTH` stands in tests/golden/said, to be
read: is each sentence so? `MODLAB_GOLDEN=write` writes both anew (with `-m "long or not long"`).
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.modules import module as modules

import modlab
from tests.kinds import KINDS, Case, collectives
from tests.ranks import run_ranks

TABLE = Path(__file__).resolve().parent.parent / "docs" / "safety.md"
SAID = Path(__file__).resolve().parent / "golden" / "said"
DEFAULT = ("FSDP2",)  # what `make test` runs; the rest is long
TRUTH = ("plain", "DDP", "FSDP2", "TP", "compiled", "Trainer")
WRITE = os.environ.get("MODLAB_GOLDEN") == "write"
Shown = list[str]


def faces(*results: Any) -> Shown:
    """All faces of results, and their sentences."""
    for result in results:
        assert str(result) and result.html()
        json.dumps(result.to_dict(), default=str)
    return [result.headline for result in results]


# ---- what only looks: on one rank, after the first step


def tree(case: Case) -> Shown:
    return faces(modlab.tree(case.model))


def state(case: Case) -> Shown:
    return faces(modlab.state(case.model, case.optimizer), modlab.state(case.model))


def hooks(case: Case) -> Shown:
    return faces(modlab.hooks(case.model))


def internals(case: Case) -> Shown:
    return faces(modlab.internals(case.model))


def measure(case: Case) -> Shown:
    held = list(case.model.parameters())
    return faces(*map(modlab.measure, [*held, *(one.grad for one in held if one.grad is not None)]))


def diagnose(case: Case) -> Shown:
    return faces(modlab.diagnose(case.model, case.optimizer))


def diff(case: Case) -> Shown:
    before = modlab.snapshot(case.model, case.optimizer)
    return faces(before, modlab.diff(before, modlab.snapshot(case.model, case.optimizer)), modlab.diff(before, case.model))


LOOKS = {"tree": tree, "state": state, "hooks": hooks, "internals": internals, "measure": measure, "diagnose": diagnose, "diff": diff}

# ---- what runs the model, on all ranks, after the first step; and the same without modlab


def call(case: Case) -> Any:
    return case.model(case.inputs)


def trace_call(case: Case) -> Shown:
    return faces(modlab.trace(case.model)(case.inputs))


def lab_call(case: Case) -> Shown:
    lab = modlab.lab(case.model, case.optimizer)
    lab(case.inputs)
    shown = faces(lab)
    lab.close()
    return shown


def compare(case: Case) -> Shown:
    return faces(modlab.compare(case.model)(case.inputs))


def compare_two(case: Case) -> Shown:
    return faces(modlab.compare(case.model, case.model)(case.inputs))


def diagnose_batch(case: Case) -> Shown:
    return faces(modlab.diagnose(case.model, case.optimizer, batch=(case.inputs, case.target), loss=case.loss))


def fail(case: Case) -> BaseException | None:
    try:
        case.model(case.inputs[:, :5])
    except Exception as error:  # noqa: BLE001 - whatever this kind of model raises
        return error
    return None


def explain(case: Case) -> Shown:
    error = fail(case)
    return [] if error is None else faces(modlab.explain(error))


def nothing(case: Case) -> None:
    return None


RUNS: dict[str, tuple[Callable[[Case], Shown], Callable[[Case], Any]]] = {
    "trace(net)(x)": (trace_call, call),
    "lab(x)": (lab_call, call),
    "compare(net)(x)": (compare, nothing),
    "compare(a, b)(x)": (compare_two, nothing),
    "diagnose(batch=)": (diagnose_batch, nothing),
    "explain": (explain, fail),
}

# ---- what is open while the model trains, on all ranks


def watched(on_nan: str = "report", budget: float = 1.0) -> Callable[[Case, Callable[[], None]], Shown]:
    def watch(case: Case, train: Callable[[], None]) -> Shown:
        with modlab.watch(case.model, case.optimizer, budget=budget, on_nan=on_nan) as w:
            train()
        assert not w.record.error, w.record.error
        return [*faces(w), *(alert.text for alert in w.alerts)]

    return watch


def traced(case: Case, train: Callable[[], None]) -> Shown:
    with modlab.trace(case.model) as t:
        train()
    assert not [one for one in t.record.remarks if "modlab failed" in one], t.record.remarks
    return faces(t)


def in_lab(case: Case, train: Callable[[], None]) -> Shown:
    with modlab.lab(case.model, case.optimizer) as lab:
        train()
    return faces(lab)


AROUND = {
    "watch": watched(),
    "watch, 2 %": watched(budget=0.02),
    "watch(on_nan='hold')": watched("hold"),
    "watch(on_nan='stop')": watched("stop"),
    "with trace": traced,
    "with lab": in_lab,
}

VERBS = [*LOOKS, *AROUND, *RUNS]
NUMBER = re.compile(r"-?\d+\.\d+(e[-+]?\d+)?")

# ---- the bits


def bits(case: Case) -> dict[str, Any]:
    """All that a look must leave as it was, of this rank."""
    found: dict[str, Any] = {"random": torch.get_rng_state().numpy().tobytes(), "grad mode": torch.is_grad_enabled()}
    for path, module in case.model.named_modules():
        found[f"{path} hooks"] = [len(getattr(module, name, ())) for name in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks")]
        found[f"{path} mode"] = module.training
    for name, tensor in [*case.model.named_parameters(), *case.model.named_buffers()]:
        found[name] = type(tensor).__name__, tensor.requires_grad, content(tensor), content(tensor.grad), tensor._backward_hooks is None
    for place, slots in enumerate((case.optimizer.state if case.optimizer is not None else {}).values()):
        for name, held in slots.items():
            found[f"state {place} {name}"] = content(held) if isinstance(held, Tensor) else held
    found["all modules"] = len(modules._global_forward_hooks), len(modules._global_forward_pre_hooks)
    found["limit"], found["filters"] = sys.getrecursionlimit(), len(warnings.filters)
    return found


def content(tensor: Tensor | None) -> Any:
    """What a tensor holds on this rank, or that its memory is gone."""
    if tensor is None:
        return None
    tensor = tensor.detach()
    if hasattr(type(tensor), "__tensor_flatten__"):
        names, _ = tensor.__tensor_flatten__()
        return [content(inner) for name in names if isinstance(inner := getattr(tensor, name), Tensor)]
    if tensor.untyped_storage().nbytes() < tensor.numel() * tensor.element_size():
        return "gone"
    return tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def trained(rank: int, name: str, look: Callable[[Case], Any] = nothing, around: Any = None) -> tuple[dict[str, Any], int, Shown, Any]:
    """A fresh case, trained with a look at it: its bits then, collectives, what was said, and what a refusal said."""
    make, _ = KINDS[name]
    torch.manual_seed(rank if name in ("DDP", "FSDP2", "FSDP1") else 0)
    case = make(rank)
    said: Shown = []
    refused: list[str] = []

    def between(case: Case) -> None:
        try:
            found = look(case)
            said.extend(found if isinstance(found, list) else [])
        except modlab.ModlabError as error:
            refused.append(str(error))

    before = collectives()
    if around is None:
        case.train(between)
    else:
        try:
            said += around(case, lambda: case.train(between))
        except modlab.ModlabError as error:
            refused.append(str(error))
            case.train(between)
    return bits(case), collectives() - before, said, refused


def row(rank: int, name: str, folder: str) -> dict[str, Any]:
    """All verbs on one kind of model, on one rank."""
    found: dict[str, Any] = {}
    plain: dict[Any, Any] = {}
    own, sys.stderr = sys.stderr, io.StringIO()

    def without(beside: Callable[[Case], Any]) -> Any:
        if beside not in plain:
            plain[beside] = trained(rank, name, beside)
        return plain[beside]

    def cell(verb: str, beside: Callable[[Case], Any], run: Callable[[], Any], *, counted: bool = True) -> None:
        Path(folder, f"rank{rank}").write_text(verb, encoding="utf-8")
        bits_without, collectives_without, _, _ = without(beside)
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                bits_with, collectives_with, said, refused = run()
        except Exception as error:  # noqa: BLE001 - the row goes on, and this is what the cell says
            import traceback

            found[verb] = {"failed": f"{type(error).__name__}: {error}", "where": "".join(traceback.format_exception(error))[-3000:]}
            return
        changed = [key for key in {**bits_without, **bits_with} if bits_without.get(key) != bits_with.get(key)]
        extra = collectives_with - collectives_without if counted else 0
        found[verb] = {"changed": changed[:6], "collectives": extra, "said": said, "refused": refused}

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for verb, look in LOOKS.items():
            cell(verb, nothing, lambda look=look: trained(rank, name, look if rank == 0 else nothing))
        for verb, around in AROUND.items():
            cell(verb, nothing, lambda around=around: trained(rank, name, nothing, around))
        for verb, (run, beside) in RUNS.items():
            cell(verb, beside, lambda run=run: trained(rank, name, run), counted=beside is not nothing)
    sys.stderr = own
    return found


def rows_of(name: str, folder: Path) -> list[dict[str, Any]]:
    """The row of a kind, on each rank; a crash or a hang says at which verb."""
    _, world = KINDS[name]
    try:
        return run_ranks(row, world, name, str(folder), group=world > 1)
    except AssertionError as error:
        at = {one.name: one.read_text(encoding="utf-8") for one in sorted(folder.glob("rank*"))}
        raise AssertionError(f"{name}: {error}\nat: {at}") from None


def wrong(cell: dict[str, Any]) -> str:
    """What is wrong in a cell; nothing where all is well."""
    if "failed" in cell:
        return f"{cell['failed']}\n{cell['where']}"
    return "; ".join(
        filter(
            None,
            [
                f"changed: {', '.join(cell['changed'])}" if cell["changed"] else "",
                f"{cell['collectives']} collectives more" if cell["collectives"] else "",
            ],
        )
    )


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in DEFAULT else pytest.mark.long) for name in KINDS])
def test_no_job_is_harmed(name, tmp_path):
    ranks = rows_of(name, tmp_path)
    failures = {f"{verb}, rank {rank}": text for rank, cells in enumerate(ranks) for verb, cell in cells.items() if (text := wrong(cell))}
    assert not failures, "\n".join(f"{cell}: {text}" for cell, text in failures.items())
    assert all(list(cells) == VERBS for cells in ranks)
    marks = {verb: mark([cells[verb] for cells in ranks]) for verb in VERBS}
    if WRITE:
        write_column(name, marks)
    assert columns()[name] == marks, "docs/safety.md says otherwise: MODLAB_GOLDEN=write, and read the difference"
    if name in TRUTH:
        path, text = SAID / f"{name}.txt", told(ranks)
        if WRITE:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.read_text(encoding="utf-8") == text


def mark(cells: list[dict[str, Any]]) -> str:
    """A cell of the table."""
    return "refused" if any(cell["refused"] for cell in cells) else "safe"


def told(ranks: list[dict[str, Any]]) -> str:
    """What each verb says on each rank, without the digits that differ between machines."""
    lines = []
    for rank, cells in enumerate(ranks):
        for verb, cell in cells.items():
            if verb == "watch, 2 %":  # how many steps it looks at is a matter of time
                continue
            lines.append(f"rank {rank}, {verb}:")
            lines += [f"    {line}" for text in [*cell["said"], *cell["refused"]] for line in NUMBER.sub("#", text).splitlines()]
    return "\n".join([*lines, ""])


def columns() -> dict[str, dict[str, str]]:
    """The tables of docs/safety.md, by kind and verb."""
    found: dict[str, dict[str, str]] = {}
    kinds: list[str] = []
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip().strip("`") for cell in line.strip("|").split("|")]
        if line.startswith("| verb"):
            kinds = cells[1:]
        elif line.startswith("| `"):
            for kind, cell in zip(kinds, cells[1:], strict=True):
                found.setdefault(kind, {})[cells[0]] = cell
    return found


def write_column(name: str, marks: dict[str, str]) -> None:
    """Write one kind's column, and leave the others; workers take turns."""
    import fcntl

    with open(TABLE, "r+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        held = {**columns(), name: marks}
        head, *_ = file.read().partition("<!-- table -->")
        file.seek(0)
        file.truncate()
        file.write(f"{head}<!-- table -->\n{tables(held)}")


def tables(held: dict[str, dict[str, str]]) -> str:
    """One for a single process, one for several."""
    text = ""
    for several in (False, True):
        kinds = [kind for kind, (_, world) in KINDS.items() if (world > 1) is several and kind in held]
        if kinds:
            text += f"\n| verb | {' | '.join(kinds)} |\n| --- |{' --- |' * len(kinds)}\n"
            text += "".join(f"| `{verb}` | {' | '.join(held[kind].get(verb, '') for kind in kinds)} |\n" for verb in VERBS)
    return text


def test_the_table_has_every_kind_and_every_verb():
    assert {kind: list(marks) for kind, marks in columns().items()} == {kind: VERBS for kind in KINDS}


if __name__ == "__main__":  # what each cell says, to be read
    import tempfile

    for name in sys.argv[1:] or KINDS:
        with tempfile.TemporaryDirectory() as held:
            try:
                for rank, cells in enumerate(rows_of(name, Path(held))):
                    for verb, cell in cells.items():
                        print(f"{name} | rank {rank} | {verb} | {wrong(cell) or 'ok'}")
                        for text in [*cell.get("said", ()), *(f"refused: {one}" for one in cell.get("refused", ()))]:
                            print(f"      {text}")
            except AssertionError as error:
                print(f"{name} | {error}")
    os._exit(0)
