"""Digits drawn by code: each is a few strokes, moved, turned and blurred a little, so that no two are alike."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

SIZE = 16
"""Pixels on each side of a picture."""

Point = tuple[float, float]
Stroke = Sequence[Point]


def _arc(x: float, y: float, width: float, height: float, begin: float, end: float) -> list[Point]:
    """A part of an ellipse; the angles are in turns, clockwise from the right."""
    turns = [2 * math.pi * (begin + (end - begin) * step / 8) for step in range(9)]
    return [(x + width * math.cos(turn), y + height * math.sin(turn)) for turn in turns]


STROKES: tuple[tuple[Stroke, ...], ...] = (
    (_arc(0.5, 0.5, 0.25, 0.38, 0, 1),),
    ([(0.35, 0.25), (0.52, 0.12), (0.52, 0.88)],),
    ([*_arc(0.5, 0.33, 0.22, 0.2, 0.5, 1.1), (0.28, 0.87), (0.75, 0.87)],),
    ([*_arc(0.47, 0.32, 0.22, 0.19, 0.55, 1.25)], [*_arc(0.47, 0.69, 0.25, 0.19, -0.25, 0.45)]),
    ([(0.6, 0.88), (0.6, 0.12), (0.25, 0.62), (0.78, 0.62)],),
    ([(0.72, 0.13), (0.34, 0.13), (0.31, 0.47), *_arc(0.48, 0.65, 0.25, 0.22, -0.3, 0.42)],),
    ([(0.62, 0.12), (0.36, 0.42)], _arc(0.5, 0.65, 0.22, 0.22, -0.4, 0.6)),
    ([(0.25, 0.14), (0.75, 0.14), (0.42, 0.88)],),
    (_arc(0.5, 0.31, 0.2, 0.18, 0.25, 1.25), _arc(0.5, 0.69, 0.24, 0.2, -0.25, 0.75)),
    (_arc(0.5, 0.35, 0.22, 0.22, 0, 1), [(0.72, 0.35), (0.62, 0.88)]),
)
"""For each digit its strokes: points from left to right and from top to bottom, 0 to 1."""


def draw(strokes: Sequence[Stroke], *, width: float = 0.05) -> Tensor:
    """A picture of strokes, from 0 (paper) to 1 (ink).

    Args:
        strokes: each a list of points (x, y) between 0 and 1, from the upper left corner.
        width: of the pen, as a share of the picture.

    Returns:
        Shape (1, SIZE, SIZE).

    >>> draw([[(0.5, 0.1), (0.5, 0.9)]]).shape
    torch.Size([1, 16, 16])
    """
    begins = torch.tensor([point for stroke in strokes for point in stroke[:-1]], dtype=torch.float32)
    ends = torch.tensor([point for stroke in strokes for point in stroke[1:]], dtype=torch.float32)
    return _drawn(begins, ends, width)


def written(digit: int, numbers: torch.Generator) -> Tensor:
    """A digit as a hand would write it: leaning, a little too large or small, off the centre, on noisy paper.

    Args:
        digit: 0 to 9.
        numbers: where chance comes from; the same state gives the same picture.

    Returns:
        Shape (1, SIZE, SIZE).

    >>> picture = written(7, torch.Generator().manual_seed(0))
    >>> picture.shape, bool(picture.max() <= 1)
    (torch.Size([1, 16, 16]), True)
    """
    chance = torch.rand(7, generator=numbers) * 2 - 1
    angle, lean, wide, high, right, down, pen = chance.tolist()
    turn, shear = 0.3 * angle, 0.3 * lean
    form = torch.tensor([[math.cos(turn), -math.sin(turn)], [math.sin(turn), math.cos(turn)]])
    form = form @ torch.tensor([[1 + 0.2 * wide, shear], [0.0, 1 + 0.2 * high]])
    begins, ends = (
        (torch.tensor([point for stroke in STROKES[digit] for point in part(stroke)]) - 0.5) @ form.T for part in (_first, _last)
    )
    place = torch.tensor([0.5 + 0.1 * right, 0.5 + 0.1 * down])
    picture = _drawn(begins + place, ends + place, 0.05 + 0.015 * pen)
    return (picture + 0.15 * torch.randn(picture.shape, generator=numbers)).clamp(0, 1)


def _first(stroke: Stroke) -> Stroke:
    return stroke[:-1]


def _last(stroke: Stroke) -> Stroke:
    return stroke[1:]


def _drawn(begins: Tensor, ends: Tensor, width: float) -> Tensor:
    """How near each pixel is to the nearest of some lines."""
    along = (torch.arange(SIZE) + 0.5) / SIZE
    pixels = torch.stack(torch.meshgrid(along, along, indexing="xy"), -1).reshape(-1, 1, 2)
    lines = ends - begins
    share = (((pixels - begins) * lines).sum(-1) / lines.square().sum(-1).clamp_min(1e-9)).clamp(0, 1)
    distance = (pixels - begins - share.unsqueeze(-1) * lines).norm(dim=-1).amin(1)
    return torch.exp(-((distance / width) ** 2)).reshape(1, SIZE, SIZE)
