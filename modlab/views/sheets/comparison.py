"""A comparison as a sheet, along the tree: both outputs, how far apart they are, and each module's part in it."""

from __future__ import annotations

import math
from collections.abc import Iterator

from modlab import format
from modlab.records.comparison import MODES, ComparisonRecord, ComparisonTable, Move, RunRecord
from modlab.records.state import ValuesRecord
from modlab.records.structure import ROOT
from modlab.records.tensor import TensorStats
from modlab.views.sheets.layout import Block, Cell, Column, Mark, Row, Sheet

OPENED = 2000  # rows up to which details are made
_OUTCOMES = {"normal": "as usual", "no_grad": "no_grad", "inference_mode": "inference_mode"}


def of_comparison(table: ComparisonTable) -> Sheet:
    """The whole view."""
    columns = (
        Column(table.sides[0], "number", 110, yields=1),  # "-0.0091 ± 0.24"
        Column(table.sides[1], "number", 110, yields=1),
        Column("apart by", "bar", 92, yields=0),
        Column("relative", "number", 92, yields=4),
        Column("what it does", "words", 130, 3, yields=0),
    )
    apart = [row.max_abs for row in table.rows if row.max_abs is not None and not _near(row, table)]
    most = max(filter(math.isfinite, apart), default=0.0)
    rows = tuple(_row(row, table, len(table.rows) <= OPENED, most) for row in table.rows)
    return Sheet("compare", sentence(table), columns, rows, tuple(_notes(table)), foot=_foot(table))


def _is_modes(table: ComparisonTable) -> bool:
    return table.sides == MODES


# ---- the headline --------------------------------------------------------------------------------------------------------------


def sentence(table: ComparisonTable) -> tuple[str, str]:
    """The conclusion in two halves."""
    first, second = _conclusion(table)
    broken = _broken(table)
    return (broken, _end(" ".join(filter(None, (first, second))))) if broken else (first, second)


def _broken(table: ComparisonTable) -> str:
    """That NaN comes out, and the first module that gives it: what equals then is worth nothing."""
    found = [row for row in table.rows if _nans(row)]
    if not found:
        return ""
    first = next((row for row in found if row.path == table.nan), found[-1])
    whole = _whole(table)
    its = whole if whole is not None and _nans(whole) else None
    which = its or first
    if not _is_modes(table) and its is not None and its.max_abs is not None and math.isinf(its.max_abs):
        return ""  # where they part is the headline, and says it
    what = f"The output {_holds(which)}" if its is not None else f"NaN inside: {_place(which.path, table)} {_holds(which)}"
    sides = [side for side, stats in zip(table.sides, (which.left, which.right), strict=True) if stats is not None and stats.nan]
    where = (
        f"{'both' if len(sides) == 2 else {'train': 'training'}.get(sides[0], sides[0])} mode{'s' * (len(sides) == 2)}"
        if _is_modes(table)
        else f"{'both' if len(sides) == 2 else f'the {sides[0]}'} model{'s' * (len(sides) == 2)}"
    )
    start = f", from {_place(first.path, table)} on" if first.path != which.path else ""
    return f"{what} in {where}{start}:"


def _nans(row: ComparisonRecord) -> int:
    """The most elements that are NaN in one of the two outputs."""
    return max(stats.nan if stats is not None else 0 for stats in (row.left, row.right))


def _unlike(row: ComparisonRecord) -> str:
    """One output is finite, and one is not."""
    nan = [stats is not None and stats.nan > 0 for stats in (row.left, row.right)]
    if nan[0] is nan[1]:
        return "one output is not finite where the other is"
    return f"the {'left' if nan[0] else 'right'} output {_holds(row)}, but the other is finite"


def _holds(row: ComparisonRecord) -> str:
    """How much of an output is NaN."""
    most = max((stats for stats in (row.left, row.right) if stats is not None), key=lambda stats: stats.nan)
    return "is NaN" if most.nan == most.count else f"contains NaN ({most.nan:,} of {most.count:,})"


def _conclusion(table: ComparisonTable) -> tuple[str, str]:
    """What is the same and what is not."""
    if not _is_modes(table):
        return _of_models(table)
    if any(_raised(table)):
        return _of_raising(table)
    surprise = _surprise(table)
    moved = _moved(table)
    if surprise:
        return surprise, _end("; ".join(filter(None, (_beside_surprise(table), moved))))
    difference = _difference(table)
    if not difference[1]:
        return (difference[0] + "; ", _end(moved)) if moved else (_end(difference[0]), "")
    return difference[0], _end("; ".join(filter(None, (difference[1], moved))))


def _raised(table: ComparisonTable) -> tuple[str, ...]:
    """What the model raises in each mode."""
    runs = {(run.side, run.grad): run.error for run in table.runs}
    return tuple(runs.get((mode, "normal"), "") for mode in MODES)


def _of_raising(table: ComparisonTable) -> tuple[str, str]:
    """One mode raises, and the other one does not: where both do, there is no comparison."""
    side, error = next((mode, error) for mode, error in zip(MODES, _raised(table), strict=True) if error)
    other = MODES[1 - MODES.index(side)]
    row = next((row for row in table.rows if row.raises), None)
    place = "the model" if row is None else _place(row.path, table)
    others = [row for row in table.rows if row.differs]
    before = f"; what ran before differs{_from(table)}" if others else ""
    return f"{_MODE[side]} raises at {place}: {format.cut(error, 200)}.", f"{_MODE[other]} runs through{before}."


_MODE = {"train": "Training mode", "eval": "Eval mode"}


def _end(words: str) -> str:
    return words[:1] + words[1:].rstrip(".") + "." if words else ""


def _whole(table: ComparisonTable) -> ComparisonRecord | None:
    return next((row for row in table.rows if row.path == table.whole), None)


def _difference(table: ComparisonTable) -> tuple[str, str]:
    """Of two modes."""
    whole = _whole(table)
    others = [row for row in table.rows if row.differs]
    if whole is None or whole.equal is None:
        if not others:
            return "The outputs cannot be compared:", "" if whole is None else whole.reason or next(iter(whole.notes), "")
        return f"Train and eval differ{_from(table)}:", f"{format.plural(len(others), 'module')} of {len(table.rows):,} differ"
    if whole.differs:
        if whole.unsteady and table.first is None:
            return "Train and eval differ", "by no more than two equal runs do"
        return f"Train and eval differ{_from(table)}:", _by(whole, table)
    if others:
        return "The output is the same in both modes,", f"but not inside: {_place(others[-1].path, table)} differs"
    switching = next((row for row in table.rows if row.switches_grad), None)
    if switching is not None:
        return "The same numbers in both modes,", f"but {_switch(whole, switching, table)}"
    first, second = _sameness(table)
    return f"The same in both modes{first}", second


def _switch(whole: ComparisonRecord, switching: ComparisonRecord, table: ComparisonTable) -> str:
    """That it depends on the mode whether something requires grad."""
    mode = "training" if _grad(switching, "train") else "eval"
    if _grad(whole, "train") is not _grad(whole, "eval"):
        return f"the output requires grad only in {mode} mode: {_place(switching.path, table)} causes that"
    return f"the output of {_place(switching.path, table)} requires grad only in {mode} mode"


def _sameness(table: ComparisonTable) -> tuple[str, str]:
    """How far what is the same in both modes is so; goes on from words for that."""
    acting = [row for row in table.rows if row.acts_by_mode]
    if acting:
        return " this time,", f"although {_several(acting, table, 'depends', 'depend')} on the mode"
    return ", bit for bit" if table.exact else "", ""


def _from(table: ComparisonTable) -> str:
    by = _start(table)
    if not by and table.first is not None and len(table.rows) > 1:
        by = _place(table.first, table)
    return f" from {by} on" if by else ""


def _start(table: ComparisonTable) -> str:
    """What makes the difference where it starts, if that is not the module's own forward."""
    row = next((row for row in table.rows if row.path == table.first), None) if table.first is not None else None
    return "" if row is None or not row.starts_by else f"the {row.starts_by} of {_place(row.path, table) if row.path else 'the model'}"


def _parting(table: ComparisonTable) -> str:
    """Where two models part."""
    row = next(row for row in table.rows if row.path == table.first)
    return _start(table) or _place(row.path, table) + (f", which calls {row.alone_there}" if row.alone_there else "")


def _grad(row: ComparisonRecord, mode: str) -> bool | None:
    """Whether its output requires grad in a mode, with autograd as usual."""
    return next((run.requires_grad for run in row.runs if run.side == mode and run.grad == "normal"), None)


def _by(whole: ComparisonRecord, table: ComparisonTable) -> str:
    if whole.alone:
        has = f"the output has {_alone(whole, table)}"
        return f"by up to {short(whole.max_abs)}, and {has}" if whole.max_abs else has
    if whole.max_abs is None:
        return whole.notes[0] if whole.notes else "by an unknown amount"
    if math.isinf(whole.max_abs):
        return "one output is not finite where the other is"
    return f"by up to {short(whole.max_abs)} in the output{_mainly(whole, table)}"


MAINLY = 100
"""How many times as far apart as where it starts an output is, for another module to be named as the one that makes most of it."""


def _mainly(whole: ComparisonRecord, table: ComparisonTable) -> str:
    """A module that acts by its mode and makes nearly all of the difference, where another one has started it by a trifle."""
    start = next((row for row in table.rows if row.path == table.first), None)
    if start is None or not start.relative_l2 or not whole.relative_l2 or whole.relative_l2 < MAINLY * start.relative_l2:
        return ""
    acting = (row for row in table.rows if row.acts_by_mode and row.path not in (start.path, whole.path))
    found = next((row for row in acting if row.relative_l2 is not None and row.relative_l2 * 10 >= whole.relative_l2), None)
    return "" if found is None else f", nearly all of it from {_place(found.path, table)} on"


def _surprise(table: ComparisonTable) -> str:
    """What one would not expect of eval mode, or of two equal runs."""
    drawing = [row for row in table.rows if row.draws_in("eval")]
    if drawing:
        same = "" if any("eval" in row.random for row in table.rows) else "; with others, all outputs were the same"
        return f"Still random in eval mode: {_several(drawing, table, 'draws', 'draw')} random numbers there too{same}."
    moving = [(row, _names(row, "eval")) for row in table.rows if _names(row, "eval")]
    if moving:
        what = _list([_joined(row.path, name) for row, names in moving for name in names])
        return f"State keeps moving in eval mode: {what}."
    unsteady = [row for row in table.rows if row.unsteady]
    if unsteady:
        source = next((row for row in unsteady if row.unsteady_here), unsteady[-1])
        return f"Not repeatable: {_place(source.path, table)} gives different outputs in two equal runs."
    return ""


def _beside_surprise(table: ComparisonTable) -> str:
    """What differs, in one sentence.

    That the same output in both modes is no rest from chance is said too: the two runs began with the same random numbers.
    """
    said = " ".join(filter(None, _difference(table)))
    drawing, whole = [row for row in table.rows if _stays_random(row)], _whole(table)
    if not drawing or whole is None or not whole.equal:
        return said
    if any(row.differs or row.switches_grad for row in table.rows):
        return f"With equal random numbers {said[:1].lower()}{said[1:]}"
    deaf = not any(row.acts_by_mode or row.moved for row in table.rows)
    end = f": {'it ignores' if len(drawing) == 1 else 'they ignore'} the mode" if deaf else ""
    return f"With equal random numbers both modes give the same{' '.join(filter(None, _sameness(table)))}{end}"


def _stays_random(row: ComparisonRecord) -> bool:
    """Whether it draws in eval mode, and gives something else with other numbers."""
    return "eval" in row.random and row.draws_in("eval")


def _names(row: ComparisonRecord, side: str) -> list[str]:
    return [move.name for move in row.moved if move.side == side and move.kind != "attribute"]


def _moved(table: ComparisonTable) -> str:
    """Which modules moved state only in training mode."""
    found = [(row, names) for row in table.rows if (names := [n for n in _names(row, "train") if n not in _names(row, "eval")])]
    if not found:
        return ""
    total = sum(len(names) for _, names in found)
    kinds = {move.kind for row, _ in found for move in row.moved if move.side == "train" and move.kind != "attribute"}
    what = f"{total:,} {kinds.pop() + ('' if total == 1 else 's') if len(kinds) == 1 else 'tensors'}"
    whole = _whole(table)
    if len(found) == 1 and found[0][0].path == table.first and not (whole is not None and _mainly(whole, table)):
        return f"{'it' if table.first else 'its own forward'} moved {what} in training mode"
    if len(found) <= 2:
        return f"{' and '.join(_place(row.path, table) for row, _ in found)} moved {what} in training mode"
    return f"{len(found):,} modules moved {what} in training mode"


def _of_models(table: ComparisonTable) -> tuple[str, str]:
    whole = _whole(table)
    common = [row for row in table.rows if row.called_left and row.called_right]
    if whole is None or whole.equal is None:
        return "The outputs of the two models cannot be compared:", _end(
            ", ".join(whole.notes) if whole is not None and whole.notes else "no output"
        )
    if whole.alone:
        return "The two models return different things:", _end(f"the output has {_alone(whole, table)}")
    if whole.max_abs is None:
        return "The two models return different things:", _end(", ".join(whole.notes) or "a different structure")
    if whole.equal:
        inside = [row for row in common if row.differs]
        if inside:
            return "The same output, bit for bit,", f"though {format.plural(len(inside), 'module')} inside differ."
        return f"The same{', bit for bit' if table.exact else ''}:", f"{format.plural(len(common), 'module')} compared."
    if whole.relative_l2 is not None and whole.relative_l2 <= table.tolerance:
        place = f"; inside, {_place(table.first, table)} differs by up to {_most(table)}" if table.first is not None else ""
        return "The same up to rounding:", f"{_below(table)} in the output, relatively{place}."
    if math.isinf(whole.max_abs):
        start = None if table.first is None else _parting(table)
        place = "The two models differ" if start is None else f"The two models diverge at {start}"
        return f"{place}:", f"{_unlike(whole)}."
    cosine = "" if whole.cosine is None else f", cosine {_cosine(whole.cosine)}"
    amount = f"by up to {short(whole.max_abs)} in the output, relatively {short(whole.relative_l2 or 0.0)}{cosine}."
    if table.first is None:
        return f"The two models drift apart from {_place(table.drift, table)} on:", f"{amount[:-1]}; no single module is to blame."
    return f"The two models diverge at {_parting(table)}:", amount


def _below(table: ComparisonTable) -> str:
    """What rounding explains: the digits below it are not the same on all machines."""
    return f"below {table.tolerance:.0e}"


def _near(row: ComparisonRecord, table: ComparisonTable) -> bool:
    """Whether rounding explains the whole difference."""
    return not row.equal and row.relative_l2 is not None and row.relative_l2 <= table.tolerance and not row.alone


def _alone(row: ComparisonRecord, table: ComparisonTable) -> str:
    """What the output has on one side alone."""
    where = ("in training mode", "in eval mode") if _is_modes(table) else ("in the left model", "in the right model")
    parts = []
    for side in (0, 1):
        names = [_member(name) for one, name in row.alone if one == side]
        if names:
            parts.append(f"{_list(names)} only {where[side]}")
    return " and ".join(parts)


def _member(name: str) -> str:
    inner = name[2:-2] if name.startswith("['") and name.endswith("']") else name
    return inner or "a single value"


def _most(table: ComparisonTable) -> str:
    found = next((row.max_abs for row in table.rows if row.path == table.first), None)
    return "an unknown amount" if found is None else short(found)


def _place(path: str | None, table: ComparisonTable) -> str:
    """A path as a sentence names it; a number alone says too little."""
    if not path:
        return "the model's own forward"
    kind = next((row.type for row in table.rows if row.path == path), "")
    return f"{path} ({kind})" if path.rpartition(".")[2].isdecimal() and kind else path


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _list(names: list[str], limit: int = 3) -> str:
    return ", ".join(names[:limit]) + (f" and {len(names) - limit:,} more" if len(names) > limit else "")


def _several(rows: list[ComparisonRecord], table: ComparisonTable, one: str, many: str) -> str:
    return f"{_list([_place(row.path, table) for row in rows])} {one if len(rows) == 1 else many}"


# ---- one row -------------------------------------------------------------------------------------------------------------------


def _row(row: ComparisonRecord, table: ComparisonTable, detailed: bool, most: float) -> Row:
    first = row.path == table.first and (row.differs or row.starts_here)
    return Row(
        row.path,
        row.path.rpartition(".")[2] or ROOT,
        _kind(row),
        note=_note(row),
        symbol=row.category,
        mark=_mark(row, first),
        depth=row.path.count(".") + 1 if row.path else 0,
        cells=(
            Cell(_spread(row.left)),
            Cell(_spread(row.right)),
            Cell("rounding" if _near(row, table) else _distance(row), share=0.02 if _near(row, table) else _share(row, most)),
            Cell(_below(table) if _near(row, table) else _relative(row)),
            Cell(_does(row, table, first), mark=_sign(row, first)),
        ),
        details=tuple(_details(row, table)) if detailed else (),
    )


def _kind(row: ComparisonRecord) -> str:
    other = f" → {row.other_type}" if row.other_type else ""
    return f"{row.type}{other}"


def _note(row: ComparisonRecord) -> str:
    """What the column of what it does does not say."""
    parts = [f"right: {row.other}{', by structure' if row.matched == 'structure' else ''}"] if row.other else []
    if row.called_left is not None and row.called_right is not None and row.called:
        if row.called_left != row.called_right:
            parts.append(f"called {row.called_left} and {row.called_right} times")
        elif row.called_left > 1:
            parts.append(f"called {row.called_left} times")
    return ", ".join(parts)


def _mark(row: ComparisonRecord, first: bool) -> Mark:
    if _nans(row) or row.raises:
        return "broken"
    if first or row.ignores_mode or row.unsteady:
        return "careful"
    return "absent" if not row.called or None in (row.called_left, row.called_right) else ""


def _spread(stats: TensorStats | None) -> str:
    if stats is None or not stats.measured or not stats.count:
        return ""
    if not stats.finite:
        return "NaN" if stats.nan else "Inf"
    mean = stats.mean if abs(stats.mean) > 1e-3 * stats.std else 0.0  # next to the spread it is nothing, or what rounding left
    return f"{short(mean, 2)} ± {short(stats.std, 2)}"


def _distance(row: ComparisonRecord) -> str:
    if row.max_abs is None:
        return "differs" if row.differs else ""
    return f"{'≈ ' if row.sampled and not row.equal else ''}{short(row.max_abs)}"


def _relative(row: ComparisonRecord) -> str:
    return "" if row.relative_l2 is None else short(row.relative_l2)


def _share(row: ComparisonRecord, most: float) -> float | None:
    """How long the bar beside "apart by" is: in proportion to that number, the largest of the table being full."""
    if row.max_abs is None:
        return None
    return 1.0 if not math.isfinite(row.max_abs) else row.max_abs / most if most else 0.0


_STARTS = "starts to differ"


def _does(row: ComparisonRecord, table: ComparisonTable, first: bool) -> str:
    """What decides stands first: the column is narrow."""
    words = list(_doing(row, table))
    return "; ".join(dict.fromkeys([_STARTS, *words] if first and not _near(row, table) else words))


def _sign(row: ComparisonRecord, first: bool) -> Mark:
    """Of the words, where they are what the row's mark is about."""
    mark = _mark(row, first)
    return mark if mark in ("careful", "broken") else ""


def _doing(row: ComparisonRecord, table: ComparisonTable) -> Iterator[str]:
    """A module's part in the difference, in words."""
    if _nans(row):
        yield f"its output {_holds(row)}"
    for side in row.raises:
        yield f"raises in {'training' if side == 'train' else 'eval'} mode"
    if _is_modes(table):
        yield from _about_modes(row)
    if row.ignores_mode and not row.acts_by_mode:
        yield "not reached by eval()"
    if row.unsteady:
        yield f"not repeatable: {'its output differs' if row.unsteady_here else 'differs'} in two equal runs"
    if row.starts_by and not _is_modes(table):
        yield f"by its {row.starts_by}"
    if row.alone_there:
        yield f"calls {row.alone_there}"
    if row.called_left and row.called_right:
        yield from _about_difference(row, table)
    if row.alone:
        yield f"has {_alone(row, table)}"
    yield from row.notes


def _about_modes(row: ComparisonRecord) -> Iterator[str]:
    drawing = [mode for mode in MODES if row.draws_in(mode)]
    if row.acts_by_mode:
        yield f"its {row.starts_by} depends on the mode" if row.starts_by else "depends on the mode"
    if row.switches_grad:
        yield f"its output requires grad only in {'training' if _grad(row, 'train') else 'eval'} mode"
    if "eval" in drawing:
        yield "random in eval mode" + (" too" if len(drawing) == 2 else "")
    elif drawing:
        yield "random in training mode"
    for side, where in (("both", "in both modes"), ("train", "in training mode"), ("eval", "in eval mode")):
        names = [move.name for move in row.moved if _side(row, move) == side]
        if names:
            yield f"moves {_list(list(dict.fromkeys(names)))} {where}"


def _side(row: ComparisonRecord, move: Move) -> str:
    sides = {other.side for other in row.moved if other.name == move.name}
    return "both" if len(sides) > 1 else move.side


def _about_difference(row: ComparisonRecord, table: ComparisonTable) -> Iterator[str]:
    if row.equal:
        equal = "equal" if row.inputs_equal is not False else "equal again"
        yield f"{equal} with equal random numbers" if _is_modes(table) and _stays_random(row) else equal
    elif row.differs and _near(row, table):
        yield "the same up to rounding"
    elif row.differs and not row.starts_here:
        inside = row.inputs_equal is not False
        if inside and (row.unsteady_here or not _has_called(row, table)):
            yield "the difference comes from its own forward"
        elif inside and not row.holds_by_mode:
            yield "the difference comes from inside"
        elif inside:
            yield "the difference starts above"
        elif not row.acts_by_mode:
            yield "passes the difference on"
    elif row.starts_here:
        yield _STARTS if row.path == table.first else "a difference starts here too"


def _has_called(row: ComparisonRecord, table: ComparisonTable) -> bool:
    """Whether anything below it was called."""
    prefix = f"{row.path}." if row.path else ""
    return any(one.called and one.path != row.path and one.path.startswith(prefix) for one in table.rows)


def _details(row: ComparisonRecord, table: ComparisonTable) -> Iterator[Block]:
    values = tuple(
        ValuesRecord(f"{name}", stats) for name, stats in zip(table.sides, (row.left, row.right), strict=True) if stats is not None
    )
    if values:
        calls = " of the first call" if row.called > 2 else ""
        yield Block(f"output{calls}", values=values)
    if row.count:
        yield Block("how far apart", rows=tuple(_numbers(row)))
    if row.moved:
        yield Block(
            "what moved and was restored", head=("", "kind", "mode", "before", "after", "by up to"), rows=tuple(map(_move, row.moved))
        )
    if row.runs and _is_modes(table) and row.path != table.whole:  # those of the whole model stand below the table
        yield _runs("the six runs", row.runs)
    yield Block(code=f"comparison[{row.path!r}]")


def _numbers(row: ComparisonRecord) -> Iterator[tuple[str, str]]:
    about = "≈ " if row.sampled and not row.equal else ""
    yield "elements that differ", f"{about}{row.changed:,} of {row.count:,}"
    if row.max_abs is not None:
        yield "by up to", f"{about}{short(row.max_abs)}"
    if row.relative_l2 is not None:
        yield "relative (L2)", f"{about}{short(row.relative_l2)}"
    if row.cosine is not None:
        yield "cosine", _cosine(row.cosine)
    if row.inputs_max_abs is not None:
        yield "inputs", "the same" if row.inputs_equal else f"differ by up to {short(row.inputs_max_abs)}"
    for side, names in row.drawn:
        yield "random numbers", f"{', '.join(names)} in {f'{side} mode' if side in MODES else f'the {side} model'}"


def _move(move: Move) -> tuple[str, ...]:
    return move.name, move.kind, move.side, move.before, move.after, "" if move.max_abs is None else short(move.max_abs)


def _runs(caption: str, runs: tuple[RunRecord, ...]) -> Block:
    said = {True: "yes", False: "no", None: ""}
    rows = tuple(
        (
            run.side,
            _OUTCOMES.get(run.grad, run.grad),
            said[run.requires_grad],
            "" if run.l2 is None else short(run.l2),
            _apart(run),
        )
        for run in runs
    )
    return Block(caption, head=("mode", "autograd", "output requires grad", "norm", "apart from autograd as usual"), rows=rows)


def _apart(run: RunRecord) -> str:
    if run.error or not run.calls:
        return run.error or "not called"
    return "" if run.max_abs is None else "rounding" if _is_rounding(run) else short(run.max_abs)


def _is_rounding(run: RunRecord) -> bool:
    """Whether it is just a different order of the same sums."""
    return bool(run.max_abs) and run.max_abs is not None and run.max_abs <= 1e-6 * (run.l2 or 1.0)


# ---- below the table -----------------------------------------------------------------------------------------------------------


def _notes(table: ComparisonTable) -> Iterator[Block]:
    for remark in table.remarks:
        yield Block("note", remark, mark="careful")
    if not _is_modes(table):
        return
    if table.runs and any(run.calls for run in table.runs):
        yield _runs("the whole model, in six runs", table.runs)
    yield from _by_autograd(table)
    yield from _gradients(table)
    yield Block(
        "weight decay", "It belongs to the optimizer: neither mode affects it. A step in eval mode decays and updates as in training mode."
    )


def _by_autograd(table: ComparisonTable) -> Iterator[Block]:
    """Where the output depends on autograd's mode, by more than rounding."""
    for mode in MODES:
        apart = {run.grad: run.max_abs for run in table.runs if run.side == mode and run.max_abs and not _is_rounding(run)}
        if apart and not any(row.unsteady for row in table.rows):
            fused = any(row.fused for row in table.rows)
            why = ": a fused path runs there, which also fills padded positions differently" if fused else ""
            yield Block(
                "autograd changes the output",
                f"By up to {short(max(apart.values()))} in {mode} mode under {' and '.join(apart)}{why}.",
                mark="careful",
            )


def _gradients(table: ComparisonTable) -> Iterator[Block]:
    flags = {(run.side, run.grad): run.requires_grad for run in table.runs if run.calls and not run.error}
    if flags.get(("eval", "normal")):
        stopped = [grad for grad in ("no_grad", "inference_mode") if flags.get(("eval", grad)) is False]
        end = f"; only {' and '.join(stopped)} stop them" if stopped else ""
        yield Block("gradients", f"Eval mode does not turn them off: its output requires grad{end}.")
    elif flags.get(("eval", "normal")) is False:
        both = flags.get(("train", "normal")) is False
        yield Block(
            "gradients", f"The output requires grad in {'neither mode' if both else 'training mode only: the model itself causes that'}."
        )


def _foot(table: ComparisonTable) -> str:
    if _is_modes(table):
        return "both modes on copies of one input, with the same random numbers; everything restored"
    return "both models on copies of one input, with the same random numbers; everything restored"


def short(number: float, digits: int = 3) -> str:
    """A few digits that all machines agree on: far below 1, only the magnitude."""
    if not number or not math.isfinite(number):
        return format.number(number)
    if abs(number) < 1e-4:
        return f"{number:.0e}"
    return format.number(float(f"{number:.{digits}g}"))


def _cosine(value: float) -> str:
    """With as many digits as tell it from 1."""
    return "1" if value == 1 else f"1 - {1 - value:.0e}" if value > 0.999 else short(value)
