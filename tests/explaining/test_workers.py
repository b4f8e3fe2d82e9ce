"""Errors of a DataLoader, in its workers and without them: what is said of the original, its place, and that what is offered runs."""

import json
import re
import traceback

import pytest
import torch

import modlab
from modlab.explaining import workers
from tests.explaining.test_provenance import Program, explained

DATA = """
from torch.utils.data import Dataset, DataLoader
class Data(Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, i):
        BODY
loader = DataLoader(Data(), batch_size=2, num_workers=WORKERS)
for batch in loader:
    pass
"""
LOOP = "for batch in loader:"


def explanation(found):
    """Of a program; then what its traceback holds is let go: for a loader in a circle of garbage torch waits 5 seconds."""
    try:
        found.run()
    except Exception as error:  # noqa: BLE001
        result = modlab.explain(error)
        traceback.clear_frames(error.__traceback__)
        return result
    raise AssertionError("it did not fail")


def program(body, count):
    return Program(DATA.strip("\n").replace("BODY", body.replace("\n", "\n        ")).replace("WORKERS", str(count)))


def applied(found, fix):
    """The program with a ``collate_fn``: its definitions first, then what the fix writes for the dots of ``DataLoader(...)``."""
    *made, call = fix.code.splitlines()
    added = re.fullmatch(r"DataLoader\(\.\.\., (.*)\)", call)[1]
    place = next(i for i, line in enumerate(found.lines) if line.startswith("loader ="))
    return [*found.lines[:place], *made, found.lines[place][:-1] + f", {added})", *found.lines[place + 1 :]]


EQUAL, JOINS = "default_collate stacks samples, and they must have equal size.", "default_collate joins "

# each: what __getitem__ does, the headline in a worker, that without one; every one has a collate_fn that works
BATCHES = {
    "a tensor": ("return torch.zeros(3 + i)", "sample 0 is (3,), sample 1 is (4,).", "sample 0 is (3,), sample 1 is (4,)."),
    "a pair": (
        "return torch.zeros(3 + i), i",
        "a part of sample 0 is (3,), a part of sample 1 is (4,).",
        "sample 0[0] is (3,), sample 1[0] is (4,).",
    ),
    "three": (
        "return i, torch.zeros(3 + i, 2), 'a'",
        "a part of sample 0 is (3, 2), a part of sample 1 is (4, 2).",
        "sample 0[1] is (3, 2), sample 1[1] is (4, 2).",
    ),
    "a dict": (
        "return {'ids': torch.zeros(3 + i), 'y': i}",
        "a part of sample 0 is (3,), a part of sample 1 is (4,).",
        "sample 0['ids'] is (3,), sample 1['ids'] is (4,).",
    ),
    "a dict in a pair": (
        "return {'ids': torch.zeros(3 + i)}, torch.tensor(i)",
        "a part of sample 0 is (3,), a part of sample 1 is (4,).",
        "sample 0[0]['ids'] is (3,), sample 1[0]['ids'] is (4,).",
    ),
    "height and width": (
        "return torch.zeros(3, 4 + i, 9 + i)",
        "sample 0 is (3, 4, 9), sample 1 is (3, 5, 10).",
        "sample 0 is (3, 4, 9), sample 1 is (3, 5, 10).",
    ),
    "the first is larger": (
        "return torch.zeros(9 - i), i",
        "its samples differ in size in one of their parts, and the first one is",
        "sample 0[0] is (9,), sample 1[0] is (8,).",
    ),
    "lists": ("return [1] * (i + 1), i", "its samples hold lists of unequal length.", "sample 0[0] has 1 members, sample 1[0] has 2."),
    "lists in a dict": (
        "return {'ids': [1] * (i + 1), 'y': i}",
        "its samples hold lists of unequal length.",
        "sample 0['ids'] has 1 members, sample 1['ids'] has 2.",
    ),
    "None": ("return None if i == 1 else torch.zeros(2)", "one of its samples is None.", "sample 1 is None."),
    "None in a pair": ("return torch.zeros(2), None", "the dataset returns None.", "the dataset returns None."),
    "None in a dict": ("return {'x': torch.zeros(2), 'y': None}", "the dataset returns None.", "the dataset returns None."),
    "an object": ("return object()", "the dataset returns an object.", "the dataset returns an object."),
    "kinds": (
        "return torch.zeros(2) if i else 1.0",
        "default_collate could not join its samples.",
        "default_collate could not join its samples.",
    ),
}


@pytest.mark.parametrize("count", [1, 0], ids=["worker", "no worker"])
@pytest.mark.parametrize("name", BATCHES)
def test_a_batch_that_cannot_be_made(name, count):
    body, *said = BATCHES[name]
    found = program(body, count)
    result = explanation(found)
    assert result.headline.startswith(f"The DataLoader cannot make a batch: {said[1 - count]}")
    assert result.record.line == LOOP and result.record.where.endswith(":8")
    assert ("It happened in DataLoader worker process 0" in str(result)) == bool(count)
    assert result.fixes
    for fix in result.fixes:
        found.run(applied(found, fix))


# each: what __getitem__ does, what is said, and the line of it that stopped
INSIDE = {
    "a key": ("d = {'a': 1}\nreturn d['b']", "modlab does not know this KeyError. It says: the key 'b'.", "return d['b']"),
    "a place": (
        "files = [1]\nreturn torch.tensor(files[i])",
        "modlab does not know this IndexError. It says: list index out of range.",
        "return torch.tensor(files[i])",
    ),
    "a file": (
        "return open(f'/there/is/no/{i}.png')",
        "modlab does not know this FileNotFoundError. It says: [Errno 2] No such file or directory: '/there/is/no/0.png'.",
        "return open(f'/there/is/no/{i}.png')",
    ),
    "another class": (
        "import json\nreturn json.loads('{')",
        "modlab does not know this JSONDecodeError. It says: Expecting property",
        "return json.loads('{')",
    ),
    "its own": (
        "assert i < 0, 'too large'\nreturn i",
        "modlab does not know this AssertionError. It says: too large.",
        "assert i < 0, 'too large'",
    ),
    "a product": (
        "a = torch.zeros(2, 3) @ torch.zeros(2, 3)\nreturn a",
        "a @ b: the inner sizes 3 and 2 differ.",
        "a = torch.zeros(2, 3) @ torch.zeros(2, 3)",
    ),
    "no GPU": ("return torch.zeros(2).to('cuda')", "", "return torch.zeros(2).to('cuda')"),
}


@pytest.mark.parametrize("name", INSIDE)
def test_an_error_of_a_worker_is_the_original_at_its_own_place(name):
    body, said, line = INSIDE[name]
    if name == "no GPU" and torch.cuda.is_available():
        pytest.skip("there is one")
    found = program(body, 1)
    result = explanation(found)
    assert result.headline.startswith(said)
    assert result.record.line == line
    assert result.record.where.endswith(f":{next(i for i, one in enumerate(found.lines, 1) if one.strip() == line)}")
    assert f"Its result is requested at program{result.record.where.split(':')[0][7:]}:" in str(result)


def test_a_collate_fn_of_ones_own_is_the_place():
    found = program("return torch.zeros(2), i", 1)
    found.lines = [line.replace("num_workers=1", "num_workers=1, collate_fn=lambda b: torch.stack(b)") for line in found.lines]
    result = explanation(found)
    assert result.record.line.startswith("loader = DataLoader(") and "cat or stack got a tuple" in result.headline


def test_samples_with_other_keys_and_channels():
    for count in (0, 1):
        result = explanation(program("return {'a': 1} if i == 0 else {'b': 1}", count))
        which = "another in the batch does not" if count else "sample 1 does not"
        assert result.headline.startswith(f"The DataLoader cannot make a batch: sample 0 has the key 'a', {which}.")
        result = explanation(program("return torch.zeros(1 if i == 0 else 3, 4, 4)", count))
        assert ".convert('RGB')" in result.fixes[0].prose and result.fixes[0].code == ""


def told(error, text):
    return workers.told(error, f"Caught {type(error).__name__} in DataLoader worker process 3.\nOriginal {text}")


TOLD = 'Traceback (most recent call last):\n  File "/a/data.py", line 7, in __getitem__\n    return d[i]\n           ~^^^\n'


@pytest.mark.parametrize(
    ("error", "end", "message"),
    [
        (KeyError("x"), "KeyError: ('a', 1)\n", "('a', 1)"),
        (ValueError("x"), "ValueError\n", ""),
        (ValueError("x"), "ValueError: two\nlines: of it\n", "two\nlines: of it"),
        (ValueError("x"), "", ""),
        (
            RuntimeError("x"),
            "a.b.Odd: Traceback (most recent call last):\n  one told before\n",
            "Traceback (most recent call last):\n  one told before",
        ),
    ],
    ids=["a key", "no words", "two lines", "cut", "a traceback in the words"],
)
def test_what_was_told_is_read_back(error, end, message):
    found = told(error, TOLD + end)
    assert found.message == message and found.place == "DataLoader worker process 3"
    assert [tuple(frame) for frame in found.frames] == [("/a/data.py", 7, "__getitem__", "return d[i]")]
    assert found.own is not None


def test_of_two_tracebacks_the_last_counts():
    between = "\nDuring handling of the above exception, another exception occurred:\n\n"
    found = told(TypeError("x"), f"{TOLD}KeyError: 1\n{between}{TOLD.replace('line 7', 'line 9')}TypeError: here\n")
    assert (found.message, found.own.line) == ("here", 9)


def test_nothing_is_told_of_another_error():
    assert workers.told(ValueError(""), "Caught cold in a DataLoader worker") is None
    odd = RuntimeError("Caught ValueError in DataLoader worker process 0.\nOriginal nonsense")
    assert modlab.explain(odd).family == "" and "does not know" in modlab.explain(odd).headline


def test_an_exception_with_a_constructor_of_its_own_is_told():
    class Odd(Exception):
        def __new__(cls, one, two):
            return super().__new__(cls)

    assert told(Odd(1, 2), f"{TOLD}tests.Odd: of two\n").error.args == ("of two",)
    assert isinstance(told(json.JSONDecodeError("a", "b", 0), f"{TOLD}json.decoder.JSONDecodeError: at\n").error, ValueError)


def test_what_is_not_known_is_quoted():
    for message, quoted in (
        ("one. two", "It says: one. two."),
        ("a" * 400, "…"),
        ("", "What the traceback shows"),
        ("first\nline\n\nthe rest", "It says: first line."),
    ):
        assert quoted in explained(lambda message=message: (_ for _ in ()).throw(ArithmeticError(message))).headline
