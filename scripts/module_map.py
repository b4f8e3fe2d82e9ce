"""Make docs/map.pdf and docs/map.svg: nn.Module on one page, to print. The same bytes each time.

    .venv/bin/python -m scripts.module_map

Nothing on it is drawn from memory: what is trained, saved and moved, the order of a call and what the switches do are asked of a small
module when the page is made, by modlab's views where they say it, else by PyTorch itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from torch import Tensor, nn

import modlab
from modlab.lessons.note import BigNet

DOCS = Path(__file__).resolve().parent.parent / "docs"
A4 = (11.69, 8.27)  # inches, in which everything below is measured
STEADY: Any = {"svg.hashsalt": "modlab", "pdf.fonttype": 42, "font.family": "DejaVu Sans"}

INK, SOFT, FAINT, LINE, SUNK = "#1b1f24", "#4d565f", "#6e7781", "#d5d9de", "#f4f5f7"
BLUE, ORANGE, GREEN, RED = "#2f6fbf", "#b85c00", "#1a7f64", "#c43d1b"
ARROW = {"arrowstyle": "-|>", "color": SOFT, "linewidth": 0.8, "shrinkA": 0, "shrinkB": 0, "mutation_scale": 6}
LEFT, RIGHT = (0.45, 6.15), (6.45, 11.24)

ALT = (
    "nn.Module on one page. What a module owns, line by line, with the store that keeps it, and whether it is trained, saved and moved; "
    "the tree of BigNet as boxes whose width is the share of parameters; every private store of a module and what it is for; "
    "what a call does, from forward pre-hooks to the optimizer's step; what train, eval, no_grad and requires_grad_ switch; "
    "the keys of a state_dict; and beside each the view of modlab that shows it."
)


class Example(nn.Module):
    """One of each thing that a module can own."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))
        self.register_buffer("mean", torch.zeros(3))
        self.register_buffer("mask", torch.ones(3), persistent=False)
        self.linear = nn.Linear(4, 3)
        self.loose = torch.ones(3)
        self.layers = [nn.Linear(3, 3)]

    def forward(self, x: Tensor) -> Tensor:
        """(..., 4) → (..., 3)."""
        return F.relu(self.linear(x)) * self.scale


class Owned(NamedTuple):
    """One line of a constructor: what it makes, and the name by which it can be asked for."""

    code: str
    kind: str
    name: str
    given: str


OWNED = (
    Owned("self.scale = nn.Parameter(torch.ones(3))", "parameter", "scale", "parameters()"),
    Owned('self.register_buffer("mean", torch.zeros(3))', "buffer", "mean", "buffers()"),
    Owned('self.register_buffer("mask", …, persistent=False)', "buffer, not kept", "mask", "buffers()"),
    Owned("self.linear = nn.Linear(4, 3)", "module", "linear", "children()"),
    Owned("self.loose = torch.ones(3)", "plain tensor", "loose", "nothing: a ghost"),
    Owned("self.layers = [nn.Linear(3, 3)]", "plain list", "layers", "nothing: a ghost"),
)

STAGES = {  # of a call, by the marks of the trace's events
    "forward pre-hook": ("forward pre-hooks", "may replace the input", "register_forward_pre_hook"),
    "forward": ("forward", "the computation", "def forward(self, x)"),
    "forward hook": ("forward hooks", "may replace the output", "register_forward_hook"),
    "full backward pre-hook": ("backward pre-hooks", "may replace the output's gradient", "register_full_backward_pre_hook"),
    "backward": ("gradients", "are added to each parameter's .grad", "loss.backward()"),
    "backward hook": ("backward hooks", "may replace the input's gradient", "register_full_backward_hook"),
    "step": ("the optimizer's step", "moves the parameters it was given", "optimizer.step()"),
}


def main() -> None:
    """Write the page into docs/."""
    for made in written(DOCS):
        print(f"docs/{made.name}: {made.stat().st_size / 1000:.0f} KB")


def written(folder: Path) -> tuple[Path, Path]:
    """Write the page as PDF and as SVG."""
    pdf, svg = folder / "map.pdf", folder / "map.svg"
    torch.manual_seed(0)
    with matplotlib.rc_context(STEADY):
        figure = drawn()
        figure.savefig(pdf, metadata={"CreationDate": None, "Title": "nn.Module on one page", "Subject": ALT})
        figure.savefig(svg, metadata={"Date": None})
    svg.write_text(described(svg.read_text(encoding="utf-8")), encoding="utf-8")
    return pdf, svg


def described(svg: str) -> str:
    """The SVG with its alt text, as a screen reader finds it."""
    head, opening, rest = svg.partition("<svg ")
    return f'{head}{opening}role="img" aria-labelledby="t d" {rest}'.replace(
        ">\n <metadata>", f'>\n <title id="t">nn.Module on one page</title>\n <desc id="d">{escape(ALT)}</desc>\n <metadata>', 1
    )


# ---- what is on it -------------------------------------------------------------------------


def fates(name: str) -> tuple[bool, bool, bool]:
    """Whether what a module owns under a name is trained, saved and moved: asked of the module."""
    module = Example()
    trained = any(key.split(".")[0] == name for key, _ in module.named_parameters())
    saved = any(row.path.split(".")[0] == name and row.in_state_dict for row in modlab.state(module).records)
    assert saved == any(key.split(".")[0] == name for key in module.state_dict())
    thing = getattr(module.to(torch.float64), name)
    first = thing[0] if isinstance(thing, list) else thing
    return trained, saved, (first.weight if isinstance(first, nn.Module) else first).dtype == torch.float64


def store(name: str) -> str:
    """Which of its stores keeps it."""
    for row in modlab.internals(Example()).records:
        if row.path in ("_parameters", "_buffers", "_modules") and any(entry == name for entry, _ in row.entries):
            return str(row.path)
    return "__dict__"


def stages() -> list[str]:
    """The stages of a step in the order in which a trace saw them; each once."""
    module = Example()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    module.register_forward_pre_hook(_nothing)
    module.register_forward_hook(_nothing)
    module.register_full_backward_pre_hook(_nothing)
    module.register_full_backward_hook(_nothing)
    with modlab.trace(module) as trace:
        module(torch.randn(2, 4, requires_grad=True)).sum().backward()
        optimizer.step()
    found: list[str] = []
    for event in trace.events:
        hook = next((mark for mark in STAGES if mark in event.marks), None)
        inside = "forward" if event.path == "linear" and event.kind == "module" else None
        gradient = "backward" if event.kind == "gradient" and event.category == "parameter" else None
        seen = hook or inside or gradient or ("step" if event.kind == "step" else None)
        if seen and seen not in found:
            found.append(seen)
    assert set(found) == set(STAGES), f"the trace showed {found}"
    return found


def _nothing(*_: object) -> None:
    pass


class Switch(NamedTuple):
    """A way to run a module."""

    code: str
    set: Callable[[nn.Module], object]
    context: Callable[[], AbstractContextManager[object]]


SWITCHES = (
    Switch("m.train()", lambda m: m.train(), nullcontext),
    Switch("m.eval()", lambda m: m.eval(), nullcontext),
    Switch("with torch.no_grad():", lambda m: m.train(), torch.no_grad),
    Switch("m.eval() and no_grad", lambda m: m.eval(), torch.no_grad),
    Switch("m.requires_grad_(False)", lambda m: m.train().requires_grad_(False), nullcontext),
)
EFFECTS = ("m.training", "Dropout\ndrops", "BatchNorm takes\nthe batch's mean", "its buffers\nmove", "a graph is\nrecorded")


def effects(switch: Switch) -> tuple[bool, ...]:
    """What a switch does, in the order of EFFECTS."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 64), nn.BatchNorm1d(64), nn.Dropout(0.5))
    switch.set(model)
    norm = model[1]
    before = modlab.snapshot(model)
    with switch.context():
        hidden = model[0](torch.randn(32, 4) + 3)
        normed = norm(hidden)
        dropped = model[2](normed)
    moved = any(row.path == "1.running_mean" and row.status == "changed" for row in modlab.diff(before, model).records)
    centred = bool((normed.mean(0).abs() < 1e-4).all())
    return model.training, bool((dropped == 0).any()), centred, moved, dropped.requires_grad


# ---- how it is drawn -----------------------------------------------------------------------


def drawn() -> Figure:
    """The page."""
    figure = Figure(figsize=A4, facecolor="white")
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, A4[0]), ylim=(0, A4[1]))
    ax.axis("off")
    words(ax, 0.45, 7.73, "nn.Module on one page", size=19, weight="bold")
    words(ax, 0.45, 7.47, "A module owns tensors and other modules, and computes something when it is called.", size=9.5, colour=SOFT)
    words(ax, 11.24, 7.73, "beside each part: the view that shows it", size=7.5, colour=FAINT, align="right")
    owns(ax, 7.12)
    tree(ax, figure, 4.92)
    stores(ax, 3.33)
    call(ax, 7.12)
    switches(ax, 3.93)
    keys(ax, 2.02)
    more(ax, 0.36)
    return figure


def words(
    ax: Axes,
    x: float,
    y: float,
    text: str,
    *,
    size: float = 7.5,
    colour: str = INK,
    weight: str = "normal",
    align: str = "left",
    code: bool = False,
) -> None:
    """One line of text on its base line."""
    family = "DejaVu Sans Mono" if code else "DejaVu Sans"
    ax.text(x, y, text, fontsize=size, color=colour, weight=weight, ha=align, va="baseline", family=family, parse_math=False)


def heading(ax: Axes, place: tuple[float, float], y: float, title: str, view: str) -> None:
    """A part's title, and the view that shows it."""
    ax.plot(place, (y + 0.2, y + 0.2), color=INK, linewidth=0.9)
    words(ax, place[0], y, title, size=10, weight="bold")
    words(ax, place[1], y, view, size=8, colour=BLUE, align="right", code=True)


def line(ax: Axes, place: tuple[float, float], y: float) -> None:
    """A hairline below a row."""
    ax.plot(place, (y, y), color=LINE, linewidth=0.5)


def yes(ax: Axes, x: float, y: float, is_so: bool) -> None:
    """A sign that does without colour."""
    words(ax, x, y, "✓" if is_so else "–", size=9, colour=GREEN if is_so else FAINT, weight="bold", align="center")


def owns(ax: Axes, y: float) -> None:
    """Each line of a constructor, and what becomes of what it makes."""
    heading(ax, LEFT, y, "What a module owns", "modlab.state(m, optimizer)")
    columns = {"written in the constructor": 0.45, "is kept in": 3.3, "found by": 5.1}
    for title, x in columns.items():
        words(ax, x, y - 0.25, title, size=7, colour=FAINT)
    marks = {"trained": 4.2, "saved": 4.54, "moved": 4.87}
    for title, x in marks.items():
        words(ax, x, y - 0.25, title, size=6.2, colour=FAINT, align="center")
    for i, owned in enumerate(OWNED):
        row = y - 0.46 - 0.25 * i
        line(ax, LEFT, row + 0.155)
        ghost = owned.given.startswith("nothing")
        words(ax, 0.45, row, owned.code, size=6.7, code=True, colour=RED if ghost else INK)
        words(ax, 3.3, row, store(owned.name), size=6.7, code=True)
        for x, is_so in zip(marks.values(), fates(owned.name), strict=True):
            yes(ax, x, row, is_so)
        words(ax, 5.1, row, owned.given, size=6.7, code=not ghost, colour=RED if ghost else INK)
    ghosts = "A ghost is there for Python and not for PyTorch. modlab.tree(m) draws it dashed, with the fix."
    words(ax, 0.45, y - 1.9, ghosts, size=7, colour=SOFT)


def tree(ax: Axes, figure: Figure, y: float) -> None:
    """The note's BigNet, by the figure of modlab's own tree."""
    heading(ax, LEFT, y, "Modules hold modules", "modlab.tree(m)")
    paths = "A path is the names on the way, with dots: net.l0.weight. Width is the share of the parameters."
    words(ax, 0.45, y - 0.18, paths, size=7, colour=SOFT)
    inset = figure.add_axes((LEFT[0] / A4[0], (y - 1.15) / A4[1], (LEFT[1] - LEFT[0]) / A4[0], 0.88 / A4[1]))
    modlab.tree(BigNet()).figure(ax=inset, depth=2)
    inset.set_title("", loc="left")
    inset.set_axis_off()


def stores(ax: Axes, y: float) -> None:
    """Every private store, from the view of them."""
    heading(ax, LEFT, y, "Where it keeps all that", "modlab.internals(m)")
    rows = [row for row in modlab.internals(Example()).records if row.path in vars(nn.Module())]
    for i, row in enumerate(rows):
        base = y - 0.17 - 0.148 * i
        words(ax, 0.45, base, row.path, size=6.2, code=True)
        words(ax, 2.33, base, row.purpose, size=6.4, colour=SOFT)
        words(ax, LEFT[1], base, row.writes, size=6.2, code=True, colour=FAINT, align="right")


def call(ax: Axes, y: float) -> None:
    """The stages of a training step, in the order that a trace gives."""
    heading(ax, RIGHT, y, "What a call does", "modlab.trace(m)(x)")
    words(ax, RIGHT[0], y - 0.24, "m(x) is more than m.forward(x): hooks stand around it.", size=7, colour=SOFT)
    order = stages()
    x, width, height, pitch = RIGHT[0] + 0.8, 1.6, 0.25, 0.365
    groups = {"m(x)": order[:3], "loss\n.backward()": order[3:6], "step": order[6:]}
    base = y - 0.62
    for title, members in groups.items():
        top, bottom = base + height + 0.02, base - pitch * (len(members) - 1) - 0.02
        ax.plot((x - 0.1, x - 0.1), (bottom, top), color=BLUE if title == "m(x)" else ORANGE, linewidth=2.2, solid_capstyle="butt")
        middle = (top + bottom) / 2
        ax.text(x - 0.17, middle, title, fontsize=6.6, family="DejaVu Sans Mono", ha="right", va="center", color=SOFT, parse_math=False)
        for member in members:
            name, can, where = STAGES[member]
            is_core = member in ("forward", "backward", "step")
            dashed: Any = {"edgecolor": FAINT, "facecolor": "white", "linestyle": (0, (3, 2))}
            edge: Any = {"edgecolor": INK, "facecolor": SUNK} if is_core else dashed
            shape = "round,pad=0,rounding_size=0.05"
            ax.add_patch(FancyBboxPatch((x, base), width, height, boxstyle=shape, linewidth=1 if is_core else 0.7, **edge))
            words(ax, x + width / 2, base + 0.085, name, size=7.6, weight="bold" if is_core else "normal", align="center")
            words(ax, x + width + 0.14, base + 0.135, can, size=7)
            words(ax, x + width + 0.14, base + 0.01, where, size=6.2, code=True, colour=FAINT)
            if member != order[-1]:
                ax.annotate("", (x + width / 2, base - pitch + height), (x + width / 2, base), arrowprops=ARROW)
            base -= pitch


def switches(ax: Axes, y: float) -> None:
    """What the modes do: two things that have nothing to do with each other."""
    heading(ax, RIGHT, y, "What is switched", "modlab.compare(m)(x)")
    places = (8.35, 8.93, 9.63, 10.33, 10.92)
    for x, effect in zip(places, EFFECTS, strict=True):
        ax.text(x, y - 0.27, effect, fontsize=6, color=FAINT, ha="center", va="center", linespacing=1.1, parse_math=False)
    for i, switch in enumerate(SWITCHES):
        row = y - 0.55 - 0.205 * i
        line(ax, RIGHT, row + 0.14)
        words(ax, RIGHT[0], row, switch.code, size=6.7, code=True)
        for x, is_so in zip(places, effects(switch), strict=True):
            yes(ax, x, row, is_so)


def keys(ax: Axes, y: float) -> None:
    """The state_dict of the example, and how it is saved and loaded."""
    heading(ax, RIGHT, y, "What is saved", "modlab.state(file)")
    module = Example()
    words(ax, RIGHT[0], y - 0.24, "m.state_dict()", size=7, code=True)
    for i, (key, tensor) in enumerate(module.state_dict().items()):
        words(ax, RIGHT[0] + 0.12, y - 0.42 - 0.15 * i, key, size=6.7, code=True)
        words(ax, RIGHT[0] + 1.2, y - 0.42 - 0.15 * i, str(tuple(tensor.shape)), size=6.7, code=True, colour=FAINT)
    said: Sequence[tuple[str, bool]] = (
        ("Names and numbers; no class, no code, no mode.", False),
        ("torch.save(m.state_dict(), file)", True),
        ("m.load_state_dict(torch.load(file))", True),
        ("It copies into the tensors that are there, and wants", False),
        ("exactly these keys: missing and unexpected ones raise.", False),
    )
    for i, (text, code) in enumerate(said):
        words(ax, 8.2, y - 0.24 - 0.17 * i, text, size=6.7, code=code, colour=INK if code else SOFT)


def more(ax: Axes, y: float) -> None:
    """The other views, in a line."""
    ax.plot((LEFT[0], RIGHT[1]), (y + 0.2, y + 0.2), color=INK, linewidth=0.9)
    views = (
        ("modlab.watch(m, optimizer)", "while it trains"),
        ("modlab.hooks(m)", "every hook"),
        ("modlab.diagnose(m, optimizer)", "silent mistakes"),
        ("modlab.explain()", "the last error"),
        ("modlab.lab(m)", "all of it"),
    )
    x = LEFT[0]
    for code, what in views:
        words(ax, x, y, code, size=7.2, code=True, colour=BLUE)
        x += 0.0603 * len(code) + 0.1
        words(ax, x, y, what, size=7.2, colour=SOFT)
        x += 0.0585 * len(what) + 0.2


if __name__ == "__main__":
    main()
