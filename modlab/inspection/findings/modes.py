"""Training flags: what moves although it is frozen, and modules that disagree."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from modlab.inspection.findings.grouping import Whole, cover
from modlab.inspection.findings.layer_families import AVERAGING, DROPOUTS
from modlab.inspection.findings.subject import ModuleSite, Subject
from modlab.records.finding import FindingRecord


def _keeps_averages(site: ModuleSite) -> bool:
    """Whether a forward pass in training mode would move its running statistics."""
    if not issubclass(type(site.module), AVERAGING):
        return False
    return site.own("_buffers").get("running_mean") is not None and site.held.get("momentum") != 0.0


def frozen_norms(subject: Subject) -> Iterator[FindingRecord]:
    """BatchNorm whose weights are frozen, and whose running statistics go on moving."""
    norms = [site for site in subject.sites if _keeps_averages(site)]
    flagged = [site for site in norms if site.training and _is_frozen(site)]
    types = sorted({site.type for site in flagged})
    for group in cover([Whole(site) for site in flagged], [Whole(site) for site in norms], types[0] if len(types) == 1 else "norm"):
        each = f"{group.code}.eval()" if len(group.members) == 1 else _each(group.code or "model", types)
        yield FindingRecord(
            group.path,
            group.site.path,
            "frozen, but moves",
            "careful",
            group.words,
            f"{group.verb('has', 'have')} frozen weights, but {group.verb('is', 'are')} in training mode: running_mean and running_var "
            f"move with every forward pass",
            "requires_grad concerns gradients; running statistics move by the training flag alone, under no_grad too. "
            "model.train() sets the flag of every module again.",
            f"{each}  # after each model.train()",
            group.places,
            extent=group.extent,
        )


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


def mixed(subject: Subject) -> Iterator[FindingRecord]:
    """Modules in another mode than the model itself."""
    root = subject.sites[0].training
    known = [site for site in subject.sites if site.training is not None]
    others = [site for site in known if site.training is not root]
    if root is None or not others:
        return
    mode = "evaluation" if root else "training"
    for group in cover([Whole(site) for site in others], [Whole(site) for site in known], "module"):
        yield FindingRecord(
            group.path,
            group.site.path,
            "mixed modes",
            "note",
            group.words,
            f"{group.verb('is', 'are')} in {mode} mode, and the model is in {'training' if root else 'evaluation'} mode",
            "Meant for a frozen part. model.train() and model.eval() set every module, also this one.",
            f"model.{'train' if root else 'eval'}()",
            group.places,
            extent=group.extent,
        )


def evaluating(subject: Subject) -> Iterator[FindingRecord]:
    """Everything in eval mode, and an optimizer at hand: is it about to be trained?"""
    known = [site for site in subject.sites if site.training is not None]
    minding = [site for site in subject.sites if issubclass(type(site.module), (*DROPOUTS, *AVERAGING))]
    if not subject.optimizers or not minding or not known or any(site.training for site in known):
        return
    types = list(dict.fromkeys(site.type for site in minding))
    yield FindingRecord(
        "",
        "",
        "in evaluation mode",
        "note",
        "the model",
        f"is in evaluation mode, and an optimizer is given: {' and '.join(types[:3])} {'acts' if len(types) == 1 else 'act'} as in use",
        "Dropout drops nothing, and BatchNorm neither takes the batch's statistics nor keeps any.",
        "model.train()  # before training",
    )


def dropouts(subject: Subject) -> Iterator[FindingRecord]:
    """Dropout that drops nothing, or everything."""
    for site in subject.sites:
        if not issubclass(type(site.module), DROPOUTS):
            continue
        p = site.held.get("p")
        if type(p) in (int, float) and p in (0, 1):
            what = "drops nothing: it does what nn.Identity does" if p == 0 else "drops everything: in training its output is zero"
            yield FindingRecord(
                site.path,
                site.path,
                f"dropout {p:g}",
                "note",
                site.label or "the model",
                f"has p = {p:g} and {what}",
                "p is the share that is dropped, not the share that is kept.",
                f"{site.code}.p = 0.1",
                extent=site.extent,
            )
