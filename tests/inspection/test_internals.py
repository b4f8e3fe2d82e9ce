"""The stores of nn.Module: all are shown, with what they hold; and where an assignment goes is told as torch does it."""

import copy
import gc
import pickle
import re
import subprocess
import sys
import warnings
import weakref
from collections import OrderedDict
from html import unescape

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

import modlab
from modlab import format
from modlab.errors import GoneError, NotAModuleError, PathNotFoundError
from modlab.inspection import internals, stores
from modlab.inspection.routes import Route
from modlab.lessons.note import StatefulModule
from modlab.records.internals import RouteRecord
from tests import zoo
from tests.test_identity import everything

BLOG = (
    "training",
    "_parameters",
    "_buffers",
    "_non_persistent_buffers_set",
    "_backward_pre_hooks",
    "_backward_hooks",
    "_is_full_backward_hook",
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
    "_modules",
)
CLASS_LEVEL = ("_version", "call_super_init", "dump_patches")
METHODS = (
    "forward",
    "parameters",
    "named_parameters",
    "buffers",
    "named_buffers",
    "children",
    "named_children",
    "modules",
    "named_modules",
    "to",
    "state_dict",
    "load_state_dict",
    "train",
    "eval",
)


def quiet(*_):
    return None


def route(module, name, value):
    return modlab.internals(module).route(name, value)


def empty_constructor(self):
    return None


Forgot = type("Forgot", (nn.Module,), {"__init__": empty_constructor})


# ---- what is shown


def test_every_store_that_the_blog_names_is_shown():
    result = modlab.internals(nn.Linear(2, 2))
    paths = [r.path for r in result]
    assert set(BLOG) | set(CLASS_LEVEL) | set(METHODS) <= set(paths) and len(set(paths)) == len(paths)
    assert [r.path for r in result if r.section == "instance"] == list(vars(nn.Module())), "in torch's own order"
    text, page = str(result), result.html(bundle=False)
    assert all(path in text and path in page for path in paths)


def test_every_store_of_today_has_words():
    for record in modlab.internals(nn.Linear(2, 2)):
        assert record.known and (record.purpose or record.section == "own")
        if record.section == "instance":
            assert record.writes and record.reads


def test_the_public_methods_that_are_named_exist_and_write_there():
    """Each method that is said to write a store changes just that store and its companions."""
    for name in stores.HOOKS:
        method = re.match(r"register_\w+", internals.STORES[name].writes)[0]
        module = nn.Linear(1, 1)
        getattr(module, method)(quiet)
        assert len(vars(module)[name]) == 1, name
    for name, words in (internals.STORES | internals.ON_CLASS).items():
        for method in re.findall(r"(\w+)\(\)", f"{words.writes} {words.reads}"):
            assert hasattr(nn.Module, method) or hasattr(nn, method), (name, method)


def test_a_store_of_a_future_torch_is_shown():
    code = (
        "import torch.nn as nn\n"
        "first = nn.Module.__init__\n"
        "def init(self, *args, **kwargs):\n"
        "    first(self, *args, **kwargs)\n"
        "    object.__setattr__(self, '_sharding_plan', {'weight': 3})\n"
        "nn.Module.__init__ = init\n"
        "nn.Module._layout = 'rows'\n"
        "import modlab\n"
        "result = modlab.internals(nn.Linear(1, 1))\n"
        "print(result['_sharding_plan'].section, result['_sharding_plan'].holds, result['_layout'].holds, result.headline)\n"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert answer.startswith("instance weight int 'rows' Linear: _sharding_plan, _layout are new in this torch;")


def test_contents_are_those_of_the_module():
    module = StatefulModule()
    module.register_forward_hook(quiet, with_kwargs=True)
    result = modlab.internals(module)
    assert dict(result["_parameters"].entries) == {"param1": "(2,)", "param2": "(3,)", "param3": "reserved"}
    assert dict(result["_buffers"].entries) == {"buffer1": "(4,)", "buffer2": "(5,) non-persistent", "buffer3": "reserved"}
    assert [name for name, _ in result["_modules"].entries] == list(module._modules)
    assert result["_non_persistent_buffers_set"].entries == (("buffer2", ""),)
    assert result["_forward_hooks"].entries == result["_forward_hooks_with_kwargs"].entries == (("quiet", ""),)
    assert result["training"].holds == "True" and modlab.internals(module.eval())["training"].holds == "False"
    for name in BLOG:
        held = vars(module)[name]
        assert result[name].type == type(held).__name__
        assert result[name].count == (len(held) if hasattr(held, "__len__") else None)


def test_the_surprising_facts_are_visible():
    norm = nn.BatchNorm1d(3)
    norm.register_buffer("tmp", torch.ones(2), persistent=False)
    result = modlab.internals(norm)
    assert result["_buffers"].note == "both kinds: 3 persistent, 1 not" and "both kinds: 3 persistent, 1 not" in str(result)
    assert result.headline.startswith("BatchNorm1d: _buffers holds both kinds: 3 persistent, 1 not;")
    assert modlab.internals(StatefulModule())["_buffers"].note == "both kinds: 1 persistent, 1 not, 1 reserved"
    assert (result["_version"].holds, result["_version"].home) == (str(norm.state_dict()._metadata[""]["version"]), "_NormBase")
    assert result["_is_full_backward_hook"].holds == "None" and result["_state_dict_hooks"].holds == "empty"
    assert {result[name].type for name in ("_parameters", "_buffers", "_modules")} == {"dict"}
    norm.register_full_backward_hook(quiet).remove()
    after = modlab.internals(norm)
    assert after["_is_full_backward_hook"].holds == "True" and not norm._backward_hooks
    assert after.headline.startswith("BatchNorm1d: _is_full_backward_hook is still True, though no backward hook is left;")
    legacy = nn.Linear(1, 1)
    legacy.register_backward_hook(quiet)
    assert modlab.internals(legacy)["_is_full_backward_hook"].holds == "False"


def test_own_attributes():
    module = nn.Linear(2, 3)
    module.note, module.scale, module.parts = "x" * 500, torch.ones(3), [nn.ReLU()]
    module.function, module.shape, module.odd = quiet, (1, None), zoo._Odd()
    result = modlab.internals(module)
    own = {r.path: (r.holds, r.note) for r in result if r.section == "own"}
    assert own.keys() == vars(module).keys() - set(BLOG) - set(METHODS)
    assert own["in_features"] == ("2", "") and own["shape"] == ("(1, None)", "") and own["odd"] == ("_Odd", "")
    assert own["scale"] == ("(3,)", "not registered: a plain tensor") and own["parts"] == ("list of 1", "not registered: modules in it")
    assert len(own["note"][0]) < 100 and own["function"][0] == "function"


def test_methods_say_who_defines_them():
    class Mine(nn.Module):
        def parameters(self, recurse=True):
            return iter(())

    result = modlab.internals(Mine())
    assert result["forward"].missing and result["forward"].note == "calling raises NotImplementedError"
    assert (result["parameters"].home, result["parameters"].note, result["eval"].home) == ("Mine", "overridden", "Module")
    module = nn.Linear(1, 1)
    module.forward = quiet
    assert modlab.internals(module)["forward"].home == "the object itself" and modlab.internals(nn.ReLU())["forward"].home == "ReLU"
    module.compile(backend="eager")
    assert modlab.internals(module)["_compiled_call_impl"].home == "the object itself"


def test_a_forgotten_super_init():
    result = modlab.internals(Forgot())
    assert all(r.missing for r in result if r.section == "instance")
    assert result.headline == (
        "Forgot: super().__init__() has not run; 17 of the 17 stores are missing, so it accepts no parameters or children."
    )
    assert "super().__init__()" in str(result).splitlines()[-2]


@pytest.mark.parametrize("case", [c for c in zoo.CASES if not c.large], ids=str)
def test_looking_changes_nothing(case):
    model = case.build()
    before = everything(model)
    results = [modlab.internals(model) for _ in range(2)]
    faces = [(str(r), r.html(), r.headline, repr(r.to_dict())) for r in results]
    assert faces[0] == faces[1] and not re.search(r"0x[0-9a-f]{6,}", faces[0][0])
    results[0].route("anything", 3)
    assert everything(model) == before


@pytest.mark.parametrize("name", ["scripted", "traced", "compiled", "data_parallel", "fx_graph", "unpickled_older", "quantized_dynamic"])
def test_odd_modules_show_their_stores(name):
    model = zoo.named(name).build()
    result = modlab.internals(model)
    assert not [r.path for r in result if r.section == "instance" and r.missing]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert {n for n, _ in result["_modules"].entries} == {n for n, _ in model.named_children()} and result["_modules"].count
    assert result["training"].holds == str(model.training)


def test_many_entries_are_cut_and_counted():
    result = modlab.internals(nn.Sequential(*(nn.ReLU() for _ in range(3000))))
    assert result["_modules"].count == 3000 and len(result["_modules"].entries) == 200
    assert result["_modules"].holds == "0 ReLU, 1 ReLU, 2 ReLU, … 2,997 more" and len(result.html()) < 200_000


def test_wrong_questions_teach():
    result = modlab.internals(nn.Linear(1, 1))
    with pytest.raises(PathNotFoundError, match="Nearest: '_parameters'"):
        result["_parameter"]
    with pytest.raises(NotAModuleError, match=r"modlab\.internals"):
        modlab.internals(nn.Linear)


def test_the_module_is_freed():
    module = nn.Linear(2, 2)
    result = modlab.internals(module)
    result.route("w", module.weight)
    text, gone = str(result), weakref.ref(module)
    del module
    gc.collect()
    assert gone() is None and str(result) == text
    with pytest.raises(GoneError):
        result.route("w", 3)


# ---- where an assignment goes: torch is asked, on a copy


class Odd(nn.Module):
    """Everything that a name may already be."""

    on_class = 3
    other = nn.ReLU()

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(2))
        self.register_parameter("no_w", None)
        self.register_buffer("b", torch.ones(2))
        self.register_buffer("t", torch.ones(2), persistent=False)
        self.register_buffer("no_b", None)
        self.child = nn.Linear(1, 1)
        self.add_module("no_child", None)
        self.plain = 3
        self.tensor = torch.ones(2)
        self._parameters["both"] = nn.Parameter(torch.ones(1))
        self.__dict__["both"] = 3

    @property
    def fixed(self):
        return 3

    @property
    def fails(self):
        raise ValueError("a property that raises")

    def method(self):
        return None


class Slotted(Odd):
    __slots__ = ("filled", "slot")

    def __init__(self):
        super().__init__()
        object.__setattr__(self, "filled", 3)


class Answers(Odd):
    def __getattr__(self, name):
        return super().__getattr__(name)


MODULES = {
    "odd": Odd,
    "slotted": Slotted,
    "answers": Answers,
    "forgot": Forgot,
    "linear": lambda: nn.Linear(2, 2),
    "norm": lambda: nn.BatchNorm1d(2),
}
NAMES = (
    "new",
    "w",
    "no_w",
    "b",
    "t",
    "no_b",
    "child",
    "no_child",
    "plain",
    "tensor",
    "both",
    "on_class",
    "other",
    "fixed",
    "method",
    "forward",
    "training",
    "_buffers",
    "parameters",
    "a.b",
    "",
    "weight",
    "bias",
    "running_mean",
    "slot",
    "filled",
    "__doc__",
    "naïve name",
)


class Torchish:
    """Not a tensor, but torch takes it for one."""

    @classmethod
    def __torch_function__(cls, *_):
        return NotImplemented


class RaisesWhenAsked:
    @property
    def __class__(self):
        raise ValueError("no class for you")


def values():
    lazy = nn.LazyLinear(2)
    leaf = nn.Parameter(torch.ones(2))
    return {
        "parameter": leaf,
        "lazy": lazy.weight,
        "frozen": nn.Parameter(torch.ones(1), requires_grad=False),
        "buffer": nn.Buffer(torch.ones(2)),
        "transient": nn.Buffer(torch.ones(2), persistent=False),
        "tensor": torch.ones(2),
        "computed": torch.ones(2, requires_grad=True) * 2,
        "int tensor": torch.ones(2, dtype=torch.int64),
        "module": nn.ReLU(),
        "class": nn.ReLU,
        "none": None,
        "int": 3,
        "text": "x",
        "list": [nn.ReLU()],
        "function": quiet,
        "torchish": Torchish(),
        "liar": zoo.LyingClass() if hasattr(zoo, "LyingClass") else 3,
        "raises": RaisesWhenAsked(),
        "non leaf parameter": non_leaf(),
    }


def non_leaf():
    """A parameter that was computed: torch sees it by its grad_fn."""
    made = torch.ones(2, requires_grad=True) * 2
    made._is_param = True
    return made


ROOMS = ("_parameters", "_buffers", "_modules")


def where(module, name):
    """The stores that hold a name, and whether as what."""
    held = object.__getattribute__(module, "__dict__")
    found = {room: id(held[room][name]) for room in ROOMS if isinstance(held.get(room), dict) and name in held[room]}
    if name in held:
        found["__dict__"] = id(held[name])
    if name in held.get("_non_persistent_buffers_set", ()):
        found["transient"] = 1
    return found


CASES = [(kind, name, value) for kind in MODULES for name in NAMES for value in values()]


@pytest.mark.parametrize("kind", MODULES)
def test_route_says_what_torch_does(kind):
    """Every kind of module, name and value: the same store, the same error to the word, the same name removed elsewhere."""
    decided = 0
    for name in NAMES:
        for label, value in values().items():
            module = MODULES[kind]()
            before = where(module, name)
            state = everything(module) if "_modules" in vars(module) else None
            answer = route(module, name, value)
            assert state is None or everything(module) == state, "nothing is done"
            assert where(module, name) == before
            about = (kind, name, label, answer)
            if answer.store == "?":
                assert name in ("__doc__",) or "decides" in answer.reason, about
                continue
            decided += 1
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    setattr(module, name, value)
                    raised = ("", "")
                except Exception as error:  # noqa: BLE001 - whatever torch raises is the answer
                    raised = (type(error).__name__, error.args[0])
            assert (answer.error, answer.message) == raised, about
            after = where(module, name)
            left = {("transient" if room == "_non_persistent_buffers_set" else room) for room in answer.leaves}
            assert before.keys() - after.keys() >= left - {"transient"} and left <= before.keys(), about
            if raised == ("", ""):
                home = "slot" if answer.store == "class" else answer.store
                if home == "slot":
                    assert object.__getattribute__(module, name) is value, about
                else:
                    assert after.get(home) == id(value), about
                    assert {room for room in after if room not in ("transient", home)} == set(before) - left - {"transient", home}, about
                if answer.store == "_buffers":
                    assert answer.persistent is ("transient" not in after), about
    assert decided > 400


def test_routes_are_mostly_certain():
    answers = [route(Odd(), name, value) for name in NAMES for value in values().values()]
    unknown = [answer for answer in answers if answer.store == "?"]
    assert len(unknown) < len(answers) / 20, unknown[:3]


def test_names_that_are_no_text():
    answer = route(nn.Linear(1, 1), 3, 3)
    with pytest.raises(TypeError) as caught:
        setattr(nn.Linear(1, 1), 3, 3)
    assert (answer.error, answer.message) == ("TypeError", str(caught.value))


def test_a_setattr_of_its_own_is_not_guessed():
    class Mine(nn.Module):
        def __setattr__(self, name, value):
            raise AssertionError("must not run")

    module = Mine.__new__(Mine)
    nn.Module.__init__(module)
    answer = route(module, "w", 3)
    assert answer.store == "?" and "Mine has its own __setattr__" in str(answer)
    assert route(zoo.named("scripted").build(), "w", 3).store == "?"
    assert route(zoo.named("compiled").build(), "w", 3).store == "?"


def test_register_methods_and_properties_of_its_own_are_not_guessed():
    class Mine(nn.Module):
        def register_buffer(self, name, tensor):
            raise AssertionError("must not run")

        def register_parameter(self, name, param):
            raise AssertionError("must not run")

        @property
        def settable(self):
            raise AssertionError("must not run")

        @settable.setter
        def settable(self, value):
            raise AssertionError("must not run")

    module = Mine()
    result = modlab.internals(module)
    for name, value in (("b", nn.Buffer(torch.ones(1))), ("w", nn.Parameter(torch.ones(1))), ("settable", 3)):
        assert result.route(name, value).store == "?"
    assert result.route("m", nn.ReLU()).store == "_modules"


def test_global_registration_hooks_are_mentioned():
    handle = torch_module.register_module_parameter_registration_hook(quiet)
    try:
        notes = route(nn.Linear(1, 1), "w", nn.Parameter(torch.ones(1))).notes
    finally:
        handle.remove()
    assert notes == ("1 global parameter registration hook may replace the value first.",)


def test_the_facts_of_the_note():
    """Section 4: what a reserved name takes and refuses, to the word."""
    module = StatefulModule()
    result = modlab.internals(module)
    refused = result.route("param3", torch.ones(3))
    assert refused.error == "TypeError" and refused.message.startswith("cannot assign 'torch.FloatTensor' as parameter 'param3'")
    assert result.route("buffer3", "text").error == "TypeError"
    turned = result.route("buffer3", nn.Parameter(torch.ones(2)))
    assert turned.store == "_parameters" and turned.leaves == ("_buffers",)
    assert "The name was a buffer, and becomes a parameter, without a warning." in str(turned)
    assert result.route("buffer1", nn.ReLU()).store == "_modules"
    assert "its key leaves the state_dict" in str(result.route("param1", None))
    plain = result.route("new", torch.ones(2))
    assert plain.store == "__dict__" and "Not in the state_dict" in str(plain)
    assert route(Forgot(), "conv1", nn.ReLU()).message == "cannot assign module before Module.__init__() call"
    hidden = result.route("layers", [nn.ReLU()])
    assert hidden.store == "__dict__" and "nn.ModuleList" in str(hidden)


def test_a_route_keeps_nothing():
    value = nn.Parameter(torch.ones(2))
    answer = route(nn.Linear(1, 1), "w", value)
    gone = weakref.ref(value)
    del value
    gc.collect()
    assert gone() is None and str(answer) == "w = nn.Parameter (2,) → _parameters: an nn.Parameter always goes there"


def test_hostile_names():
    module = nn.Linear(1, 1)
    for name in zoo.HOSTILE:
        module.__dict__[name] = name
        module._buffers[name] = torch.ones(1)
    result = modlab.internals(module)
    assert len(str(result).splitlines()) == len(result) + 2 + 4, "a name stays on its line"
    assert result.html() and result.route(zoo.HOSTILE[0], 3)


def test_the_copies_in_these_tests_are_no_zoo():
    assert isinstance(copy.deepcopy(Odd()), Odd) and issubclass(type(nn.Buffer(torch.ones(1))), Tensor)
    assert Route(nn.Linear(1, 1), "w", 3).found().store == "__dict__" and isinstance(nn.Linear(1, 1)._forward_hooks, OrderedDict)


def test_what_depends_on_a_getter_says_so():
    """torch asks ``hasattr``, which runs it; a route does not."""

    class Guarded(nn.Module):
        @property
        def inner(self):
            raise AttributeError("not yet")

    module = Guarded()
    found = modlab.internals(module).route("inner", nn.Parameter(torch.ones(1)))
    assert found.error == "KeyError" and any("runs the property's getter" in note for note in found.notes)
    module.inner = nn.Parameter(torch.ones(1))
    assert "inner" in module._parameters, "as the note says, torch goes on"


def test_a_parameter_in_the_place_of_its_own_store():
    module = nn.Linear(1, 1)
    found = modlab.internals(module).route("_parameters", nn.Parameter(torch.ones(1)))
    with pytest.raises(AttributeError) as error:
        module._parameters = nn.Parameter(torch.ones(1))
    assert (found.error, found.message) == ("AttributeError", str(error.value)) and found.leaves == ("__dict__",)


# ---- the face of one route


@pytest.mark.parametrize(
    ("name", "value"),
    [("weight", 3), ("weight", nn.Parameter(torch.ones(2, 2))), ("scale", torch.ones(2)), ("bias", None), ("<script>&\n", [torch.ones(1)])],
)
def test_a_route_has_a_card_that_says_what_its_text_says(name, value):
    net = nn.Linear(2, 2)
    answer = route(net, name, value)
    page = answer._repr_html_()
    assert page == answer.html() == route(net, name, value).html()
    assert "<script" not in page and " at 0x" not in page
    shown = " ".join(unescape(re.sub(r"<[^>]+>", "", page.partition("</style>")[2])).split())
    start, why, *more = answer.told
    assert str(answer) == "\n  ".join((f"{start}: {why}", *more))
    for part in (f"ROUTE {start}: {why}", *more):
        assert " ".join(format.clean(part).split()) in shown


def test_a_route_is_a_record_still():
    net = nn.Linear(2, 2)
    answer = route(net, "scale", torch.ones(2))
    assert isinstance(answer, RouteRecord)
    assert pickle.loads(pickle.dumps(answer)) == answer == copy.deepcopy(answer)
    with pytest.raises(AttributeError):
        answer.store = "_buffers"
    kept = weakref.ref(net)
    del net
    gc.collect()
    assert kept() is None and answer.html()
