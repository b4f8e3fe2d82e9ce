"""Figures: the bars of a tree stay on its axes whatever is tied, and histograms hold up to the end of a double."""

import html
import pickle
import subprocess
import sys
from itertools import pairwise

import pytest
import torch
from torch import nn

import modlab

pytest.importorskip("matplotlib")


def tied():
    model = nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 10, bias=False))
    model[1].weight = model[0].weight
    return model


def partly_tied():
    model = nn.Sequential(nn.Embedding(10, 4), nn.Sequential(nn.Linear(4, 10), nn.Linear(10, 4)))
    model[1][0].weight = model[0].weight
    return model


def alias_of_a_container():
    block = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    return nn.Sequential(block, nn.Linear(3, 2), block, nn.Linear(3, 4))


def blocks_tied_inside():
    blocks = [tied() for _ in range(3)]
    return nn.Sequential(*blocks, nn.Linear(5, 5))


MODELS = {"tied": tied, "partly": partly_tied, "alias": alias_of_a_container, "inside": blocks_tied_inside}


def bars(model):
    ax = modlab.tree(model).figure().axes[0]
    return [(round(b.get_y() + b.get_height() / 2), b.get_x(), b.get_x() + b.get_width()) for b in ax.patches]


@pytest.mark.parametrize("build", MODELS.values(), ids=MODELS)
def test_children_stay_below_their_parent(build):
    found = bars(build())
    for depth, begin, end in found:
        assert -1e-9 < begin < end < 1 + 1e-9
        assert depth == 0 or any(d == depth - 1 and b - 1e-9 <= begin and end <= e + 1e-9 for d, b, e in found)
    for level in {depth for depth, _, _ in found}:
        row = sorted((begin, end) for depth, begin, end in found if depth == level)
        assert all(right >= end - 1e-9 for (_, end), (right, _) in pairwise(row))


def test_a_module_that_is_tied_altogether_is_marked():
    ax = modlab.tree(tied()).figure().axes[0]
    assert [(round(b.get_width(), 6), b.get_hatch() or "") for b in ax.patches] == [(1, ""), (0.5, ""), (0.5, "////")]
    assert [text.get_text().startswith("⇄ 1") for text in ax.texts] == [False, False, True]
    assert not any(b.get_hatch() for b in modlab.tree(partly_tied()).figure().axes[0].patches)


def test_an_alias_is_left_out_with_all_below_it():
    assert len(bars(alias_of_a_container())) == 1 + 3 + 1  # the two equal layers of the block are one box


def test_a_tree_of_nothing_and_a_deep_one_are_drawn():
    assert bars(nn.ReLU()) == []
    model = nn.Linear(2, 2)
    for _ in range(1500):
        model = nn.Sequential(model)
    modlab.tree(model).figure(depth=1400)


TENSORS = {
    "wide": [1e308, -1e308],
    "greatest": [sys.float_info.max, -sys.float_info.max],
    "one": [sys.float_info.max],
    "large": [1e301, 2e301],
    "least": [5e-324, 0.0],
    "plain": [1.0, 2.0],
}


@pytest.mark.parametrize("numbers", TENSORS.values(), ids=TENSORS)
def test_histograms_hold_to_the_end_of_a_double(numbers):
    figure = modlab.measure(torch.tensor(numbers, dtype=torch.float64)).figure()
    figure.canvas.draw()
    ax = figure.axes[0]
    assert all(abs(end) < 1e299 for end in ax.get_xlim())
    power = f"{max(map(abs, numbers)):.0e}"[-3:] if max(map(abs, numbers)) > 1e300 else ""
    assert ax.get_xlabel().split(",")[0] == (f"value / 1e+{power}" if power else "value")


def test_a_figure_shows_itself_in_any_notebook_and_without_pyplot():
    net = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    before = modlab.snapshot(net)
    with torch.no_grad():
        net[0].weight.add_(1)
    for figure in (modlab.tree(net).figure(), modlab.state(net)["0.weight"].figure(), modlab.diff(before, net).figure()):
        for shown in (figure, pickle.loads(pickle.dumps(figure))):
            png, words = shown._repr_png_()
            assert png.startswith(b"\x89PNG\r\n")
            assert words["alt"] and f'<img alt="{html.escape(words["alt"])}" src="data:image/png;base64,' in shown._repr_html_()
    code = (
        "import sys, modlab, torch; f = modlab.tree(torch.nn.Linear(2, 3)).figure(); f._repr_html_(); "
        "assert 'matplotlib.figure' in sys.modules; assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_figure_says_what_it_shows():
    net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 30))
    alt = modlab.tree(net).figure().alt
    assert alt.startswith("Parameters by module as boxes, the largest 2 (93 %), 0 (7 %): Sequential: 129 parameters")
    assert modlab.state(net)["0.weight"].figure().alt.startswith("Histogram, and the numbers as a heat map: ")
    for model in (nn.ReLU(), tied(), alias_of_a_container()):
        assert modlab.tree(model).figure().alt.startswith("Parameters by module as boxes")
    with modlab.watch(net) as w:
        pass
    assert '<img alt="norm of the' in w.figure()._repr_html_()


def test_a_figure_of_the_users_own_is_left_as_it_is():
    from matplotlib.figure import Figure

    own = Figure()
    assert modlab.tree(nn.Linear(2, 3)).figure(ax=own.add_subplot()) is own
    assert not hasattr(own, "alt")


def test_where_figures_are_inline_it_is_one_image():
    pytest.importorskip("IPython")
    from IPython.core.formatters import DisplayFormatter
    from matplotlib.backend_bases import FigureCanvasBase
    from matplotlib.figure import Figure

    figure = modlab.tree(nn.Linear(2, 3)).figure()
    display = DisplayFormatter()
    assert set(display.format(figure)[0]) == {"text/plain", "text/html", "image/png"}
    display.formatters["image/png"].for_type(Figure, lambda one: b"inline" if isinstance(one.canvas, FigureCanvasBase) else None)
    assert display.format(figure)[0]["image/png"] == b"inline"  # theirs, in the place of ours
