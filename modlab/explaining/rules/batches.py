"""Batches that a DataLoader cannot make of its samples: sizes, kinds and keys that differ; None; what is not a tensor."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from modlab.explaining.failure import Cause, Failure, Rule, shape_of, shown, tuple_of
from modlab.explaining.workers import Told
from modlab.records.explanation import Fix

_COLOURS = (1, 3, 4)
_INTO_PARTS = ("{", "key: collate(", "[d[key]", "collate(samples", "clone[i] = collate", "*(", "[")  # lines that go into a sample
_MENDED = "Make them equal in the dataset (crop, resize), or pad each batch:"
PAD = """def pad(batch):
    first = batch[0]
    if isinstance(first, dict):
        return {key: pad([sample[key] for sample in batch]) for key in first}
    if isinstance(first, tuple):
        return [pad(part) for part in zip(*batch)]
    if isinstance(first, torch.Tensor):
        sizes = [max(size) for size in zip(*(one.shape for one in batch))]
        missing = [[n for most, size in zip(sizes[::-1], one.shape[::-1]) for n in (0, most - size)] for one in batch]
        batch = [torch.nn.functional.pad(one, more) for one, more in zip(batch, missing)]
    return torch.utils.data.default_collate(list(batch))
DataLoader(..., collate_fn=pad)"""
_LISTS = PAD.replace(
    "    if isinstance(first, torch.Tensor):",
    "    if isinstance(first, (list, torch.Tensor)):\n        batch = [torch.as_tensor(one) for one in batch]",
)
_WITHOUT = """def given(batch):
    return torch.utils.data.default_collate([sample for sample in batch if sample is not None])
DataLoader(..., collate_fn=given)"""
_AS_THEY_ARE = Fix("Let the dataset return a number or a tensor there, or keep the samples in a list:", "DataLoader(..., collate_fn=list)")


class Making(NamedTuple):
    """What is known of a batch that was being made.

    Attributes:
        batch: the samples; None where it happened in another process.
        part: where in a sample it happened: ``['ids']``; "" for the sample itself.
        nested: whether it is a part of a sample.
        values: what the samples hold there, where that is seen.
        taker: what takes a function that makes batches, and by which name.
    """

    batch: Any
    part: str
    nested: bool
    values: Any = None
    taker: str = "DataLoader(..., collate_fn="

    @property
    def who(self) -> str:
        """Who makes the batch."""
        return "The DataLoader" if "DataLoader" in self.taker else "Trainer"

    def sample(self, number: int) -> str:
        """How a sentence calls what one sample holds there."""
        return f"sample {number}{self.part}" if self.part or not self.nested else f"a part of sample {number}"


def making(failure: Failure) -> Making | None:
    """The batch that torch's default_collate was making when an error was raised; None if it was not."""
    if failure.told is not None:
        return _making_told(failure.told)
    named = next((frame for frame in failure.frames if frame.function == "torch_default_data_collator"), None)
    if named is not None and type(named.names.get("features")) is list and type(named.names.get("k")) is str:  # of transformers
        features, key = named.names["features"], named.names["k"]
        return Making(features, f"[{key!r}]", True, [one.get(key) for one in features if type(one) is dict], "Trainer(..., data_collator=")
    found = [frame for frame in failure.frames if frame.is_torch and _is_collate(frame.code.co_filename)]
    if not found or (failure.user is not None and failure.frames.index(failure.user) > failure.frames.index(found[-1])):
        return None
    batches = [frame.names["batch"] for frame in found if type(frame.names.get("batch")) in (list, tuple)]
    if not batches:
        return None
    part = _part(batches[0], batches[-1], 4)
    return Making(batches[0], part or "", part != "", batches[-1])


def _making_told(told: Told) -> Making | None:
    """The same of another process, of which the lines of default_collate are known, and no sample."""
    behind = told.frames[told.frames.index(told.own) + 1 :] if told.own is not None else told.frames
    lines = [frame.source for frame in behind if _is_collate(frame.file)]
    return Making(None, "", any(line.startswith(_INTO_PARTS) for line in lines)) if lines else None


def _is_collate(file: str) -> bool:
    return file.replace("\\", "/").endswith("data/_utils/collate.py")


def _part(batch: Any, wanted: Any, depth: int) -> str | None:
    """Where in the samples of a batch the same values stand: ``['ids']``; None where that is not found."""
    if _same(batch, wanted):
        return ""
    first: Any = batch[0] if type(batch) in (list, tuple) and batch else None
    if depth == 0 or type(first) not in (dict, list, tuple):
        return None
    for key in list(first) if type(first) is dict else range(len(first)):
        try:
            values = [sample[key] for sample in batch if type(sample) is type(first)]
        except (KeyError, IndexError):
            continue
        found = _part(values, wanted, depth - 1)
        if found is not None:
            return f"[{key!r}]{found}"
    return None


def _same(one: Any, other: Any) -> bool:
    return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))


# ---- sizes -------------------------------------------------------------------------------------------------------------------


def unequal(failure: Failure, first: tuple[int, ...], number: int, other: tuple[int, ...]) -> Cause | None:
    """Samples of unequal size; None where no batch was being made."""
    made = making(failure)
    if made is None:
        return None
    return Cause(
        f"{made.who} cannot make a batch: {made.sample(0)} is {first}, {made.sample(number)} is {other}.",
        f"{'Its collator' if made.who == 'Trainer' else 'default_collate'} stacks samples, so they must have equal sizes.",
        f"{shown(first)} ≠ {shown(other)}",
        ((made.sample(0), str(first)), (made.sample(number), str(other))),
        _padded(made, first, other),
    )


def _padded(made: Making, first: tuple[int, ...], other: tuple[int, ...]) -> tuple[Fix, ...]:
    """A ``collate_fn`` that pads, for samples of a kind that it does for."""
    if len(first) != len(other):
        return (Fix("Give them equal shapes in the dataset; they differ in number of dimensions."),)
    colours = len(first) == 3 and first[0] != other[0] and {first[0], other[0]} <= {*_COLOURS}
    if colours:
        return (Fix("If these are the channels of pictures, read all in one mode, in the dataset: Image.open(path).convert('RGB')."),)
    if made.who == "Trainer":
        more = Fix(
            "For the tokens of a tokenizer there is a ready-made one: data_collator=DataCollatorWithPadding(tokenizer), or "
            "DataCollatorForTokenClassification if each token has a label."
        )
        return (Fix(_MENDED, PAD.replace("DataLoader(..., collate_fn=", made.taker)), more)
    code, one = "nn.utils.rnn.pad_sequence({}, batch_first=True)", made.batch[0] if made.batch else None
    if first[1:] != other[1:]:
        code = ""
    elif type(one) is tuple and len(one) == 2 and shape_of(one[0]) and type(one[1]) in (int, float):
        code = f"({code.format('[x for x, _ in batch]')}, torch.tensor([y for _, y in batch]))"
    else:
        code = "" if made.nested else code.format("batch")
    return (Fix(_MENDED, f"DataLoader(..., collate_fn=lambda batch: {code})" if code else PAD),)


def _no_room(failure: Failure, _: re.Match[str]) -> Cause | None:
    """A worker makes room for as many numbers as all samples have; where the first one is larger than the others, that is too little."""
    made = making(failure)
    if made is None or failure.told is None:
        return None
    where = " in one of their parts" if made.nested else ""
    return Cause(
        f"The DataLoader cannot make a batch: its samples differ in size{where}, and the first one is larger than the others.",
        "default_collate stacks samples, so they must have equal sizes.",
        "samples differ in size",
        (),
        (Fix(f"{_MENDED[:-1]} (pictures with other channels need .convert('RGB') instead):", PAD),),
        ("The message does not give the sizes; num_workers=0 shows them.",),
    )


def _lists(failure: Failure, _: re.Match[str]) -> Cause | None:
    made = making(failure)
    if made is None:
        return None
    told, sizes = "its samples hold lists of unequal length.", list[int]()
    values: Any = made.values if type(made.values) in (list, tuple) else ()
    if values and all(type(one) in (list, tuple) for one in values):
        sizes = [len(one) for one in values]
        number = next((i for i, size in enumerate(sizes) if size != sizes[0]), 0)
        told = f"{made.sample(0)} has {sizes[0]} members, {made.sample(number)} has {sizes[number]}."
    return Cause(
        f"The DataLoader cannot make a batch: {told}",
        "default_collate joins lists member by member, so they must have equal length.",
        "lists of unequal length",
        (),
        (Fix("If they hold numbers, turn them into tensors and pad each batch:", _LISTS),),
    )


# ---- kinds -------------------------------------------------------------------------------------------------------------------


def _not_collated(failure: Failure, match: re.Match[str]) -> Cause:
    kind = match[1].rpartition(".")[2]
    what = "None" if kind == "NoneType" else f"an {kind}" if kind[0] in "aeiouAEIOU" else f"a {kind}"
    return Cause(
        f"The DataLoader cannot make a batch: the dataset returns {what}.",
        "default_collate joins tensors, arrays, numbers and strings, also in tuples and dicts.",
        f"{what} in a sample",
        (("given", what),),
        (_AS_THEY_ARE,),
    )


def _no_sample(failure: Failure, _: re.Match[str]) -> Cause | None:
    """The first sample is a tensor, and another one is None."""
    made = making(failure)
    if made is None:
        return None
    numbers = [i for i, one in enumerate(made.values or ()) if one is None]
    which = f"{made.sample(numbers[0])} is None" if numbers else f"one of its samples {'holds' if made.nested else 'is'} None"
    fix = (Fix("Leave out the samples that are None:", _WITHOUT),)
    if made.nested:
        fix = (Fix("Give a tensor there in every sample, or leave it out of every sample."),)
    return Cause(
        f"The DataLoader cannot make a batch: {which}.",
        "A __getitem__ without a return, or with one only in some cases, returns None.",
        "None in a batch",
        (),
        fix,
    )


def _no_key(failure: Failure, _: re.Match[str]) -> Cause | None:
    """Dicts of one batch with other keys than the first."""
    made = making(failure)
    args = (failure.told.error if failure.told is not None else failure.error).args
    key = args[0] if args and type(args[0]) in (str, int) else None
    if made is None or key is None:
        return None
    lacking = [i for i, one in enumerate(made.batch or ()) if type(one) is dict and key not in one]
    which = f"sample {lacking[0]} does not" if lacking else "another in the batch does not"
    return Cause(
        f"The DataLoader cannot make a batch: sample 0 has the key {key!r}, {which}.",
        "default_collate joins dicts key by key, using the keys of the first.",
        f"no {key!r}",
        (("key", repr(key)),),
        (Fix("Let the dataset give the same keys in every sample."),),
    )


def _needs_gradient(failure: Failure, _: re.Match[str]) -> Cause | None:
    if making(failure) is None:
        return None
    return Cause(
        "The DataLoader cannot make a batch in a worker: a tensor of a sample requires a gradient.",
        "A graph cannot be passed between processes.",
        "requires grad",
        (),
        (Fix("Let the dataset compute it without a graph:", "return x.detach()"),),
    )


def _other(failure: Failure, _: re.Match[str]) -> Cause | None:
    """Whatever else fails while a batch is made."""
    made = making(failure)
    if made is None or not failure.words:
        return None
    kinds = sorted({type(one).__name__ for one in made.values}) if made.values else []
    mixed = f" Its samples are of different kinds here: {', '.join(kinds)}." if len(kinds) > 1 else ""
    return Cause(
        "The DataLoader cannot make a batch: default_collate could not join its samples.",
        f"It says: {failure.words}{mixed}",
        "",
        (),
        (_AS_THEY_ARE,),
    )


_S = r"\[([\d, ]*)\]"


def _stack(failure: Failure, match: re.Match[str]) -> Cause | None:
    return unequal(failure, tuple_of(match[1]), int(match[3]), tuple_of(match[2]))


_R, _T = (RuntimeError,), (TypeError,)
RULES = (
    Rule("join", _R, rf"stack expects each tensor to be equal size, but got {_S} at entry 0 and {_S} at entry (\d+)", _stack),
    Rule("batch", _R, r"^Trying to resize storage that is not resizable", _no_room),
    Rule("batch", _R, r"^each element in list of batch should be of equal size", _lists),
    Rule("batch", _T, r"^default_collate: batch must contain tensors.*found (?:<class ')?([\w.]+)", _not_collated),
    Rule("batch", (AttributeError, TypeError), r"^'NoneType' object has no attribute 'numel'|but got NoneType", _no_sample),
    Rule("batch", (KeyError,), r"", _no_key),
    Rule("batch", _R, r"^stack\(\): functions with out=.*requires grad", _needs_gradient),
)
OTHERS = (Rule("batch", (Exception,), r"", _other),)
"""Asked last."""
