"""What the panel of a module tells of its class."""

from torch import nn

from modlab.inspection import definitions


def test_a_docstring_is_shown_without_the_marks_of_sphinx() -> None:
    assert "data: `y = xA^T + b`" in definitions.define(nn.Linear).doc

    class Pool(nn.Module):
        """Like :class:`~torch.nn.MaxPool1d` and :py:func:`torch.max`; ratio 3:4, ``x`` is `y`."""

    assert definitions.define(Pool).doc == "Like `torch.nn.MaxPool1d` and `torch.max`; ratio 3:4, `x` is `y`."
