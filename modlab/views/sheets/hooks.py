"""All hooks as a sheet: a row for each module that has hooks, and below it the hooks in the order in which they run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from modlab import format
from modlab.records.hooks import EVERY_MODULE, EVERY_OPTIMIZER, HookbookRecord, HookPlace, HookRecord
from modlab.records.structure import ROOT
from modlab.views.sheets.layout import Block, Cell, Column, Mark, Row, Sheet

COLUMNS = (
    Column("order", "number", width=56, yields=2),
    Column("a returned value", "words", width=210, yields=1),
    Column("options", "code", width=90, yields=4),
    Column("defined in", "code", width=250, yields=3),
)


class HookKind(NamedTuple):
    """What there is to know about one kind of hook."""

    label: str
    call: str
    value: str  # what becomes of a returned value, for the column
    facts: str
    register: str
    for_all: str = ""


_EVERYWHERE = {EVERY_MODULE: "all modules", EVERY_OPTIMIZER: "all optimizers"}
_FOLDED = ("FSDP", "DDP", "torch.distributed")
_SAVED = "state_dict, prefix, local_metadata"
KINDS = {
    "forward pre": HookKind(
        "forward pre-hook",
        "hook(module, args)",
        "would replace the input",
        "It runs before forward. What it returns replaces the input for forward and for every later hook; a value that is not a "
        "tuple is wrapped in one. With with_kwargs it returns the pair (args, kwargs).",
        "register_forward_pre_hook",
        "register_module_forward_pre_hook",
    ),
    "forward": HookKind(
        "forward hook",
        "hook(module, args, output)",
        "would replace the output",
        "It runs after forward. args are what forward got: the input as the forward pre-hooks left it, not as the caller gave it. "
        "What it returns replaces the output.",
        "register_forward_hook",
        "register_module_forward_hook",
    ),
    "full backward pre": HookKind(
        "full backward pre-hook",
        "hook(module, grad_output)",
        "would replace the output's gradient",
        "It runs in the backward pass before the module's part of it: it sees the gradient with respect to the output, not those of "
        "parameters. What it returns replaces that gradient, so the parameters' gradients change too.",
        "register_full_backward_pre_hook",
        "register_module_full_backward_pre_hook",
    ),
    "full backward": HookKind(
        "full backward hook",
        "hook(module, grad_input, grad_output)",
        "would replace the input's gradient",
        "It runs after the module's part of the backward pass. What it returns replaces the gradient with respect to the module's input "
        "only: the gradients of its parameters do not change. If no input requires a gradient (the first layer of a net), "
        "grad_input is (None,). Changing the module's output in place afterwards (nn.ReLU(inplace=True)) raises an error.",
        "register_full_backward_hook",
        "register_module_full_backward_hook",
    ),
    "legacy backward": HookKind(
        "legacy backward hook",
        "hook(module, grad_input, grad_output)",
        "would replace the last operation's",
        "Deprecated: it is attached to the last operation that made the output, so grad_input is what flows into that operation, not "
        "always into the module. A module has full backward hooks or these, never both.",
        "register_backward_hook",
        "register_module_backward_hook",
    ),
    "backward": HookKind("backward hook", "hook(module, grad_input, grad_output)", "", "It was added to _backward_hooks by hand.", ""),
    "gradient": HookKind(
        "gradient hook",
        "hook(grad)",
        "would replace the gradient",
        "It is attached to the tensor itself and runs once its gradient is computed, before that is added to .grad. What it returns "
        "replaces the gradient.",
        "register_hook",
    ),
    "post accumulate grad": HookKind(
        "post-accumulate-grad hook",
        "hook(tensor)",
        "must be None",
        "It is attached to the tensor itself and runs after its .grad has been written.",
        "register_post_accumulate_grad_hook",
    ),
    "state_dict pre": HookKind(
        "state_dict pre-hook",
        "hook(module, prefix, keep_vars)",
        "is ignored",
        "It runs before the module writes its part of the state_dict.",
        "register_state_dict_pre_hook",
    ),
    "state_dict post": HookKind(
        "state_dict post-hook",
        f"hook(module, {_SAVED})",
        "must be None",
        "It runs once the part of the module and its children is written, and may change the dict in place.",
        "register_state_dict_post_hook",
    ),
    "load_state_dict pre": HookKind(
        "load_state_dict pre-hook",
        f"hook(module, {_SAVED}, strict, missing_keys, unexpected_keys, error_msgs)",
        "is ignored",
        "It runs before the module loads its part, and may change the dict in place: the place to adapt an old checkpoint.",
        "register_load_state_dict_pre_hook",
    ),
    "load_state_dict post": HookKind(
        "load_state_dict post-hook",
        "hook(module, incompatible_keys)",
        "must be None",
        "It runs once everything is loaded, and may change the lists of missing and unexpected keys in place.",
        "register_load_state_dict_post_hook",
    ),
    "module registration": HookKind(
        "module registration hook",
        "hook(module, name, submodule)",
        "would replace what is registered",
        "It runs whenever a module is registered in another.",
        "",
        "register_module_module_registration_hook",
    ),
    "parameter registration": HookKind(
        "parameter registration hook",
        "hook(module, name, param)",
        "would replace what is registered",
        "It runs whenever a parameter is registered in a module.",
        "",
        "register_module_parameter_registration_hook",
    ),
    "buffer registration": HookKind(
        "buffer registration hook",
        "hook(module, name, buffer)",
        "would replace what is registered",
        "It runs whenever a buffer is registered in a module.",
        "",
        "register_module_buffer_registration_hook",
    ),
    "optimizer step pre": HookKind(
        "optimizer step pre-hook",
        "hook(optimizer, args, kwargs)",
        "would replace (args, kwargs)",
        "It runs before the step of every optimizer.",
        "",
        "register_optimizer_step_pre_hook",
    ),
    "optimizer step post": HookKind(
        "optimizer step post-hook",
        "hook(optimizer, args, kwargs)",
        "is ignored",
        "It runs after the step of every optimizer.",
        "",
        "register_optimizer_step_post_hook",
    ),
}


class Around:
    """What is said of one hook and depends on others."""

    def __init__(self, book: HookbookRecord) -> None:
        self.model = "model" if book.title else ""
        self.by_place: dict[str, list[HookRecord]] = {}
        self.changers: dict[str | None, list[str]] = {}  # the forward pre-hooks by their owner
        for record in book.rows:
            self.by_place.setdefault(_place(record), []).append(record)
            if record.kind == "forward pre" and not record.machinery:
                self.changers.setdefault(record.owner, []).append(record.name)
        self.ahead = Counter(record.kind for record in book.rows if record.is_global)

    def before(self, record: HookRecord) -> list[str]:
        """The pre-hooks through which the input has gone that a forward hook gets."""
        if record.kind != "forward" or record.is_global or record.silent:
            return []
        return [*self.changers.get(None, ()), *self.changers.get(record.owner, ())]


def of_hookbook(book: HookbookRecord) -> Sheet:
    """The whole view."""
    around = Around(book)
    rows = [row for place, above in _nested(book) for row in _rows(place, above, around)]
    looked = f"{format.plural(book.modules, 'module')} and {format.plural(book.tensors, 'tensor')} looked at" if book.title else ""
    return Sheet("hooks", _sentence(book), COLUMNS, tuple(rows), (*_fixes(book), *_unseen(book)), "hook", looked, _empty(book))


def kind_of(record: HookRecord) -> HookKind:
    """The words for a kind; also for one that this version does not know."""
    return KINDS.get(record.kind) or HookKind(
        f"{record.kind} hook", "", "", "A kind of hook that this version of modlab does not know.", ""
    )


def returned(record: HookRecord) -> str:
    """What becomes of a value that the hook returns."""
    return kind_of(record).value if record.public else "would replace the dict, at the root only"


def marks_of(record: HookRecord) -> tuple[str, ...]:
    """What is special about a hook, the most surprising first."""
    return tuple(
        word
        for word, said in (
            ("left by an earlier run", record.left),
            ("perhaps left over", record.doubt),
            (_times(record.times), record.times > 1),
            ("never runs", record.silent),
            (record.machinery, record.machinery),
        )
        if said
    )


def _times(times: int) -> str:
    return "registered twice" if times == 2 else f"registered {times} times"


def _nested(book: HookbookRecord) -> Iterator[tuple[HookPlace, list[str]]]:
    """Each place, and the paths of those that it is in: the root first."""
    above: list[str] = []
    for place in book.places:
        while above and not (place.path.startswith(f"{above[-1]}.") if above[-1] else not place.path.startswith("(")):
            above.pop()
        yield place, list(above)
        if not place.path.startswith("("):
            above.append(place.path)


def _below(path: str, above: str) -> str:
    """The part of a dotted name that the row above does not say."""
    return path.removeprefix(f"{above}.") if above else path or ROOT


def _rows(place: HookPlace, above: list[str], around: Around) -> list[Row]:
    own = around.by_place[place.path]
    everywhere = place.path in _EVERYWHERE
    name = _EVERYWHERE[place.path] if everywhere else _below(place.path, above[-1] if above else "")
    note = f"also {', '.join(path or ROOT for path in place.also)}" if place.also else ""
    blank = tuple(Cell() for _ in COLUMNS)
    symbol = "hook" if everywhere else place.category
    path, at = _at(place.path, place.path)
    head = Row(
        path,
        name,
        place.type,
        note,
        symbol,
        at,
        depth=len(above),
        cells=blank,
        details=_summary(place, own),
    )
    depth = len(above) + 1
    theirs = [(word, [record for record in own if record.machinery == word]) for word in _FOLDED]
    mine = [record for record in own if record.machinery not in _FOLDED]
    return [head, *(_row(record, depth, around) for record in mine), *(_folded(word, its, depth) for word, its in theirs if its)]


def _at(owner: str | None, path: str) -> tuple[str | None, str | None]:
    """The module that a row is about, and what stands before it where that is a different name: of all modules, or of a tensor."""
    module = None if owner is None or owner.startswith("(") else owner
    return module, None if path == module else path


def _folded(word: str, its: list[HookRecord], depth: int) -> Row:
    """The hooks that torch.distributed uses, in one row: nobody added them by hand."""
    kinds = Counter(kind_of(record).label for record in its)
    said = ", ".join(format.plural(count, label) for label, count in kinds.items())
    rows = tuple((kind_of(record).label, record.name, record.where) for record in its)
    text = f"Added by {word} for its own work; remove() and off() leave them alone unless you name their functions."
    details = (Block(f"hooks of {word}", text, head=("kind", "function", "defined in"), rows=rows),)
    path, place = _at(its[0].owner, its[0].path)
    return Row(path, word, "its own hooks", said, "hook", place, "", depth, (Cell(),) * len(COLUMNS), details=details)


def _summary(place: HookPlace, own: list[HookRecord]) -> tuple[Block, ...]:
    """The hooks of a module on one line a kind, with forward in its place among them."""
    lines: list[tuple[str, str]] = []
    for kind in dict.fromkeys(row.kind for row in own):
        if kind != "forward pre" and not any(name == "forward" for name, _ in lines) and not place.path.startswith("("):
            lines.append(("forward", f"{place.type}.forward"))
        here = [row for row in own if row.kind == kind]
        lines.append((f"{kind_of(here[0]).label}{'s' if len(here) > 1 else ''}", ", ".join(row.name for row in here)))
    ask = "modlab.hooks()" if place.path in _EVERYWHERE else f"modlab.hooks(model)[{place.path!r}]"
    return (Block("in the order in which they run", rows=tuple(lines)), Block("as data", code=ask))


def _row(record: HookRecord, depth: int, around: Around) -> Row:
    said = marks_of(record)
    where = (f"on {record.path.rpartition('.')[2]}",) if _on_tensor(record) else ()
    before = around.before(record)
    sees = (f"gets the input after {', '.join(before[:2])}{', …' if len(before) > 2 else ''}",) if before else ()
    note = ", ".join((*where, *(said or sees)))
    mark: Mark = "careful" if record.left or record.doubt or record.times > 1 or record.silent else ""
    cells = (
        Cell(f"{record.order} of {record.among}" if record.among > 1 else "1"),
        Cell(returned(record)),
        Cell(", ".join(_options(record))),
        Cell(record.where or f"no Python code ({record.form})"),
    )
    name, kind = record.name, kind_of(record).label
    path, place = _at(record.owner, record.path)
    return Row(path, name, kind, note, "hook", place, mark, depth, cells, details=_details(record, around))


def _on_tensor(record: HookRecord) -> bool:
    return record.owner is not None and record.path != record.owner


def _options(record: HookRecord) -> list[str]:
    flags = (("with_kwargs", record.with_kwargs), ("always_call", record.always_call), ("prepend", record.prepend))
    return [name for name, on in flags if on]


def _details(record: HookRecord, around: Around) -> tuple[Block, ...]:
    kind = kind_of(record)
    facts = [
        ("is called", _call(record)),
        ("runs", _turn(record, around)),
        ("added by", _registration(record)),
    ]
    if record.machinery:
        facts.append(("belongs to", f"{record.machinery}: remove() leaves it alone unless you name its function"))
    blocks = [*_warnings(record), Block(kind.label, kind.facts, rows=tuple((name, value) for name, value in facts if value))]
    if record.code:
        blocks.append(Block("source", code=record.code))
    return (*blocks, Block("off, or gone", code=_code(record, around)))


def _warnings(record: HookRecord) -> list[Block]:
    found = []
    if record.leftover is not None:
        why = record.left if record.leftover.name else _capital(record.left)  # a name at the beginning keeps its form
        found.append(Block("left by an earlier run", f"{why}. This one still runs.", mark="careful"))
    if record.doubt:
        text = (
            f"{_capital(record.doubt)}. If that is the same cell, edited, this hook is left over and still runs; "
            "if you want both, this is fine."
        )
        found.append(Block("perhaps left over", text, mark="careful"))
    if record.times > 1:
        text = f"The same function is {_times(record.times)} as a {kind_of(record).label} here, and runs {_often(record.times)}."
        found.append(Block(_times(record.times), text, mark="careful"))
    if record.silent:
        found.append(Block("never runs", f"{_capital(record.silent)}.", mark="careful"))
    return found


def _often(times: int) -> str:
    return "twice" if times == 2 else f"{times} times"


def _capital(text: str) -> str:
    """A sentence from a clause."""
    return text[:1].upper() + text[1:]


def _call(record: HookRecord) -> str:
    call = kind_of(record).call
    if record.with_kwargs:
        call = call.replace("args", "args, kwargs", 1)
    return call if record.with_module else call.replace("module, ", "", 1)


def _turn(record: HookRecord, around: Around) -> str:
    if record.silent:
        return "never"
    order = f"{record.order} of {record.among} of its kind here" if record.among > 1 else ""
    if record.prepend:
        order += ", put before older ones (prepend)"
    ahead = 0 if record.is_global else around.ahead[record.kind]
    words = [order, f"after {format.plural(ahead, 'hook')} for every module" if ahead else ""]
    if before := around.before(record):
        words.append(f"its args went through {', '.join(before[:3])}{', …' if len(before) > 3 else ''}")
    if record.always_call:
        words.append("also when forward raises")
    return "; ".join(word for word in words if word)


def _registration(record: HookRecord) -> str:
    kind = kind_of(record)
    name = kind.for_all if record.is_global else kind.register
    if not record.public:
        name = "_register_state_dict_hook"
    if not record.with_module:
        name = "_register_load_state_dict_pre_hook"
    options = "".join(f", {option}=True" for option in _options(record))
    return f"{name}(hook{options})" if name else ""


def _code(record: HookRecord, around: Around) -> str:
    name = record.function.rpartition(".")[2]
    others = [row for row in around.by_place[_place(record)] if row.function == record.function and row.kind != record.kind]
    kind = f", kind={record.kind!r}" if others or record.form == "lambda" else ""
    place = "" if record.is_global and not around.model else f"{record.path!r}, "
    alike = [
        row for row in around.by_place[_place(record)] if (row.path, row.kind, row.function) == (record.path, record.kind, record.function)
    ]
    if len(alike) > record.times and record.order:  # another lambda of the same kind: the name alone would mean both
        among = f"hooks.find({record.path!r}, kind={record.kind!r})"
        ask = f"[row for row in {among} if row.order == {record.order}]"
    else:
        ask = f"{place}function={name!r}{kind}"
    return f"hooks = modlab.hooks({around.model})\nwith hooks.off({ask}):\n    ...\nhooks.remove({ask})"


def _place(record: HookRecord) -> str:
    """Under which row it stands: its module's, or that of all."""
    return record.path if record.owner is None else record.owner


def _sentence(book: HookbookRecord) -> tuple[str, str]:
    title = format.clean(book.title) or "All modules"
    if not book.rows:
        if not book.title:
            return "No global hooks:", "nothing is called for all modules or all optimizers."
        on = f"on any of its {book.modules:,} modules" if book.modules > 1 else "on it"
        return f"{title}: no hooks", f"{on}, and none for all modules."
    hooks, surprises = format.plural(len(book.rows), "hook"), _surprises(book)
    if not surprises:
        return f"{title}: {hooks}", f"{_where(book)}{_seen(book)}."
    return f"{title}: {surprises[0]};", "; ".join((*surprises[1:], f"{hooks} {_where(book, without_kinds=True)}."))


def _seen(book: HookbookRecord) -> str:
    """A note that forward hooks do not get the original input if pre-hooks run before them."""
    around = Around(book)
    behind = [row for row in book.rows if not row.machinery and around.before(row)]
    if not behind:
        return ""
    verb = "gets" if len(behind) == 1 else "get"
    many = "the forward hook" if len(behind) == 1 else f"{len(behind):,} forward hooks"
    return f"; {many} {verb} the input as left by pre-hooks"


def _surprises(book: HookbookRecord) -> list[str]:
    left = [row.leftover for row in book.rows if row.leftover is not None]
    again = [row for row in book.rows if row.times > 1]
    silent = [row for row in book.rows if row.silent]
    found = []
    if len(left) == 1:
        of = " of its cell" if left[0].of_its_cell else ""
        found.append(f"{_named(next(row for row in book.rows if row.leftover))} is left from an earlier run{of} and still runs")
    elif left:
        of = " of their cells" if all(one.of_its_cell for one in left) else ""
        found.append(f"{len(left):,} hooks are left from earlier runs{of} and still run")
    if again:
        doubled = list(dict.fromkeys((row.path, row.kind, row.name, row.times) for row in again))
        one = again[0]
        if len(doubled) == 1:
            found.append(f"{_named(one)} is {_times(one.times)} as a {kind_of(one).label} and runs {_often(one.times)}")
        else:
            found.append(f"{len(doubled):,} hooks are registered more than once")
    doubted = [row for row in book.rows if row.doubt]
    if doubted:
        what = f"{_named(doubted[0])} is" if len(doubted) == 1 else f"{len(doubted):,} hooks are"
        found.append(f"{what} perhaps left over from an edited cell")
    if silent and not found:
        found.append(f"{_named(silent[0])} never runs" if len(silent) == 1 else f"{len(silent):,} hooks never run")
    return found


def _named(record: HookRecord) -> str:
    from modlab.wording.names import named  # a first call loads few files

    return f"{format.clean(record.name)} on {named(record.path)}"


def _where(book: HookbookRecord, without_kinds: bool = False) -> str:
    own = [row for row in book.rows if not row.is_global]
    places = len({row.owner for row in own})
    parts = []
    if own:
        parts.append(f"on {places:,} of {format.plural(book.modules, 'module')}")
    if len(own) < len(book.rows):
        others = len(book.rows) - len(own)
        parts.append(f"{others:,} of them for all modules" if own else "for all modules")
    if without_kinds:
        return ", ".join(parts)
    machinery = Counter(row.machinery for row in book.rows if row.machinery)
    parts += [f"{number:,} of {word}" for word, number in machinery.items()]
    kinds = Counter(kind_of(row).label for row in book.rows)
    listed = ", ".join(f"{number:,} {name}{'s' if number > 1 else ''}" for name, number in kinds.items())
    return f"{', '.join(parts)}: {listed}"


def _fixes(book: HookbookRecord) -> list[Block]:
    """Code for what is wrong: left-overs go and the newest stays; of repeats the first stays. Nothing else is touched."""
    model = "model" if book.title else ""
    fixes = []
    if any(row.left for row in book.rows):
        code = f"hooks = modlab.hooks({model})\nhooks.remove([row for row in hooks if row.left])"
        fixes.append(Block("fix", "Remove what earlier runs left behind; the newest stays.", code, mark="careful"))
    if any(row.repeat for row in book.rows):
        code = f"hooks = modlab.hooks({model})\nhooks.remove([row for row in hooks if row.repeat])"
        text = "Remove the repeated ones; the first stays. A cell that registers a hook adds it each time you run it."
        fixes.append(Block("fix", text, code, mark="careful"))
    if any(row.doubt for row in book.rows):
        code = f"hooks = modlab.hooks({model})\nhooks.remove([row for row in hooks if row.doubt])"
        fixes.append(Block("fix", "If a cell was edited and run again: remove the older lambdas.", code, mark="careful"))
    return fixes


def _unseen(book: HookbookRecord) -> list[Block]:
    nodes = Block("cannot be seen", "hooks on nodes of the autograd graph (grad_fn.register_hook): torch keeps no list of them")
    return [*(Block("", remark) for remark in book.remarks), *([nodes] if book.title else [])]


def _empty(book: HookbookRecord) -> str:
    return "Calling the model runs only forward." if book.title and not book.remarks else ""
