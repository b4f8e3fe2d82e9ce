"""Everything that a forward pass can change, taken down before and put back after: also when it raises.

Buffers are not copied back: for the time being the modules have copies, and the originals are never written to, so that not
even their version counters move. Parameters stay where they are (a recurrent layer keeps a list of its own of them); their
bits are compared, and copied back only where something changed them.
"""

from __future__ import annotations

import random
import sys
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module, Parameter
from torch.nn.parameter import is_lazy

from modlab.compat import without_modes, without_torch_function
from modlab.inspection import stores
from modlab.inspection.bits import fingerprint, whole
from modlab.statistics.contents import NoValuesError, sizes_of

Undo = Callable[[], None]
_DICTS = frozenset({dict, OrderedDict, defaultdict})
_CONTAINERS = frozenset({*_DICTS, list, set, deque})


@contextmanager
def custody(*roots: Module) -> Iterator[None]:
    """Whatever happens inside, the modules below `roots`, the random generators and autograd's mode are as before.

    What lies outside of them (files, other models, lists of the user's that a hook appends to) cannot be put back.
    """
    modules = list({id(module): module for root in roots for module in stores.modules(root)}.values())
    with ExitStack() as stack:
        stack.enter_context(_randomness())
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.set_grad_enabled(True))
        for undo in _taken(modules):
            stack.callback(undo)
        yield


@contextmanager
def _randomness() -> Iterator[None]:
    """All generators as they were: torch's on every device in use, Python's, numpy's."""
    cpu, own = torch.get_rng_state(), random.getstate()
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() and torch.cuda.is_initialized() else None  # type: ignore[no-untyped-call]
    numpy = sys.modules.get("numpy")
    theirs = numpy.random.get_state() if numpy is not None else None
    try:
        yield
    finally:
        torch.set_rng_state(cpu)
        random.setstate(own)
        if cuda is not None:
            torch.cuda.set_rng_state_all(cuda)
        if numpy is not None and theirs is not None:
            numpy.random.set_state(theirs)


def _taken(modules: list[Module]) -> Iterator[Undo]:
    """What undoes each kind of change; they run in reverse, so that tensors are put right before the dicts that name them."""
    held = [object.__getattribute__(module, "__dict__") for module in modules]
    tensors = list({id(t): t for module in modules for t in _own_tensors(module)}.values())
    for module in modules:
        if issubclass(type(module), torch.jit.ScriptModule):
            yield _mode_of_script(module)
    for one in held:
        if one.get("_compiled_call_impl") is not None:
            yield _uncompiled(one)
    for store in [*held, *(inner for one in held for inner in one.values() if type(inner) in _CONTAINERS)]:
        yield _contents(store)
    for tensor in tensors:
        yield _bits(tensor)
        yield _gradient(tensor)
    for one in held:
        for value in one.values():
            if type(value) is torch.Generator:
                yield _generator(value)
    yield from _lend_copies(modules)


def _own_tensors(module: Module) -> Iterator[Tensor]:
    for _, tensor in stores.named_tensors(module):
        yield tensor
    for value in stores.contents(module).values():
        if issubclass(type(value), Tensor):
            yield value


def _contents(store: Any) -> Undo:
    """A dict, list or set of the module's: the same entries in the same order again. Nothing is written where nothing changed."""
    if type(store) in _DICTS:
        before = list(store.items())

        def put_back() -> None:
            now = list(store.items())
            if len(now) != len(before) or any(a is not c or b is not d for (a, b), (c, d) in zip(now, before, strict=True)):
                store.clear()
                store.update(before)
    else:
        listed = list(store)

        def put_back() -> None:
            if [*map(id, store)] != [*map(id, listed)]:
                store.clear()
                (store.update if type(store) is set else store.extend)(listed)

    return put_back


def _bits(tensor: Tensor) -> Undo:
    """The values of a tensor; copied back past autograd and its version counter, and only if they changed."""
    if is_lazy(tensor):
        return lambda: None
    try:
        with torch.no_grad(), without_torch_function(), without_modes():
            before = tensor.detach().clone()
    except (RuntimeError, NotImplementedError, TypeError):  # a kind of tensor that cannot be copied
        return lambda: None

    def put_back() -> None:
        with torch.no_grad(), without_torch_function(), without_modes():
            now = tensor.data
            if not same_bits(now, before):
                tensor.data = before if sizes_of(now) != sizes_of(before) else now.copy_(before)

    return put_back


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors store the same; NaN equals NaN."""
    if sizes_of(one) != sizes_of(other) or one.dtype != other.dtype:
        return False
    if one.is_meta or other.is_meta:
        return True
    try:
        return fingerprint(one) == fingerprint(other) if _is_odd(one) else torch.equal(whole(one), whole(other))
    except NoValuesError:
        return True


def _is_odd(tensor: Tensor) -> bool:
    return tensor.layout is not torch.strided or tensor.is_nested or tensor.is_quantized or type(tensor) not in (Tensor, Parameter)


def _gradient(tensor: Tensor) -> Undo:
    """``.grad`` is taken off for the time being, and the same object put back: nothing can add to it."""
    if is_lazy(tensor) or not tensor.is_leaf:
        return lambda: None
    flag, grad = tensor.requires_grad, tensor.grad
    if grad is not None:
        tensor.grad = None

    def put_back() -> None:
        if tensor.is_leaf and tensor.requires_grad is not flag:
            tensor.requires_grad_(flag)
        if tensor.grad is not grad:
            tensor.grad = grad

    return put_back


def _mode_of_script(module: Module) -> Undo:
    """A scripted module keeps its flag outside of Python."""
    mode = stores.mode(module)

    def put_back() -> None:
        if mode is not None and stores.mode(module) is not mode:
            module.training = mode

    return put_back


def _uncompiled(held: dict[str, Any]) -> Undo:
    """A module of ``module.compile()`` runs as it was written: other buffers would make it compile again."""
    compiled, held["_compiled_call_impl"] = held["_compiled_call_impl"], None

    def put_back() -> None:
        held["_compiled_call_impl"] = compiled

    return put_back


def _generator(generator: torch.Generator) -> Undo:
    before = generator.get_state()

    def put_back() -> None:
        generator.set_state(before)

    return put_back


def _lend_copies(modules: list[Module]) -> Iterator[Undo]:
    """Give the modules copies of their buffers; one with several owners gets one copy."""
    copies: dict[int, Tensor] = {}
    for module in modules:
        buffers = stores.contents(module).get("_buffers")
        for name, tensor in [] if buffers is None else list(buffers.items()):
            if tensor is None or is_lazy(tensor):
                continue
            try:
                with torch.no_grad(), without_torch_function(), without_modes():
                    copies.setdefault(id(tensor), tensor.detach().clone())
            except (RuntimeError, NotImplementedError, TypeError):  # a kind of tensor that cannot be copied
                continue
            if buffers is not None and type(buffers) in _DICTS:
                buffers[name] = copies[id(tensor)]  # put back with the dict
            elif issubclass(type(module), torch.jit.ScriptModule):
                setattr(module, name, copies[id(tensor)])
                yield _given_back(module, name, tensor)


def _given_back(module: Module, name: str, tensor: Tensor) -> Undo:
    """A scripted module's buffers are kept outside of Python."""

    def put_back() -> None:
        setattr(module, name, tensor)

    return put_back
