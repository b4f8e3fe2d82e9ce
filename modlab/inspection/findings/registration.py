"""What hangs on a module without being registered, and names that only look like a switch."""

from __future__ import annotations

from collections.abc import Iterator
from types import FunctionType
from typing import Any

from torch import Tensor
from torch.nn import Module, Parameter

from modlab.compat import grad_fn
from modlab.inspection import stores
from modlab.inspection.findings import corrections
from modlab.inspection.findings.accesses import access
from modlab.inspection.findings.layer_families import DROPOUTS
from modlab.inspection.findings.subject import ModuleSite, Subject
from modlab.inspection.spelling import is_plain
from modlab.inspection.unregistered import Members, container, is_collection, members
from modlab.records.finding import Fact, Finding, Remedy, Severity
from modlab.records.structure import Ghost

SWITCHES = frozenset({"requires_grad", "require_grad", "requires_gradient", "require_gradient", "required_grad"})
CONSTRUCTORS = frozenset({"_init_", "__int__", "__init", "_init__", "__init_", "__inti__", "__Init__"})


def hidden(subject: Subject) -> Iterator[Finding]:
    """Modules and tensors in lists, dicts, small objects and plain attributes."""
    for site in subject.suspicious:
        for ghost in subject.finder.find(site.module):
            if not ghost.harmless and not _is_of_a_pass(site, ghost):
                yield _hidden(subject, site, ghost)


def _is_of_a_pass(site: ModuleSite, ghost: Ghost) -> bool:
    """Whether it holds tensors that each pass leaves there anew: attention weights, a loss of its own."""
    if ghost.modules or ghost.parameters or ghost.name not in site.held:
        return False
    written, read = access(site.module, ghost.name)
    return written and not read


def _hidden(subject: Subject, site: ModuleSite, ghost: Ghost) -> Finding:
    path = _joined(site, ghost.name)
    value = site.held.get(ghost.name)
    looked = [value] if ghost.name in site.held else [site.held[name] for name in site.held.keys() - stores.STANDARD]  # "…" is the rest
    hidden = [inner.thing for one in looked for inner in Members(one) if id(inner.thing) not in subject.finder.registered]
    if ghost.modules or ghost.parameters:
        severity, fate = _of_weights(subject, hidden)
        where = _where(ghost, value)
        facts: dict[str, Fact] = {"optimizer": subject.labels[0]} if fate == "held" else {}
        facts["inside"] = _inside(ghost, hidden) if where != "past registration" else ghost.what
        fix = _remedy(site, ghost, ghost.fix)
        facts |= {"hidden": ghost.modules + ghost.tensors, "way": ghost.way, "holder": ghost.holder}
        facts |= {"cut": ghost.cut} if ghost.cut else {}
        return site.finding("hidden", severity, *fix, path=path, where=where, fate=fate, **facts)
    joined = isinstance(value, Tensor) and grad_fn(value) is not None
    if isinstance(value, Tensor) and joined and not access(site.module, ghost.name).written:
        return site.finding(
            "no longer a parameter", "broken", *_as_parameter(site, ghost), path=path, function=type(grad_fn(value)).__name__
        )
    if isinstance(value, Tensor) and value.requires_grad and not joined:
        return site.finding("should be a parameter", "broken", *_as_parameter(site, ghost), path=path)
    fix = _remedy(site, ghost, ghost.fix.replace('"))', '").detach())') if joined else ghost.fix)
    return site.finding("should be a buffer", "careful", *fix, path=path, itself=issubclass(type(value), Tensor), tensors=ghost.tensors)


def _remedy(site: ModuleSite, ghost: Ghost, line: str) -> tuple[Remedy, ...]:
    """The code that registers it, and else what to do in words."""
    if not line:
        return (Remedy(advice=f"{ghost.advice[0].upper()}{ghost.advice[1:]}."),) if ghost.advice else ()
    code = corrections.placed(site, ghost.name, line)
    return (Remedy(code=code) if code else Remedy("a class of your own"),)


def _where(ghost: Ghost, value: Any) -> str:
    """``in a list``, ``in a dict``; or that it was set past registration."""
    if stores.is_module(value) or issubclass(type(value), Tensor):
        return "past registration"
    if ghost.name == "…":
        return "in attributes"
    return f"in {'a' if is_collection(value) else 'an object of class'} {container(value)}"


def _inside(ghost: Ghost, hidden: list[Any]) -> str:
    """``3 Linear`` out of ``list of 3 Linear``."""
    if ghost.name == "…":
        return ghost.what
    return members([one for one in hidden if stores.is_module(one)], [one for one in hidden if not stores.is_module(one)])


def _of_weights(subject: Subject, hidden: list[Any]) -> tuple[Severity, str]:
    """How bad it is, and what becomes of what is hidden.

    Hidden weights are not trained; hidden modules without any only miss the mode.
    """
    tensors = [thing for thing in hidden if issubclass(type(thing), Tensor)]
    modules = [inner for thing in hidden if stores.is_module(thing) for inner in _below(thing)]
    tensors += [tensor for module in modules for _, tensor in stores.named_tensors(module)]
    weights = [tensor for tensor in tensors if issubclass(type(tensor), Parameter)]
    if weights:
        if all(subject.owns(tensor) for tensor in weights):
            return "careful", "held"
        return ("broken", "lost") if any(weight.requires_grad for weight in weights) else ("careful", "left")
    if tensors:
        return "careful", "left"
    return ("broken", "drops") if any(issubclass(type(module), DROPOUTS) for module in modules) else ("note", "mode")


def _below(module: Module) -> Iterator[Module]:
    seen: set[int] = set()
    stack = [module]
    while stack:
        here = stack.pop()
        if id(here) not in seen:
            seen.add(id(here))
            yield here
            stack.extend(child for _, child in stores.named_children(here) if child is not None)


def _as_parameter(site: ModuleSite, ghost: Ghost) -> tuple[Remedy, ...]:
    """For a tensor that is meant to be trained, and is no ``nn.Parameter``."""
    if not is_plain(ghost.name):
        return ()
    line = corrections.placed(site, ghost.name, f'self.{ghost.name} = nn.Parameter(self.__dict__.pop("{ghost.name}").detach())')
    return (Remedy(code=line),) if line else ()


def _joined(site: ModuleSite, name: str) -> str:
    path = site.path
    return f"{path}.{name}" if path else name


def uninitialized(subject: Subject) -> Iterator[Finding]:
    """A child whose constructor never called ``super().__init__()``."""
    for site in subject.sites:
        if "_modules" not in site.held:
            fix = Remedy(code=f"super().__init__()  # first in the constructor of {site.type}")
            yield site.finding("never initialised", "broken", fix, path=site.path, **{"class": site.type})


def plain_switches(subject: Subject) -> Iterator[Finding]:
    """``module.requires_grad = False`` makes an attribute of that name, and freezes nothing."""
    for site in subject.sites:
        for name in sorted(SWITCHES & site.held.keys()):
            value = site.held[name]
            if type(value) is bool:
                yield from _module_switch(subject, site, name, value)
    for held in subject.parameters:
        for name in sorted(SWITCHES & vars(held.tensor).keys()) if type(held.tensor) is Parameter else ():
            value = vars(held.tensor)[name]
            if type(value) is bool and value is not held.tensor.requires_grad:
                fix = _switching(held.code, name, value)
                yield held.finding("misspelt requires_grad", "broken", fix, name=name, value=value, real=held.tensor.requires_grad)


def _switching(code: str, name: str, value: bool) -> Remedy:
    return Remedy(code=f"del {code}.{name}\n{code}.requires_grad_({value})")


def _module_switch(subject: Subject, site: ModuleSite, name: str, value: bool) -> Iterator[Finding]:
    below = {id(module) for module in _below(site.module)}
    inside = [held.tensor for held in subject.parameters if id(held.site.module) in below]
    against = sum(tensor.requires_grad is not value for tensor in inside)
    if against:
        fix = _switching(site.code, name, value)
        yield site.finding("plain switch", "broken", fix, name=name, value=value, against=against, parameters=len(inside))


def misspelt_constructors(subject: Subject) -> Iterator[Finding]:
    """``def _init_`` is a method that nobody calls."""
    told: set[int] = set()
    for site in subject.sites:
        for cls in type(site.module).__mro__:
            if cls is Module or id(cls) in told:
                continue
            told.add(id(cls))
            for name in sorted(CONSTRUCTORS & vars(cls).keys()):
                if type(vars(cls)[name]) is FunctionType and "__init__" not in vars(cls):
                    fix = Remedy(code=f"def __init__(self, ...):  # instead of {name}, in class {cls.__name__}")
                    yield site.finding("misspelt constructor", "broken", fix, name=name, **{"class": cls.__name__})
