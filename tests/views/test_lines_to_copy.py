"""Every line that a view offers to copy runs as it stands, and gives the thing beside which it stands: in any wrapper, under any name.

The lines of a tree and a state are made on the page: tests/browser/test_lines_to_copy.py.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import modlab
from modlab.inspection.distributed import unwrapped
from modlab.results.rows import RowsResult
from tests.ranks import run_ranks
from tests.wrapped import WRAPPED, net

PATTERNS = ("...)", "(...", "...,")
"""What stands in code that is to be filled in."""


SHORT = ("odd", "DDP", "compiled", "FSDP2", "scripted")


def probe(module: nn.Module, args: Any, output: Any) -> None: ...


def made(name: str) -> nn.Module:
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return WRAPPED[name]()


def sick(name: str) -> tuple[nn.Module, torch.optim.Optimizer]:
    """With much that a line would mend: hooks, an optimizer that holds one parameter, weights of zero, some of them frozen."""
    model = made(name)
    parameters = [*model.parameters()]
    for module in () if isinstance(model, torch.jit.ScriptModule) else model.modules():
        if isinstance(module, (nn.Linear, nn.BatchNorm1d)):
            module.register_forward_hook(probe)
            module.register_forward_hook(lambda *_: None)
    for place, one in enumerate(parameters[1:]):
        torch.Tensor.zero_(one.detach())
        one.requires_grad_(place not in (1, 2))
    return model, torch.optim.SGD(parameters[:1] or [torch.ones(1)], lr=0.1)


def diff(model: nn.Module, optimizer: torch.optim.Optimizer) -> RowsResult:
    return modlab.diff(modlab.snapshot(unwrapped(model)), model)


VIEWS: dict[str, Callable[[nn.Module, torch.optim.Optimizer], RowsResult]] = {
    "hooks": lambda model, optimizer: modlab.hooks(model),
    "internals": lambda model, optimizer: modlab.internals(model),
    "diagnose": modlab.diagnose,
    "diff": diff,
    "compare": lambda model, optimizer: modlab.compare(model)(torch.randn(6, 4)),
}


def lines(result: RowsResult) -> Iterator[tuple[str, str]]:
    """The code of a view, without that of the user's own functions and what is to be filled in, and beside what it stands."""
    sheet = result._sheet()
    found = [(row.path, block) for row in sheet.rows for block in row.details] + [(None, block) for block in sheet.notes]
    for path, block in found:
        if block.code and block.caption != "source" and not any(one in block.code for one in PATTERNS):
            yield path or "", block.code


def tried(name: str, view: str) -> Iterator[tuple[str, str, str, str]]:
    """What is wrong with the lines of one view of one model; each runs on a fresh one."""
    try:
        result = VIEWS[view](*sick(name))
    except modlab.ModlabError:  # refused, and said so
        return
    model, optimizer = sick(name)
    for path, code in dict.fromkeys(lines(result)):
        if view not in ("internals", "compare"):  # those change nothing
            model, optimizer = sick(name)
        space: dict[str, Any] = {
            "model": model,
            "optimizer": optimizer,
            "self": getattr(unwrapped(model), "_orig_mod", unwrapped(model)),
            "comparison": result,
            "modlab": modlab,
            "nn": nn,
            "torch": torch,
            "state_dict": net().state_dict(),
        }
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                exec(code, space)
        except Exception as error:  # noqa: BLE001 - this is what is asked
            yield name, view, path, f"{code}\n{type(error).__name__}: {error}"


def of_all(rank: int, names: tuple[str, ...]) -> list[tuple[str, str, str, str]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [one for name in names for view in VIEWS for one in tried(name, view)]


def test_lines_are_found():
    assert all(len([*lines(look(*sick("odd")))]) > 5 for view, look in VIEWS.items() if view != "diff")


@pytest.mark.parametrize("names", [SHORT, pytest.param(tuple(WRAPPED.keys() - set(SHORT)), marks=pytest.mark.long, id="others")])
def test_each_line_runs(names):
    [failures] = run_ranks(of_all, 1, names)
    assert not failures, "\n".join(map("; ".join, failures))


# ---- of a tree and a state


def wrong(model: nn.Module, view: str, path: str, code: str) -> str:
    """What is wrong with the line beside a row of a tree or a state; nothing where it gives the thing."""
    space = {"model": model, "modlab": modlab, "nn": nn, "torch": torch}
    if code.startswith("self."):  # is for the constructor
        return ""
    try:
        got = eval(code, space)
    except Exception as error:  # noqa: BLE001 - this is what is asked
        return f"{type(error).__name__}: {error}"
    expected = things(model, view).get(path, got)
    return "" if got is expected else f"gives {type(got).__name__}"


def things(model: nn.Module, view: str) -> dict[str, Any]:
    """What stands in a row, as the page writes its name."""
    root = unwrapped(model)
    if view == "tree":
        found = {path or "(root)": module for path, module in root.named_modules(remove_duplicate=False)}
    else:
        found = {path: tensor for path, tensor in [*root.named_parameters(remove_duplicate=False), *root.named_buffers()]}
    return {path.replace("\n", "\\n"): thing for path, thing in found.items()}
