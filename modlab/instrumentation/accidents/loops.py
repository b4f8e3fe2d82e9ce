"""A loop on the way through a function: each round that ran, as far as that is certain, and how it was left."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any, NamedTuple

from modlab.instrumentation.accidents import rounds
from modlab.instrumentation.accidents.bodies import is_within, stored
from modlab.instrumentation.accidents.certainties import UNKNOWN, Scope
from modlab.instrumentation.accidents.expressions import Expressions
from modlab.instrumentation.accidents.footing import LAST, MANY

if TYPE_CHECKING:
    from modlab.instrumentation.accidents.passage import Walk

_STAYING: tuple[type, ...] = (ast.Raise, ast.Return, ast.Break)  # what cannot have happened where a later round ran


class Left(NamedTuple):
    """How a block was left, and whether that is certain."""

    how: type
    certain: bool = True


class Loops(Expressions):
    """The loops in one function."""

    def __init__(self, walk: Walk, scope: Scope) -> None:
        super().__init__(walk, scope)
        self.stays: tuple[type, ...] = (ast.Raise,) if scope.frame is None else (ast.Raise, ast.Return)

    def go(self, body: list[ast.stmt]) -> Left | None:
        """Go through statements until the one that failed was met; how they were left, if they were."""
        raise NotImplementedError

    def maybe(self, block: list[ast.stmt], told: str) -> Left | None:
        """Statements of which nobody knows whether they ran."""
        raise NotImplementedError

    def loop(self, loop: ast.For, here: bool) -> Left | None:
        """A loop: each round that ran, where it is known what it goes through."""
        source, scope = self.source, self.scope
        found = rounds.of(scope, loop.iter)
        self.value(loop.iter)
        inside = here and any(map(self.is_at, loop.body))
        if source.stopped or (here and not inside and not any(map(self.is_at, loop.orelse))):
            return None
        written = stored(loop)
        for node in scope.body.read:  # read in each round, and not carried from one to the next
            if node.id in scope.values and node.id not in written and is_within(loop, node):
                source.uses[scope.values[node.id]] += MANY
        if found is None or (not inside and not found.counted) or (inside and scope.frame is None):
            return self.unknown_loop(loop, inside)
        possible = [len(found.members)]
        if inside and scope.frame is not None:
            possible = rounds.reached(found, loop.target, scope.frame.names, frozenset[str]().union(*map(stored, loop.body)))
        if not possible or source.perhaps:
            return self.unknown_loop(loop, inside)
        last = possible[0]
        source.skipped += max(last - LAST, 0)
        if last > LAST:
            self.forget(loop)
        left = self.rounds(loop, found.members[max(last - LAST, 0) : last], inside)
        if not inside:
            if left is None:
                left = self.go(loop.orelse)
            return left
        if len(possible) > 1:  # a member that is in there more than once
            self.perhaps_before(loop, loop.body)
            source.certain, source.within = False, True
        self.bind(loop.target, found.members[last] if len(possible) == 1 else UNKNOWN)
        stays, self.stays = self.stays, (*_STAYING, ast.Continue)
        self.go(loop.body)
        self.stays, source.stopped = stays, True
        source.again = len(possible) > 1 or (last > 0 and self.runs_again(loop, loop.body))
        return None

    def rounds(self, loop: ast.For, members: list[Any], inside: bool) -> Left | None:
        """Rounds that came to their end; how they left the loop."""
        source = self.source
        stays, self.stays = self.stays, _STAYING if inside else self.stays
        outer, possible = source.perhaps, None
        self.walk.past += 1
        for member in members:
            self.bind(loop.target, member)
            left = self.go(loop.body)
            if left is not None and left.certain and left.how is not ast.Continue:
                possible = None if left.how is ast.Break else left
                break
            if left is not None and not left.certain and left.how is not ast.Continue:  # there may be no further rounds
                self.doubt(f"may have run: {head(loop)}")
                possible = left
        self.walk.past -= 1
        self.stays, source.perhaps = stays, outer
        if possible is not None and not possible.certain:
            self.forget(loop)
        return out_of_loop(possible)

    def unknown_loop(self, loop: ast.For, inside: bool) -> Left | None:
        """A loop of which nobody knows what it goes through, or in which round it stopped."""
        source = self.source
        source.certain = False
        self.closed(loop)
        self.forget(loop)
        if not inside:
            left = self.maybe(loop.body, f"may have run: {head(loop)}")
            self.forget(loop)
            return out_of_loop(possible_of([left]))
        first = self.is_first(loop)
        if not first:
            self.perhaps_before(loop, loop.body)
        self.go(loop.body)
        source.stopped = source.within = True
        source.again = self.runs_again(loop, loop.body) and not first
        return None

    def perhaps_before(self, loop: ast.For | ast.While, body: list[ast.stmt]) -> None:
        """What may have run in rounds before the one that stopped."""
        self.maybe(body, f"may have run before: {head(loop)}")
        self.forget(loop)

    def is_first(self, loop: ast.For) -> bool:
        """Whether a loop over something that is not known was in its first round, as its counter or its member shows."""
        assert self.scope.frame is not None
        names, iterated, target = self.scope.frame.names, loop.iter, loop.target
        start: object = 0
        if isinstance(iterated, ast.Call) and isinstance(iterated.func, ast.Name) and iterated.func.id in ("range", "enumerate"):
            if iterated.func.id == "enumerate":
                target = target.elts[0] if isinstance(target, ast.Tuple) and len(iterated.args) == 1 else ast.Constant(None)
            elif len(iterated.args) > 1:
                start = iterated.args[0].value if isinstance(iterated.args[0], ast.Constant) else None
            number = names.get(target.id) if isinstance(target, ast.Name) else None
            return type(number) is int and number == start
        listed = names.get(iterated.id) if isinstance(iterated, ast.Name) else None
        member = names.get(target.id) if isinstance(target, ast.Name) else None
        return isinstance(listed, (list, tuple)) and len(listed) > 0 and member is not None and listed[0] is member


def possible_of(lefts: list[Left | None]) -> Left | None:
    """How one of several blocks may have left; none where an error would have been raised."""
    return next((Left(left.how, certain=False) for left in lefts if left is not None and left.how is not ast.Raise), None)


def out_of_loop(left: Left | None) -> Left | None:
    """What leaves a loop, and the code around it with it."""
    return None if left is None or left.how in (ast.Break, ast.Continue) else left


def head(statement: ast.stmt) -> str:
    """The first line of a statement."""
    if isinstance(statement, ast.For):
        return f"for {ast.unparse(statement.target)} in {ast.unparse(statement.iter)}"
    if isinstance(statement, (ast.If, ast.While)):
        return f"{'if' if isinstance(statement, ast.If) else 'while'} {ast.unparse(statement.test)}"
    return ast.unparse(statement).partition("\n")[0].rstrip(":")
