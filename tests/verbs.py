"""Every verb on one model, one after the other: for a process that may be ended by any of them (``python -m tests.verbs MODEL``).

Before each verb its name is printed, so that of a process that died it is known which one ended it.
"""

from __future__ import annotations

import io
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import modlab

ROOT = Path(__file__).resolve().parent.parent


class Case(NamedTuple):
    """What the verbs are tried on.

    Attributes:
        model: it runs on `batch`, and `loss` of its output can be trained by `optimizer`.
        dead: tensors without memory, by name, which must stay so.
    """

    model: nn.Module
    optimizer: torch.optim.Optimizer
    batch: Tensor
    dead: dict[str, Tensor]

    def loss(self, output: Any) -> Tensor:
        """One number."""
        found: Tensor = (output[0] if isinstance(output, tuple) else output).square().mean()
        return found

    def step(self) -> None:
        """One step of a training."""
        self.optimizer.zero_grad()
        self.loss(self.model(self.batch)).backward()
        self.optimizer.step()


def faces(result: Any) -> None:
    """Every face that a result has."""
    for text in (str(result), repr(result), result._repr_html_() if hasattr(result, "_repr_html_") else ""):
        assert isinstance(text, str)
    for name in ("html", "to_dict", "figure", "widget"):
        face = getattr(result, name, None)
        if callable(face):
            with suppress(modlab.ModlabError):  # a face that needs a package which is not here
                face()


def verbs(case: Case) -> dict[str, Callable[[], None]]:
    """What is tried, by name."""
    model, batch = case.model, case.batch
    held: dict[str, Any] = {}

    def shown(verb: Callable[..., Any], *given: Any, **options: Any) -> Callable[[], None]:
        return lambda: faces(verb(*given, **options))

    def measure() -> None:
        for tensor in [*model.parameters(), *model.buffers(), *case.dead.values()]:
            faces(modlab.measure(tensor))
            if tensor.grad is not None:
                modlab.measure(tensor.grad)

    def state_of_paths() -> None:
        table = modlab.state(model, case.optimizer)
        for path in table.paths:
            faces(table[path])

    def watch(on_nan: str, inside: Any = None) -> Callable[[], None]:
        def run() -> None:
            with modlab.watch(model, case.optimizer, budget=1.0, on_nan=on_nan, inside=inside) as w:  # type: ignore[arg-type]
                for _ in range(5):
                    w.log(loss=case.loss(model(batch)).detach())
                    case.step()
                str(w)
            faces(w)

        return run

    def fork() -> None:
        with modlab.watch(model, case.optimizer, keep="good") as w:
            for _ in range(5):
                case.step()
        try:
            faces(w.fork(2))
        except modlab.ModlabError:  # nothing could be kept
            faces(w)

    def nan() -> None:
        with modlab.watch(model, case.optimizer, budget=1.0, on_nan="hold") as w:
            for _ in range(3):
                case.step()
            with torch.no_grad():
                kept = [(one, one.grad) for one in model.parameters() if one.grad is not None]
            (case.loss(model(batch)) * float("nan")).backward()
            for one, grad in kept:
                one.grad = grad
        faces(w)

    def trace() -> None:
        with modlab.trace(model) as t:
            case.step()
        faces(t)
        for path, _ in model.named_parameters():
            t.why(path)

    def compare_two() -> None:
        faces(modlab.compare(model, model)(batch))

    def diff() -> None:
        held.setdefault("before", modlab.snapshot(model, case.optimizer))
        case.step()
        faces(modlab.diff(held["before"], model))
        faces(modlab.diff(held["before"], modlab.snapshot(model, case.optimizer, values=False)))

    def explain() -> None:
        try:
            model(torch.ones(3, 97))
        except Exception as error:  # noqa: BLE001 - whatever the model says
            faces(modlab.explain(error))

    def lab() -> None:
        with modlab.lab(model, case.optimizer) as found:
            case.step()
        faces(found)

    def costs() -> None:
        with torch.profiler.profile() as profile, torch.profiler.record_function("(root)"):
            model(batch)
        faces(modlab.costs(model, profile))

    found: dict[str, Callable[[], None]] = {
        "tree": shown(modlab.tree, model),
        "state": shown(modlab.state, model, case.optimizer),
        "state[path]": state_of_paths,
        "hooks": shown(modlab.hooks, model),
        "measure": measure,
        "snapshot": lambda: (faces(modlab.snapshot(model, case.optimizer)), faces(modlab.snapshot(model, values="cpu")))[0],  # type: ignore[func-returns-value]
        "diff": diff,
        "diagnose": shown(modlab.diagnose, model, case.optimizer),
        "trace": trace,
        "trace(net)(x)": lambda: faces(modlab.trace(model)(batch)),
        "trace(keep=)": lambda: faces(modlab.trace(model, keep=("", "*"))(batch)),
        "compare": lambda: faces(modlab.compare(model)(batch)),
        "compare two": compare_two,
        "diagnose with a batch": lambda: faces(
            modlab.diagnose(model, case.optimizer, batch=(batch, batch), loss=lambda out, target: case.loss(out))
        ),
        "explain": explain,
        "lab": lab,
        "costs": costs,
        "watch": watch("report"),
        "watch hold": watch("hold"),
        "watch stop": watch("stop"),
        "watch shadow": watch("report", "shadow"),
        "watch nan": nan,
        "watch keep": fork,
    }
    for path, module in model.named_modules():
        found[f"internals of {path or 'root'}"] = shown(modlab.internals, module)
    return found


# ---- models with memory that is gone


def free(tensor: Tensor, left: int = 0) -> Tensor:
    """Take a tensor's memory away, all but some bytes."""
    tensor.untyped_storage().resize_(left)
    return tensor


class Spare(nn.Module):
    """A net with parts that its forward does not use."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.spare = nn.Linear(6, 5), nn.Linear(5, 2), nn.Linear(5, 5)
        self.norm = nn.BatchNorm1d(5)
        self.register_buffer("table", torch.randn(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.norm(self.first(x)).relu())  # type: ignore[no-any-return]


def case_of(model: nn.Module, **dead: Tensor) -> Case:
    """Trained by AdamW on random numbers; one step is done."""
    found = Case(model, torch.optim.AdamW(model.parameters(), 0.01), torch.randn(8, 6), {})
    found.step()
    return found._replace(dead=dead)


def parameter() -> Case:
    net = Spare()
    case = case_of(net)
    return case._replace(dead={"spare.weight": free(net.spare.weight), "spare.bias": free(net.spare.bias)})


def issue() -> Case:
    net = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 2))
    net[0].weight.untyped_storage().resize_(0)

    class Second(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, x: Tensor) -> Tensor:
            return self.net[1](x)  # type: ignore[no-any-return]

    return Case(Second(), torch.optim.SGD(net[1].parameters(), 0.1), torch.randn(8, 64), {"net.0.weight": net[0].weight})


def large() -> Case:
    net = Spare()
    net.spare = nn.Linear(400, 300)
    return case_of(net)._replace(dead={"spare.weight": free(net.spare.weight)})


def half() -> Case:
    net = Spare()
    case = case_of(net)
    return case._replace(dead={"spare.weight": free(net.spare.weight, 48), "table": free(net.get_buffer("table"), 60)})


def views() -> Case:
    net = Spare()
    flat = torch.randn(60)
    net.spare.weight = nn.Parameter(flat[10:35].view(5, 5))
    net.spare.bias = nn.Parameter(flat[40:60:4])
    case = case_of(net)
    free(flat, 4 * 50)
    return case._replace(dead={"flat": flat, "spare.bias": net.spare.bias})


def gradient() -> Case:
    net = Spare()
    case = case_of(net)
    net.spare.requires_grad_(False)
    net.spare.weight.grad = free(torch.ones(5, 5))
    case.optimizer.param_groups[0]["params"] = [one for one in net.parameters() if one is not net.spare.weight]
    return case._replace(dead={"spare.weight.grad": net.spare.weight.grad})


def buffer() -> Case:
    net = Spare()
    return case_of(net)._replace(dead={"table": free(net.get_buffer("table"))})


def attribute() -> Case:
    net = Spare()
    net.note, net.notes = free(torch.ones(7)), [free(torch.ones(3)), {"a": free(nn.Parameter(torch.ones(2)))}]  # type: ignore[assignment]
    return case_of(net)._replace(dead={"note": net.note})  # type: ignore[dict-item]


def state() -> Case:
    net = Spare()
    case = case_of(net)
    case.optimizer.state[net.spare.weight] = {
        "step": torch.tensor(1.0),
        "exp_avg": free(torch.ones(5, 5)),
        "exp_avg_sq": free(torch.ones(5, 5), 12),
    }
    return case._replace(dead={"exp_avg": case.optimizer.state[net.spare.weight]["exp_avg"]})


def output() -> Case:
    class Two(Spare):
        def forward(self, x: Tensor) -> Any:
            hidden = self.norm(self.first(x)).relu()
            return self.second(hidden), free(hidden.detach().clone())

    return case_of(Two())


def sparse() -> Case:
    net = Spare()
    table = torch.eye(4).to_sparse()
    net.table = table
    case = case_of(net)
    free(table._values())
    return case


def between() -> Case:
    """A weight is there while its module works, and gone between, as under FSDP."""
    net = Spare()
    shard = net.first.weight.detach().clone()

    def gather(*_: Any) -> None:
        storage = net.first.weight.untyped_storage()
        if not storage.nbytes():
            storage.resize_(shard.nbytes)
            net.first.weight.data.copy_(shard)

    def release(*_: Any) -> None:
        with torch.no_grad():
            shard.copy_(net.first.weight.data)
        free(net.first.weight)

    net.first.register_forward_pre_hook(gather)
    net.first.register_forward_hook(release)
    net.first.register_full_backward_pre_hook(gather)
    net.first.register_full_backward_hook(release)
    batch = torch.randn(8, 6, requires_grad=True)
    optimizer = torch.optim.AdamW([one for one in net.parameters() if one is not net.first.weight], 0.01)
    found = Case(net, optimizer, batch, {})
    found.step()
    return found._replace(dead={"first.weight": free(net.first.weight)})


def everything() -> Case:
    """All of it in one model."""

    class All(Spare):
        def forward(self, x: Tensor) -> Any:
            hidden = self.norm(self.first(x)).relu()
            return self.second(hidden), free(hidden.detach().clone())

    net = All()
    net.note, net.notes = free(torch.ones(7)), [free(torch.ones(3)), {"a": free(nn.Parameter(torch.ones(2)))}]  # type: ignore[assignment]
    case = case_of(net)
    case.optimizer.state[net.spare.weight] = {"step": torch.tensor(1.0), "exp_avg": free(torch.ones(5, 5)), "exp_avg_sq": torch.ones(5, 5)}
    net.norm.weight.requires_grad_(False)
    net.norm.weight.grad = free(torch.ones(5))
    case.optimizer.param_groups[0]["params"] = [one for one in net.parameters() if one is not net.norm.weight]
    dead = {"spare.weight": free(net.spare.weight), "spare.bias": free(net.spare.bias, 8), "table": free(net.get_buffer("table"))}
    return case._replace(dead=dead)


CASES: dict[str, Callable[[], Case]] = {
    one.__name__: one
    for one in (everything, parameter, issue, large, half, views, gradient, buffer, attribute, state, output, sparse, between)
}


def run(case: Case) -> Iterator[str]:
    """The names of verbs that raised, each with what it raised."""
    for name, verb in verbs(case).items():
        sizes = {one: tensor.untyped_storage().nbytes() for one, tensor in case.dead.items()}
        print(f"{name} …", flush=True)
        said = io.StringIO()
        try:
            with redirect_stderr(said):
                verb()
        except BaseException as error:  # noqa: BLE001 - each is listed
            yield f"{name}: {type(error).__name__}: {error}"
        now = {one: tensor.untyped_storage().nbytes() for one, tensor in case.dead.items()}
        if name == "explain":  # the model itself raised there, half-way
            for one, tensor in case.dead.items():
                free(tensor, sizes[one])
        elif now != sizes:
            yield f"{name}: sizes of dead memory were {sizes} and are {now}"


if __name__ == "__main__":
    warnings.simplefilter("error")
    torch.manual_seed(0)
    found = [*run(CASES[sys.argv[1]]())]
    print("\n".join(f"raised: {line}" for line in found))
    sys.exit(bool(found))
