"""A traced run is the run that it would have been: outputs, gradients, state, flags, hooks and random numbers, bit for bit."""

from __future__ import annotations

import contextlib
import random
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules import module as machinery

import modlab
from modlab.running.values import leaves
from modlab.tracing import tensor_ids
from tests import zoo
from tests.calls import CALLS, Call

HOOKS = [name for name in vars(nn.Module()) if name.endswith("_hooks")]
GLOBAL = [name for name in vars(machinery) if name.startswith("_global_") and "hook" in name]


def bits(thing: Any) -> Any:
    """What can be compared with `==`: of a tensor its kind and its bytes."""
    if not isinstance(thing, Tensor):
        return type(thing).__name__, str(thing) if isinstance(thing, (str, int, float, type(None))) else ""
    facts = (type(thing).__name__, thing.dtype, thing.device, thing.requires_grad, thing.is_leaf, thing.layout)
    if thing.is_nested:
        return facts, [bits(part) for part in thing.unbind()]
    if thing.layout is not torch.strided:
        thing = thing.detach().to_dense()
    if thing.is_meta or nn.parameter.is_lazy(thing):
        return facts, None
    if thing.is_quantized:
        thing = thing.dequantize()
    plain = thing.detach().resolve_conj().as_subclass(Tensor).contiguous().clone()
    return facts, tuple(plain.shape), plain.flatten().view(torch.uint8).numpy().tobytes() if plain.numel() else b""


def random_state() -> tuple[Any, ...]:
    return torch.get_rng_state().numpy().tobytes(), random.getstate(), str(np.random.get_state())


def facts_of(model: nn.Module) -> dict[str, Any]:
    """All that a trace must leave alone."""
    found: dict[str, Any] = {}
    for path, module in model.named_modules():
        found[f"{path} training"] = module.training
        for name in HOOKS:
            store = getattr(module, name, None) or {}  # a scripted module shows fewer
            found[f"{path} {name}"] = [getattr(hook, "__qualname__", type(hook).__name__) for hook in store.values()]
        if not isinstance(module, torch.jit.ScriptModule):
            found[f"{path} attributes"] = sorted(vars(module))
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        found[name] = bits(tensor)
        found[f"{name}.grad"] = bits(tensor.grad) if tensor.is_leaf else None
        found[f"{name} hooks"] = tensor._backward_hooks is None, getattr(tensor, "_post_accumulate_grad_hooks", None) is None
    return found


def surroundings() -> tuple[Any, ...]:
    stores = [getattr(machinery, name) for name in GLOBAL]
    return (
        [[*store] if hasattr(store, "__iter__") else store for store in stores],
        torch.overrides._len_torch_function_stack(),
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
    )


def train(model: nn.Module, output: Any) -> None:
    """A backward pass and a step, where the output allows it."""
    tensors = [thing for _, thing, _ in leaves(output) if isinstance(thing, Tensor) and thing.requires_grad and not thing.is_meta]
    if not tensors:
        return
    loss = sum((t.values() if t.is_nested else t).abs().sum() for t in tensors)
    loss.backward()
    parameters = [p for p in model.parameters() if p.grad is not None and not p.grad.is_sparse]
    if parameters:
        torch.optim.SGD(parameters, lr=0.1, momentum=0.9).step()


def run(case: Call, how: str) -> dict[str, Any]:
    model, args, kwargs = case.build()
    torch.manual_seed(1)
    before = surroundings()
    found: dict[str, Any] = {}
    tracer = modlab.trace(model, keep="*" if how == "keep" else (), values=how != "shapes", fold=how == "fold")
    try:
        if how == "without":
            output = model(*args, **kwargs)
            train(model, output)
        else:
            with tracer as trace:
                output = model(*args, **kwargs)
                train(model, output)
            assert not any("failed" in remark for remark in trace.record.remarks), trace.record.remarks
        found["output"] = [(name, bits(thing)) for name, thing, _ in leaves(output)]
    except Exception as error:  # noqa: BLE001 - whatever it is, it has to be the same
        assert case.fails, f"{case}: {type(error).__name__}: {error}"
        found["error"] = type(error), str(error)
    else:
        assert not case.fails
    assert surroundings() == before
    given = [thing for _, thing, _ in leaves((args, kwargs)) if isinstance(thing, Tensor)]
    found["inputs"] = [(bits(thing), thing._backward_hooks is None, bits(thing.grad) if thing.is_leaf else None) for thing in given]
    return {**found, **facts_of(model), "random": random_state()}


@pytest.mark.parametrize("case", CALLS, ids=str)
def test_a_traced_run_is_the_same_run(case):
    random.seed(0)
    np.random.seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, of deprecated kinds of modules; ours are found by the next test
        torch._dynamo.reset()
        expected = run(case, "without")
        for how in ("values", "shapes", "keep", "fold"):
            torch._dynamo.reset()
            assert run(case, how) == expected, how


@pytest.mark.parametrize("case", [case for case in CALLS if not case.fails], ids=str)
def test_one_call_gives_a_trace_and_all_its_faces(case):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, args, kwargs = case.build()
        torch._dynamo.reset()
        trace = modlab.trace(model)(*args, **kwargs)
        assert str(trace).startswith(trace.headline)
        assert trace.html().count("<script>") == 1
        assert trace.to_dict()["records"] is not None
        assert not any("failed" in remark for remark in trace.record.remarks), trace.record.remarks


@pytest.mark.parametrize("case", [case for case in CALLS if not case.fails], ids=str)
def test_modlab_that_fails_says_so_and_lets_the_model_run(case, monkeypatch, swallowed):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        random.seed(0)
        np.random.seed(0)
        torch._dynamo.reset()
        expected = run(case, "without")

        def broken(*_: Any, **__: Any) -> None:
            raise ZeroDivisionError("of modlab's")

        monkeypatch.setattr(tensor_ids.TensorIds, "values", broken)
        model, args, kwargs = case.build()
        torch.manual_seed(1)
        torch._dynamo.reset()
        with modlab.trace(model) as trace:
            output = model(*args, **kwargs)
            train(model, output)
        assert [(name, bits(thing)) for name, thing, _ in leaves(output)] == expected["output"]
        assert {key: value for key, value in facts_of(model).items()} == {key: expected[key] for key in facts_of(model)}
        assert case.id in ("traced_by_jit", "scripted") or any("ZeroDivisionError" in remark for remark in trace.record.remarks)


def children_of(model: nn.Module) -> list[nn.Module]:
    """A few of the modules below, which can be called whatever the model itself is."""
    return list(zoo.distinct_modules(model))[1:6]


def exercise(model: nn.Module, watched: bool) -> tuple[Any, ...]:
    """Call the model and some of its parts with an input that may or may not suit them; say what came of each."""
    torch.manual_seed(1)
    x, found = torch.randn(4, 3), []
    before = surroundings()
    with modlab.trace(model) if watched else contextlib.nullcontext() as trace:
        for module in (model, *children_of(model)):
            try:
                found.append([(name, bits(thing)) for name, thing, _ in leaves(module(x))])
            except Exception as error:  # noqa: BLE001 - whatever it is, it has to be the same
                found.append(type(error).__name__)
    assert surroundings() == before
    if trace is not None:
        assert str(trace) and trace.html(bundle=False)
        assert not any("failed" in remark for remark in trace.record.remarks), trace.record.remarks
    return found, random_state()


@pytest.mark.parametrize("case", [case for case in zoo.CASES if case.listed and not case.large], ids=str)
def test_odd_modules_run_the_same(case):
    random.seed(0)
    np.random.seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch._dynamo.reset()
        expected = exercise(case.build(), False)
        torch._dynamo.reset()
        assert exercise(case.build(), True) == expected
