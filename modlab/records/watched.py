"""What a watch knows of the model in training beside the numbers: with these, a verdict needs the record alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import NamedTuple

from modlab.frozen import frozen
from modlab.records.clues import Clues
from modlab.records.finding import Finding


class WatchedModule(NamedTuple):
    """One module. A tuple, as a parameter is: there are thousands of them in each picture of a watch.

    Attributes:
        category: as in its tree ("linear", "norm", "own").
        called: how often it was called in samples; `order`: the how-manieth module it was, 0 if it never was.
        taken: whether it is measured; of the root alone its calls may be counted, and no more.
        container: whether it only holds others, so that nobody calls it.
        holds: of one that was never called, the paths of its own parameters.
    """

    path: str
    category: str
    called: int
    order: int
    taken: bool
    container: bool
    holds: tuple[str, ...] = ()


@frozen
class Cancelled:
    """The gradient of a bias that is rounding alone: its norm, that of another parameter beside it, and the name of that one."""

    gradient: float
    beside: float
    other: str


class WatchedParameter(NamedTuple):
    """One parameter.

    Attributes:
        name: in its module; `module`: the path of that, None where it is not among those that are known.
        trainable: whether it should be trained, and has numbers on this rank.
        owned: whether an optimizer that is known holds it; `elsewhere`: whether something else moves it.
        met: whether any sample has looked at it; `felt`: in how many it had a gradient at all.
        graded, moved: whether a sample has seen a gradient other than zero, or a change.
        stuck: the share of its elements with a gradient that do not move, lately; None if that was not seen.
        size: the greatest norm that its gradient had in any sample; `cancelled`: if that is rounding alone.
        dimensions: -1 if it is not there any more; `part`: whether this rank has a part of it alone.
        slices: of stacked weights, how many there are, 0 of others; `unfelt`: those without a gradient in so many `looks`.
        rates: of one that never moved, the learning rates of the groups that hold it.
        swapped: whether a wrapper puts others into its place for a while.
        thawed: whether it requires a gradient now, and did not when it was looked at last.
    """

    path: str
    name: str
    module: str | None
    dtype: str
    trainable: bool
    owned: bool
    elsewhere: bool
    met: bool
    felt: int
    graded: bool
    moved: bool
    stuck: float | None
    size: float
    dimensions: int
    part: bool
    cancelled: Cancelled | None = None
    slices: int = 0
    unfelt: tuple[int, ...] = ()
    looks: int = 0
    rates: tuple[float, ...] = ()
    swapped: bool = False
    thawed: bool = False

    @property
    def is_flat(self) -> bool:
        """Whether samples have looked at it, and seen no gradient but zero; of a large model each looks at a part."""
        return self.met and self.felt > 0 and not self.graded

    @property
    def is_copy(self) -> bool:
        """Whether no optimizer holds it and it moves all the same, as a copy of what is stepped: of steps it says nothing."""
        return self.elsewhere and not self.owned


@frozen
class Watched:
    """The model, its optimizers and its loss.

    Attributes:
        left: how many modules and parameters `only` leaves out.
        opaque: paths of what is compiled or scripted.
        uncounted: modules whose units are not counted, and why: "wide" (the module has too many), "many" (there are too many in all), of
            the dimension that they lie along "mixed" (places stand in it too), "unbatched" (no other is a batch), "unknown".
        classes: among how many the loss chooses, 0 if that is not known.
        passes: training passes of the root; `evaluated`: looks at steps for which it was called in evaluation mode alone.
        stepped: whether a step of the optimizer was measured; `rate`: the greatest learning rate, None if there is none.
        optimizer: the names of those whose steps are counted; `beside`: how many steps of others of this model are not.
        feeds_others: whether no parameter has a gradient, and others that the optimizers hold have.
        late: modules that came into the model during the watch; `late_unowned`: parameters to be trained in these that no optimizer holds;
            `thawed_unowned`: the same of those that have been trained only since the last step that was measured.
        unregistered: weights that PyTorch does not see, and that have a gradient.
        is_stage: whether a pipeline calls it, whose last stage alone has the loss.
        closed: whether the watch has ended.
        one_batch: whether it trains on one batch on purpose.
        batch_kept: whether a batch is kept whose loss can be computed once more.
        clues: of the loop, the batches, the loss and the optimizers.
    """

    modules: tuple[WatchedModule, ...] = ()
    parameters: tuple[WatchedParameter, ...] = ()
    left: tuple[int, int] = (0, 0)
    only: tuple[str, ...] = ()
    opaque: tuple[str, ...] = ()
    uncounted: Mapping[str, str] = field(default_factory=dict)
    classes: int = 0
    passes: int = 0
    evaluated: int = 0
    stepped: bool = False
    rate: float | None = None
    optimizer: str = ""
    beside: int = 0
    feeds_others: bool = False
    late: tuple[str, ...] = ()
    late_unowned: tuple[str, ...] = ()
    thawed_unowned: tuple[str, ...] = ()
    unregistered: tuple[Finding, ...] = ()
    is_stage: bool = False
    closed: bool = False
    one_batch: bool = False
    batch_kept: bool = False
    clues: Clues = Clues()
