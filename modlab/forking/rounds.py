"""The rounds of a loop: what stands below the call of an optimizer's step is done in the same round, although a step of ours has ended."""

from __future__ import annotations

from collections.abc import Iterator
from types import CodeType, FrameType


class Round:
    """Where an optimizer has made its step: in which functions, and at which instruction of each.

    Args:
        frame: the one that is running.
        between: folders of files that are not the user's: what runs there on and on is the step itself, and hooks behind it.
    """

    def __init__(self, frame: FrameType | None, between: tuple[str, ...]) -> None:
        # by identity: to hold a frame is to hold what is in it
        self._places: list[tuple[int, CodeType, int]] = [(id(one), one.f_code, one.f_lasti) for one in _from_outside(frame)]
        inner = [code.co_filename.startswith(between) for _, code, _ in self._places]
        self._users = max((number for number, is_between in enumerate(inner) if not is_between), default=-1)  # the user's innermost one

    def goes_on(self, frame: FrameType | None) -> bool:
        """Whether a frame is called further below in the innermost of these functions that still runs.

        They are met from the outside: a function runs still where all around it stand at the same instruction. The identity of one that
        has ended may belong to another call by now.
        """
        number, is_below = -1, False
        for number, ((identity, code, place), one) in enumerate(zip(self._places, _from_outside(frame), strict=False)):
            if id(one) != identity or one.f_code is not code:
                number -= 1
                break
            is_below = one.f_lasti > place
            if one.f_lasti != place:
                break
        return is_below or number > self._users


def _from_outside(frame: FrameType | None) -> Iterator[FrameType]:
    stack = []
    while frame is not None:
        stack.append(frame)
        frame = frame.f_back
    return reversed(stack)
