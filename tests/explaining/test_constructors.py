"""Names and constructors, optimizers and devices: what explain says of them, and that what it offers works."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import modlab
from tests.explaining.test_provenance import Program

NET = """
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(4, 4)
            self.layers = [nn.Linear(4, 4), nn.Linear(4, 4)]
        def forward(self, x):
            x = self.first(x)
            for layer in self.layers:
                x = layer(x)
            return x
"""


def explained(text):
    return Program(text).explained()


def codes(result):
    return [fix.code for fix in result.fixes if fix.code]


def runs(text, result, old):
    """Run the program with the first line that is offered in place of the old one."""
    program = Program(text)
    place = next(i for i, line in enumerate(program.lines) if line.strip() == old)
    indent = program.lines[place][: len(program.lines[place]) - len(program.lines[place].lstrip())]
    return program.run([*program.lines[:place], *(indent + line for line in codes(result)[0].splitlines()), *program.lines[place + 1 :]])


# ---- a dtype that does not reach what is hidden


def test_a_change_of_the_model_does_not_reach_a_plain_list():
    text = NET + "    net = Net().double()\n    net(torch.zeros(2, 4).double())"
    result = explained(text)
    assert result.headline.startswith("layers[0] got float64, but has float32 weights.")
    assert "layers (list of 2 Linear), which PyTorch does not see" in result.headline
    assert codes(result) == ["self.layers = nn.ModuleList(self.layers)"]
    runs(text.replace("nn.Linear(4, 4)]", "nn.Linear(4, 4)]\n            pass"), result, "pass")


def test_where_only_the_input_is_double_the_list_is_named_for_the_other_way():
    text = NET + "    net = Net()\n    del net._modules['first']\n    net.first = nn.Identity()\n    net(torch.zeros(2, 4).double())"
    result = explained(text)
    assert codes(result) == ["net(torch.zeros(2, 4).double().float())", "self.layers = nn.ModuleList(self.layers)"]
    assert ".double()" not in codes(result)[1]


def test_a_registered_layer_is_offered_the_change_as_before():
    result = explained("net = nn.Sequential(nn.Linear(4, 4))\nnet(torch.zeros(2, 4).double())")
    assert codes(result)[1] == "net.double()"


def test_a_plain_tensor_stays_behind_too():
    text = """
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(4, 4)
            self.scale = torch.ones(4, 4)
            pass
        def forward(self, x):
            return self.first(x) @ self.scale
    net = Net().double()
    net(torch.zeros(2, 4).double())
    """
    result = explained(text)
    assert "self.scale is not a buffer" in result.headline
    runs(text, result, "pass")


# ---- names


@pytest.mark.parametrize(
    ("line", "said", "fix"),
    [
        ('nn.ModuleDict({"training": nn.ReLU()})', "'training' already", "nn.ModuleDict({'training_': nn.ReLU()})"),
        ('nn.ModuleDict({"pop": nn.ReLU()})', "'pop' already", "nn.ModuleDict({'pop_': nn.ReLU()})"),
        ('nn.ModuleDict({"a.b": nn.ReLU()})', "cannot hold a dot: 'a.b'", "nn.ModuleDict({'a_b': nn.ReLU()})"),
        ("nn.ModuleDict({3: nn.ReLU()})", "must be a string, but this one has type int", "nn.ModuleDict({'3': nn.ReLU()})"),
        ('nn.Module().add_module("x.y", nn.ReLU())', "cannot hold a dot: 'x.y'", "nn.Module().add_module('x_y', nn.ReLU())"),
        ('nn.ParameterDict({"a.b": torch.ones(1)})', "cannot hold a dot: 'a.b'", "nn.ParameterDict({'a_b': torch.ones(1)})"),
    ],
)
def test_a_key_that_cannot_be_taken(line, said, fix):
    result = explained(line)
    assert said in result.headline and codes(result) == [fix]
    runs(line, result, line)


@pytest.mark.parametrize(
    "line", ['nn.ModuleDict({"": nn.ReLU()})', 'nn.Module().register_buffer("", torch.ones(1))', 'nn.ParameterDict({"": torch.ones(1)})']
)
def test_a_name_cannot_be_empty(line):
    result = explained(line)
    assert "name cannot be empty" in result.headline and result.family == "registration" and not codes(result)


def test_another_key_is_none_that_is_there():
    result = explained('nn.ModuleDict({"a_b": nn.ReLU(), "a.b": nn.ReLU()})')
    assert not codes(result)


@pytest.mark.parametrize("call", ['self.add_module("scale", nn.ReLU())', 'self.register_buffer("scale", torch.ones(1))'])
def test_what_was_assigned_before_is_registered_at_once(call):
    text = f"class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.scale = 1\n        {call}\nNet()"
    assert codes(explained(text)) == [f"{call.partition(',')[0]}, ...)"]


def test_a_name_of_another_kind_is_no_plain_attribute():
    result = explained("net = nn.Linear(2, 2)\nnet.register_buffer('weight', torch.ones(1))")
    assert "It is already a parameter." in result.headline and codes(result) == ["net.register_buffer('weight_', torch.ones(1))"]


# ---- super().__init__(), too late


def late(*lines, name="Net"):
    return f"class {name}(nn.Module):\n    def __init__(self, *_):\n" + "\n".join(f"        {line}" for line in lines) + f"\n{name}()"


@pytest.mark.parametrize(
    "lines",
    [
        ("self.a = nn.ReLU()", "super().__init__()"),
        ("self.a = nn.ReLU(); super().__init__()",),
        ("self.a = nn.ReLU()", "super(", "    ).__init__()"),
        ("self.a = nn.ReLU()", "nn.Module.__init__(self)"),
        ("self.a = nn.ReLU()", "super(Net, self).__init__()"),
        ("self.register_buffer('a', torch.ones(1))", "super().__init__()"),
        ("self.a = self.training", "super().__init__()"),
        ("self.to('cpu')", "super().__init__()"),
    ],
)
def test_too_late_is_not_never(lines):
    result = explained(late(*lines))
    assert result.headline.startswith("Net calls super().__init__() too late: it ")
    (code,) = codes(result)
    assert code.count("__init__(") == 2
    Program(code + "\nNet()").run()


@pytest.mark.parametrize(
    "lines",
    [
        ("self.a = nn.ReLU()", "if self.a is not None:", "    super().__init__()"),
        ("self.a = nn.ReLU()", "init = super().__init__", "init()"),
    ],
)
def test_where_it_stands_inside_of_a_statement_no_class_is_written(lines):
    """Called twice, it would empty the module."""
    result = explained(late(*lines))
    assert "too late" in result.headline and not codes(result)


def test_without_its_source_too():
    scope = {"nn": nn, "torch": torch}
    exec(late("self.a = nn.ReLU()", "super().__init__()").removesuffix("\nNet()"), scope)
    with pytest.raises(AttributeError) as caught:
        scope["Net"]()
    assert "too late" in modlab.explain(caught.value).headline


@pytest.mark.parametrize(
    "lines",
    [
        ("self.a = nn.ReLU()",),
        ("self.a = nn.ReLU()", "# super().__init__()"),
        ("# super().__init__()", "self.a = 1", "self.b = nn.ReLU()"),
    ],
)
def test_never_is_never(lines):
    assert "never calls super().__init__()" in explained(late(*lines)).headline


def test_another_method_that_calls_it_is_not_overlooked():
    text = late("self.a = nn.ReLU()", "self.finish()").replace("\nNet()", "\n    def finish(self):\n        super().__init__()\nNet()")
    result = explained(text)
    assert "before super().__init__() has run" in result.headline and not codes(result)


# ---- whose full backward hook it is

HOOKED = """
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.r, self.b, self.c = nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 4), nn.Linear(4, 4)
            for layer in (self.a, self.b, self.c):
                layer.register_full_backward_hook(lambda module, grads, outputs: None)
        def forward(self, x):
            {}
    Net()(torch.zeros(2, 4))
"""


def hooked(*lines):
    return explained(HOOKED.format("\n            ".join(lines)))


@pytest.mark.parametrize(
    ("lines", "whose"),
    [
        (("return self.c(self.b(self.r(self.a(x))))",), "a"),
        (("return self.r(self.c(self.b(self.a(x))))",), "c"),
        (("h = self.a(x)", "h += 1", "return self.b(h)"), "a"),
        (("h = self.a(x)", "g = self.b(h)", "g.mul_(h)"), "b"),
        (("h = self.a(x)", "g = self.b(h)", "torch.relu_(g)"), "b"),
        (("h = self.a(x)", "g = self.b(h)", "if x is not None: g = h", "g.mul_(2)"), "a"),
        (("g = self.a(x)", "for _ in range(2): g = self.b(g)", "g.mul_(2)"), "b"),
    ],
)
def test_the_hook_is_that_of_the_module_whose_output_it_is(lines, whose):
    result = hooked(*lines)
    assert f"which is the output of {whose} with its full backward hook" in result.headline
    assert [fact for fact in result.record.facts if fact[1] == "full backward hook"] == [(f"{whose} (Linear)", "full backward hook")]


@pytest.mark.parametrize(
    "lines",
    [
        ("h = self.a(x)", "g = self.b(h)", "if x.sum() < 9: g = h", "g.mul_(2)"),
        ("g = self.a(x)", "for _ in range(int(x.sum())): g = self.b(g)", "g.mul_(2)"),
    ],
)
def test_where_the_code_does_not_show_it_no_module_is_named(lines):
    result = hooked(*lines)
    assert "a full backward hook has turned into a view" in result.headline
    assert not any("hook" in value for _, value in result.record.facts)


def test_a_hook_on_the_module_that_changes_its_input():
    text = """
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 4))
    net[1].register_full_backward_hook(lambda module, grads, outputs: None)
    net[2].register_full_backward_hook(lambda module, grads, outputs: None)
    net(torch.zeros(2, 4))
    """
    result = explained(text)
    assert "1 (ReLU) changes its input in place, which its own full backward hook has turned into a view." in result.headline


def test_outside_of_any_module():
    text = """
    net, other = nn.Linear(4, 4), nn.Linear(4, 4)
    net.register_full_backward_hook(lambda module, grads, outputs: None)
    other.register_full_backward_hook(lambda module, grads, outputs: None)
    y = net(torch.zeros(2, 4))
    z = other(y)
    y.mul_(2)
    """
    result = explained(text)
    assert "which is the output of net with" in result.headline.replace("Linear", "net")
    assert len(result.record.facts) == 1


# ---- the names of a cell


def test_of_a_cell_only_the_names_of_the_statement_are_listed():
    text = "data = torch.zeros(5000, 4)\nlosses = [torch.zeros(1)]\nnet = nn.Linear(4, 3)\nbatch = torch.zeros(2, 5)\nnet(\n    batch\n)"
    result = explained(text)
    assert [value.name for value in result.record.locals] == ["batch"]


def test_of_a_function_all_its_own_tensors_are_listed():
    text = """
    everywhere = torch.zeros(1)
    def step(net):
        data, batch = torch.zeros(5000, 4), torch.zeros(2, 5)
        return net(batch)
    step(nn.Linear(4, 3))
    """
    assert [value.name for value in explained(text).record.locals] == ["data", "batch"]


# ---- optimizers, schedulers, devices, covered methods

_NET = "net = nn.Linear(2, 2)\nopt = torch.optim.SGD(net.parameters(), lr=0.1)\n"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("torch.optim.SGD(net.parameters(), lr=-0.1)", "torch.optim.SGD got lr=-0.1, which cannot be negative."),
        ("torch.optim.Adam(net.parameters(), -0.001)", "torch.optim.Adam got lr=-0.001"),
        ("torch.optim.SGD(net.parameters(), lr=0.1, momentum=-0.5)", "got momentum=-0.5, which cannot be negative."),
        ("torch.optim.AdamW(net.parameters(), weight_decay=-1)", "got weight_decay=-1, which cannot be negative."),
        ("torch.optim.lr_scheduler.StepLR(net, 10)", "torch.optim.lr_scheduler.StepLR takes an optimizer, but got net, a model."),
        ("s = torch.optim.lr_scheduler.StepLR(net.parameters(), step_size=10)", "got net.parameters(), a generator."),
        ("net.to('gpu')", "PyTorch has no device called 'gpu'."),
        ("x = torch.zeros(2, device='CPU')", "PyTorch has no device called 'CPU'."),
        ("torch.device('cpu:x')", "'cpu:x' is not a device: a number must follow the colon."),
    ],
)
def test_what_is_made_with_something_wrong(line, said):
    result = explained(_NET + line)
    assert said in result.headline and result.family
    runs(_NET + line, result, line)


@pytest.mark.parametrize("line", ["torch.optim.lr_scheduler.StepLR(3, 10)", "torch.device('banana')"])
def test_what_was_meant_is_not_guessed(line):
    assert not codes(explained("net = nn.Linear(2, 2)\n" + line))


def test_of_two_optimizers_none_is_taken():
    assert not codes(explained(_NET + "other = torch.optim.SGD(net.parameters(), lr=1)\ntorch.optim.lr_scheduler.StepLR(net, 10)"))


@pytest.mark.parametrize(
    ("lines", "place"),
    [
        (("net = nn.Linear(2, 2)", "net.train = False", "net.train()"), "net"),
        (("net = nn.Linear(2, 2)", "net.train = False", "net.eval()"), "net"),
        (("net = nn.Sequential(nn.Linear(2, 2))", "net[0].train = False", "net.eval()"), "net[0]"),
    ],
)
def test_a_method_that_was_assigned_over(lines, place):
    result = explained("\n".join(lines))
    assert result.headline.startswith(f"{place}.train is False, no longer a method.")
    assert codes(result) == [f"del {place}.train"]
    Program("\n".join([*lines[:2], *codes(result), lines[2]])).run()


def test_what_is_no_method_of_the_class_is_not_explained_so():
    result = explained("net = nn.Linear(2, 2)\nnet.flag = False\nnet.flag()")
    assert result.family != "covered method"
