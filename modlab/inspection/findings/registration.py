"""What hangs on a module without being registered, and names that look like a switch and are none."""

from __future__ import annotations

from collections.abc import Iterator
from types import FunctionType
from typing import Any

from torch import Tensor
from torch.nn import Module, Parameter

from modlab import format
from modlab.compat import grad_fn
from modlab.inspection import stores
from modlab.inspection.findings import corrections
from modlab.inspection.findings.accesses import access
from modlab.inspection.findings.layer_families import DROPOUTS
from modlab.inspection.findings.subject import ModuleSite, Subject
from modlab.inspection.spelling import is_plain
from modlab.inspection.unregistered import Members, container, is_collection, members
from modlab.records.finding import FindingRecord, Severity
from modlab.records.structure import Ghost

SWITCHES = frozenset({"requires_grad", "require_grad", "requires_gradient", "require_gradient", "required_grad"})
CONSTRUCTORS = frozenset({"_init_", "__int__", "__init", "_init__", "__init_", "__inti__", "__Init__"})


def hidden(subject: Subject) -> Iterator[FindingRecord]:
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


def _hidden(subject: Subject, site: ModuleSite, ghost: Ghost) -> FindingRecord:
    path = _joined(site, ghost.name)
    value = site.held.get(ghost.name)
    looked = [value] if ghost.name in site.held else [site.held[name] for name in site.held.keys() - stores.STANDARD]  # "…" is the rest
    hidden = [inner.thing for one in looked for inner in Members(one) if id(inner.thing) not in subject.finder.registered]
    where = _where(ghost, value)
    if ghost.modules or ghost.parameters:
        severity, what = _of_weights(subject, hidden, ghost)
        kind = f"hidden {where}"
        extent = _inside(ghost, hidden) if where != "past registration" else ghost.what
        verb = "are" if _members(ghost) > 1 else "is"
        fix, advice = _remedy(site, ghost, ghost.fix)
        place = f"hidden {where}" if where != "past registration" else "set past registration"
        return FindingRecord(
            path,
            site.path,
            kind,
            severity,
            f"{path} ({extent})",
            f"{verb} {place}{what}",
            _reason(ghost),
            fix,
            advice=advice,
            extent=extent,
        )
    joined = isinstance(value, Tensor) and grad_fn(value) is not None
    if isinstance(value, Tensor) and joined and not access(site.module, ghost.name).written:
        return _lost(site, path, ghost, value)
    if isinstance(value, Tensor) and value.requires_grad and not joined:
        return _unregistered(site, path, ghost)
    fix, advice = _remedy(site, ghost, ghost.fix.replace('"))', '").detach())') if joined else ghost.fix)
    verb = "is" if issubclass(type(value), Tensor) else "holds"
    what = f"{verb} a plain tensor: .to() and .cuda() leave it where it is, and state_dict() does not save it"
    if ghost.tensors > 1:
        what = f"holds {ghost.tensors} plain tensors: .to() and .cuda() leave them where they are, and state_dict() does not save them"
    reason = "PyTorch moves and saves parameters and buffers. A constant that need not be saved is a buffer with persistent=False."
    return FindingRecord(path, site.path, "should be a buffer", "careful", path, what, reason, fix, advice=advice)


def _remedy(site: ModuleSite, ghost: Ghost, line: str) -> tuple[str, str]:
    """The code that registers it, and else what to do in words."""
    if not line:
        return "", f"{ghost.advice[0].upper()}{ghost.advice[1:]}." if ghost.advice else ""
    code = corrections.placed(site, ghost.name, line)
    return code, "" if code else corrections.IN_WORDS


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


def _members(ghost: Ghost) -> int:
    return ghost.modules + ghost.tensors


def _of_weights(subject: Subject, hidden: list[Any], ghost: Ghost) -> tuple[Severity, str]:
    """How bad it is, and how a sentence goes on that says where it is hidden.

    Hidden weights are not trained; hidden modules without any only miss the mode.
    """
    tensors = [thing for thing in hidden if issubclass(type(thing), Tensor)]
    modules = [inner for thing in hidden if stores.is_module(thing) for inner in _below(thing)]
    tensors += [tensor for module in modules for _, tensor in stores.named_tensors(module)]
    weights = [tensor for tensor in tensors if issubclass(type(tensor), Parameter)]
    many = _members(ghost) > 1
    if weights:
        held = sum(subject.owns(tensor) for tensor in weights)
        if held == len(weights):
            return "careful", f": trained by {subject.labels[0]}, but not moved and not saved"
        if not any(weight.requires_grad for weight in weights):
            return "careful", ": neither moved nor saved"
        return "broken", f", so {'they do' if many else 'it does'} not train, and {'are' if many else 'is'} neither moved nor saved"
    if tensors:
        return "careful", ": neither moved nor saved"
    if any(issubclass(type(module), DROPOUTS) for module in modules):
        return "broken", ": eval() does not reach it, so it goes on dropping"
    return "note", ": train() and eval() do not reach it, and the tree does not show it"


def _below(module: Module) -> Iterator[Module]:
    seen: set[int] = set()
    stack = [module]
    while stack:
        here = stack.pop()
        if id(here) not in seen:
            seen.add(id(here))
            yield here
            stack.extend(child for _, child in stores.named_children(here) if child is not None)


def _reason(ghost: Ghost) -> str:
    return (
        f"{ghost.reason[0].upper()}{ghost.reason[1:]}. Assigning a module or an nn.Parameter to an attribute registers it; "
        "what is inside a Python container, or got round the assignment, PyTorch does not see."
    )


def _lost(site: ModuleSite, path: str, ghost: Ghost, value: Tensor) -> FindingRecord:
    """What was a parameter before something was done with it: ``nn.Parameter(...).to(...)``."""
    function = type(grad_fn(value)).__name__
    return FindingRecord(
        path,
        site.path,
        "no longer a parameter",
        "broken",
        path,
        f"was computed from a tensor that requires a gradient ({function}), and is no parameter itself: it never changes",
        "nn.Parameter(...).to(...), .cuda() or * 2 give a plain tensor, not a parameter; and what is computed once in the "
        "constructor is not computed again when the weights change. backward() through it works only once.",
        _as_parameter(site, ghost),
    )


def _unregistered(site: ModuleSite, path: str, ghost: Ghost) -> FindingRecord:
    """A tensor that is meant to be trained, and is no ``nn.Parameter``."""
    return FindingRecord(
        path,
        site.path,
        "should be a parameter",
        "broken",
        path,
        "requires a gradient, but is a plain tensor: parameters() does not list it, .to() does not move it, state_dict() does not save it",
        "requires_grad=True makes a tensor trainable, not registered. Only an nn.Parameter is registered by assigning it.",
        _as_parameter(site, ghost),
    )


def _as_parameter(site: ModuleSite, ghost: Ghost) -> str:
    if not is_plain(ghost.name):
        return ""
    return corrections.placed(site, ghost.name, f'self.{ghost.name} = nn.Parameter(self.__dict__.pop("{ghost.name}").detach())')


def _joined(site: ModuleSite, name: str) -> str:
    path = site.path
    return f"{path}.{name}" if path else name


def uninitialized(subject: Subject) -> Iterator[FindingRecord]:
    """A child whose constructor never called ``super().__init__()``."""
    for site in subject.sites:
        if "_modules" not in site.held:
            yield FindingRecord(
                site.path,
                site.path,
                "never initialised",
                "broken",
                site.path,
                f"is a {site.type} whose constructor did not call super().__init__(): it can hold no parameter, and cannot be called",
                "nn.Module's constructor makes the stores in which parameters, buffers, children and hooks are kept.",
                f"super().__init__()  # first in the constructor of {site.type}",
            )


def plain_switches(subject: Subject) -> Iterator[FindingRecord]:
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
                yield FindingRecord(
                    held.path,
                    held.site.path,
                    "misspelt requires_grad",
                    "broken",
                    held.path,
                    f"has .{name} = {value}, a new attribute: requires_grad is still {held.tensor.requires_grad}",
                    "Python lets one set any attribute of a tensor; only requires_grad is a switch.",
                    f"del {held.code}.{name}\n{held.code}.requires_grad_({value})",
                )


def _module_switch(subject: Subject, site: ModuleSite, name: str, value: bool) -> Iterator[FindingRecord]:
    below = {id(module) for module in _below(site.module)}
    inside = [held.tensor for held in subject.parameters if id(held.site.module) in below]
    against = [tensor for tensor in inside if tensor.requires_grad is not value]
    if not against:
        return
    what = "freezes" if not value else "thaws"
    state = f"{len(against)} of {format.plural(len(inside), 'parameter')} are {'trained' if not value else 'frozen'}"
    yield FindingRecord(
        site.path,
        site.path,
        f"{name} = {value}",
        "broken",
        site.label or "the model",
        f"has the attribute {name} = {value}, which {what} nothing: {state}",
        "A module has no such switch: the assignment only makes an attribute of that name. The method with an underscore at its end "
        "goes through the parameters.",
        f"del {site.code}.{name}\n{site.code}.requires_grad_({value})",
        extent=site.extent,
    )


def misspelt_constructors(subject: Subject) -> Iterator[FindingRecord]:
    """``def _init_`` is a method that nobody calls."""
    told: set[int] = set()
    for site in subject.sites:
        for cls in type(site.module).__mro__:
            if cls is Module or id(cls) in told:
                continue
            told.add(id(cls))
            for name in sorted(CONSTRUCTORS & vars(cls).keys()):
                if type(vars(cls)[name]) is FunctionType and "__init__" not in vars(cls):
                    yield FindingRecord(
                        site.path,
                        site.path,
                        "misspelt constructor",
                        "broken",
                        site.label or "the model",
                        f"is of class {cls.__name__}, whose constructor is spelled {name}: Python never calls it",
                        "The constructor has two underscores on each side. Under any other name its layers are never made.",
                        f"def __init__(self, ...):  # instead of {name}, in class {cls.__name__}",
                        extent=site.extent,
                    )
