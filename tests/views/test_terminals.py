"""What is printed fits the terminal: ASCII, latin-1 and code pages get plain characters, and nothing that is printed raises."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import modlab
from modlab import format
from modlab.errors import ModlabError
from modlab.lessons import Lesson
from modlab.records.finding import Remedy
from modlab.results.alert import Alert
from tests.patience import PATIENCE

ROOT = Path(__file__).parents[2]
X = torch.linspace(-1, 1, 12).reshape(3, 4)


class Üppig(nn.Module):
    """A name that ASCII lacks, one that latin-1 lacks, and a part that PyTorch does not see."""

    def __init__(self):
        super().__init__()
        self.l0 = nn.Linear(4, 3)
        self.register_module("層", nn.Dropout(0.5))
        self.hidden = [nn.Linear(2, 2)]

    def forward(self, x):
        return torch.relu(self.get_submodule("層")(self.l0(x)))


def failed(net):
    try:
        net(torch.ones(3, 5))
    except RuntimeError as error:
        return modlab.explain(error)


def watched(net):
    optimizer = torch.optim.SGD(net.parameters(), 1e-9)
    with modlab.watch(net, optimizer) as watch:
        for _ in range(3):
            optimizer.zero_grad()
            loss = (net(X) * torch.nan).sum()
            watch.log(loss=loss)
            loss.backward()
            optimizer.step()
    return watch


def traced(net):
    with modlab.trace(net) as trace:
        net(X).sum().backward()
    return trace


def differing(net):
    before = modlab.snapshot(net)
    with torch.no_grad():
        net.l0.weight += 1
    return modlab.diff(before, net)


def in_lab(net):
    lab = modlab.lab(net)
    lab(X)
    return lab


def costly(net):
    with torch.profiler.profile() as profiler, torch.profiler.record_function("l0"):
        net.l0(X)
    return modlab.costs(net, profiler)


RESULTS = {
    "tree": modlab.tree,
    "state": modlab.state,
    "measure": lambda net: modlab.measure(net.l0.weight),
    "values": lambda net: modlab.state(net)["l0.weight"],
    "trace": traced,
    "why": lambda net: traced(net).why("l0.bias"),
    "calls": lambda net: traced(net)["l0"],
    "hooks": modlab.hooks,
    "internals": modlab.internals,
    "route": lambda net: modlab.internals(net).route("l0", None),
    "snapshot": modlab.snapshot,
    "diff": differing,
    "compare": lambda net: modlab.compare(net)(X),
    "compare two": lambda net: modlab.compare(net, Üppig())(X),
    "diagnose": modlab.diagnose,
    "diagnose with a batch": lambda net: modlab.diagnose(net, batch=(X, X[:, :3]), loss=nn.functional.mse_loss),
    "costs": costly,
    "explain": failed,
    "watch": watched,
    "verdict": lambda net: watched(net).verdict,
    "lab": modlab.lab,
    "lab of a call": in_lab,
    "lesson": lambda net: Lesson("01_a_module"),
    "card": lambda net: Lesson("01_a_module").predict("numbers of MyLinear", 12),
    "judgement": lambda net: Lesson("01_a_module").check("Affine", lambda: "…→≠"),
    "settings": lambda net: Lesson("01_a_module").modify("'→' + {a}", a=["…", "層"]),
    "alert": lambda net: Alert("dead", "層", {"inputs": 3, "fired": 0}, step=3, unit=1, fixes=(Remedy(advice="x ≈ y"),)),
    "error": lambda net: ModlabError("≈ 層"),
}
ENCODINGS = ("ascii", "latin-1", "cp1252", "cp437", "utf-8", "utf-16")


def printed(encoding, things):
    """What a terminal of this encoding gets."""
    raw = io.BytesIO()
    before, sys.stdout = sys.stdout, io.TextIOWrapper(raw, encoding=encoding, errors="strict")
    try:
        for thing in things:
            print(thing)
        sys.stdout.flush()
        return raw.getvalue().decode(encoding)
    finally:
        sys.stdout = before


class Headline:
    """Asked for when it is printed."""

    def __init__(self, made):
        self._made = made

    def __str__(self):
        return self._made.headline


@pytest.mark.parametrize("make", RESULTS.values(), ids=RESULTS)
def test_every_result_can_be_printed(make):
    torch.manual_seed(0)
    made = make(Üppig())
    things = [made, *([Headline(made)] if hasattr(made, "headline") else []), *getattr(made, "records", ())]
    plain = "".join(f"{thing}\n" for thing in things)
    for encoding in ENCODINGS:
        text = printed(encoding, things)
        assert text.isascii() if encoding == "ascii" else text == plain if encoding.startswith("utf") else text


CHARACTERS = [
    ("ascii", "a → b ≠ c … ✕ ≈ ×", "a -> b != c ... x ~ x"),
    ("latin-1", "a → b × µ", "a -> b × µ"),
    ("cp1252", "… ✕ ·", "… x ·"),
    ("utf-8", "a → 層 ✕", "a → 層 ✕"),
    ("ascii", "é層\U0001f600", "\\xe9\\u5c64\\U0001f600"),
    ("utf-8", "x\udcffy", "x\\udcffy"),
    ("no such thing", "é", "é"),
    ("bad\0name", "é", "é"),
    (None, "→", "→"),
    (7, "→", "→"),
]


@pytest.mark.parametrize(("encoding", "text", "expected"), CHARACTERS, ids=ascii)
def test_what_stands_in_for_a_character(encoding, text, expected, monkeypatch):
    class Stream:
        pass

    monkeypatch.setattr(sys, "__stdout__", io.TextIOWrapper(io.BytesIO(), encoding="utf-8"))
    stream = Stream()
    stream.encoding = encoding
    assert format.printable(text, stream) == expected


class Broken:
    @property
    def encoding(self):
        raise OSError("gone")


@pytest.mark.parametrize("stream", [None, object(), Broken(), io.StringIO()], ids=["none", "bare", "broken", "string"])
def test_a_stream_that_tells_no_encoding_is_no_trouble(stream, monkeypatch):
    monkeypatch.setattr(sys, "__stdout__", None)
    monkeypatch.setattr(sys, "stdout", stream)
    assert "hidden from PyTorch" in str(modlab.tree(Üppig()))


def test_a_closed_stream_is_no_trouble(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    stream.close()
    monkeypatch.setattr(sys, "stdout", stream)
    assert str(modlab.state(Üppig())).isascii()


SCRIPT = """
import torch, modlab
from torch import nn
net = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
optimizer = torch.optim.SGD(net.parameters(), 1e-9)
with modlab.watch(net, optimizer) as watch:
    for _ in range(3):
        optimizer.zero_grad(); net(torch.ones(2, 4)).sum().backward(); optimizer.step()
print(watch); print(modlab.trace(net)(torch.ones(2, 4)))
try:
    net(torch.ones(2, 5))
except RuntimeError:
    print(modlab.explain())
"""


COMMANDS = [("-c", SCRIPT), ("-m", "modlab", "lessons", "list")]


@pytest.mark.parametrize("columns", ["20", "500"])
@pytest.mark.parametrize("arguments", COMMANDS, ids=["script", "command"])
def test_a_script_in_a_plain_terminal(arguments, columns):
    environment = {**os.environ, "LC_ALL": "C", "PYTHONIOENCODING": "ascii:strict", "PYTHONPATH": str(ROOT), "COLUMNS": columns}
    done = subprocess.run([sys.executable, *arguments], capture_output=True, cwd=ROOT, env=environment, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode("ascii") and done.stderr.decode("ascii") is not None


@pytest.mark.skipif(os.name == "nt", reason="a shell of POSIX")
@pytest.mark.parametrize("arguments", COMMANDS, ids=["script", "command"])
def test_a_closed_standard_output_is_no_trouble(arguments):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHON": sys.executable}
    shell = ["sh", "-c", '"$PYTHON" "$@" >&-', "sh", *arguments]
    done = subprocess.run(shell, capture_output=True, cwd=ROOT, env=environment, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr.decode()


def test_a_reader_that_has_seen_enough_is_no_trouble():
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "modlab", "lessons", "list"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, cwd=ROOT, env=environment, timeout=PATIENCE, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")
