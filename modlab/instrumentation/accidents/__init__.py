"""The kinds of mistakes that are known, one file for each subject. To add one: a function, and a row in its file's FAMILIES."""

from __future__ import annotations

from modlab.instrumentation.accidents import (
    arguments,
    attention,
    checkpoints,
    constructors,
    convolutions,
    devices,
    divisors,
    dtypes,
    files,
    gradients,
    hooking,
    lengths,
    losses,
    memory,
    normalizations,
    nothings,
    preparations,
    products,
    shapes,
    signatures,
    unpacking,
    whole_numbers,
)
from modlab.instrumentation.accidents.scene import Family

FAMILIES: tuple[Family, ...] = (
    *memory.FAMILIES,
    *nothings.FIRST,
    *products.FAMILIES,
    *attention.FAMILIES,
    *convolutions.FAMILIES,
    *normalizations.FAMILIES,
    *losses.FAMILIES,  # before what fails in the same way elsewhere
    *shapes.FAMILIES,
    *dtypes.FAMILIES,
    *devices.FAMILIES,
    *gradients.FAMILIES,
    *checkpoints.FAMILIES,
    *files.FAMILIES,
    *preparations.FAMILIES,
    *constructors.FAMILIES,
    *arguments.FAMILIES,
    *signatures.FAMILIES,
    *unpacking.FAMILIES,
    *divisors.FAMILIES,
    *lengths.FAMILIES,
    *whole_numbers.FAMILIES,
    *hooking.FAMILIES,
    *hooking.RAISED,
)
"""Asked in order; the first that has something to say explains the error."""
