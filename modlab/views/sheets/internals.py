"""What ``nn.Module`` keeps about one module, as a sheet: stores, class-level flags, the author's own attributes, methods."""

from __future__ import annotations

from modlab import format
from modlab.records.internals import CLASS, INSTANCE, METHOD, OWN, InternalsRecord, RouteRecord, StoreRecord
from modlab.views.sheets.layout import Block, Cell, Column, Mark, Row, Sheet

COLUMNS = (
    Column("holds", "code", width=130, yields=0.8),
    Column("what it is for", "words", width=220, yields=1),
    Column("type", "code", width=86, yields=4),
    Column("written by", "code", width=230, yields=3),
    Column("read by", "code", width=180, yields=2),
)
SECTIONS = {
    INSTANCE: (
        "in the object",
        "made by Module.__init__",
        "Module.__init__ puts these into the object directly, without its own __setattr__. Until it has run, the module accepts no "
        "parameter, child or buffer. modlab takes their names from a fresh nn.Module, so stores that a newer torch adds are here too.",
    ),
    CLASS: ("on the class", "the same for all instances", "They are on nn.Module; a subclass, or the object itself, may have its own."),
    OWN: (
        "the author's own",
        "not saved, not moved",
        "Everything else in the object's __dict__: numbers, texts, and what was assigned without being registered.",
    ),
    METHOD: ("methods", "the public ways to them", "The methods of nn.Module you need most, and the class that defines each one here."),
}

MORE = {
    "training": (
        "Dropout, BatchNorm and your own code check it. train() and eval() set it here and on every module below. It does not turn "
        "off gradients or weight decay."
    ),
    "_parameters": (
        "Assigning an nn.Parameter puts it here, whatever had that name before; a plain tensor is refused if the name is here."
    ),
    "_buffers": (
        "Both kinds of buffers are here; _non_persistent_buffers_set says which of them the state_dict leaves out. to() moves both."
    ),
    "_non_persistent_buffers_set": "Only names: the tensors themselves are in _buffers.",
    "_modules": "Only what is here is seen by parameters(), to(), train() and state_dict(); a plain list of modules is not.",
    "_is_full_backward_hook": (
        "It is about this module only, not the network's backward pass: None before any backward hook was registered, True for "
        "full hooks, False for the legacy kind; a module cannot have both. It does not change when the hooks are removed."
    ),
    "_backward_pre_hooks": "They see the gradient with respect to the module's output, not those of its parameters.",
    "_backward_hooks": "A returned value replaces the gradient with respect to the module's input; the parameters' gradients stay.",
    "_forward_hooks": "Their inputs are what forward got: as the forward pre-hooks left them.",
    "_state_dict_hooks": (
        "Empty unless you or a utility registered one. A key that it adds breaks strict loading; an entry in _metadata does not."
    ),
    "_load_state_dict_pre_hooks": (
        "The place to rename the keys of an old checkpoint. You need not convert dtypes here: loading copies into the existing "
        "tensors, unless assign=True."
    ),
    "_version": "It travels as state_dict()._metadata[''] = {'version': ...}, which a dict comprehension over the state_dict loses.",
    "call_super_init": (
        "False: extra arguments of the constructor are a TypeError. True: Module.__init__ hands them to the next base class."
    ),
    "_compiled_call_impl": "None: calling the module runs forward uncompiled. compile() sets it on the object.",
    "forward": "Call the module instead: module(x) runs the hooks too.",
    "to": "In place on a module (unlike on a tensor): floating-point and complex tensors change dtype, integers keep theirs.",
    "state_dict": "Its values share memory with the live tensors: a snapshot needs a clone.",
    "load_state_dict": "It copies into the existing tensors, so an optimizer still holds them.",
    "eval": "Gradients are still computed, and the optimizer still decays weights.",
}


def of_internals(record: InternalsRecord) -> Sheet:
    """The whole view."""
    rows: list[Row] = []
    for section in SECTIONS:
        own = [row for row in record.rows if row.section == section]
        if own:
            rows += [_head(section, own), *(_row(row) for row in own)]
    notes = tuple(Block(prose=remark) for remark in record.remarks)
    title = format.clean(record.title)
    if not record.initialized:
        code = f"class {title}(nn.Module):\n    def __init__(self, ...):\n        super().__init__()\n        ..."
        notes = (*notes, Block("fix", "Call it first in the constructor.", code, mark="broken"))
    return Sheet("internals", _sentence(record), COLUMNS, tuple(rows), notes, "store", "names, shapes and types read, but no tensor values")


def _head(section: str, rows: list[StoreRecord]) -> Row:
    name, note, prose = SECTIONS[section]
    full = tuple((row.path, row.holds) for row in rows if row.count)
    details = (Block(name, prose), *([Block("not empty", rows=full)] if full else []))
    return Row(None, name, "", note, "container", "", cells=tuple(Cell() for _ in COLUMNS), details=details)


def _row(row: StoreRecord) -> Row:
    mark: Mark = "broken" if row.missing and row.section in (INSTANCE, METHOD) else "careful" if _surprising(row) else ""
    quiet = row.count == 0 or row.value == "None"
    cells = (Cell(row.holds, mark="absent" if quiet else ""), Cell(row.purpose), Cell(row.type), Cell(row.writes), Cell(row.reads))
    symbol = {INSTANCE: "store", CLASS: "store", OWN: "own", METHOD: "function"}[row.section]
    return Row("", row.path, "", row.note, symbol, row.path, mark, 1, cells, details=_details(row))


def _surprising(row: StoreRecord) -> bool:
    return not row.known or row.stale or row.answered or row.unregistered


def _details(row: StoreRecord) -> tuple[Block, ...]:
    facts = [
        ("holds", row.holds if row.count is None or row.count <= 3 else f"{row.count:,} entries"),
        ("defined on", row.home),
    ]
    blocks = [
        Block(
            row.path,
            f"{_sentence_of(row.purpose)} {MORE.get(row.path, '')}".strip(),
            rows=tuple((name, value) for name, value in facts if value),
        )
    ]
    if row.entries:
        blocks.append(Block("entries", rows=row.entries))
        if row.count is not None and row.count > len(row.entries):
            blocks.append(Block(prose=f"… {row.count - len(row.entries):,} more"))
    return (*blocks, Block("look", code=row.look)) if row.look else tuple(blocks)


def of_route(record: RouteRecord) -> Sheet:
    """Where one assignment would go: a card of lines."""
    place, why, *more = record.told
    return Sheet("route", (f"{place}:", why), notes=tuple(Block(prose=line) for line in more))


def _sentence_of(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _sentence(record: InternalsRecord) -> tuple[str, str]:
    title = format.clean(record.title)
    made = [row for row in record.rows if row.section == INSTANCE]
    if not record.initialized:
        return (
            f"{title}: super().__init__() has not run;",
            f"{sum(row.missing for row in made)} of the {len(made)} stores are missing, so it accepts no parameters or children.",
        )
    missing = [row.path for row in made if row.missing]
    strange = [row.path for row in record.rows if not row.known]
    stuck = next((row for row in made if row.stale), None)
    full = ", ".join(f"{row.path} {row.count:,}" for row in made if row.count)
    filled = sum(bool(row.count) for row in made)
    holding = f"{len(made)} stores, {filled} of them in use"
    if missing:
        return f"{title}: {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing;", f"{holding}."
    if strange:
        return f"{title}: {', '.join(strange)} {'is' if len(strange) == 1 else 'are'} new in this torch;", f"{holding}."
    if stuck is not None:
        return f"{title}: {stuck.path} is still {stuck.value}, though no backward hook is left;", f"{holding}."
    hidden = next((row for row in made if row.path == "_buffers" and row.note), None)
    if hidden is not None:
        return f"{title}: _buffers holds {hidden.note};", f"{holding}: {full}."
    return f"{title}: {holding}{':' if full else ';'}", f"{full or 'it has no parameters, buffers, children or hooks'}."
