"""Two inventories → what differs: names are matched first, then values are compared one pair at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from torch import Tensor

from modlab.compat import without_modes, without_torch_function
from modlab.inspection import loading, renames, weights
from modlab.inspection.bits import fingerprint
from modlab.inspection.contrast import Contrast, contrast
from modlab.inspection.decay import Cause, cause
from modlab.inspection.inventory import FLAG, GRADIENT, OPTIMIZER, RNG, STATE, Entry, Inventory, Key
from modlab.inspection.storage import shares_memory
from modlab.records.difference import DifferenceRecord, DiffRecord, Loading, Renaming
from modlab.statistics.contents import NoValuesError

LOOSE = ("mapping", "file")
_NAMES = {GRADIENT: "gradients", OPTIMIZER: "the optimizer", RNG: "random generators", FLAG: "training flags"}


def compare(before: Inventory, after: Inventory) -> DiffRecord:
    """Compare two sides. Of files, one tensor of each is in memory at a time."""
    same = before.source is not None and before.source is after.source
    _align(before, after)
    return Comparison(before, after).record(same)


def _align(before: Inventory, after: Inventory) -> None:
    """Of a training checkpoint, compare the part that holds what the other side has."""
    for one, other in ((before, after), (after, before)):
        if one.form in LOOSE and not (other.form in LOOSE and other.others):
            weights.choose(one, {entry.path for entry in other.entries if entry.key.section == STATE and entry.is_tensor})


class Comparison:
    """One comparison in progress."""

    def __init__(self, before: Inventory, after: Inventory) -> None:
        self.before, self.after = before, after
        self.sections = before.sections & after.sections
        if "snapshot" not in (before.form, after.form):
            self.sections.discard(RNG)  # of two live models it is the same one
        self.live = before.form not in ("snapshot", "file") and after.form not in ("snapshot", "file")
        self.left, self.right = self._side(before, after), self._side(after, before)
        self._known: dict[tuple[int, int], Contrast] = {}
        self.digests = False
        self._slopes = tuple({e.key: e for e in side.entries if e.key.section == GRADIENT} for side in (after, before))
        self._buffers = {e.path: e for e in before.entries if e.kind == "optimizer state"}

    def _side(self, one: Inventory, other: Inventory) -> dict[Key, Entry]:
        """What can be compared: beside a state_dict, of a model only what would be in one."""
        loose = other.form in LOOSE
        return {
            e.key: e for e in one.entries if e.key.section in self.sections and (not loose or e.saved or e.key.section != STATE)
        }  # fmt: skip

    def record(self, same: bool) -> DiffRecord:
        """The whole comparison."""
        pairs, renamings = self._pairs()
        with without_torch_function(), without_modes():
            rows = [self._row(left, right) for left, right in pairs]
        if self._stepped(rows):
            rows = [self._skipped_by_step(row, left) for row, (left, _) in zip(rows, pairs, strict=True)]
        flags = list(self._flags(pairs))
        return DiffRecord(
            self.before.title, self.after.title, self.before.form, self.after.form, (*rows, *flags), same, self.live, self.digests,
            tuple(renamings), self._loading(), tuple(self._skipped()), tuple(self._remarks()), self._stepped(rows),
        )  # fmt: skip

    # ---- who stands beside whom ----

    def _pairs(self) -> tuple[list[tuple[Entry | None, Entry | None]], list[Renaming]]:
        """Pairs in the order of the side after; what was removed stands at the end."""
        lost = [e for key, e in self.left.items() if key not in self.right]
        gained = [e for key, e in self.right.items() if key not in self.left]
        found, renamings = self._renamed(lost, gained)
        old = {after.key: before for before, after in found}
        gone = {before.key for before, _ in found}
        pairs: list[tuple[Entry | None, Entry | None]] = [(old.get(key, self.left.get(key)), e) for key, e in self.right.items()]
        return pairs + [(e, None) for e in lost if e.key not in gone], renamings

    def _renamed(self, lost: list[Entry], gained: list[Entry]) -> tuple[list[renames.Pair], list[Renaming]]:
        ours, theirs = ([e for e in side if e.key.section == STATE and e.is_tensor] for side in (lost, gained))
        if not (ours and theirs):
            return [], []
        backwards = self.after.form in LOOSE and self.before.form not in LOOSE  # the weights are renamed, and not the model
        kept = [key.name for key in self.left if key in self.right and key.section == STATE]
        if backwards:
            found, renamings = renames.match(theirs, ours, kept, "state_dict")
            return [(b, a) for a, b in found], renamings
        return renames.match(ours, theirs, kept, "state_dict")

    # ---- one row ----

    def _row(self, before: Entry | None, after: Entry | None) -> DifferenceRecord:
        entry = after or before
        assert entry is not None
        if before is None or after is None:
            return _alone(before, after)
        row = _facts(before, after)
        if not (before.is_tensor or after.is_tensor):
            return self._plain_row(row, before, after)
        if not before.is_tensor or not after.is_tensor:
            return _filled(row, before, after)
        row = replace(row, same_object=self._same_object(before, after), shares_memory=self._shared(before, after))
        if row.shape_before != row.shape_after:
            return replace(row, status="reshaped")
        return self._values(row, before, after)

    def _plain_row(self, row: DifferenceRecord, before: Entry, after: Entry) -> DifferenceRecord:
        if before.plain is None or after.plain is None:  # reserved on both sides, or not looked at
            return replace(row, status="unchanged")
        if before.plain.digest is None or after.plain.digest is None:
            return replace(row, status="unchanged", note=f"not compared: a {after.plain.text} cannot be")
        return replace(row, status="unchanged" if before.plain.digest == after.plain.digest else "changed")

    def _values(self, row: DifferenceRecord, before: Entry, after: Entry) -> DifferenceRecord:
        try:
            left, right = before.read(), after.read()
        except Exception as error:  # noqa: BLE001 - a damaged file: that is said, and the rest compared
            return self._judged(row, Contrast().refuse(f"not compared: {str(error).partition(chr(10))[0]}"), before, after)
        if before.digest is not None or after.digest is not None:
            return self._by_digest(row, before, after, left, right)
        if left is None or right is None:
            return self._judged(row, Contrast().refuse(_why_not(before, after)), before, after)
        key = (id(left), id(right))
        tied = before.load is None and after.load is None and bool(before.tied or after.tied)
        found = self._known.get(key) if tied else None
        if found is None:
            found = contrast(left, right)
            if before.load is None and after.load is None:
                self._known[key] = found
        row = self._judged(row, found, before, after)
        if row.status == "changed" and row.kind == "parameter" and before.group is not None:
            why = self._cause(before, after, left, right)
            row = replace(row, decayed=why.decayed, note="; ".join(filter(None, [row.note, why.note])))
        return row

    def _by_digest(self, row: DifferenceRecord, before: Entry, after: Entry, left: Tensor | None, right: Tensor | None) -> DifferenceRecord:
        self.digests = True
        found = Contrast()
        try:
            ours, theirs = (
                before.digest or (fingerprint(left) if left is not None else None),
                after.digest or (fingerprint(right) if right is not None else None),
            )
        except NoValuesError as reason:
            return self._judged(row, found.refuse(f"not compared: {reason}"), before, after)
        if ours is None or theirs is None:
            return self._judged(row, found.refuse(_why_not(before, after)), before, after)
        if row.dtype_before != row.dtype_after:
            return self._judged(row, found.refuse("not compared: a fingerprint tells only values of one dtype"), before, after)
        if ours == theirs:
            return self._judged(row, found, before, after)
        return replace(self._judged(row, found.refuse(""), before, after), status="renamed" if row.renamed_from else "changed")

    def _judged(self, row: DifferenceRecord, found: Contrast, before: Entry, after: Entry) -> DifferenceRecord:
        """The status, by what matters most."""
        notes = [found.note]
        kinds = {"parameter", "buffer"}
        if before.kind != after.kind and {before.kind, after.kind} <= kinds:
            notes.append(f"was a {before.kind}, is a {after.kind}")
        if before.facts.note != after.facts.note and {before.facts.note, after.facts.note} & {"sparse_coo", "sparse_csr", "quantized"}:
            notes.append(f"was {before.facts.note or 'strided'}, is {after.facts.note or 'strided'}")
        retyped = row.dtype_before != row.dtype_after or len(notes) > 1
        if row.renamed_from:
            status = "renamed"
        elif retyped:
            status = "retyped"
        elif found.changed:
            status = "changed"
        else:
            status = "moved" if row.device_before != row.device_after else "unchanged"
        if found.rewritten and not found.changed:
            notes.append(f"{found.rewritten:,} in other bits of the same value (a sign of zero, or a NaN)")
        row = replace(row, status=status, note="; ".join(filter(None, notes)))
        if not found.compared:
            return row
        return replace(
            row, max_abs=found.max_abs, relative_l2=found.relative, changed=found.changed,
            nan_before=found.nan[0], nan_after=found.nan[1], inf_before=found.inf[0], inf_after=found.inf[1],
        )  # fmt: skip

    def _cause(self, before: Entry, after: Entry, left: Tensor, right: Tensor) -> Cause:
        """By the gradient that the step used: it is still there afterwards, unless somebody has set it to None."""
        assert before.group is not None
        key = Key(GRADIENT, before.key.name)
        held = self._gradient(key)
        if held is not None and held.shape != left.shape:
            return Cause()
        momentum = self._momentum(before)
        try:
            return cause(left, right, held, before.group, momentum)
        except (RuntimeError, TypeError, NotImplementedError):  # a kind of tensor that cannot be cut or converted
            return Cause()

    def _gradient(self, key: Key) -> Tensor | None:
        for side in self._slopes:
            entry = side.get(key)
            if entry is not None and entry.tensor is not None:
                return entry.tensor
        return None

    def _momentum(self, before: Entry) -> Tensor | None:
        entry = self._buffers.get(f"{before.path}.momentum_buffer")
        return entry.tensor if entry is not None else None

    def _skipped_by_step(self, row: DifferenceRecord, before: Entry | None) -> DifferenceRecord:
        """Of a parameter without a gradient, a step does not even do the weight decay."""
        group = before.group if before is not None else None
        if group is None or row.status != "unchanged" or before is None or self._gradient(Key(GRADIENT, before.key.name)) is not None:
            return row
        decay = ", weight decay included" if group.get("weight_decay") else ""
        return replace(row, note="; ".join(filter(None, [row.note, f"no gradient: the step skips it{decay}"])))

    def _same_object(self, before: Entry, after: Entry) -> bool | None:
        if self.live and before.tensor is not None and after.tensor is not None:
            return before.tensor is after.tensor
        for origin, now in ((before.origin, after.tensor), (after.origin, before.tensor)):
            if origin is not None and now is not None and {self.before.form, self.after.form} == {"snapshot", "module"}:
                return origin() is now
        return None

    def _shared(self, before: Entry, after: Entry) -> bool | None:
        if not self.live or before.tensor is None or after.tensor is None:
            return None
        return shares_memory(before.tensor, after.tensor)

    # ---- beside the rows ----

    def _flags(self, pairs: Iterable[tuple[Entry | None, Entry | None]]) -> Iterator[DifferenceRecord]:
        """Flags that are not as they were; those that are have no row."""
        if FLAG not in self.sections:
            return
        modes, now = self.before.modes or {}, self.after.modes or {}
        for path, mode in modes.items():
            if path in now and now[path] is not mode and repr(now[path]) != repr(mode):
                yield _flag(path, "training", repr(mode), repr(now[path]))
        for before, after in pairs:
            if before is not None and after is not None and before.kind == "parameter" == after.kind:
                was, is_now = before.facts.trainable, after.facts.trainable
                if was != is_now:
                    yield _flag(after.path, "requires_grad", str(was), str(is_now), after.owner)

    def _loading(self) -> Loading | None:
        """Between a model and weights: what loading them would do."""
        for model, given in ((self.before, self.after), (self.after, self.before)):
            if model.form == "module" and given.form in LOOSE and STATE in given.sections:
                return loading.predict(model.source, given, model)
        return None

    def _skipped(self) -> Iterator[str]:
        for one, other in ((self.before, self.after), (self.after, self.before)):
            if one.form in LOOSE and one.part:
                more = f"; it also holds {', '.join(one.others[:4])}" if one.others else ""
                yield f"of {one.title}, what stands under {one.part!r}{more}"
            if other.form in LOOSE and one.form in ("module", "snapshot"):
                names = [e.path for e in one.entries if e.key.section == STATE and not e.saved]
                if names:
                    more = f" and {len(names) - 4:,} more" if len(names) > 4 else ""
                    yield f"not in a state_dict, so not compared: {', '.join(names[:4])}{more}"
            elif "snapshot" in (one.form, other.form):
                alone = [_NAMES[name] for name in sorted(one.sections - other.sections) if name in _NAMES]
                if alone:
                    yield f"only one side has {' and '.join(alone)}"

    def _remarks(self) -> Iterator[str]:
        yield from dict.fromkeys([*self.before.remarks, *self.after.remarks])

    def _stepped(self, rows: list[DifferenceRecord]) -> bool:
        return any(row.kind == "optimizer state" and row.status in ("changed", "added") for row in rows)


def _facts(before: Entry, after: Entry) -> DifferenceRecord:
    """A row without a verdict."""
    named = before if before.key.section == OPTIMIZER and before.owner and not after.owner else after
    kind = after.kind if after.kind not in ("tensor", "value", "reserved") else before.kind
    renamed = before.path if before.key.section == STATE and before.key != after.key else ""
    return DifferenceRecord(
        named.path, named.owner, kind, "unchanged", count=after.facts.count,
        shape_before=before.facts.shape, shape_after=after.facts.shape, dtype_before=before.facts.dtype, dtype_after=after.facts.dtype,
        device_before=before.facts.device, device_after=after.facts.device,
        value_before=_text(before), value_after=_text(after), renamed_from=renamed,
        owner_type=after.owner_type or before.owner_type,
    )  # fmt: skip


def _text(entry: Entry) -> str:
    return entry.plain.text if entry.plain is not None else ""


def _alone(before: Entry | None, after: Entry | None) -> DifferenceRecord:
    entry = after or before
    assert entry is not None
    status = "added" if after is not None else "removed"
    note = ""
    if entry.key.section == GRADIENT:
        note = "was None" if after is not None else "is None now"
    row = DifferenceRecord(entry.path, entry.owner, entry.kind, status, count=entry.facts.count, owner_type=entry.owner_type, note=note)
    facts, text = entry.facts, _text(entry)
    if after is not None:
        return replace(row, shape_after=facts.shape, dtype_after=facts.dtype, device_after=facts.device, value_after=text)
    return replace(row, shape_before=facts.shape, dtype_before=facts.dtype, device_before=facts.device, value_before=text)


def _filled(row: DifferenceRecord, before: Entry, after: Entry) -> DifferenceRecord:
    """A tensor where there was None, or the other way round."""
    if after.is_tensor:
        was = "was reserved: None" if before.kind == "reserved" else f"was no tensor: {_text(before)}"
        return replace(row, status="added", kind=after.kind, note=was)
    note = "is None now: reserved" if after.kind == "reserved" else f"is no tensor now: {_text(after)}"
    return replace(row, status="removed", kind=before.kind, count=before.facts.count, note=note)


def _why_not(before: Entry, after: Entry) -> str:
    """Why there are no values."""
    for entry in (after, before):
        if entry.tensor is None and entry.load is None:
            facts = entry.facts
            reason = "meta" if facts.device == "meta" else facts.note or "no copy could be made"
            return f"no values to compare: {reason}"
    return "no values to compare"


def _flag(path: str, name: str, before: str, after: str, owner: str | None = None) -> DifferenceRecord:
    here = f"{path}.{name}" if path else name
    return DifferenceRecord(here, path if owner is None else owner, "flag", "changed", value_before=before, value_after=after)
