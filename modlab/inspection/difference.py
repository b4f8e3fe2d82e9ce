"""Two inventories → what differs: names are matched first, then values are compared one pair at a time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any

from torch import Tensor

from modlab.compat import is_leaf
from modlab.inspection import loading, partial_moves, renames, weights
from modlab.inspection.decay import DecayCause, DecayTrace, cause, kept
from modlab.inspection.fingerprint import fingerprint
from modlab.inspection.inventory import FLAG, GRADIENT, OPTIMIZER, RNG, STATE, Inventory, InventoryEntry, Key
from modlab.inspection.same_shape import likeness
from modlab.inspection.storage import shares_memory
from modlab.inspection.tensor_difference import TensorDifference, contrast_of_many, quietly
from modlab.records.difference import (
    TENSORS,
    UNTIED,
    ComparedPart,
    DifferenceRecord,
    DiffRecord,
    Loading,
    Renaming,
)
from modlab.records.finding import Fact, Finding
from modlab.records.sharding import Sharding
from modlab.statistics.memory import NoValuesError, local, number_of
from modlab.statistics.sharding import part_of, same_parts

LOOSE = ("mapping", "file")
SWAPPED = 64
"""Tensors that begin alike and are compared."""
_REGISTERED = ("parameter", "buffer")
Told = dict[str, Any]
"""What is known of a row so far, by the names of a `DifferenceRecord`."""

_NAMES = {GRADIENT: "gradients", OPTIMIZER: "the optimizer", RNG: "random generators", FLAG: "training flags"}


def compare(before: Inventory, after: Inventory) -> DiffRecord:
    """Compare two sides. Of files, one tensor of each is in memory at a time."""
    same = before.source is not None and before.source is after.source
    _align(before, after)
    return InventoryDifference(before, after).record(same)


def _align(before: Inventory, after: Inventory) -> None:
    """Of a training checkpoint, compare the part that holds what the other side has."""
    for one, other in ((before, after), (after, before)):
        if one.form in LOOSE and not (other.form in LOOSE and other.others):
            weights.choose(one, {entry.path for entry in other.entries if entry.key.section == STATE and entry.is_tensor})


class InventoryDifference:
    """One comparison in progress."""

    def __init__(self, before: Inventory, after: Inventory) -> None:
        self.before, self.after = before, after
        self.sections = before.sections & after.sections
        if "snapshot" not in (before.form, after.form):
            self.sections.discard(RNG)  # of two live models it is the same one
        self.live = before.form not in ("snapshot", "file") and after.form not in ("snapshot", "file")
        self.left, self.right = self._side(before, after), self._side(after, before)
        self._known: dict[tuple[int, int], TensorDifference] = {}
        self.digests = False
        self._loose = before.form in LOOSE or after.form in LOOSE
        self.own = any(a.model is not None and a.model() is b.source is not None for a, b in ((before, after), (after, before)))
        self._slopes = tuple({e.key: e for e in side.entries if e.key.section == GRADIENT} for side in (after, before))
        self._buffers = {e.path: e for e in before.entries if e.kind == "optimizer state"}
        self._buffers_after = {e.path: e for e in after.entries if e.kind == "optimizer state"}

    def _side(self, one: Inventory, other: Inventory) -> dict[Key, InventoryEntry]:
        """What can be compared: beside a state_dict, of a model only what would be in one."""
        loose = other.form in LOOSE
        return {e.key: e for e in one.entries if e.key.section in self.sections and (not loose or e.saved or e.key.section != STATE)}

    def record(self, same: bool) -> DiffRecord:
        """The whole comparison."""
        pairs, renamings = self._pairs()
        rows = quietly(lambda: [self._row(left, right) for left, right in pairs])
        rows = quietly(lambda: list(self._swapped(rows, pairs)))
        if self._stepped(rows) and self._kept_gradients(rows, pairs):
            rows = [self._skipped_by_step(row, left) for row, (left, _) in zip(rows, pairs, strict=True)]
        if {self.before.form, self.after.form} <= {"module", "snapshot"}:
            rows = partial_moves.noted(rows, pairs)
        flags = list(self._flags(pairs))
        rows = [_placed(row) for row in self._in_eval(rows)]
        return DiffRecord(
            self.before.title,
            self.after.title,
            self.before.form,
            self.after.form,
            (*rows, *flags),
            same,
            self.live,
            self.digests,
            tuple(renamings),
            self._loading(renamings),
            tuple(self._skipped()),
            tuple(self._remarks()),
            self._stepped(rows),
            self.own,
        )

    # ---- who stands beside whom ----

    def _pairs(self) -> tuple[list[tuple[InventoryEntry | None, InventoryEntry | None]], list[Renaming]]:
        """Pairs in the order of the side after; what was removed stands at the end."""
        lost = [e for key, e in self.left.items() if key not in self.right]
        gained = [e for key, e in self.right.items() if key not in self.left]
        found, renamings = self._renamed(lost, gained)
        old = {after.key: before for before, after in found}
        gone = {before.key for before, _ in found}
        pairs: list[tuple[InventoryEntry | None, InventoryEntry | None]] = [
            (old.get(key, self.left.get(key)), e) for key, e in self.right.items()
        ]
        return pairs + [(e, None) for e in lost if e.key not in gone], renamings

    def _renamed(self, lost: list[InventoryEntry], gained: list[InventoryEntry]) -> tuple[list[renames.Pair], list[Renaming]]:
        ours, theirs = ([e for e in side if e.key.section == STATE and e.is_tensor] for side in (lost, gained))
        if not (ours and theirs):
            return [], []
        backwards = self.after.form in LOOSE and self.before.form not in LOOSE  # the weights are renamed, and not the model
        kept = [key.name for key in self.left if key in self.right and key.section == STATE]
        loose = self.after if backwards else self.before
        loads = "module" in (self.before.form, self.after.form)  # then the lines stand in the middle of a repair
        variable = f"checkpoint[{loose.part!r}]" if loose.part and not loads else "state_dict"
        if backwards:
            found, renamings = renames.match(theirs, ours, kept, variable)
            return [(b, a) for a, b in found], renamings
        return renames.match(ours, theirs, kept, variable)

    # ---- one row ----

    def _row(self, before: InventoryEntry | None, after: InventoryEntry | None) -> DifferenceRecord:
        if before is None or after is None:
            return self._alone(before, after)
        told = _facts(before, after)
        if not (before.is_tensor or after.is_tensor):
            told.update(_plain(before, after))
        elif not before.is_tensor or not after.is_tensor:
            told.update(_filled(before, after))
        else:
            told.update(same_object=self._same_object(before, after), shares_memory=self._shared(before, after))
            if before.facts.shape != after.facts.shape:
                told.update(status="reshaped", differs=True, notes=_reshaped(before, after))
            else:
                self._values(told, before, after)
            if told["same_object"] is False and after.tensor is not None and id(after.tensor) in self._objects_before:
                told["notes"] = (self._object(after.tensor), *told["notes"])
            elif self.own and before.kind == after.kind and after.kind in _REGISTERED:
                told["notes"] += _identity(told)
        return DifferenceRecord(**told)

    def _values(self, told: Told, before: InventoryEntry, after: InventoryEntry) -> None:
        try:
            left, right = before.read(), after.read()
        except Exception as error:  # noqa: BLE001 - a damaged file: that is said, and the rest compared
            _judge(told, TensorDifference().fail(str(error).partition("\n")[0]), before, after)
            return
        if before.digest is not None or after.digest is not None:
            self._by_digest(told, before, after, left, right)
            return
        if left is None or right is None:
            _judge(told, _absent(TensorDifference(), before, after), before, after)
            return
        pair = _beside(before.facts.sharding, after.facts.sharding, left, right)
        if isinstance(pair, str):
            _judge(told, TensorDifference().refuse(pair), before, after)
            return
        left, right, told["of_part"] = pair
        _judge(told, self._contrast(before, after, left, right), before, after)
        if told["status"] == "changed" and told["kind"] == "parameter" and before.group is not None:
            why = self._cause(before, after, left, right)
            told.update(decayed=why.decayed, notes=(*told["notes"], *why.notes))

    def _contrast(self, before: InventoryEntry, after: InventoryEntry, left: Tensor, right: Tensor) -> TensorDifference:
        """Of tied tensors once."""
        if before.load is not None or after.load is not None or before.facts.sharding != after.facts.sharding:
            return contrast_of_many(left, right)  # what is read, or cut out, has no lasting id
        key = (id(left), id(right))
        if key not in self._known:
            self._known[key] = contrast_of_many(left, right)
        return self._known[key]

    def _by_digest(self, told: Told, before: InventoryEntry, after: InventoryEntry, left: Tensor | None, right: Tensor | None) -> None:
        self.digests = True
        found = TensorDifference()
        was, now = before.facts.sharding, after.facts.sharding
        if not same_parts(was, now) and not (_is_whole(was) and _is_whole(now)):
            _judge(told, found.refuse("fingerprint of a part"), before, after)
            return
        told["of_part"] = not _is_whole(now)
        try:
            ours, theirs = (
                before.digest or (fingerprint(left) if left is not None else None),
                after.digest or (fingerprint(right) if right is not None else None),
            )
        except NoValuesError as reason:
            ours, found = None, found.fail(str(reason))
        else:
            if ours is None or theirs is None:
                _absent(found, before, after)
            elif before.facts.dtype != after.facts.dtype:
                found.refuse("fingerprint of another dtype")
            elif ours != theirs:
                found.compared = False
                told["differs"] = True
        _judge(told, found, before, after)

    def _cause(self, before: InventoryEntry, after: InventoryEntry, left: Tensor, right: Tensor) -> DecayCause:
        """By the gradient that the step used: it is still there afterwards, unless somebody has set it to None."""
        assert before.group is not None
        key = Key(GRADIENT, before.key.name)
        held = self._gradient(key)
        if held is not None and held.shape != left.shape:
            return DecayCause()
        momentum = self._momentum(before)
        try:
            return cause(left, right, held, before.group, momentum, self._trace(before))
        except (RuntimeError, TypeError, NotImplementedError):  # a kind of tensor that cannot be cut or converted
            return DecayCause()

    def _gradient(self, key: Key) -> Tensor | None:
        for side in self._slopes:
            entry = side.get(key)
            if entry is not None and entry.tensor is not None:
                return local(entry.tensor)
        return None

    def _trace(self, before: InventoryEntry) -> DecayTrace | None:
        """What the optimizer has noted of the gradient in this very step."""
        return self._state(before, kept(before.group or {}))

    def _state(self, before: InventoryEntry, name: str) -> DecayTrace | None:
        """What an optimizer keeps of a parameter under a name."""
        then, now = (states.get(f"{before.path}.{name}") for states in (self._buffers, self._buffers_after))
        if not name or now is None or now.tensor is None:
            return None
        return DecayTrace(name, None if then is None else then.part(), local(now.tensor))

    def _momentum(self, before: InventoryEntry) -> DecayTrace | None:
        """SGD's buffer, or Adam's average."""
        return self._state(before, "momentum_buffer") or self._state(before, "exp_avg")

    def _kept_gradients(self, rows: list[DifferenceRecord], pairs: list[tuple[InventoryEntry | None, InventoryEntry | None]]) -> bool:
        """Whether what moved has its gradient: else all were set to None, and who had none in the step is not known."""
        moved = [left for row, (left, _) in zip(rows, pairs, strict=True) if row.differs and left is not None and left.group is not None]
        return all(self._gradient(Key(GRADIENT, one.key.name)) is not None for one in moved)

    def _skipped_by_step(self, row: DifferenceRecord, before: InventoryEntry | None) -> DifferenceRecord:
        """Of a parameter without a gradient, a step does not even do the weight decay."""
        group = before.group if before is not None else None
        if group is None or row.status != "unchanged" or before is None or self._gradient(Key(GRADIENT, before.key.name)) is not None:
            return row
        return replace(row, notes=(*row.notes, Finding("skipped by the step", facts={"decay": bool(group.get("weight_decay"))})))

    def _alone(self, before: InventoryEntry | None, after: InventoryEntry | None) -> DifferenceRecord:
        """What only one side has."""
        entry = after or before
        assert entry is not None
        facts, text = entry.facts, _text(entry)
        notes: tuple[Finding, ...] = ()
        if entry.key.section == GRADIENT:
            notes = (Finding("was None" if after is not None else "is None"),)
        elif after is not None and after.tensor is not None and id(after.tensor) in self._objects_before:
            notes = (self._object(after.tensor),)
        side = "before" if after is None else "after"
        told: Told = {f"shape_{side}": facts.shape, f"dtype_{side}": facts.dtype, f"device_{side}": facts.device, f"value_{side}": text}
        status = "removed" if after is None else "added"
        return DifferenceRecord(
            entry.path, entry.owner, entry.kind, status, count=facts.count, owner_type=entry.owner_type, notes=notes, **told
        )

    def _object(self, tensor: Tensor) -> Finding:
        return Finding("object", facts={"was": self._objects_before[id(tensor)]})

    @cached_property
    def _objects_before(self) -> dict[int, str]:
        """The names before of tensor objects that still live; those of a snapshot if this is its model."""
        found: dict[int, str] = {}
        for entry in self.left.values():
            tensor = entry.tensor if self.live else entry.origin() if self.own and entry.origin is not None else None
            if tensor is not None and entry.key.section == STATE:
                found.setdefault(id(tensor), entry.path)
        return found

    def _same_object(self, before: InventoryEntry, after: InventoryEntry) -> bool | None:
        if self.live and before.tensor is not None and after.tensor is not None:
            return before.tensor is after.tensor
        for origin, now in ((before.origin, after.tensor), (after.origin, before.tensor)):
            if origin is not None and now is not None and self.own:
                return origin() is now
        return None

    def _shared(self, before: InventoryEntry, after: InventoryEntry) -> bool | None:
        if not self.live or before.tensor is None or after.tensor is None:
            return None
        return shares_memory(before.tensor, after.tensor)

    # ---- beside the rows ----

    def _swapped(
        self, rows: list[DifferenceRecord], pairs: list[tuple[InventoryEntry | None, InventoryEntry | None]]
    ) -> Iterator[DifferenceRecord]:
        """Tensors that hold, bit for bit, what another name held before: files whose layers are numbered otherwise."""
        changed = [
            (row, before, after)
            for row, (before, after) in zip(rows, pairs, strict=True)
            if before is not None and after is not None and row.differs and row.kind in TENSORS and row.status == "changed"
        ]
        sizes = Counter((before.facts.shape, before.facts.dtype) for _, before, _ in changed)
        changed = [one for one in changed if sizes[one[1].facts.shape, one[1].facts.dtype] > 1 and one[0].noted("object") is None]
        heads: dict[Any, list[InventoryEntry]] = {}
        for _, before, _ in changed:
            heads.setdefault((before.facts.shape, before.facts.dtype, renames.head(before)), []).append(before)
        held: dict[int, str] = {}
        for row, _, after in changed:
            head = renames.head(after)
            others = [] if head is None else heads.get((after.facts.shape, after.facts.dtype, head), [])
            found = next((one for one in others[:SWAPPED] if one.path != row.path and renames.alike(one, after)), None)
            if found is not None:
                held[id(row)] = found.path
        for row in rows:
            yield replace(row, notes=(Finding("held", facts={"was": held[id(row)]}), *row.notes)) if id(row) in held else row

    def _in_eval(self, rows: list[DifferenceRecord]) -> Iterator[DifferenceRecord]:
        """Where buffers changed and no parameter did, a forward pass moved them; which is a surprise of a module in evaluation mode."""
        was, now = self.before.modes or {}, self.after.modes or {}
        passed = self.own and not any(row.kind == "parameter" and row.status != "unchanged" for row in rows)
        for row in rows:
            moved = row.kind == "buffer" and row.status in ("changed", "reshaped")
            if passed and moved and was.get(row.owner) is False is now.get(row.owner):
                row = replace(row, notes=(*row.notes, Finding("in eval")))
            yield row

    def _flags(self, pairs: Iterable[tuple[InventoryEntry | None, InventoryEntry | None]]) -> Iterator[DifferenceRecord]:
        """Flags that are not as they were; those that are have no row."""
        if FLAG not in self.sections:
            return
        modes, now = self.before.modes or {}, self.after.modes or {}
        for path, mode in modes.items():
            if path in now and now[path] is not mode and repr(now[path]) != repr(mode):
                yield _flag(path, "training", repr(mode), repr(now[path]))
        for before, after in pairs:
            if before is None or after is None or not before.is_tensor or not after.is_tensor or after.kind not in _REGISTERED:
                continue
            was, is_now = before.facts.trainable, after.facts.trainable
            if was != is_now and before.kind == after.kind:
                in_graph = after.tensor is not None and not is_leaf(after.tensor)
                how = " (it has a grad_fn)" if in_graph else ""
                yield replace(_flag(after.path, "requires_grad", str(was), f"{is_now}{how}", after.owner), in_graph=in_graph)
            if before.saved != after.saved and before.kind == "buffer" == after.kind and not self._loose:
                yield _flag(after.path, "persistent", str(before.saved), str(after.saved), after.owner)
            if bool(before.tied) != bool(after.tied) and before.path == after.path:
                once, here = (f"to {entry.tied}" if entry.tied else UNTIED for entry in (before, after))
                yield _flag(after.path, "tied", once, here, after.owner)

    def _loading(self, renamings: list[Renaming]) -> Loading | None:
        """Between a model and weights: what loading them would do."""
        for model, given in ((self.before, self.after), (self.after, self.before)):
            if model.form == "module" and given.form in LOOSE and STATE in given.sections and given.format != "gguf":
                found = loading.predict(model.source, given, model)
                return loading.repaired(found, model.source, given, model, [one.code for one in renamings])
        return None

    def _skipped(self) -> Iterator[ComparedPart]:
        for one, other in ((self.before, self.after), (self.after, self.before)):
            if one.form in LOOSE and one.part:
                more = f"; it also holds {', '.join(one.others[:4])}" if one.others else ""
                yield ComparedPart(f"of {one.title}, only the part {one.part!r}{more}", compared=True)
            if other.form in LOOSE and one.form in ("module", "snapshot"):
                names = [e.path for e in one.entries if e.key.section == STATE and not e.saved]
                if names:
                    more = f" and {len(names) - 4:,} more" if len(names) > 4 else ""
                    yield ComparedPart(f"{', '.join(names[:4])}{more}")
            elif "snapshot" in (one.form, other.form):
                alone = [_NAMES[name] for name in sorted(one.sections - other.sections) if name in _NAMES]
                if alone:
                    yield ComparedPart(f"only one side has {' and '.join(alone)}")

    def _remarks(self) -> Iterator[str]:
        yield from dict.fromkeys([*self.before.remarks, *self.after.remarks])

    def _stepped(self, rows: list[DifferenceRecord]) -> bool:
        """Whether a step was made: of one model, weights and what is kept of them changed, and no count of steps went back."""
        ends = [side.source if side.model is None else side.model() for side in (self.before, self.after)]
        moved = any(row.kind == "parameter" and row.differs for row in rows)
        kept = any(row.kind == "optimizer state" and row.status in ("changed", "added") for row in rows)
        return ends[0] is not None and ends[0] is ends[1] and moved and kept and not self._went_back()

    def _went_back(self) -> bool:
        """Whether an older state was loaded."""
        counts = [
            (e, self._buffers_after[path]) for path, e in self._buffers.items() if path.endswith(".step") and path in self._buffers_after
        ]
        return any(_count(was) > _count(now) for was, now in counts)


def _placed(row: DifferenceRecord) -> DifferenceRecord:
    """Its notes say what they are about."""
    return replace(row, notes=tuple(replace(note, path=row.path) for note in row.notes)) if row.notes else row


def _count(entry: InventoryEntry) -> float:
    """The number of steps that an optimizer has made."""
    try:
        return float(_text(entry)) if entry.tensor is None else number_of(entry.tensor)
    except (ValueError, RuntimeError):
        return math.nan  # a fingerprint, or something else of this name


def _facts(before: InventoryEntry, after: InventoryEntry) -> Told:
    """A row without a verdict."""
    named = before if before.key.section == OPTIMIZER and before.owner and not after.owner else after
    was, now = before.facts, after.facts
    return {
        "path": named.path,
        "owner": named.owner,
        "status": "unchanged",
        "count": now.count,
        "notes": (),
        "kind": after.kind if after.kind not in ("tensor", "value", "reserved") else before.kind,
        "shape_before": was.shape,
        "shape_after": now.shape,
        "dtype_before": was.dtype,
        "dtype_after": now.dtype,
        "device_before": was.device,
        "device_after": now.device,
        "value_before": _text(before),
        "value_after": _text(after),
        "renamed_from": before.path if before.key.section == STATE and before.key != after.key else "",
        "owner_type": after.owner_type or before.owner_type,
        "tied": after.tied if before.tied == after.tied else "",
        "sharding_before": was.sharding,
        "sharding_after": now.sharding,
    }


def _identity(told: Told) -> tuple[Finding, ...]:
    """Whether it is the object that it was: said of what was moved, and of what might be taken for the old one."""
    if told["same_object"] is False and told["status"] in ("unchanged", "changed", "retyped", "moved"):
        return (Finding("another object"),)
    return (Finding("same object"),) if told["same_object"] and told["status"] in ("retyped", "moved") else ()


def _text(entry: InventoryEntry) -> str:
    return entry.plain.text if entry.plain is not None else ""


def _refused(why: str, **facts: Fact) -> Told:
    return {"status": "not compared", "notes": (Finding("not compared", facts={"why": why, **facts}),)}


def _plain(before: InventoryEntry, after: InventoryEntry) -> Told:
    if before.plain is None or after.plain is None:  # reserved on both sides, or not looked at
        known = before.plain is after.plain is None and before.kind == after.kind == "reserved"
        return {} if known else _refused("not looked at")
    if before.plain.digest is None or after.plain.digest is None:
        return _refused("unreadable", type=after.plain.text)
    differs = before.plain.digest != after.plain.digest
    return {"status": "changed" if differs else "unchanged", "differs": differs}


def _filled(before: InventoryEntry, after: InventoryEntry) -> Told:
    """A tensor where there was None, or the other way round."""
    if not after.is_tensor:
        now = Finding("is reserved") if after.kind == "reserved" else Finding("is no tensor", facts={"value": _text(after)})
        return {"status": "removed", "kind": before.kind, "count": before.facts.count, "notes": (now,)}
    was = Finding("was reserved") if before.kind == "reserved" else Finding("was no tensor", facts={"value": _text(before)})
    if before.kind == "reserved" and after.kind in _REGISTERED and after.kind != before.reserved_for:
        was = _became(f"reserved {before.reserved_for}", after.kind)
    return {"status": "added", "kind": after.kind, "notes": (was,)}


def _reshaped(before: InventoryEntry, after: InventoryEntry) -> tuple[Finding, ...]:
    """What became of the values, as far as both sides have them."""
    if before.facts.shape is None:
        return (Finding("was lazy"),)
    try:
        left, right = before.read(), after.read()
        alike = likeness(left, right) if left is not None and right is not None else None
    except Exception:  # noqa: BLE001 - a damaged file, or a kind of tensor that has no rows
        return ()
    return (alike,) if alike is not None else ()


def _judge(told: Told, found: TensorDifference, before: InventoryEntry, after: InventoryEntry) -> None:
    """The status, by what matters most; and the numbers."""
    turned = _turned(before, after)
    retyped = before.facts.dtype != after.facts.dtype or (turned is not None and "attribute" not in (before.kind, after.kind))
    if told.get("differs") is None and found.compared:
        told["differs"] = bool(found.changed)
    if told["renamed_from"]:
        status = "renamed"
    elif retyped:
        status = "retyped"
    elif _resharded(before, after):
        status = "resharded"
    elif told.get("differs"):
        status = "changed"
    elif before.facts.device != after.facts.device:
        status = "moved"
    else:
        status = "unchanged" if found.compared else "not compared"
    notes = [found.note, turned]
    if found.rewritten and not found.changed:
        notes.append(Finding("other bits", facts={"count": found.rewritten}))
    if told.get("differs") and (told["renamed_from"] or status == "resharded"):
        notes.append(Finding("values too"))
    told.update(status=status, notes=tuple(filter(None, notes)))
    if found.compared:
        finite = bool(found.distance) or not (found.changed and any((*found.nan, *found.inf)))
        told.update(
            max_abs=found.max_abs if finite else math.inf,
            relative_l2=found.relative if finite else None,
            changed=found.changed,
            nan_before=found.nan[0],
            nan_after=found.nan[1],
            inf_before=found.inf[0],
            inf_after=found.inf[1],
        )


def _is_whole(lies: Sharding | None) -> bool:
    return lies is None or lies.whole


def _resharded(before: InventoryEntry, after: InventoryEntry) -> bool:
    """Whether a model's tensor lies otherwise over the ranks than before; a file and a state_dict have it as they were made."""
    was, now = before.facts.sharding, after.facts.sharding
    return not ("tensor" in (before.kind, after.kind) or (was is None and now is None) or same_parts(was, now))


def _beside(was: Sharding | None, now: Sharding | None, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor, bool] | str:
    """What can be compared without asking a rank, and whether that is this rank's part alone; or why nothing can, as in `refuse`."""
    left, right = local(left), local(right)
    if same_parts(was, now):
        return left, right, not _is_whole(now)
    if _is_whole(was) and _is_whole(now):
        return left, right, False
    if not _is_whole(was) and not _is_whole(now):
        return "other parts"
    lies = now if _is_whole(was) else was
    assert lies is not None
    try:
        cut = part_of(left if lies is now else right, lies)
    except (RuntimeError, NotImplementedError, TypeError, IndexError):  # a kind of tensor that cannot be cut
        cut = None
    if cut is None:
        return "unknown part"
    return (cut, right, True) if lies is now else (left, cut, True)


def _turned(before: InventoryEntry, after: InventoryEntry) -> Finding | None:
    """What it is now, if it was something else: a buffer that became a parameter, a sparse tensor."""
    if before.kind != after.kind and {before.kind, after.kind} <= {*_REGISTERED, "attribute"}:
        return _became(before.kind, after.kind, left_out=before.saved and not after.saved)
    was, now = before.facts.note, after.facts.note
    if was != now and {was, now} & {"sparse_coo", "sparse_csr", "quantized"}:
        return _became(was or "strided", now or "strided")
    return None


def _became(was: str, now: str, left_out: bool = False) -> Finding:
    return Finding("became", facts={"was": was, "now": now, "left_out": left_out})


def _absent(found: TensorDifference, before: InventoryEntry, after: InventoryEntry) -> TensorDifference:
    """There are no values."""
    for entry in (after, before):
        if entry.tensor is None and entry.load is None:
            what = "meta" if entry.facts.device == "meta" else entry.facts.note
            return found.refuse("absent", what=what) if what else found.refuse("not copied")
    return found.refuse("no values")


def _flag(path: str, name: str, before: str, after: str, owner: str | None = None) -> DifferenceRecord:
    here = f"{path}.{name}" if path else name
    return DifferenceRecord(here, path if owner is None else owner, "flag", "changed", value_before=before, value_after=after)
