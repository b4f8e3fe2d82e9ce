"""Drawings: what they hold is in their words, nothing lies over anything else, and nothing reaches out of the picture."""

import re
from xml.etree import ElementTree

import pytest

from modlab.lessons import Lesson, lookup
from modlab.lessons.drawing import Arrow, Drawing, Vertex
from modlab.lessons.lookup import LessonError

DRAWN = [pytest.param(drawing, id=f"{lesson.name}-{drawing.name}") for lesson in lookup.lessons() for drawing in lesson.drawings]


def svg(drawing: Drawing) -> ElementTree.Element:
    return ElementTree.fromstring(re.search(r"<svg.*</svg>", drawing.html())[0])


def rectangles(drawing: Drawing) -> list[tuple[float, float, float, float]]:
    found = [[float(one.get(name)) for name in ("x", "y", "width", "height")] for one in svg(drawing).iter("rect")]
    return [(x, y, x + width, y + height) for x, y, width, height in found]


@pytest.mark.parametrize("drawing", DRAWN)
def test_boxes_lie_in_the_picture_and_not_over_each_other(drawing):
    boxes = rectangles(drawing)
    assert len(boxes) == len(drawing.boxes)
    width, height = (float(svg(drawing).get(name)) for name in ("width", "height"))
    assert all(left >= 0 and top >= 0 and right <= width and bottom <= height for left, top, right, bottom in boxes)
    for i, one in enumerate(boxes):
        assert not any(one[0] < b[2] and b[0] < one[2] and one[1] < b[3] and b[1] < one[3] for b in boxes[:i])


@pytest.mark.parametrize("drawing", DRAWN)
def test_an_arrow_begins_and_ends_at_its_boxes(drawing):
    paths = [one.get("d") for one in svg(drawing).iter("path")]
    places = dict(zip(drawing.boxes, rectangles(drawing), strict=True))
    for arrow, line, head in zip(drawing.arrows, paths[::2], paths[1::2], strict=True):
        for name, at in ((arrow.begin, line), (arrow.end, head)):
            x, y = map(float, re.match(r"M(\S+) (\d+)", at).groups())
            left, top, right, bottom = places[name]
            assert left - 1 <= x <= right + 1 and top - 1 <= y <= bottom + 1, (name, at)
            assert min(abs(x - left), abs(x - right), abs(y - top), abs(y - bottom)) <= 1


@pytest.mark.parametrize("drawing", DRAWN)
def test_its_words_name_what_is_drawn(drawing):
    assert 40 < len(drawing.alt) < 420 and repr(drawing) == f"drawing: {drawing.alt}"
    assert svg(drawing).get("aria-label") == drawing.alt
    assert svg(drawing).get("role") == "img"


def test_words_at_the_edge_and_a_way_around_a_column_stay_inside():
    boxes = {"a": Vertex("a", (0, 0)), "b": Vertex("b", (1, 0), "two\nlines"), "c": Vertex("c", (2, 0)), "d": Vertex("d", (2, 1))}
    drawing = Drawing(
        "n", "x", boxes, [Arrow("c", "d", "many words beside it"), Arrow("a", "d"), Arrow("d", "a", dashed=True), Arrow("b", "d")]
    )
    assert float(svg(drawing).get("width")) > rectangles(drawing)[-1][2] + 60
    assert drawing.html().count('class="dashed"') == 1


def test_a_name_is_shown_as_text_and_a_wrong_one_is_answered():
    assert "<b>" not in Drawing("<b>", "<b>", {"a": Vertex("<b>", (0, 0), "<b>")}, []).html()
    with pytest.raises(LessonError, match="the graph of backward"):
        Lesson("01_a_module").draw("the graph")
