"""08: save, load, repair."""

from __future__ import annotations

import io
import pickle
import re
from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

import modlab
from modlab.lessons.checking import fail, require_callable, require_equal, same
from modlab.lessons.content import Content, Mistake, Question, Task, Wrong
from modlab.lessons.drawing import Arrow, Drawing, Vertex
from modlab.lessons.kinds import Choice, Number, Several, YesNo
from modlab.lessons.note import Net, RunningMean, StatefulModule

# ---- questions ------------------------------------------------------------------------------------


def _filed(thing: Any) -> Any:
    """What comes back from a file."""
    file = io.BytesIO()
    torch.save(thing, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def _raises(run: Callable[[], Any], error: type[Exception] = RuntimeError) -> bool:
    try:
        run()
    except error:
        return True
    return False


def _means_are_equal() -> bool:
    m, m_loaded = RunningMean(4), RunningMean(4)
    for _ in range(10):
        m(torch.randn(4))
    m_loaded.load_state_dict(_filed(m.state_dict()))
    return not (m.mean != m_loaded.mean).any()


def _step(net: nn.Module) -> None:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, weight_decay=0.1)
    optimizer.zero_grad()
    net(torch.randn(8, 4)).abs().mean().backward()
    optimizer.step()


def _changed_dicts() -> str:
    net = Net()
    live, copied = net.state_dict(), net.state_dict().copy()
    cloned = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    before = [{name: tensor.clone() for name, tensor in kept.items()} for kept in (live, copied, cloned)]
    _step(net)
    changed = [
        any(not torch.equal(kept[name], old[name]) for name in old) for kept, old in zip((live, copied, cloned), before, strict=True)
    ]
    return " ".join(letter for letter, one in zip("abc", changed, strict=True) if one)


def _changed_by(state: dict[str, Tensor], net: nn.Module) -> int:
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    _raises(lambda: net.load_state_dict(state, strict=False))
    return sum(not torch.equal(before[name], tensor) for name, tensor in net.state_dict().items())


def _batch_mean_loads() -> bool:
    m = RunningMean(4)
    m(torch.randn(2, 4))
    return not _raises(lambda: RunningMean(4).load_state_dict(m.state_dict(), strict=False))


def _resumes_alike() -> bool:
    def steps(net: Net, optimizer: torch.optim.Optimizer, numbers: range) -> None:
        for number in numbers:
            torch.manual_seed(number)
            optimizer.zero_grad()
            net(torch.randn(8, 4)).abs().mean().backward()
            optimizer.step()

    net, other = Net(), Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    steps(net, optimizer, range(10))
    other.load_state_dict(net.state_dict())
    steps(net, optimizer, range(10, 20))
    steps(other, torch.optim.SGD(other.parameters(), lr=0.01, momentum=0.9), range(10, 20))
    return torch.equal(net.l0.weight, other.l0.weight)


PREDICTIONS = (
    Question(
        "the assertion",
        "`m` has taken ten inputs. Does `assert (m.mean != m_loaded.mean).any()` raise an error?",
        YesNo(),
        True,
        "The mean is a persistent buffer, so it is in the file. The two means are equal, and the assertion claims the contrary.",
        wrong=(
            Wrong(
                False,
                "The mean is nothing that is learned, so it may seem to be left out. A persistent buffer is in the file all the same.",
                belief=11,
            ),
        ),
        proof=_means_are_equal,
    ),
    Question(
        "three dicts",
        "One training step follows. Which of the three hold other numbers then? Give all the letters.",
        Several("`live`", "`copied`", "`cloned`"),
        ("a", "b"),
        "The tensors of `state_dict()` share their memory with the model, and `copy()` makes a new dict of the same tensors. "
        "Only `clone()` copies numbers.",
        wrong=(
            Wrong("a", "`copy()` gives a new dict of the same tensors, and they share their memory with the model.", belief=13),
            Wrong(
                [],
                "A dict looks like a copy. Its tensors share their memory with the model's, and the optimizer writes into that.",
                belief=13,
            ),
            Wrong("a b c", "`clone()` has memory of its own: no optimizer knows of it."),
            Wrong("b", "`live` shares the model's memory as well: `state_dict()` copies nothing.", belief=13),
        ),
        belief=13,
        proof=_changed_dicts,
    ),
    Question(
        "strict=False",
        "`wrapped` is loaded into a new `Net()` with `strict=False`. How many of the four tensors change?",
        Number(),
        0,
        "No name fits, so nothing is loaded, and nothing is raised either. Only the returned lists tell.",
        wrong=(
            Wrong(
                4, "`strict=False` does not guess which names belong together: it takes equal names, and here there are none.", belief=15
            ),
            Wrong(2, "Weights or biases alone? Each name has the prefix, so none is equal.", belief=15),
        ),
        belief=15,
        proof=lambda: _changed_by({"module." + name: tensor for name, tensor in Net().state_dict().items()}, Net()),
    ),
    Question(
        "a batch in the mean",
        "`m = RunningMean(4)` took one batch of shape (2, 4), and was saved. "
        "Does its file load into a new `RunningMean(4)` with `strict=False`?",
        YesNo(),
        False,
        "The batch has made the buffer (2, 4). The name fits and the shape does not, and that no setting forgives.",
        wrong=(Wrong(True, "`strict=False` sounds like it. But it forgives missing and unexpected names, and no other shape.", belief=16),),
        proof=_batch_mean_loads,
    ),
    Question(
        "a whole net",
        '`torch.save(net, "whole.pt")` saved the net itself. What does `torch.load("whole.pt", weights_only=True)` do?',
        Choice("it gives the net", "it gives the state_dict of the net", "it refuses the file"),
        "c",
        "`weights_only=True` reads tensors and plain containers alone. A file with a class in it is refused as a whole.",
        wrong=(
            Wrong("a", "So it was before `weights_only=True` became the default, and still is with `weights_only=False`.", belief=17),
            Wrong("b", "It does not pick the weights out: what it may not read stops it.", belief=17),
        ),
        proof=lambda: "c" if _raises(lambda: _filed(Net()), pickle.UnpicklingError) else "a",
    ),
    Question(
        "resumed",
        "After ten steps only the weights are loaded, and the optimizer (SGD with momentum) is new. "
        "Are the weights after ten more steps the same as without the break?",
        YesNo(),
        False,
        "Momentum is state too, and it lives in the optimizer. A new one starts from zero.",
        wrong=(Wrong(True, "The weights are. But the optimizer remembers earlier gradients, and a new one does not."),),
        proof=_resumes_alike,
    ),
)

RECALLS = (
    Question(
        "a snapshot",
        "You want to keep the best weights of a training, in memory. Which line does?",
        Choice(
            "`best = net.state_dict()`",
            "`best = dict(net.state_dict())`",
            "`best = {name: tensor.clone() for name, tensor in net.state_dict().items()}`",
        ),
        "c",
        "Only a clone has numbers of its own.",
        wrong=(
            Wrong("a", "These are the live tensors: at the end you have the last weights, not the best.", belief=13),
            Wrong("b", "A new dict of the same live tensors.", belief=13),
        ),
    ),
    Question(
        "what strict forgives",
        "What does `strict=False` forgive? Give all the letters.",
        Several("keys that are only in the model", "keys that are only in the file", "tensors of a different shape"),
        ("a", "b"),
        "It forgives names, and no shapes. What it left out stands in the lists that it returns.",
        wrong=(
            Wrong("a b c", "A different shape always raises an error: there is no way to copy the numbers.", belief=16),
            Wrong("b", "Missing keys are forgiven too, and keep the numbers that they had."),
        ),
        belief=16,
    ),
    Question(
        "freezing",
        "From lesson 05: you write `net.l0.requires_grad = False`. How many parameters does that freeze?",
        Number(),
        0,
        "It sets an attribute that nobody reads. `net.l0.requires_grad_(False)`, with an underscore, freezes both.",
        wrong=(
            Wrong(2, "A module has no `requires_grad` of its own: the line makes a new attribute, and the parameters learn on.", belief=24),
            Wrong(1, "Neither the weight nor the bias is told: the line makes a new attribute of the module.", belief=24),
        ),
        belief=24,
    ),
)


# ---- the first task: snapshot -----------------------------------------------------------------------


def _kept(answer: Any, module: nn.Module) -> dict[str, Tensor]:
    """What an answer keeps of a module, as a plain dict."""
    require_callable(answer, "snapshot")
    kept = answer(module)
    if not isinstance(kept, dict):
        says = "It gives nothing back: is there a `return`?" if kept is None else "Give a dict of names and tensors."
        fail(says, expected="a dict of tensors", got=f"a {type(kept).__name__}")
    other = next((type(value).__name__ for value in kept.values() if not isinstance(value, Tensor)), "")
    if other:
        fail("Give a dict of names and tensors.", expected="a dict of tensors", got=f"a dict with a {other} in it")
    return kept


def _keeps_all(answer: Any) -> None:
    """it has the names and numbers of the state_dict"""
    module = StatefulModule()
    kept, expected = _kept(answer, module), module.state_dict()
    if "buffer2" in kept:
        fail(mistake="more than is saved", expected=[*expected], got=[*kept], evidence=modlab.diff(kept, module))
    if set(kept) == {name for name, _ in module.named_parameters()}:
        fail(mistake="parameters only", expected=[*expected], got=[*kept], evidence=modlab.diff(kept, module))
    require_equal(sorted(kept), sorted(expected), "The names are others.", evidence=modlab.diff(kept, module))
    for name, tensor in expected.items():
        require_equal(kept[name], tensor, f"`{name}` has other numbers.")
        require_equal(kept[name].dtype, tensor.dtype, f"`{name}` has a different dtype.")


def _stays(answer: Any) -> None:
    """training changes nothing of it"""
    net = Net()
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    kept = _kept(answer, net)
    _step(net)
    for name, tensor in before.items():
        if not same(kept[name], tensor):
            live = getattr(kept, "_metadata", None) is not None
            fail(
                mistake="the live state_dict" if live else "a new dict, the same tensors",
                expected=tensor.flatten()[:3],
                got=kept[name].flatten()[:3],
                evidence=modlab.diff(before, kept),
            )


def _buffers_stay(answer: Any) -> None:
    """a buffer that is written in place changes nothing of it"""
    module = nn.BatchNorm1d(3)
    kept = _kept(answer, module)
    module(torch.randn(5, 3))
    require_equal(kept["running_mean"], torch.zeros(3), "BatchNorm has moved its mean, and your copy with it.")
    count = int(kept["num_batches_tracked"])
    require_equal(count, 0, "BatchNorm has counted on, and your copy with it: whole numbers need a copy too.")


def _no_graph(answer: Any) -> None:
    """nothing of it hangs in the graph, also for a buffer with a history"""
    module = RunningMean(3)
    module(torch.randn(3, requires_grad=True))
    for kept in (_kept(answer, module), _kept(answer, Net())):
        for name, tensor in kept.items():
            if tensor.requires_grad:
                fail(mistake="keeps the graph", expected="requires_grad False", got=f"requires_grad True at `{name}`")


def _loads_back(answer: Any) -> None:
    """it can be loaded back"""
    module = StatefulModule()
    kept = _kept(answer, module)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
    module.load_state_dict(kept)
    require_equal(module.param1, kept["param1"], "After loading it back, `param1` is another.")


def _module_stays(answer: Any) -> None:
    """the module stays as it was: its mode, its flags, its gradients"""
    net = Net()
    net.l0.requires_grad_(False)
    net(torch.randn(4)).sum().backward()
    _kept(answer, net)
    now = (net.training, net.l0.weight.requires_grad, net.l1.weight.requires_grad, net.l1.weight.grad is not None)
    names = ("training mode", "l0 frozen", "l1 learns", "l1 has a gradient")
    lost = [name for name, same_as_before in zip(names, (now[0], not now[1], now[2], now[3]), strict=True) if not same_as_before]
    if lost:
        fail("The module is another after it.", expected=", ".join(names), got=f"no longer: {', '.join(lost)}", evidence=modlab.state(net))


SNAPSHOT = Task(
    "snapshot",
    "Write `snapshot(module)`: it gives a dict with the names and numbers of the state_dict, which nothing changes afterwards.",
    starter="""
def snapshot(module):
    ...
""",
    reference="""
def snapshot(module):
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}
""",
    probes=(_keeps_all, _stays, _buffers_stay, _no_graph, _loads_back, _module_stays),
    mistakes=(
        Mistake(
            "the live state_dict",
            """
def snapshot(module):
    return module.state_dict()
""",
            "The values of `state_dict()` share their memory with the model: the next step changes them too.",
            belief=13,
        ),
        Mistake(
            "a new dict, the same tensors",
            """
def snapshot(module):
    return module.state_dict().copy()
""",
            "The dict is a new one, and its tensors share the model's memory. `dict()`, `copy()`, `detach()` and `cpu()` keep it: "
            "`clone()` takes its own.",
            belief=13,
        ),
        Mistake(
            "parameters only",
            """
def snapshot(module):
    return {name: parameter.detach().clone() for name, parameter in module.named_parameters()}
""",
            "Persistent buffers are state too, and they are missing here.",
            belief=11,
        ),
        Mistake(
            "more than is saved",
            """
def snapshot(module):
    tensors = [*module.named_parameters(), *module.named_buffers()]
    return {name: tensor.detach().clone() for name, tensor in tensors}
""",
            "`named_buffers()` also lists the buffers that are not persistent, and no file has them. `state_dict()` has made the choice.",
            belief=11,
        ),
        Mistake(
            "keeps the graph",
            """
def snapshot(module):
    state = module.state_dict(keep_vars=True)
    return {name: tensor.clone() for name, tensor in state.items()}
""",
            "A clone of a parameter is computed from it, and holds on to the graph. What `state_dict()` gives is detached.",
            belief=36,
        ),
        Mistake(
            "a copy of the whole module",
            """
import copy

def snapshot(module):
    return copy.deepcopy(module).state_dict()
""",
            "`deepcopy` refuses a module of which a buffer hangs in the graph. Copy the tensors of the state_dict: they are detached.",
            belief=36,
            error=r"[Oo]nly Tensors created explicitly by the user",
        ),
    ),
    hints=(
        "What `state_dict()` gives is right, except that it goes on changing.",
        "Go through its `items()`, and copy each tensor: `tensor.clone()`.",
    ),
    minutes=4,
    matters="Keeping the best epoch needs this: a `state_dict()` that is not copied goes on changing with the training.",
)


# ---- the second task: adapt -------------------------------------------------------------------------


class _Nested(nn.Module):
    """A child whose name ends in "module"."""

    def __init__(self) -> None:
        super().__init__()
        self.submodule = nn.Linear(3, 2)
        self.norm = nn.BatchNorm1d(2)


def _wrapped(net: nn.Module) -> dict[str, Tensor]:
    return {"module." + name: tensor.clone() for name, tensor in net.state_dict().items()}


def _adapted(answer: Any, net: nn.Module, state: dict[str, Tensor]) -> None:
    """Load a checkpoint into an adapted net."""
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    require_callable(answer, "adapt")
    answer(net)
    hooks = modlab.hooks(net)
    hooked = bool(net._load_state_dict_pre_hooks)
    nowhere: dict[str, Any] = {"expected": "a load pre-hook on the net", "got": f"{len(hooks)} hooks of other kinds", "evidence": hooks}
    try:
        net.load_state_dict(state)
    except RuntimeError as error:
        if "Missing key" not in str(error) and "Unexpected key" not in str(error):
            raise
        _blame(str(error), [*state], [*before], hooks if hooked else None, nowhere)
    if not hooked and any(not torch.equal(before[name], tensor) for name, tensor in net.state_dict().items()):
        fail(mistake="no hook", **nowhere)
    if all(torch.equal(before[name], tensor) for name, tensor in net.state_dict().items()):
        fail(mistake="strict=False", expected=f"{len(before)} tensors loaded", got="0 tensors loaded", evidence=modlab.diff(state, net))


def _blame(error: str, given: list[str], wanted: list[str], hooks: Any, nowhere: dict[str, Any]) -> NoReturn:
    """What the names in an error of `load_state_dict` tell of the hook."""
    if hooks is None:
        fail("No load pre-hook is on the net: `net.register_load_state_dict_pre_hook(...)` puts one there.", **nowhere)
    found = re.findall('"([^"]*)"', error.partition("Unexpected key")[2].partition("\n")[0])
    shown: dict[str, Any] = {"expected": wanted, "got": found, "evidence": hooks}
    if "subweight" in found:
        fail(mistake="replace", **shown)
    if sorted(found) == sorted(given):
        fail(mistake="a dict of its own" if "Missing key" in error else "the old names stay", **shown)
    if found and all(name not in wanted and not name.startswith("module.") for name in found):
        cut = {len(full) - len(name) for name, full in zip(sorted(found), sorted(given), strict=False)}
        fail(mistake="lstrip" if len(cut) > 1 or cut != {7} else "", says="The hook makes names that the net has not.", **shown)
    fail("The names that the hook makes do not fit.", **shown)


def _loads_wrapped(answer: Any) -> None:
    """a checkpoint with `module.` before each name loads, and all tensors are equal"""
    old, net = Net(), Net()
    _adapted(answer, net, _wrapped(old))
    for name, tensor in old.state_dict().items():
        require_equal(net.state_dict()[name], tensor, f"`{name}` is another than in the checkpoint.")


def _loads_nested(answer: Any) -> None:
    """names that hold these letters further on stay whole"""
    old, net = _Nested(), _Nested()
    with torch.no_grad():
        old.norm.running_mean.fill_(3.0)  # type: ignore[union-attr]
    _adapted(answer, net, _wrapped(old))
    for name, tensor in old.state_dict().items():
        require_equal(net.state_dict()[name], tensor, f"`{name}` is another than in the checkpoint.")


def _loads_plain(answer: Any) -> None:
    """a checkpoint without the prefix loads as before"""
    old, net = _Nested(), _Nested()
    answer(net)
    try:
        net.load_state_dict(old.state_dict())
    except RuntimeError as error:
        fail(mistake="cuts every name", expected="submodule.weight", got=str(error).splitlines()[-1].strip())
    for name, tensor in old.state_dict().items():
        require_equal(net.state_dict()[name], tensor, f"`{name}` is another than in the checkpoint.")


def _stays_strict(answer: Any) -> None:
    """loading stays strict: a missing and an unexpected key still raise"""
    missing, unexpected = _wrapped(Net()), _wrapped(Net())
    del missing["module.l1.bias"]
    unexpected["module.l2.bias"] = torch.zeros(1)
    for what, state in (("a missing key", missing), ("an unexpected key", unexpected)):
        net = Net()
        answer(net)
        if not _raises(lambda net=net, state=state: net.load_state_dict(state)):  # type: ignore[misc]
            fail(mistake="silences the check", expected=f"an error for {what}", got="no error")


def _spares_the_checkpoint(answer: Any) -> None:
    """the checkpoint itself stays as it is, and loads a second time"""
    state = _wrapped(Net())
    names = [*state]
    for net in (Net(), Net()):
        answer(net)
        net.load_state_dict(state)
        require_equal([*state], names, "The names in the caller's own dict have changed.")


def _adapt(body: str) -> str:
    return f"""
def adapt(net):
    def rename(module, state_dict, prefix, *rest):
        {body}

    net.register_load_state_dict_pre_hook(rename)
"""


PRE_HOOK = "torch.nn.Module.register_load_state_dict_pre_hook"

ADAPT = Task(
    "adapt",
    "Write `adapt(net)`: it puts a load pre-hook on `net`, with which a checkpoint that has `module.` before each name loads strictly, "
    "and one without it as before.",
    starter="""
def adapt(net):
    ...
""",
    reference="""
def adapt(net):
    def rename(module, state_dict, prefix, *rest):
        for name in list(state_dict):
            if name.startswith("module."):
                state_dict[name.removeprefix("module.")] = state_dict.pop(name)

    net.register_load_state_dict_pre_hook(rename)
""",
    probes=(_loads_wrapped, _loads_nested, _loads_plain, _stays_strict, _spares_the_checkpoint),
    mistakes=(
        Mistake(
            "strict=False",
            """
def adapt(net):
    load = net.load_state_dict
    net.load_state_dict = lambda state_dict, strict=True: load(state_dict, strict=False)
""",
            "It no longer raises, and it loads nothing: the names still differ, and now nobody says so.",
            belief=15,
        ),
        Mistake(
            "replace",
            _adapt('for name in list(state_dict):\n            state_dict[name.replace("module.", "")] = state_dict.pop(name)'),
            "`replace` takes `module.` out wherever it stands, so `submodule.weight` became `subweight`. Take it off the front alone.",
            belief=14,
        ),
        Mistake(
            "changes the dict in its loop",
            _adapt('for name in state_dict:\n            state_dict[name.removeprefix("module.")] = state_dict.pop(name)'),
            "The loop goes over the dict whose keys it changes, and Python stops it. Loop over a list of the names: `list(state_dict)`.",
            error=r"mutated during iteration|changed size during iteration|keys changed during iteration",
        ),
        Mistake(
            "a dict of its own",
            _adapt('return {name.removeprefix("module."): tensor for name, tensor in state_dict.items()}'),
            "Your hook makes a new dict, and what such a hook returns is ignored. Change the one that it was given.",
        ),
        Mistake(
            "cuts every name",
            _adapt("for name in list(state_dict):\n            state_dict[name[7:]] = state_dict.pop(name)"),
            "Something is cut off each name, also where the prefix is not there. Ask with `startswith`, or take `removeprefix`.",
            belief=14,
        ),
        Mistake(
            "lstrip",
            _adapt('for name in list(state_dict):\n            state_dict[name.lstrip("module.")] = state_dict.pop(name)'),
            "The names are cut too far. `lstrip` takes away all the *letters* that it is given, as long as it finds any of them, "
            "and `split` cuts at every place. `removeprefix` takes a word, once, off the front.",
            belief=14,
        ),
        Mistake(
            "the old names stay",
            _adapt('for name in list(state_dict):\n            state_dict[name.removeprefix("module.")] = state_dict[name]'),
            "The new names are there, and the old ones too: those are unexpected now. Take each out as you rename it: `pop`.",
            belief=14,
        ),
        Mistake(
            "too few arguments",
            """
def adapt(net):
    def rename(module, state_dict):
        for name in list(state_dict):
            state_dict[name.removeprefix("module.")] = state_dict.pop(name)

    net.register_load_state_dict_pre_hook(rename)
""",
            "Such a hook is given eight arguments, of which you need two. Let it take the others as well: "
            "`def rename(module, state_dict, *rest)`.",
            error=r"takes \d+ positional arguments? but 8 were given",
        ),
        Mistake(
            "no hook",
            """
def adapt(net):
    load = net.load_state_dict

    def renamed(state_dict, strict=True):
        return load({name.removeprefix("module."): tensor for name, tensor in state_dict.items()}, strict=strict)

    net.load_state_dict = renamed
""",
            "It loads, but not by a hook: `load_state_dict` is replaced on this one object. A hook also runs "
            "where the net is a part of a larger one. Register it: `net.register_load_state_dict_pre_hook(...)`.",
        ),
        Mistake(
            "silences the check",
            """
def adapt(net):
    def rename(module, state_dict, prefix, *rest):
        for name in list(state_dict):
            state_dict[name.removeprefix("module.")] = state_dict.pop(name)

    load = net.load_state_dict
    net.register_load_state_dict_pre_hook(rename)
    net.load_state_dict = lambda state_dict, strict=True: load(state_dict, strict=False)
""",
            "The names are repaired, so nothing need be forgiven any more. Leave loading strict: it finds the next mistake.",
            belief=15,
        ),
    ),
    hints=(
        "The hook gets the dict that will be loaded, and changes it in place. Which keys go out, and which come in?",
        "For each of `list(state_dict)`: if it starts with `module.`, `pop` its tensor, and put it in under the shorter name.",
        'The shorter name is `name.removeprefix("module.")`. Register with `net.register_load_state_dict_pre_hook(rename)`.',
    ),
    minutes=6,
    needs=PRE_HOOK,
    matters="Checkpoints of `DataParallel` and `DistributedDataParallel` have this prefix; with the hook one class reads both.",
)


# ---- the third task: transfer -----------------------------------------------------------------------


class _Classifier(nn.Module):
    """A trunk with a buffer, a norm whose name begins like the head's, and a head."""

    def __init__(self, classes: int, head: str = "head") -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6))
        self.head_norm = nn.LayerNorm(6)
        self.last = head
        self.add_module(head, nn.Linear(6, classes))
        with torch.no_grad():
            for tensor in (*self.parameters(), *self.buffers()):
                if tensor.is_floating_point():
                    tensor.add_(torch.rand_like(tensor))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.get_submodule(self.last)(self.head_norm(self.body(x)).relu())
        return y


def _copy(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in state.items()}


def _transferred(answer: Any, classes: int) -> tuple[dict[str, Tensor], dict[str, Tensor], _Classifier]:
    """The file, the net's numbers before, and the net."""
    require_callable(answer, "transfer")
    state, net = _copy(_Classifier(3).state_dict()), _Classifier(classes)
    before, names = _copy(net.state_dict()), [*state]
    answer(state, net, "head")
    if [*state] != names:
        fail(mistake="takes the file apart", expected=names, got=[*state])
    return state, before, net


def _trunk_loaded(answer: Any) -> None:
    """all but the head has the numbers of the file, buffers too"""
    state, _, net = _transferred(answer, 5)
    now = net.state_dict()
    other = [name for name in now if not name.startswith("head.") and not same(now[name], state[name])]
    shown: dict[str, Any] = {"expected": "none", "got": other, "evidence": modlab.diff(state, net)}
    if other and all("running" in name or "num_batches" in name for name in other):
        fail(mistake="buffers forgotten", **shown)
    if other and all(name.startswith("head_norm.") for name in other):
        fail(mistake="more than the head left out", **shown)
    if other:
        fail("These tensors of the trunk are not those of the file:", **shown)


def _head_kept(answer: Any) -> None:
    """the head keeps its own numbers, also where those of the file would fit"""
    for classes in (5, 3):
        state, before, net = _transferred(answer, classes)
        if not isinstance(net.head, nn.Linear) or net.head.out_features != classes:
            fail("The head is another layer now.", expected=f"Linear(6, {classes})", got=repr(net.head))
        if not same(net.head.weight, before["head.weight"]) or not same(net.head.bias, before["head.bias"]):
            name = "head loaded too" if same(net.head.weight, state["head.weight"]) else "another head"
            fail(mistake=name, expected=before["head.bias"], got=net.head.bias, evidence=modlab.diff(before, net))


def _head_learns_alone(answer: Any) -> None:
    """a training step changes the head alone"""
    _, _, net = _transferred(answer, 5)
    if not all(parameter.requires_grad for parameter in net.get_submodule("head").parameters()):
        fail(mistake="head frozen too", expected="head.weight and head.bias learn", got="frozen", evidence=modlab.state(net))
    before = modlab.snapshot(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, weight_decay=0.1)
    net(torch.randn(7, 4)).square().sum().backward()
    optimizer.step()
    moved = [r.path for r in modlab.diff(before, net).find(kind="parameter") if r.status != "unchanged" and not r.path.startswith("head.")]
    if moved:
        flags = any("requires_grad" in vars(module) for module in net.modules())
        name = "a flag that nobody reads" if flags else "trunk still trained"
        fail(mistake=name, expected="head.weight and head.bias alone", got=moved, evidence=modlab.diff(before, net))
    if not modlab.diff(before, net).find("head.*", status="changed"):
        fail("The head does not learn.", evidence=modlab.diff(before, net))


def _by_name(answer: Any) -> None:
    """the head is the child that was named, whatever its name"""
    state, net = _copy(_Classifier(3, "top").state_dict()), _Classifier(5, "top")
    try:
        answer(state, net, "top")
    except (AttributeError, KeyError, RuntimeError) as error:
        fail(mistake="one name for all", expected="a head named `top`", got=f"{type(error).__name__}: {str(error).splitlines()[0]}")
    learns = [name for name, parameter in net.named_parameters() if parameter.requires_grad]
    if learns != ["top.weight", "top.bias"]:
        fail(mistake="one name for all", expected=["top.weight", "top.bias"], got=learns, evidence=modlab.state(net))
    if not same(net.head_norm.weight, state["head_norm.weight"]):
        fail(mistake="one name for all", expected="head_norm loaded", got="head_norm as before", evidence=modlab.diff(state, net))


def _file_spared(answer: Any) -> None:
    """what happens to the net later does not reach the file's tensors"""
    state, _, net = _transferred(answer, 5)
    old = _copy(state)
    with torch.no_grad():
        for tensor in net.state_dict().values():
            tensor.zero_()
    if any(not torch.equal(old[name], tensor) for name, tensor in state.items()):
        fail(mistake="the file's own tensors", expected=old["body.0.bias"], got=state["body.0.bias"])


def _transfer(*, load: str = "", freeze: str = "parameter.requires_grad_(False)") -> str:
    load = load or (
        'trunk = {name: tensor for name, tensor in state.items() if not name.startswith(head + ".")}\n'
        "    net.load_state_dict(trunk, strict=False)"
    )
    return f"""
def transfer(state, net, head):
    {load}
    for name, parameter in net.named_parameters():
        if not name.startswith(head + "."):
            {freeze}
"""


TRANSFER = Task(
    "transfer",
    "Write `transfer(state, net, head)`: all of `net` but its child named `head` gets the numbers of `state` and is frozen; "
    "the head stays as it is, and learns.",
    starter="""
def transfer(state, net, head):
    ...
""",
    reference="""
def transfer(state, net, head):
    trunk = {name: tensor for name, tensor in state.items() if not name.startswith(f"{head}.")}
    net.load_state_dict(trunk, strict=False)
    net.requires_grad_(False)
    net.get_submodule(head).requires_grad_(True)
""",
    probes=(_trunk_loaded, _head_kept, _head_learns_alone, _by_name, _file_spared),
    mistakes=(
        Mistake(
            "strict=False alone",
            _transfer(load="net.load_state_dict(state, strict=False)"),
            "The head has a different size in the file, and `strict=False` forgives names alone. Leave the head's keys out.",
            belief=16,
            error="size mismatch",
        ),
        Mistake(
            "a missing head",
            _transfer(
                load='trunk = {name: tensor for name, tensor in state.items() if not name.startswith(head + ".")}\n'
                "    net.load_state_dict(trunk)"
            ),
            "You left the head out, and strict loading misses it. Here `strict=False` is right: you know which keys are missing, and why.",
            belief=15,
            error=r"Missing key\(s\)",
        ),
        Mistake(
            "head loaded too",
            _transfer(
                load="own = net.state_dict()\n"
                "    fitting = {name: tensor for name, tensor in state.items() if tensor.shape == own[name].shape}\n"
                "    net.load_state_dict(fitting, strict=False)"
            ),
            "What fits in size was loaded, and so was the old head when it had as many classes. Choose by name.",
        ),
        Mistake(
            "another head",
            """
def transfer(state, net, head):
    trunk = {name: tensor for name, tensor in state.items() if not name.startswith(head + ".")}
    net.load_state_dict(trunk, strict=False)
    net.requires_grad_(False)
    setattr(net, head, nn.Linear(net.get_submodule(head).in_features, net.get_submodule(head).out_features))
""",
            "The head has other numbers than before, and they are not those of the file: you made it anew, or drew it again. "
            "It should stay as it is.",
        ),
        Mistake(
            "one name for all",
            """
def transfer(state, net, head):
    trunk = {name: tensor for name, tensor in state.items() if not name.startswith("head.")}
    net.load_state_dict(trunk, strict=False)
    net.requires_grad_(False)
    net.head.requires_grad_(True)
""",
            "It works for a child called `head` alone. Which child is the head says the argument `head`: `net.get_submodule(head)`.",
        ),
        Mistake(
            "trunk still trained",
            _transfer(freeze="pass"),
            "The trunk is loaded, and learns on: after some steps it is no longer the old one. Freeze its parameters.",
            belief=24,
        ),
        Mistake(
            "a flag that nobody reads",
            """
def transfer(state, net, head):
    trunk = {name: tensor for name, tensor in state.items() if not name.startswith(head + ".")}
    net.load_state_dict(trunk, strict=False)
    for name, child in net.named_children():
        if name != head:
            child.requires_grad = False
""",
            "`module.requires_grad = False` makes a new attribute, and the parameters learn on. The method has an underscore: "
            "`module.requires_grad_(False)`.",
            belief=24,
        ),
        Mistake(
            "head frozen too",
            """
def transfer(state, net, head):
    trunk = {name: tensor for name, tensor in state.items() if not name.startswith(head + ".")}
    net.load_state_dict(trunk, strict=False)
    net.requires_grad_(False)
""",
            "All of the net is frozen, so nothing learns. Let the head learn again.",
        ),
        Mistake(
            "buffers forgotten",
            _transfer(
                load="for name, parameter in net.named_parameters():\n"
                '        if not name.startswith(head + "."):\n'
                "            parameter.data.copy_(state[name])"
            ),
            "The parameters are loaded, and BatchNorm's running mean and variance are not: they are buffers.",
            belief=11,
        ),
        Mistake(
            "more than the head left out",
            _transfer(
                load="trunk = {name: tensor for name, tensor in state.items() if not name.startswith(head)}\n"
                "    net.load_state_dict(trunk, strict=False)"
            ),
            "`head_norm.weight` begins with `head` too, and is not a part of the head. The dot belongs to the prefix.",
            belief=14,
        ),
        Mistake(
            "takes the file apart",
            _transfer(
                load="for name in list(state):\n"
                '        if name.startswith(head + "."):\n'
                "            del state[name]\n"
                "    net.load_state_dict(state, strict=False)"
            ),
            "The caller's own dict has lost its head. Make a new dict.",
        ),
        Mistake(
            "the file's own tensors",
            _transfer(
                load='trunk = {name: tensor for name, tensor in state.items() if not name.startswith(head + ".")}\n'
                "    net.load_state_dict(trunk, strict=False, assign=True)"
            ),
            "Your net holds the dict's own tensors, as with `assign=True`: what changes the one changes the other. Copy the numbers.",
            belief=13,
        ),
    ),
    hints=(
        "Three steps: choose the keys, load them, freeze.",
        "Which keys belong to the head? Those that start with its name *and a dot*. Load the others with `strict=False`.",
        "`net.requires_grad_(False)` freezes all, `net.get_submodule(head).requires_grad_(True)` lets the head learn again.",
    ),
    minutes=7,
    matters="This is transfer learning: the trunk of a trained model, and a head of your own.",
)

MEMORY = Drawing(
    "whose numbers they are",
    "The weight of the net and its entry in state_dict() are two tensors over one memory, so a step changes both. "
    "The entry of a copied dict is the same tensor. Only clone() makes numbers of its own.",
    {
        "net": Vertex("net.l1.weight", (0, 0), "an nn.Parameter"),
        "live": Vertex('live["l1.weight"]', (0, 1), "a plain tensor; so in copied"),
        "cloned": Vertex('cloned["l1.weight"]', (0, 2), "made by clone()"),
        "one": Vertex("the numbers", (1, 0), "one memory:\na step changes them for all", look="memory"),
        "own": Vertex("numbers of its own", (1, 2), "as they were", look="memory"),
    },
    [Arrow("net", "one"), Arrow("live", "one"), Arrow("cloned", "own")],
)

LESSON = Content(
    name="08_save_load_repair",
    title="Save, load, repair",
    goal="save a model, load it, repair a file that does not fit, and keep a snapshot that stays",
    minutes=35,
    after=("05_training_loop", "07_state"),
    predictions=PREDICTIONS,
    recalls=RECALLS,
    tasks=(SNAPSHOT, ADAPT, TRANSFER),
    drawings=(MEMORY,),
)
