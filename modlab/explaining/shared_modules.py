"""Modules and weights that a model has in more than one place: a replacement in one place must suit the others."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch.nn import Module

from modlab.explaining import calls
from modlab.explaining.failure import Failure
from modlab.inspection import stores

_MODELS = 4  # models in local names that are searched


class SharedModules(NamedTuple):
    """What else in the models there is the same object.

    Attributes:
        places: other dotted names of a module.
        tensors: names of its own parameters, each with the dotted name of the same tensor elsewhere.
        around: whether a module above it has several places.
    """

    places: tuple[str, ...] = ()
    tensors: tuple[tuple[str, str], ...] = ()
    around: bool = False


_Found = tuple[str, Any, Module]  # the name, the object, and the module that holds it under that name


def of(failure: Failure, path: str, module: Module) -> SharedModules:
    """The other places of a module and of its parameters, and whether a module above it has several."""
    known = failure.ties.get(id(module))
    if known is None:
        known = failure.ties[id(module)] = _looked(failure, module)
    others = tuple(place for place in known.places if place != path)
    return known._replace(places=others if len(known.places) > 1 else ())


def _looked(failure: Failure, module: Module) -> SharedModules:
    root = failure.root.module if failure.root is not None else module
    named = {id(model): name for name, model in reversed(failure.models)}
    roots = list({id(model): model for model in (root, *(model for _, model in failure.models[:_MODELS]))}.values())
    above = {id(call.module) for call in failure.calls[1:] if call.module is not module}
    own = {id(tensor): name for name, tensor in stores.named_tensors(module)}
    if _is_alone(failure, roots, {id(module)} | above, own):
        return SharedModules()
    found = _found(roots, {id(module)} | above, own)
    held = [thing for _, thing, _ in found if stores.is_module(thing) and thing is not module]
    others = [one for one in found if not stores.is_module(one[1]) and one[2] is not module]
    return SharedModules(
        tuple(dict.fromkeys(_named(roots, named, one) for one in found if one[1] is module)),
        tuple((own[id(one[1])], _named(roots, named, one)) for one in others),
        len({id(thing) for thing in held}) < len(held),
    )


def modules(failure: Failure) -> list[Module]:
    """All modules of the model."""
    if not failure.inside and failure.root is not None:
        failure.inside = list(stores.modules(failure.root.module))
    return failure.inside


def _is_alone(failure: Failure, roots: list[Module], modules: set[int], tensors: dict[int, str]) -> bool:
    """Whether each of these is held only once: checked on every model, so it is a single fast walk without names, shared by all checks."""
    if failure.held is None:
        failure.held = _held(failure, roots)
    found, owned = failure.held
    if not found:  # too many
        return False
    places = [one for one in found if one in modules]
    names = [one for one in owned if one in tensors]
    return len(places) == len(set(places)) and len(names) == len(set(names))


def _held(failure: Failure, roots: list[Module]) -> tuple[list[int], list[int]]:
    """All places of modules in the models there, and all places of parameters; empty if there are too many."""
    contents, inside, owned, known, places = stores.contents, list[Module](), list[Any](), set[int](), list[int]()
    for root in roots:
        if id(root) in known:
            continue
        line: list[Module] = [root]
        for holder in line:
            held = contents(holder)
            if children := held.get("_modules"):
                line += [child for child in children.values() if child is not None]
                if len(line) > calls.SEARCHED:  # or the model contains itself
                    return [], []
            if parameters := held.get("_parameters"):
                owned += parameters.values()
        found = [*map(id, line)]
        known.update(found)
        places += found[1:]
        inside += line
    failure.inside = inside
    return places, [*map(id, owned)]


def _found(roots: list[Module], modules: set[int], tensors: dict[int, str]) -> list[_Found]:
    """Where these modules or tensors are held, found in one walk."""
    found: list[_Found] = []
    todo, seen = [*roots], {id(root) for root in roots}
    contents, wanted = stores.contents, frozenset(tensors)
    while todo:
        holder = todo.pop()
        held = contents(holder)
        children = held.get("_modules")
        if children:
            for name, child in children.items():
                key = id(child)
                if key in modules:
                    found.append((name, child, holder))
                if key not in seen:
                    seen.add(key)
                    if child is not None:
                        todo.append(child)
        parameters = held.get("_parameters")
        if parameters and not wanted.isdisjoint(map(id, parameters.values())):
            found += [(name, tensor, holder) for name, tensor in parameters.items() if id(tensor) in wanted]
    return found


def _named(roots: list[Module], known: dict[int, str], found: _Found) -> str:
    """The dotted name in the model; in a different model, prefixed with the user's name for it."""
    name, _, holder = found
    for place, root in enumerate(roots):
        path = calls.path_to(root, holder)
        if path is not None:
            return calls.join(calls.join(known.get(id(root), type(root).__name__) if place else "", path), name)
    return name


def told(failure: Failure) -> tuple[str, ...]:
    """What to know about the failed module if it, or its weight, has several places."""
    call = failure.failing
    if call is None or (id(call.module) not in failure.ties and len(call.places) < 2):
        return ()
    if len(call.places) > 1:
        around = call.place.rpartition(".")[0]
        return (
            f"{_and(tuple(calls.join(around, name) for name in call.places))} are one module: which of these calls failed cannot be seen.",
        )
    known = of(failure, call.path or "", call.module)
    words = []
    if known.places:
        words.append(
            f"{_and((call.place, *known.places))} are one module, with one weight. A new layer in one place does not change the other."
        )
    if known.tensors:
        own, other = known.tensors[0]
        words.append(f"{calls.join(call.place, own)} and {other} are one tensor (tied): its size applies in both places.")
    if known.around:
        words.append("A module around it has several places: changing one changes all.")
    return tuple(words)


def _and(names: tuple[str, ...]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"
