"""The definition of a class, as far as its source tells."""

from __future__ import annotations

from modlab.frozen import frozen


@frozen
class Definition:
    """Where a module class comes from and how it is called; any part may be empty, where it cannot be found."""

    name: str
    where: str  # "torch/nn/modules/linear.py:53", "a cell of this notebook"
    signature: str  # "forward(input)"
    doc: str
    code: str
    code_note: str  # what is left out of the code
