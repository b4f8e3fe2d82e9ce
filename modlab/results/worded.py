"""A finding as a user holds it: with its words."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Protocol, Self

from modlab import wording
from modlab.records.finding import Finding

if TYPE_CHECKING:
    from modlab.results.card import FindingCard
    from modlab.results.fork import Fork


class FixGround(Protocol):
    """What a fix can be tried on: a watch, or a diagnosis."""

    @property
    def can_try(self) -> bool:
        """Whether there are kept weights, or a batch."""

    @property
    def can_fork(self) -> bool:
        """Whether a training was kept that can be forked."""

    def try_fix(self, finding: Finding, steps: int) -> Fork:
        """Apply the finding's fix to a fork."""


class Worded(Finding):
    """What was found, with its words."""

    @classmethod
    def of(cls, finding: Finding, ground: FixGround | None = None) -> Self:
        """The same finding, with its words; `ground` is what its fix can be tried on."""
        made = cls(**{one.name: getattr(finding, one.name) for one in fields(finding)})
        object.__setattr__(made, "_ground", ground)
        return made

    @property
    def text(self) -> str:
        """The evidence as a sentence, or why it was not seen."""
        return wording.said(self)

    @property
    def fix(self) -> str:
        """Code or advice; nothing if there is none."""
        return wording.fix(self)

    def try_fix(self, steps: int = 100) -> Fork:
        """Apply the fix to a copy of the training, and run it beside an unchanged copy; the training itself is untouched.

        Of what a watch with ``keep="good"`` has seen, the copies begin at the last good state before it, and get the batches that were
        kept. Of a diagnosis with a batch and a loss, and of a watch that keeps no weights, they begin at the present weights, and train on
        one batch.

        Args:
            steps: how many to make.

        Returns:
            A `Fork`: ``.outcome`` says what came of it.

        Raises:
            ForkError: there is no training to try it on, or no fix that can be applied.

        >>> import modlab, torch
        >>> from torch import nn
        >>> torch.manual_seed(0)  # doctest: +ELLIPSIS
        <torch._C.Generator object at ...>
        >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
        >>> optimizer = torch.optim.SGD(net[0].parameters(), lr=0.1)
        >>> x = torch.randn(32, 4)
        >>> found = modlab.diagnose(net, optimizer, batch=(x, x.sum(1, keepdim=True)), loss=nn.MSELoss()).findings
        >>> found[0].try_fix(50).outcome
        'better'
        """
        from modlab.results import fork  # what runs a fork is loaded when one is asked for

        ground: FixGround | None = getattr(self, "_ground", None)
        if ground is None:
            raise fork.without_ground()
        return ground.try_fix(self, fork.require_steps(steps))

    def __str__(self) -> str:
        return self.explain().headline

    def __repr__(self) -> str:
        return f"<{str(self).removesuffix('.')}>"

    def _repr_html_(self) -> str:
        return self.explain()._repr_html_()

    def explain(self) -> FindingCard:
        """The evidence, what it means and what to do, as text and as a card in a notebook.

        >>> import modlab, torch
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Dropout(0))
        >>> (found,) = modlab.diagnose(model).notes
        >>> print(found.explain())
        Note: 1 (Dropout) has p = 0 and drops nothing: it does what nn.Identity does.
        where: 1
        evidence: What is in the model, which was read but not run.
        means: p is the fraction that is dropped, not the fraction that is kept.
        what to do
          model[1].p = 0.1
        """
        from modlab.results.card import FindingCard  # what draws it is loaded when it is asked for

        return FindingCard(self)
