"""The rounds of a loop: what stands below the call of an optimizer's step is done in the same round, although a step of ours has ended."""

from __future__ import annotations

from types import CodeType, FrameType


class Round:
    """Where an optimizer has made its step: in which functions, and at which instruction of each.

    Args:
        frame: the one that is running.
        between: folders of files that are not the user's: what runs there on and on is the step itself, and hooks behind it.
    """

    def __init__(self, frame: FrameType | None, between: tuple[str, ...]) -> None:
        self._between = between
        self._places: dict[tuple[int, CodeType], int] = {}  # by identity: to hold a frame is to hold what is in it
        while frame is not None:
            self._places[id(frame), frame.f_code] = frame.f_lasti
            frame = frame.f_back

    def goes_on(self, frame: FrameType | None) -> bool:
        """Whether a frame is called further below in the innermost of these functions that still runs."""
        while frame is not None:
            place = self._places.get((id(frame), frame.f_code))
            if place is not None:
                return frame.f_lasti > place or frame.f_code.co_filename.startswith(self._between)
            frame = frame.f_back
        return False
