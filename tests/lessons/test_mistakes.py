"""What a learner is told: the commonest mistakes by their names, with a view that does not send them astray."""

import pytest
from IPython.core.interactiveshell import InteractiveShell

from modlab.lessons import initialization, lookup
from modlab.lessons.checking import evaluate, judge

AFFINE = """
class Affine(nn.Module):
    def __init__(self, in_features, out_features):
        {first}
        self.weight = {weight}
        self.bias = {bias}
        {last}

    def forward(self, input):
        return input @ self.weight + self.bias
"""
WEIGHT, BIAS = "nn.Parameter(torch.randn(in_features, out_features))", "nn.Parameter(torch.randn(out_features))"


def task_of(lesson, name):
    return next(task for task in lookup.find(lesson).tasks if task.name == name)


def judged(lesson, name, source):
    task = task_of(lesson, name)
    return judge(task, evaluate(f"{task.given}\n{source}", task.expression))


def affine(*, first="super().__init__()", weight=WEIGHT, bias=BIAS, last="pass"):
    return judged("01_a_module", "Affine", AFFINE.format(first=first, weight=weight, bias=bias, last=last))


@pytest.mark.parametrize("plain", [{"bias": "torch.randn(out_features)"}, {"weight": "torch.randn(in_features, out_features)"}])
def test_a_plain_tensor_beside_a_parameter_has_a_name_and_no_advice_that_fails_again(plain):
    verdict = affine(**plain)
    assert verdict.mistake == "a plain tensor"
    assert "nn.Parameter" in verdict.says[0]
    assert "register_buffer" not in "".join((*verdict.evidence, *verdict.says))


def test_two_plain_tensors_get_no_advice_that_fails_again():
    verdict = affine(weight="torch.randn(in_features, out_features)", bias="torch.randn(out_features)")
    assert verdict.mistake == "tensors, no parameters"
    assert "register_buffer" not in "".join(verdict.evidence)


def test_a_constructor_that_calls_its_parents_late_is_told_from_one_that_never_does():
    assert affine(first="pass", last="super().__init__()").mistake == initialization.LATE
    assert affine(first="pass").mistake == initialization.NEVER
    assert affine(first="").mistake == initialization.NEVER


def test_layers_that_are_made_before_do_not_count_as_its_own_super():
    """Making a layer calls `nn.Module.__init__` too, for the layer."""
    source = "class Two(nn.Module):\n    def __init__(self):\n        self.layer = nn.Sequential(nn.Linear(2, 2))\n        {last}\n"
    for last, name in (("pass", initialization.NEVER), ("super().__init__()", initialization.LATE)):
        with pytest.raises(Exception) as caught:
            initialization.made(evaluate(source.format(last=last), "Two"))
        assert caught.value.mistake == name


def test_another_attribute_error_of_a_constructor_is_its_own():
    source = "class Typo(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.a = self.b\n"
    with pytest.raises(AttributeError, match="no attribute 'b'"):
        initialization.made(evaluate(source, "Typo"))


def test_a_train_that_was_replaced_is_called_by_its_name():
    source = """
def freeze_batchnorm(net):
    for m in net.modules():
        if isinstance(m, (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)):
            m.eval()
            m.train = lambda mode=True: m
"""
    verdict = judged("06_modes", "freeze_batchnorm", source)
    assert verdict.outcome == "not yet"
    assert verdict.expected == "1.train() returns the module"
    assert "lambda" not in verdict.expected + "".join(verdict.says)


def test_hooks_that_were_left_behind_are_not_called_by_another_kind():
    source = """
def never_called(module, *inputs):
    called = set()
    for child in module.modules():
        child.register_forward_hook(lambda m, args, output: called.add(m) or None)
    module(*inputs)
    return [name for name, child in module.named_modules() if child not in called]
"""
    verdict = judged("03_tree_and_trace", "never_called", source)
    assert verdict.mistake == "hooks left behind"
    assert "pre_hook" not in "".join(verdict.says)
    assert "register_forward_hook" in verdict.evidence[0] or "forward hook" in verdict.evidence[0]


def test_a_mistyped_name_of_a_task_shows_a_sentence_and_no_frame_of_ours(capsys):
    shell = InteractiveShell()
    shell.run_cell('from modlab.lessons import Lesson\nLesson("01_a_module").check("Afine", 1)')
    told = capsys.readouterr().out
    assert "Nearest: 'Affine'" in told
    assert "lookup.py" not in told and "in named(" not in told
