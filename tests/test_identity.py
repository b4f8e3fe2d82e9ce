"""Look, don't touch: whatever is looked at stays what it was, bit for bit, and no result keeps it alive."""

import contextlib
import gc
import random
import re
import unicodedata
import warnings
import weakref

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import modlab
from modlab.errors import GoneError, ModlabError
from tests import zoo

VIEWS = {"tree": modlab.tree, "state": modlab.state}


@pytest.fixture(scope="module", autouse=True)
def small_collections():
    """What torch and the tests' own imports made is not looked through by each `gc.collect`."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def views_of(case: zoo.Case) -> list[str]:
    """A tree of everything; a state table of what can be listed."""
    return ["tree", "state"] if case.listed and not case.large else ["tree"]


LOOKS = [pytest.param(case, view, id=f"{case}-{view}") for case in zoo.CASES for view in views_of(case)]


def faces(result: object, case: zoo.Case) -> dict[str, object]:
    """Everything that a result can show, asked once."""
    shown = {"text": str(result), "repr": repr(result), "headline": result.headline, "html": result.html(bundle=False)}
    if case.listed and not case.large:
        shown |= {"live": result.html()}
        shown |= {"dict": result.to_dict(), "paths": result.paths, "found": result.find("*1*")}
    return shown


def look(model: nn.Module, view: str, case: zoo.Case) -> object:
    result = VIEWS[view](model)
    faces(result, case)
    if view == "state":
        for path in result.paths[:4]:
            with contextlib.suppress(ModlabError):
                faces_of_values(result[path])
    return result


def faces_of_values(measurement: object) -> None:
    str(measurement), measurement.html(), measurement.to_dict()


def bits(tensor: torch.Tensor) -> object:
    """What is stored in a tensor, comparable; its shape where nothing can be read."""
    with torch.no_grad(), torch._C.DisableTorchFunction(), contextlib.suppress(Exception):
        if tensor.is_nested or (tensor.layout is not torch.strided):
            return [
                bits(part)
                for part in (tensor.unbind() if tensor.is_nested else [tensor._values() if tensor.is_coalesced() else tensor.values()])
            ]
        if tensor.is_quantized:
            tensor = tensor.int_repr()
        return tensor.detach().resolve_conj().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return None


def of_tensor(tensor: torch.Tensor) -> tuple[object, ...]:
    with torch._C.DisableTorchFunction():
        version = None if tensor.is_inference() else tensor._version
        grad = tensor.grad if tensor.is_leaf else None
        return (id(tensor), version, tensor.requires_grad, id(tensor.grad_fn), bits(tensor), id(grad), None if grad is None else bits(grad))


def of_module(module: nn.Module) -> dict[str, object]:
    held = object.__getattribute__(module, "__dict__")
    seen: dict[str, object] = {"keys": list(held), "ids": [id(value) for value in held.values()]}
    for name, value in held.items():
        if issubclass(type(value), dict):
            seen[name] = [(key, id(entry)) for key, entry in dict.items(value)]
        elif name == "_non_persistent_buffers_set":
            seen[name] = sorted(value)
        elif issubclass(type(value), torch.Tensor):
            seen[name] = of_tensor(value)
    return seen


def randomness() -> tuple[object, ...]:
    kind, keys, *rest = np.random.get_state()
    return torch.get_rng_state().numpy().tobytes(), kind, keys.tobytes(), *rest, random.getstate()


def everything(model: nn.Module) -> tuple[object, ...]:
    modules = zoo.distinct_modules(model)
    tensors = zoo.distinct_tensors(model, "_parameters", "_buffers")
    return [of_module(m) for m in modules], [of_tensor(t) for t in tensors], randomness(), torch.is_grad_enabled()


@pytest.mark.parametrize(("case", "view"), LOOKS)
def test_looking_changes_nothing(case, view):
    model = case.build()
    before = everything(model)
    look(model, view, case)
    assert everything(model) == before


@pytest.mark.parametrize(("case", "view"), LOOKS)
def test_two_looks_are_equal_and_clean(case, view):
    model = case.build()
    first, second = (faces(VIEWS[view](model), case) for _ in range(2))
    for face in first.keys() - {"dict", "found"}:
        assert first[face] == second[face]
    for face in ("text", "html"):
        assert not re.search(r"0x[0-9a-f]{6,}", first[face]), "an address"
        assert not {c for c in first[face] if unicodedata.category(c) in ("Cc", "Cf", "Cs") and c != "\n"}
    assert first["text"].startswith(first["headline"]) and first["repr"] == first["text"]
    assert len(first["text"]) < 400_000


@pytest.mark.parametrize("case", zoo.CASES, ids=str)
def test_no_result_keeps_a_model_alive(case):
    if case.id in ("compiled", "fx_graph"):
        pytest.skip("torch itself keeps such a module's class alive")
    results: list[object] = []
    assert not survivors(case, results)
    for result in results:
        faces(result, case)  # what had been read is still there
        assert str(result).startswith(result.headline)


def survivors(case: zoo.Case, results: list[object]) -> list[str]:
    """Which modules and tensors of a model are still there after its last name is gone, while the results are."""
    model = case.build()
    watched = [weakref.ref(thing) for thing in loose(model)]
    results += [look(model, view, case) for view in views_of(case)]
    del model
    gc.collect()
    return [type(thing()).__name__ for thing in watched if thing() is not None]


def loose(model: nn.Module) -> list[object]:
    """The model's modules, tensors, and tensors in attributes."""
    modules = zoo.distinct_modules(model)
    attributes = [
        value for m in modules for value in object.__getattribute__(m, "__dict__").values() if issubclass(type(value), torch.Tensor)
    ]
    return [*modules, *zoo.distinct_tensors(model, "_parameters", "_buffers"), *attributes]


@pytest.mark.parametrize("view", VIEWS)
def test_a_result_outlives_its_model(view):
    model = zoo.named("mlp").build()
    result = VIEWS[view](model)
    text = str(result)
    del model
    gc.collect()
    assert str(result) == text and result.html() and result.to_dict()["records"]
    with pytest.raises(GoneError, match="no longer exists"):
        result._answer("0.weight")


def test_reading_a_value_of_a_dead_model_says_so():
    model = zoo.named("mlp").build()
    table = modlab.state(model)
    del model
    gc.collect()
    with pytest.raises(GoneError, match=r"modlab\.state\(model\)"):
        table["0.weight"]


def test_looking_calls_nothing_but_extra_repr():
    """Also under a mode of the user's that sees each operation on tensors."""
    calls: list[str] = []

    class Seen(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            calls.append(str(func))
            return func(*args, **(kwargs or {}))

    model = zoo.named("gradients").build()
    with Seen():
        look(model, "tree", zoo.named("gradients"))
        look(model, "state", zoo.named("gradients"))
    assert calls == []


def test_looking_warns_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        look(zoo.named("leaves_that_are_none").build(), "state", zoo.named("leaves_that_are_none"))


def test_symbolic_sizes_get_no_guard():
    """To ask a symbolic size for its number would fix it, and change the graph that is being captured."""
    model = zoo.named("symbolic_shape").build()
    environment = model.x.fake_mode.shape_env
    modlab.state(model), modlab.tree(model)
    assert not environment.guards and modlab.state(model).records[0].shape == (-1, 3)
