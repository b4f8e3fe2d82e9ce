"""The statistics of all series over time."""

from __future__ import annotations

import pytest

from modlab.records.watch import ACTIVATION
from modlab.watching.history import History


@pytest.mark.parametrize("at", [0, 1])
def test_an_interrupt_where_a_series_is_made_leaves_none_half(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    history = History()
    history.row("a", ACTIVATION)
    make_room = History._make_room

    def interrupted(self: History) -> None:
        if at:
            make_room(self)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(History, "_make_room", interrupted)
        with pytest.raises(KeyboardInterrupt):
            history.row("b", ACTIVATION)
    assert history.find("b", ACTIVATION) == -1
    assert [history.row(path, ACTIVATION) for path in ("c", "b", "a")] == [1, 2, 0]
    assert [one.path for one in history.series] == ["a", "c", "b"]
