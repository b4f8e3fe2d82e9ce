"""Training flags: what moves although it is frozen, and modules that disagree."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from modlab.inspection.findings.grouping import Whole, cover
from modlab.inspection.findings.layer_families import AVERAGING, DROPOUTS
from modlab.inspection.findings.subject import ModuleSite, Subject
from modlab.records.finding import Finding, Remedy, Severity


def _keeps_averages(site: ModuleSite) -> bool:
    """Whether a forward pass in training mode would move its running statistics."""
    if not issubclass(type(site.module), AVERAGING):
        return False
    return site.own("_buffers").get("running_mean") is not None and site.held.get("momentum") != 0.0


def frozen_norms(subject: Subject) -> Iterator[Finding]:
    """BatchNorm whose weights are frozen, and whose running statistics go on moving: as they should in the mean of a trained part."""
    norms = [site for site in subject.sites if _keeps_averages(site)]
    flagged = [site for site in norms if site.training and _is_frozen(site)]
    means = [site for site in flagged if _is_of_a_mean(site, subject)]
    severities: tuple[tuple[Severity, list[ModuleSite]], ...] = (
        ("careful", [site for site in flagged if site not in means]),
        ("note", means),
    )
    for severity, some in severities:
        types = sorted({site.type for site in some})
        for group in cover([Whole(site) for site in some], [Whole(site) for site in norms], types[0] if len(types) == 1 else "norm"):
            each = f"{group.code}.eval()" if len(group.members) == 1 else _each(group.code or "model", types)
            yield group.finding("frozen norm moves", severity, Remedy(code=f"{each}  # after each model.train()"))


def _is_of_a_mean(site: ModuleSite, subject: Subject) -> bool:
    """Whether the part of the model in which it lies stands beside a trained one of the same shapes, as a momentum teacher does."""
    root = subject.sites[0]
    part = next(one for one in site.above if one.parent is root or one is root)
    beside = (one.module for one in subject.sites if one.parent is root and one is not part)
    return part is not root and any(
        _shapes(one) == _shapes(part.module) and any(each.requires_grad for each in one.parameters()) for one in beside
    )


def _shapes(module: nn.Module) -> list[tuple[int, ...]]:
    return [tuple(one.shape) for one in module.parameters()]


def _each(root: str, types: list[str]) -> str:
    names = [f"nn.{name}" for name in types if hasattr(nn, name)] or ["nn.BatchNorm1d", "nn.BatchNorm2d", "nn.BatchNorm3d"]
    classes = names[0] if len(names) == 1 else f"({', '.join(names)})"
    return (
        f"for module in {root}.modules():\n"
        f"    if isinstance(module, {classes}) and not any(p.requires_grad for p in module.parameters()):\n"
        f"        module.eval()"
    )


def _is_frozen(site: ModuleSite) -> bool:
    own = [tensor for tensor in site.own("_parameters").values() if tensor is not None]
    return bool(own) and not any(tensor.requires_grad for tensor in own)


# ---- notes ---------------------------------------------------------------------------------------------------------------------


def mixed(subject: Subject) -> Iterator[Finding]:
    """Modules in a different mode from the model itself."""
    root = subject.sites[0].training
    known = [site for site in subject.sites if site.training is not None]
    others = [site for site in known if site.training is not root]
    if root is None or not any(_minds(site) for site in others):
        return
    for group in cover([Whole(site) for site in others], [Whole(site) for site in known], "module"):
        yield group.finding("mixed modes", "note", Remedy(code=f"model.{'train' if root else 'eval'}()"), training=root)


def _minds(site: ModuleSite) -> bool:
    """Whether it may act in another way in another mode: torch's own layers without dropout and running statistics do not."""
    return (
        not type(site.module).__module__.startswith("torch.nn.modules.")
        or issubclass(type(site.module), (*DROPOUTS, *AVERAGING))
        or bool(site.held.get("dropout"))
    )


def evaluating(subject: Subject) -> Iterator[Finding]:
    """Everything in eval mode, and an optimizer at hand: is it about to be trained?"""
    known = [site for site in subject.sites if site.training is not None]
    minding = [site for site in subject.sites if issubclass(type(site.module), (*DROPOUTS, *AVERAGING))]
    if not subject.optimizers or not minding or not known or any(site.training for site in known):
        return
    types = tuple(dict.fromkeys(site.type for site in minding))
    yield subject.sites[0].finding("in evaluation mode", "note", Remedy(code="model.train()  # before training"), types=types)


def dropouts(subject: Subject) -> Iterator[Finding]:
    """Dropout that drops nothing, or everything."""
    for site in subject.sites:
        if not issubclass(type(site.module), DROPOUTS):
            continue
        p = site.held.get("p")
        if type(p) in (int, float) and p in (0, 1):
            yield site.finding(f"dropout {p:g}", "note", Remedy(code=f"{site.code}.p = 0.1"))
