"""07: what is state: parameter, buffer, reserved name, plain attribute."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import modlab
from modlab.lessons import initialization
from modlab.lessons.checking import fail, require_callable, require_equal, require_module_class, same
from modlab.lessons.content import Content, Mistake, Question, Task, Wrong
from modlab.lessons.kinds import Choice, Number, Several, YesNo
from modlab.lessons.note import RunningMean, StatefulModule

# ---- questions ------------------------------------------------------------------------------------


def _moves_in_evaluation_mode() -> bool:
    m = RunningMean(4).eval()
    m(torch.ones(4))
    return bool(m.mean.any())


def _wiped() -> bool:
    m = RunningMean(4)
    out = m(torch.ones(4))
    out.zero_()
    return not m.mean.any()


def _joins_the_graph() -> bool:
    m = RunningMean(4)
    m(torch.randn(4, requires_grad=True))
    return m.mean.grad_fn is not None


def _refused() -> list[str]:
    def tensor_into_parameter(m: nn.Module) -> None:
        m.param3 = torch.randn(2)

    def text_into_buffer(m: nn.Module) -> None:
        m.buffer3 = "text"  # type: ignore[assignment]

    def parameter_into_buffer(m: nn.Module) -> None:
        m.buffer3 = nn.Parameter(torch.randn(2))

    def module_into_buffer(m: nn.Module) -> None:
        m.buffer3 = nn.ReLU()

    def none_into_parameter(m: nn.Module) -> None:
        m.param1 = None  # type: ignore[assignment]

    found = []
    tries = (tensor_into_parameter, text_into_buffer, parameter_into_buffer, module_into_buffer, none_into_parameter)
    for letter, assign in zip("abcde", tries, strict=True):
        try:
            assign(StatefulModule())
        except TypeError:
            found.append(letter)
    return found


class Assigns(nn.Module):
    """Assigns what ``register_buffer`` returns."""

    mean: Tensor | None

    def __init__(self) -> None:
        super().__init__()
        self.mean = self.register_buffer("mean", torch.zeros(4))  # type: ignore[func-returns-value]


def _follow_to() -> list[str]:
    m = StatefulModule()
    m.note = torch.randn(2)
    m.to(torch.float64)
    return [letter for letter, one in zip("abcd", (m.param1, m.buffer1, m.buffer2, m.note), strict=True) if one.dtype == torch.float64]


def _kinds_in_a_state_dict() -> list[str]:
    m = nn.BatchNorm1d(2)
    m.weight.requires_grad_(False)
    m.register_buffer("cache", torch.zeros(2), persistent=False)
    m.note = torch.zeros(2)
    return [letter for letter, name in zip("abcd", ("weight", "running_mean", "cache", "note"), strict=True) if name in m.state_dict()]


PREDICTIONS = (
    Question(
        "a mean in evaluation mode",
        "You call `m.eval()`, and then `m(x)`. Does `m.mean` move?",
        YesNo(),
        True,
        "`forward` writes the mean and asks for no mode. BatchNorm stands still in evaluation mode because its `forward` asks.",
        wrong=(Wrong(False, "`eval()` only sets a flag. This module does not ask for it."),),
        proof=_moves_in_evaluation_mode,
    ),
    Question(
        "the caller's tensor",
        "`out = m(x)`, and then `out.zero_()`. What happens to `m.mean`?",
        Choice("nothing: `out` is the caller's", "it is zero as well"),
        "b",
        "`forward` returned `self.mean` itself: two names for one tensor.",
        wrong=(Wrong("a", "`return self.mean` copies nothing. What the caller writes, the module has."),),
        proof=lambda: "b" if _wiped() else "a",
    ),
    Question(
        "an input that requires a gradient",
        "`x` requires a gradient, as the output of a layer does. Does `m.mean` have a `grad_fn` after `m(x)`?",
        YesNo(),
        True,
        "The new mean was computed from `x`, so autograd noted how; the next mean is computed from this one, and so on.",
        wrong=(
            Wrong(False, "A buffer is not learned, but it is not a wall either: what is computed from `x` joins the graph.", belief=36),
        ),
        proof=_joins_the_graph,
    ),
    Question(
        "keys of StatefulModule",
        "How many keys does the `state_dict()` of a `StatefulModule` have?",
        Number(),
        10,
        "Two parameters and a buffer of its own, three and two in the containers, two in the linear layer.",
        wrong=(
            Wrong(13, "Three names have nothing in the state_dict.", belief=12),
            Wrong(12, "`param3` and `buffer3` hold None: a name that is only reserved has no key.", belief=12),
            Wrong(11, "Both buffers with a tensor? One of them was registered with `persistent=False`.", belief=11),
            Wrong(9, "Is a buffer missing in your count? `buffer1` is saved though it is not learned.", belief=11),
            Wrong(7, "The containers are modules: each of their entries has a key of its own."),
        ),
        proof=lambda: len(StatefulModule().state_dict()),
    ),
    Question(
        "what follows to",
        "`m.note = torch.randn(2)` is assigned as well. Which of these are float64 after `m.to(torch.float64)`?",
        Several("`m.param1`", "`m.buffer1`", "`m.buffer2`, which is not persistent", "`m.note`"),
        ("a", "b", "c"),
        "`to()` goes over parameters and buffers of both kinds. A plain tensor is an attribute like any other.",
        wrong=(
            Wrong("a b", "Persistent is about saving alone: a buffer that is not saved moves all the same.", belief=8),
            Wrong("a", "Buffers move too: that is half of what they are for.", belief=8),
            Wrong("a b c d", "`m.note` is in no store: `to()` does not know of it.", belief=6),
        ),
        belief=8,
        proof=_follow_to,
    ),
    Question(
        "what is refused",
        "`m` is a `StatefulModule`. Which of these lines raise an error?",
        Several(
            "`m.param3 = torch.randn(2)`",
            '`m.buffer3 = "text"`',
            "`m.buffer3 = nn.Parameter(torch.randn(2))`",
            "`m.buffer3 = nn.ReLU()`",
            "`m.param1 = None`",
        ),
        ("a", "b"),
        "A parameter's name refuses what is neither a parameter nor None, a buffer's name what is neither a tensor nor None. "
        "But a buffer's name lets a parameter and a module pass, without a word.",
        wrong=(
            Wrong(
                "a b c d e",
                "The names are reserved, but not locked: a buffer's name lets parameters and modules pass, None empties any.",
                belief=12,
            ),
            Wrong("a b c d", "A buffer's name lets a parameter and a module pass.", belief=12),
            Wrong("a b d", "A buffer's name lets a module pass, as it lets a parameter.", belief=12),
            Wrong("b", "A plain tensor is not a parameter, and `param3` is reserved for one.", belief=12),
            Wrong([], "A reserved name is not free: it is kept for a parameter, or for a buffer.", belief=12),
        ),
        belief=12,
        proof=_refused,
    ),
    Question(
        "what register_buffer returns",
        'A constructor says `self.mean = self.register_buffer("mean", torch.zeros(4))`. What is `self.mean`?',
        Choice("a buffer of four zeros", "None", "a plain tensor"),
        "b",
        "`register_buffer` returns None. The assignment puts that in the place of the buffer that was just registered.",
        wrong=(
            Wrong("a", "It was, for a moment. Then what `register_buffer` returns was assigned over it.", belief=9),
            Wrong("c", "The name is a buffer's by then, so no plain attribute comes of it.", belief=9),
        ),
        proof=lambda: "b" if Assigns().mean is None else "a",
    ),
)

RECALLS = (
    Question(
        "in a state_dict",
        "Which of these are in a state_dict?",
        Several("a parameter with `requires_grad=False`", "a buffer", "a buffer with `persistent=False`", "a plain tensor attribute"),
        ("a", "b"),
        "What is registered, unless it is a buffer that is not persistent. Whether it learns does not matter.",
        wrong=(
            Wrong("a", "A buffer is saved as well, though it is not learned.", belief=11),
            Wrong("b", "A frozen parameter is still a parameter, and saved.", belief=8),
            Wrong("a b c", "`persistent=False` says just this: do not save it.", belief=11),
            Wrong("a b c d", "A plain attribute is in no store, and a buffer that is not persistent is left out.", belief=8),
        ),
        belief=8,
        proof=_kinds_in_a_state_dict,
    ),
    Question(
        "which kind",
        "A module needs a table of constants. It should move with `to()`, no optimizer should touch it, and it is computed by the "
        "constructor, so files need not have it. What is it?",
        Choice(
            "a parameter with `requires_grad=False`",
            "a buffer",
            "a buffer with `persistent=False`",
            "a plain tensor attribute",
        ),
        "c",
        "A buffer moves and is not trained; `persistent=False` keeps it out of files.",
        wrong=(
            Wrong("a", "It would be saved and given to the optimizer, and one line could unfreeze it.", belief=8),
            Wrong("b", "It would work, and every file would hold it.", belief=8),
            Wrong("d", "It would stay behind when the module moves to another device.", belief=8),
        ),
    ),
    Question(
        "mode and mean",
        "From lesson 06: a BatchNorm in training mode gets a batch under `torch.no_grad()`. What moves?",
        Choice("nothing", "its running mean and variance", "its weight and bias", "all four"),
        "b",
        "The mode decides about the statistics. Weight and bias move by an optimizer's step alone.",
        wrong=(
            Wrong("a", "`no_grad` stops autograd, and the statistics come from no gradient.", belief=20),
            Wrong("c", "These move in `step()`, and only with a gradient."),
            Wrong("d", "Weight and bias move in `step()`, not in `forward`."),
        ),
        proof=lambda: _moved_by_a_pass(),
    ),
)


def _moved_by_a_pass() -> str:
    bn = nn.BatchNorm1d(2)
    before = {name: value.clone() for name, value in bn.state_dict().items()}
    with torch.no_grad():
        bn(torch.randn(4, 2) + 3)
    moved = {name for name, value in bn.state_dict().items() if not torch.equal(value, before[name])} - {"num_batches_tracked"}
    return {(): "a", ("running_mean", "running_var"): "b", ("bias", "weight"): "c"}.get(tuple(sorted(moved)), "d")


# ---- the first task: a better running mean ----------------------------------------------------------


def _made(answer: Any, *arguments: Any) -> nn.Module:
    require_module_class(answer, "BetterMean")
    return initialization.made(answer, *arguments)


def _keeps(answer: Any) -> None:
    """the mean is a buffer that is saved, the latest input one that is not"""
    m = _made(answer, 3)
    keys, buffers = [*m.state_dict()], [name for name, _ in m.named_buffers()]
    told: dict[str, Any] = {"evidence": modlab.state(m)}
    if any(name in ("mean", "last") for name, _ in m.named_parameters()):
        fail(mistake="a parameter without gradient", expected="buffers", got=[name for name, _ in m.named_parameters()], **told)
    for name in ("mean", "last"):
        if name not in buffers and name in vars(m).get("_buffers", {}):
            fail(f"`{name}` is None.", mistake="what register_buffer returns", expected="a tensor of zeros", got=None, **told)
    if "mean" not in buffers and isinstance(vars(m).get("mean"), Tensor):
        fail(mistake="a plain attribute", expected=["mean"], got=keys, **told)
    if "mean" in buffers and "last" not in buffers and ("last" in vars(m) or not hasattr(m, "last")):
        mistake = "a cache that stays behind" if "last" in vars(m) else "no last"
        fail(mistake=mistake, expected=["mean", "last"], got=buffers, **told)
    if "last" in keys:
        fail(mistake="a cache that is saved", expected=["mean"], got=keys, **told)
    require_equal(keys, ["mean"], "Its state_dict should hold the mean, and nothing else.", **told)
    for name in ("mean", "last"):
        require_equal(getattr(m, name), torch.zeros(3), f"`{name}` is to begin as zeros, one for each feature.", **told)


def _averages(answer: Any) -> None:
    """in training mode the mean is momentum * mean + (1 - momentum) * x, over ten inputs"""
    for momentum in (0.9, 0.6, None):
        m, mean, swapped = _made(answer, 3, *([] if momentum is None else [momentum])), torch.zeros(3), torch.zeros(3)
        by_default, momentum = momentum is None, momentum or 0.9
        for i in range(10):
            x = torch.randn(3) + 2
            mean = momentum * mean + (1 - momentum) * x
            swapped = (1 - momentum) * swapped + momentum * x
            got = m(x)
            if i == 0 and got is None:
                fail("`forward` gives nothing back: it needs a `return`.", expected=mean, got=None)
            told: dict[str, Any] = {"expected": mean, "got": m.mean}
            if same(m.mean, swapped):
                fail(mistake="momentum the other way round", **told)
            if by_default and not same(m.mean, mean):
                fail(f"After {i + 1} input{'s' if i else ''} of `BetterMean(3)`:", mistake="another default", **told)
            if not same(m.mean, mean):
                fail(f"After {i + 1} input{'s' if i else ''} with momentum {momentum} the mean is another.", **told)
            require_equal(got, mean, "It should return the new mean.")
            require_equal(m.last, x, "`last` should be the latest input.")
    require_equal([*m.state_dict()], ["mean"], "After a call its state_dict holds something else.", evidence=modlab.state(m))


def _moves(answer: Any) -> None:
    """both follow to()"""
    m = _made(answer, 3)
    m(torch.randn(3))
    before = modlab.snapshot(m)
    m.to(torch.float64)
    for name in ("mean", "last"):
        if getattr(m, name).dtype != torch.float64:
            fail(mistake="a cache that stays behind", expected=torch.float64, got=getattr(m, name).dtype, evidence=modlab.diff(before, m))
    got = m(torch.randn(3, dtype=torch.float64))
    require_equal(got.dtype, torch.float64, "After `to(float64)` it gives a different dtype.")


def _cuts_the_graph(answer: Any) -> None:
    """neither keeps a graph when the input requires a gradient"""
    m = _made(answer, 3)
    for _ in range(2):
        m(torch.randn(3, requires_grad=True) * 2)
        if m.last.requires_grad and not m.mean.requires_grad:
            fail(mistake="the input itself is kept", expected="no grad_fn", got="a grad_fn of last", evidence=modlab.diagnose(m))
        if any(getattr(m, name).grad_fn is not None or getattr(m, name).requires_grad for name in ("mean", "last")):
            fail(mistake="a graph dragged along", expected="no grad_fn", got="a grad_fn", evidence=modlab.diagnose(m))


def _stands_still(answer: Any) -> None:
    """in evaluation mode both stay, and the mean is returned"""
    m = _made(answer, 3)
    m(torch.ones(3))
    was = {name: buffer.clone() for name, buffer in m.named_buffers()}
    before = modlab.snapshot(m.eval())
    got = m(torch.full((3,), 5.0))
    for name, buffer in m.named_buffers():
        if not torch.equal(buffer, was[name]):
            says = f"After a call in evaluation mode `{name}` is another."
            fail(says, mistake="it moves in evaluation mode", expected=was[name], got=buffer, evidence=modlab.diff(before, m))
    require_equal(got, was["mean"], "In evaluation mode it should return the mean.")


def _gives_a_copy(answer: Any) -> None:
    """writing to what it returns leaves its mean alone"""
    for training in (True, False):
        m = _made(answer, 3)
        m(torch.ones(3))
        out = m.train(training)(torch.ones(3))
        mean = m.get_buffer("mean")
        before = mean.clone()
        with torch.no_grad():
            out.zero_()
        if not torch.equal(mean, before):
            fail(mistake="it gives its own tensor away", expected=before, got=mean)


def _keeps_a_copy(answer: Any) -> None:
    """what the caller writes into its input afterwards leaves both alone"""
    m, x = _made(answer, 3), torch.ones(3)
    m(x)
    was = {name: buffer.clone() for name, buffer in m.named_buffers()}
    before = modlab.snapshot(m)
    x.zero_()
    for name, buffer in m.named_buffers():
        if not torch.equal(buffer, was[name]):
            fail(mistake="it shares the caller's memory", expected=was[name], got=buffer, evidence=modlab.diff(before, m))


_UPDATE = """            with torch.no_grad():
                self.mean = self.momentum * self.mean + (1 - self.momentum) * x
                self.last = x.detach().clone()
"""
_BUFFERS = """        self.register_buffer("mean", torch.zeros(num_features))
        self.register_buffer("last", torch.zeros(num_features), persistent=False)
"""


def _better_mean(buffers: str = _BUFFERS, update: str = _UPDATE, mode: str = "self.training", result: str = "self.mean.clone()") -> str:
    return f"""
class BetterMean(nn.Module):
    def __init__(self, num_features, momentum=0.9):
        super().__init__()
        self.momentum = momentum
{buffers}
    def forward(self, x):
        if {mode}:
{update}        return {result}
"""


BETTER_MEAN = Task(
    "BetterMean",
    "Write `BetterMean(num_features, momentum=0.9)`, a running mean without the surprises.",
    starter="""
class BetterMean(nn.Module):
    def __init__(self, num_features, momentum=0.9):
        super().__init__()
        self.momentum = momentum
        ...

    def forward(self, x):
        ...
""",
    reference=_better_mean(),
    probes=(_keeps, _averages, _moves, _cuts_the_graph, _stands_still, _gives_a_copy, _keeps_a_copy),
    mistakes=(
        Mistake(
            "a plain attribute",
            _better_mean("        self.mean = torch.zeros(num_features)\n        self.last = torch.zeros(num_features)\n"),
            "A plain tensor is in no store: it is not saved, and `to()` leaves it behind. `register_buffer` makes it state.",
            belief=8,
        ),
        Mistake(
            "a parameter without gradient",
            _better_mean(
                "        self.mean = nn.Parameter(torch.zeros(num_features), requires_grad=False)\n"
                '        self.register_buffer("last", torch.zeros(num_features), persistent=False)\n',
                _UPDATE.replace("self.mean = ", "self.mean.data = "),
            ),
            "It is moved and saved, but it is a parameter: `parameters()` hands it to every optimizer, and "
            "`requires_grad_(True)` on the net would train it. What is not learned is a buffer.",
            belief=8,
        ),
        Mistake(
            "what register_buffer returns",
            _better_mean(_BUFFERS.replace('self.register_buffer("mean"', 'self.mean = self.register_buffer("mean"')),
            "`register_buffer` returns None, and your assignment puts that in the place of the buffer. Call it, and assign nothing.",
            belief=9,
        ),
        Mistake(
            "a cache that is saved",
            _better_mean(_BUFFERS.replace(", persistent=False", "")),
            "A buffer is saved unless it is registered with `persistent=False`.",
            belief=11,
        ),
        Mistake(
            "a cache that stays behind",
            _better_mean(_BUFFERS.splitlines()[0] + "\n        self.last = torch.zeros(num_features)\n"),
            "`last` is a plain attribute, so `to()` does not move it. A buffer may be kept out of files and still move.",
            belief=8,
        ),
        Mistake(
            "no last",
            _better_mean(_BUFFERS.splitlines()[0] + "\n"),
            "The constructor makes no `last`. Register it there, as zeros: what `forward` alone assigns is a plain attribute.",
        ),
        Mistake(
            "another default",
            _better_mean().replace("momentum=0.9", "momentum=0.5"),
            "Who gives no momentum gets 0.9: `def __init__(self, num_features, momentum=0.9)`.",
        ),
        Mistake(
            "the input itself is kept",
            _better_mean(update=_UPDATE.replace("x.detach().clone()", "x")),
            "Under `no_grad` what is *computed* has no graph. `self.last = x` computes nothing: it keeps the tensor that came, "
            "with the graph behind it. Keep `x.detach().clone()`.",
            belief=36,
        ),
        Mistake(
            "it shares the caller's memory",
            _better_mean(update=_UPDATE.replace("x.detach().clone()", "x.detach()")),
            "`detach()` gives a second name for the same numbers: who writes to the input writes to `last`. Add `clone()`.",
            belief=13,
        ),
        Mistake(
            "attribute first, buffer after",
            _better_mean("        self.mean = torch.zeros(num_features)\n" + _BUFFERS),
            "The name is taken by the attribute. `register_buffer` alone makes name and tensor.",
            belief=10,
            error="attribute '(mean|last)' already exists",
        ),
        *initialization.mistakes(
            late=_better_mean(_BUFFERS + "        super().__init__()\n").replace("        super().__init__()\n", "", 1),
            never=_better_mean().replace("        super().__init__()\n", "", 1),
        ),
        Mistake(
            "momentum the other way round",
            _better_mean(
                update=_UPDATE.replace(
                    "self.momentum * self.mean + (1 - self.momentum) * x", "(1 - self.momentum) * self.mean + self.momentum * x"
                )
            ),
            "Your momentum weighs the new value, as BatchNorm's does. Here it weighs the old one.",
        ),
        Mistake(
            "a graph dragged along",
            _better_mean(
                update="            self.mean = self.momentum * self.mean + (1 - self.momentum) * x\n            self.last = x\n",
            ),
            "What you keep comes from an input with a gradient, and holds on to the graph behind it. Use `detach()` or `no_grad`.",
            belief=36,
        ),
        Mistake(
            "it moves in evaluation mode",
            _better_mean(mode="True"),
            "It goes on with every call. A module that should stand still in evaluation mode must ask `self.training`.",
        ),
        Mistake(
            "it gives its own tensor away",
            _better_mean(result="self.mean"),
            "What you return is the buffer itself: who writes to it writes to your state. Return a copy.",
        ),
    ),
    hints=(
        "Two calls of `register_buffer` in the constructor; one of them with `persistent=False`. Assign nothing to them there.",
        "In `forward`, only `if self.training`: the two new values, under `torch.no_grad()`, `last` as `x.detach().clone()`.",
        "`return self.mean.clone()`, in both modes.",
    ),
    minutes=9,
    matters="Running statistics, masks and position tables are buffers like this one, and a mistake here shows only after loading.",
)

# ---- the second task: what a file will not have ------------------------------------------------------


class Cached(nn.Module):
    """A saved buffer, one that is not, and a reserved name."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("saved", torch.zeros(2))
        self.register_buffer("cache", torch.zeros(2), persistent=False)
        self.register_buffer("later", None)
        self.weight = nn.Parameter(torch.zeros(2))
        self.note = torch.zeros(2)


def _nets() -> list[tuple[nn.Module, list[str]]]:
    late = Cached()
    late.later = torch.ones(2)
    return [
        (StatefulModule(), ["buffer2"]),
        (nn.BatchNorm1d(3), []),
        (nn.Sequential(nn.Linear(2, 2), Cached(), nn.Sequential(Cached())), ["1.cache", "2.0.cache"]),
        (late, ["cache"]),
    ]


def _lists(answer: Any) -> None:
    """it gives the right names for four modules"""
    require_callable(answer, "unsaved_buffers")
    for net, expected in _nets():
        got = answer(net)
        if isinstance(got, str):
            fail(mistake="one text for all", expected=expected, got=repr(got))
        if not isinstance(got, (list, tuple, set)) and not hasattr(got, "__iter__"):
            fail("It should give a list of names.", expected=expected, got=got)
        found = sorted(map(str, got))
        if found == expected:
            continue
        told: dict[str, Any] = {"expected": expected, "got": found, "evidence": modlab.state(net)}
        every = sorted(name for name, _ in net.named_buffers())
        reserved = sorted(f"{path}.{name}".lstrip(".") for path, m in net.named_modules() for name, b in m._buffers.items() if b is None)
        if found == every:
            fail(mistake="every buffer", **told)
        if found == sorted(expected + reserved) and reserved:
            fail(mistake="reserved names too", **told)
        own = sorted(name for name in expected if "." not in name)
        if found in (own, sorted(vars(net)["_non_persistent_buffers_set"])) and expected != own:
            fail(mistake="one level only", **told)
        if found == sorted({name.rpartition(".")[2] for name in expected}) or found == sorted(n.rpartition(".")[2] for n in expected):
            fail(mistake="names without their path", **told)
        if set(expected) < set(found) and any("note" in name for name in found):
            fail(mistake="attributes too", **told)
        fail("These are not the buffers that the state_dict leaves out.", **told)


UNSAVED = Task(
    "unsaved_buffers",
    "Write `unsaved_buffers(module)`: a list with the dotted names of all buffers that its `state_dict()` leaves out.",
    starter="""
def unsaved_buffers(module):
    ...
""",
    reference="""
def unsaved_buffers(module):
    saved = module.state_dict()
    return [name for name, buffer in module.named_buffers() if name not in saved]
""",
    probes=(_lists,),
    mistakes=(
        Mistake(
            "every buffer",
            "\ndef unsaved_buffers(module):\n    return [name for name, buffer in module.named_buffers()]\n",
            "`named_buffers()` lists the persistent ones as well, and those are saved.",
            belief=11,
        ),
        Mistake(
            "one level only",
            "\ndef unsaved_buffers(module):\n    return sorted(module._non_persistent_buffers_set)\n",
            "That is the module's own register. Each child has one of its own.",
            belief=28,
        ),
        Mistake(
            "reserved names too",
            """
def unsaved_buffers(module):
    saved = module.state_dict()
    names = [f"{path}.{name}".lstrip(".") for path, one in module.named_modules() for name in one._buffers]
    return [name for name in names if name not in saved]
""",
            "A reserved name holds no buffer, so there is nothing that could be left out.",
            belief=12,
        ),
        Mistake(
            "names without their path",
            """
def unsaved_buffers(module):
    return [name for one in module.modules() for name in one._non_persistent_buffers_set]
""",
            "The names are those inside each child; a dotted name says where the child is: `1.cache`.",
        ),
        Mistake(
            "attributes too",
            """
def unsaved_buffers(module):
    saved, found = module.state_dict(), []
    for path, one in module.named_modules():
        for name, value in [*one.named_buffers(recurse=False), *vars(one).items()]:
            if isinstance(value, torch.Tensor):
                found.append(f"{path}.{name}".lstrip("."))
    return [name for name in found if name not in saved]
""",
            "A plain tensor attribute is not saved either, but it is not a buffer: nobody registered it.",
            belief=8,
        ),
        Mistake(
            "one text for all",
            """
def unsaved_buffers(module):
    saved = module.state_dict()
    return ", ".join(name for name, buffer in module.named_buffers() if name not in saved)
""",
            "That is one text. Give a list, which has each name for itself, and is empty where there is none.",
        ),
    ),
    hints=("Two lists of names are there already: one has all buffers, the other has all that is saved.",),
    minutes=3,
    matters="What a checkpoint leaves out must follow from the constructor's arguments; otherwise the loaded model is a different one.",
)

LESSON = Content(
    name="07_state",
    title="What is state",
    goal="choose between parameter, buffer and attribute, and say what is trained, saved and moved",
    minutes=30,
    after=("06_modes",),
    predictions=PREDICTIONS,
    recalls=RECALLS,
    tasks=(BETTER_MEAN, UNSAVED),
)
