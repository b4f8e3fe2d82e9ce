"""15b: from DDP to `fully_shard`: two processes, of which each holds half of the rows."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from modlab.lessons.checking import evaluate, fail, require_callable, same
from modlab.lessons.content import Content, Mistake, Question, Task, Wrong
from modlab.lessons.kinds import Choice, Name, Number, Shape, YesNo

GLOO = "torch.distributed.ProcessGroupGloo"

# ---- what the questions are proved with -----------------------------------------------------------


@lru_cache(maxsize=1)
def _real() -> dict[str, Any]:
    """One run of all that the lesson runs, in two real processes; and the same training in this one."""
    from modlab.lessons import sharding, workers

    with workers.Pair() as pair:
        works = (sharding.looked_at, sharding.started, sharding.trained, sharding.saved)
        found = {work.__name__: pair(work) for work in works}
        found["reduced"] = pair(workers.reduced)
    return {**found, "alone": sharding.alone()}


def _start() -> str:
    first, second = _real()["started"]
    rows = first["sharded"]["0.weight"][8:]
    assert torch.equal(first["sharded"]["0.weight"][:8], first["drawn"]["0.weight"][:8])
    options = {"a": first["drawn"], "b": second["drawn"]}
    return next(letter for letter, drawn in options.items() if torch.equal(rows, drawn["0.weight"][8:]))


def _optimizer() -> str:
    numbers = sum(parameter.numel() for parameter in nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)).parameters())
    share = _real()["trained"][0]["optimizer"] / (2 * numbers)
    return "a" if share == 1 else "b" if 0.4 < share < 0.6 else "c"


def _as_alone() -> bool:
    first, second = (one["state"] for one in _real()["trained"])
    return all(same(first[name], value, 1e-4) and same(second[name], value, 1e-4) for name, value in _real()["alone"].items())


# ---- questions ------------------------------------------------------------------------------------

PREDICTIONS = (
    Question(
        "a sharded shape",
        "In process 0, after `shard(net)`: which shape does `net[0].weight` have?",
        Shape(),
        (16, 8),
        "A `DTensor` stands for the whole weight, and says its whole shape. Only `to_local()` shows what is here: 8 rows.",
        wrong=(
            Wrong(
                (8, 8), "These are the rows that are here. But the tensor speaks for the whole weight, so code that asks for shapes works."
            ),
            Wrong((16, 4), "It is divided by rows, not by columns; and what it says is the whole shape."),
            Wrong((8, 16), "A weight of `nn.Linear` is (out, in): (16, 8).", belief=32),
        ),
        proof=lambda: _real()["looked_at"][0]["shape"],
        needs=GLOO,
    ),
    Question(
        "three rows for two",
        "The last layer has a weight of (3, 16). How many of its 48 numbers does process 1 hold?",
        Number(),
        16,
        "Rows are not cut: process 0 has two of them, process 1 has one.",
        wrong=(
            Wrong(24, "That is half of the numbers, but a row is never cut: one process has two rows, the other one."),
            Wrong(32, "That is what process 0 has: the larger part comes first."),
            Wrong(48, "So it would be in `DistributedDataParallel`. Here nobody holds it all."),
        ),
        proof=lambda: torch.Size(_real()["looked_at"][1]["here"]["2.weight"]).numel(),
        needs=GLOO,
    ),
    Question(
        "a sharded key",
        "What is the name of the first layer's weight in the `state_dict()` of the sharded net?",
        Name(),
        "0.weight",
        "There is no wrapper: `fully_shard` works in place, so each name is what it was.",
        wrong=(
            Wrong("module.0.weight", "That is the wrapper of lesson 15. `fully_shard` adds no level.", belief=14),
            Wrong(
                "_fsdp_wrapped_module.0.weight",
                "That was the older `FullyShardedDataParallel`, a wrapper. `fully_shard` adds no level.",
                belief=14,
            ),
        ),
        proof=lambda: _real()["looked_at"][0]["keys"][0],
        needs=GLOO,
    ),
    Question(
        "the start of both",
        "Each process draws a net of its own, and shards it. From which net are rows 8 to 15 of the first weight?",
        Choice("from that of process 0, as in DDP", "from that of process 1", "from both: the mean"),
        "b",
        "Each keeps its rows of what it has, and nothing is sent. So all must start equal: by a seed, or from a file.",
        wrong=(
            Wrong(
                "a",
                "`DistributedDataParallel` sends the weights of process 0 to all. `fully_shard` sends nothing: the net may be too large.",
            ),
            Wrong("c", "Averages are for gradients. Here each keeps its own rows."),
        ),
        proof=_start,
        needs=GLOO,
    ),
    Question(
        "what Adam keeps here",
        "Adam keeps two numbers for each weight. How many of them are in process 0?",
        Choice("all of them", "those of its own rows", "none: they are spread when a step comes"),
        "b",
        "The optimizer sees the sharded parameters, so its state is sharded like them. For large nets this saves most of all.",
        wrong=(
            Wrong("a", "So it is in DDP. Here a process steps its own rows only, and needs the state of those."),
            Wrong("c", "A step needs no communication at all: each process has what its rows need."),
        ),
        proof=_optimizer,
        needs=GLOO,
    ),
    Question(
        "as if alone",
        "Ten steps, each process on its own data. Are the weights what one process gets that has all of the data, up to rounding?",
        YesNo(),
        True,
        "Each layer's rows are brought together for the call; gradients are averaged, and each process keeps those of its rows.",
        wrong=(
            Wrong(False, "Where the weights lie has changed, and not what is computed: the gradient is the mean over both, as in DDP."),
        ),
        proof=_as_alone,
        needs=GLOO,
    ),
)

RECALLS = (
    Question(
        "alone with full_tensor",
        "Only process 0 wants to save, so only process 0 calls `full_tensor()`. What happens?",
        Choice("it gets the whole weight", "it gets its own rows", "it waits for process 1"),
        "c",
        "The rows of process 1 must be sent, and process 1 must do that. All call it, then one of them saves.",
        wrong=(
            Wrong("a", "Half of the rows are in another process. It must take part."),
            Wrong("b", "That is `to_local()`, which asks nobody."),
        ),
    ),
    Question(
        "which is larger than one",
        "The weights, gradients and Adam's state of a net fit into one GPU only if it is divided by four. Which of the two helps?",
        Choice("`DistributedDataParallel` on four GPUs", "`fully_shard` on four GPUs", "either"),
        "b",
        "It divides all three among the GPUs. Beside its share, a GPU holds the layer that is just computed.",
        wrong=(
            Wrong("a", "There each GPU holds all of it. It divides the data, not the net."),
            Wrong("c", "In `DistributedDataParallel` each GPU holds all of it."),
        ),
    ),
    Question(
        "a sum of two",
        "From lesson 15: process 0 has a 1, process 1 has a 3. What do both have after `all_reduce`?",
        Number(),
        4,
        "`all_reduce` adds. `fully_shard` uses its relative `reduce_scatter`: the same sum, of which each gets its own rows.",
        wrong=(
            Wrong(2, "The mean is what training needs in the end; `all_reduce` adds."),
            Wrong(3, "It is neither the largest nor the last: it is the sum."),
        ),
        proof=lambda: _real()["reduced"][0],
        needs=GLOO,
    ),
)

# ---- task: whose rows ------------------------------------------------------------------------------


def _rows(rank: int, ranks: int, rows: int) -> list[int]:
    """By torch itself: what chunk gives to a rank; the last ones may get nothing."""
    parts = torch.arange(rows).chunk(ranks)
    return parts[rank].tolist() if rank < len(parts) else []


def _judge_rows(answer: Any, ranks: int, rows: int) -> None:
    require_callable(answer, "rows_of")
    for rank in range(ranks):
        given = answer(rank, ranks, rows)
        if given is None:
            fail("It returns nothing: give the rows.", expected=_rows(rank, ranks, rows), got="None")
        got, expected = [int(one) for one in given], _rows(rank, ranks, rows)
        if got != expected:
            says = f"{rows} rows on {ranks} processes: the rows of process {rank}."
            fail(says, mistake=_known(answer, ranks, rows), expected=expected, got=got)


def _known(answer: Any, ranks: int, rows: int) -> str:
    given = [[int(one) for one in answer(rank, ranks, rows)] for rank in range(ranks)]
    for mistake in ROWS.mistakes:
        wrong = evaluate(mistake.source, "rows_of")
        if given == [[*wrong(rank, ranks, rows)] for rank in range(ranks)]:
            return mistake.name
    return ""


def _even(answer: Any) -> None:
    """16 rows on 2 and on 4 processes"""
    _judge_rows(answer, 2, 16)
    _judge_rows(answer, 4, 16)


def _uneven(answer: Any) -> None:
    """3 rows on 2 processes"""
    _judge_rows(answer, 2, 3)


def _short(answer: Any) -> None:
    """5 rows on 4 processes, of which the last gets none"""
    _judge_rows(answer, 4, 5)
    _judge_rows(answer, 4, 10)
    _judge_rows(answer, 4, 2)


def _rows_of(*lines: str) -> str:
    body = "\n".join(f"    {line}" for line in lines)
    return f"""
def rows_of(rank, ranks, rows):
{body}
"""


ROWS = Task(
    "rows_of",
    "Write `rows_of(rank, ranks, rows)`: the numbers of the rows that a process holds, as a list or a `range`.",
    starter=_rows_of("..."),
    reference=_rows_of("size = -(-rows // ranks)  # rounded up", "return range(min(rank * size, rows), min((rank + 1) * size, rows))"),
    probes=(_even, _uneven, _short),
    mistakes=(
        Mistake(
            "rounded down",
            _rows_of("size = rows // ranks", "return range(rank * size, (rank + 1) * size)"),
            "Rounded down, the rows at the end belong to nobody. The size of a share is rounded up.",
        ),
        Mistake(
            "the rest to the last",
            _rows_of("size = rows // ranks", "return range(rank * size, rows if rank == ranks - 1 else (rank + 1) * size)"),
            "The first processes have full shares, rounded up; it is the last that gets what is left.",
        ),
        Mistake(
            "one more for the first",
            _rows_of(
                "size, rest = divmod(rows, ranks)",
                "begin = rank * size + min(rank, rest)",
                "return range(begin, begin + size + (rank < rest))",
            ),
            "That is as even as can be, and not how PyTorch cuts: each share is the size rounded up, until there are no rows left.",
        ),
        Mistake(
            "beyond the end",
            _rows_of("size = -(-rows // ranks)", "return range(rank * size, (rank + 1) * size)"),
            "The last shares reach beyond the last row. Cut them at `rows`; some may be empty.",
        ),
        Mistake(
            "dealt like cards",
            _rows_of("return range(rank, rows, ranks)"),
            "A process holds rows that lie side by side, in one block.",
        ),
    ),
    hints=(
        "`torch.arange(rows).chunk(ranks)` cuts the same way; look at 5 rows and 4 processes.",
        "A share is `rows / ranks`, rounded up: `-(-rows // ranks)`.",
        "Process `rank` begins at `rank * size`; cut both ends at `rows`.",
    ),
    minutes=5,
    matters="With 5 rows on 4 processes one has nothing, and code that expects a row in each fails there.",
)

# ---- task: put together ----------------------------------------------------------------------------


def _parts(ranks: int = 3) -> tuple[list[dict[str, Tensor]], dict[str, Tensor]]:
    """A state, and what each process holds of it; a scalar is the same in all."""
    norm = nn.BatchNorm1d(5)
    nn.init.normal_(norm.weight)
    net = nn.Sequential(nn.Linear(3, 5), norm, nn.Linear(5, 2))
    state = {name: value.clone() for name, value in net.state_dict().items()}
    parts: list[dict[str, Tensor]] = [{} for _ in range(ranks)]
    for name, value in state.items():
        for rank, part in enumerate(parts):
            part[name] = value if value.ndim == 0 else value[_rows(rank, ranks, len(value))]
    return parts, state


def _joined(answer: Any, ranks: int) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    require_callable(answer, "join")
    parts, state = _parts(ranks)
    try:
        found = answer([dict(part) for part in parts])
    except RuntimeError as error:
        name = "stacked" if "stack expects" in str(error) else "a scalar has no rows" if "zero-dimensional" in str(error) else ""
        if not name and "Sizes of tensors" in str(error):
            name = "side by side"
        if not name:
            raise
        fail(str(error), mistake=name)
    if not isinstance(found, dict):
        fail("Give the whole state.", expected="a dict", got=f"a {type(found).__name__}")
    if [*found] != [*state]:
        fail("The names should be those of the parts, in their order.", expected=[*state], got=[*found])
    return found, state


def _two(answer: Any) -> None:
    """the parts of two processes make the whole"""
    _compared(*_joined(answer, 2))


def _three(answer: Any) -> None:
    """and those of three, of which one has nothing of a layer"""
    _compared(*_joined(answer, 3))


def _compared(found: dict[str, Tensor], state: dict[str, Tensor]) -> None:
    for name, value in state.items():
        if same(found[name], value):
            continue
        got = tuple(getattr(found[name], "shape", ()))
        mistake = ""
        if isinstance(found[name], Tensor) and got == tuple(value.shape):
            mistake = "from the last to the first" if sorted(found[name].flatten().tolist()) == sorted(value.flatten().tolist()) else ""
        elif got and value.ndim and got[0] < len(value) and got[1:] == tuple(value.shape[1:]):
            mistake = "only one part"
        fail(f"`{name}` differs.", mistake=mistake, expected=tuple(value.shape), got=got)


def _join(*lines: str) -> str:
    body = "\n".join(f"    {line}" for line in lines)
    return f"""
def join(parts):
{body}
"""


def _each(value: str) -> str:
    return _join("first = parts[0]", f"return {{name: {value} for name in first}}")


_CAT = "torch.cat([part[name] for part in parts])"

JOIN = Task(
    "join",
    "Write `join(parts)`: the whole state, from the states of all processes.",
    starter=_join("..."),
    reference=_each(f"{_CAT} if first[name].ndim else first[name]"),
    probes=(_two, _three),
    mistakes=(
        Mistake(
            "a scalar has no rows",
            _each(_CAT),
            "`num_batches_tracked` of a BatchNorm has no dimension, so it cannot be cut. All processes have the same: take the first.",
        ),
        Mistake(
            "stacked",
            _each("torch.stack([part[name] for part in parts])"),
            "`stack` makes a new dimension, and wants parts of equal shape. Rows go one below the other: `torch.cat`.",
        ),
        Mistake(
            "side by side",
            _each("torch.cat([part[name] for part in parts], -1) if first[name].ndim else first[name]"),
            "The net is cut by rows, so the parts go below each other: along dimension 0.",
        ),
        Mistake(
            "only one part",
            _each("first[name]"),
            "These are the rows of process 0 only. The other processes have the rest.",
        ),
        Mistake(
            "from the last to the first",
            _each("torch.cat([part[name] for part in parts[::-1]]) if first[name].ndim else first[name]"),
            "All rows are there, in a different order. Process 0 has the first rows.",
        ),
    ),
    hints=(
        "For each name: the parts of all processes, one below the other.",
        "`torch.cat([part[name] for part in parts])`. What cannot be cut (`value.ndim == 0`) is the same in all.",
    ),
    minutes=4,
    matters="That is what a file of whole weights needs; `torch.distributed.checkpoint` saves the parts instead, and joins when it loads.",
)

LESSON = Content(
    name="15b_sharded",
    title="Sharded: whose rows are these?",
    goal="say what each process of a sharded training holds, and put its parts together into a whole",
    minutes=20,
    after=("15_two_processes",),
    predictions=PREDICTIONS,
    recalls=RECALLS,
    tasks=(ROWS, JOIN),
)
