"""What is said where a change cannot be made, where no loss tells anything, and where a fix has no training at hand."""

from __future__ import annotations

import gc
import pickle
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import modlab
from modlab import errors as modlab_errors
from modlab import wording
from modlab.forking import keeper as keeping
from modlab.forking.futures import KeptGround
from modlab.records.finding import Finding
from modlab.results.fork import of_finding, require_fix
from modlab.running.guarded import line_of
from tests.forking.test_forks import plain_run, small, trained, watched
from tests.watching.test_identity import Run


def dropping() -> Run:
    model = small(nn.Dropout(0.1), nn.LeakyReLU())
    return trained(model, lambda: model(torch.randn(8, 4)).square().mean(), torch.optim.SGD(model.parameters(), lr=0.1))


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "more than all": ({"2.p": 2}, "got 2 as 2.p of a Dropout, but takes a probability between 0 and 1"),
    "less than nothing": ({"2.p": -0.1}, "takes a probability between 0 and 1"),
    "no number": ({"2.p": float("nan")}, "takes a probability between 0 and 1"),
    "a word": ({"2.p": "half"}, "got 'half' as 2.p of a Dropout"),
    "a slope that is none": ({"3.negative_slope": None}, "got None as 3.negative_slope of a LeakyReLU, but takes a number"),
    "a number for a flag": ({"2.inplace": 3}, "takes True or False"),
    "a number for a module": ({"2": 0.5}, r'2 is a module; a setting is a number on a module, as {"1.p": 0.5}.'),
    "a number for a weight": ({"0.weight": 0}, "0.weight is a parameter; .*\n  To change it, give a function"),
    "a tensor for a weight": ({"0.weight": torch.zeros(8, 4)}, "0.weight is a parameter"),
    "a number for a method": ({"0.forward": 3}, "0.forward is a function"),
    "a size": ({"0.in_features": 8}, "0.in_features only says how large a Linear is"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_setting_that_a_module_cannot_have_is_refused(name: str) -> None:
    w, *_ = watched(dropping)
    change, said = REFUSED[name]
    with pytest.raises(modlab_errors.QuestionError, match=said):
        w.fork(5, change)
    assert w.fork(5, {"2.p": 1}).exact and w.fork(5, {"3.negative_slope": 0.3}).exact


@pytest.mark.parametrize("change", [lambda: None, lambda a, b, c: None, lambda *, key: 0, lambda *, model, key: 0, lambda lr=0.1: None])
def test_a_function_that_takes_something_else_is_refused(change: Any) -> None:
    w, *_ = watched(dropping)
    with pytest.raises(modlab_errors.QuestionError, match=r"but is called with model and optimizer\.\n  Write: def change"):
        w.fork(5, change)


def fast(**given: Any) -> None:
    given["optimizer"].param_groups[0]["lr"] = 0.2


def fast_by_name(*, optimizer: Any) -> None:
    fast(optimizer=optimizer)


def fast_of_both(model: Any, *, optimizer: Any, times: float = 1.0) -> None:
    fast(optimizer=optimizer)


@pytest.mark.parametrize("change", [fast, fast_by_name, fast_of_both])
def test_a_function_may_take_both_by_name_alone(change: Any) -> None:
    w, *_ = watched(dropping)
    assert w.fork(5, change).losses == w.fork(5, {"lr": 0.2}).losses


def test_a_dictionary_tells_what_was_asked_for_changed_and_tried() -> None:
    w, *_ = watched(dropping)
    told = w.fork(5, {"lr": 0.2}).to_dict()
    assert (told["asked"], told["change"], told["trials"]) == (5, "with lr = 0.2", [])
    told = of_finding(Finding("rate too low"), KeptGround(w._keeper, 0), "Net", 0, 10).to_dict()  # type: ignore[arg-type]
    assert told["change"].startswith("with ") and {"what", "loss", "lr"} <= {*told["trials"][0]}


async def later(model: Any, optimizer: Any) -> None:
    optimizer.param_groups[0]["lr"] = 1.0


def by_turns(model: Any) -> Iterator[None]:
    model[2].p = 0.5
    yield


async def by_turns_later(model: Any) -> AsyncIterator[None]:
    yield


VAIN: dict[str, tuple[Any, str]] = {
    "asynchronous": (later, "later is asynchronous, so a call of it runs nothing"),
    "one that gives such": (lambda model: later(model, None), "the given function is asynchronous"),
    "a generator": (by_turns, "by_turns is a generator: it has a yield, so a call of it runs nothing"),
    "both": (by_turns_later, "by_turns_later is asynchronous"),
    "a tensor": (lambda model: torch.tensor(0.1), "returned a Tensor, and a fork takes nothing but an optimizer"),
    "a state": (lambda model: model.state_dict(), "returned an OrderedDict, and a fork takes nothing but an optimizer"),
}


@pytest.mark.parametrize("name", VAIN)
def test_a_function_that_changes_nothing_is_refused(name: str) -> None:
    w, *_ = watched(dropping)
    change, said = VAIN[name]
    with pytest.raises(modlab_errors.QuestionError, match=said):
        w.fork(5, change)


def test_a_last_line_whose_value_is_what_it_changed_is_none() -> None:
    w, *_ = watched(dropping)
    changes: list[Any] = [
        lambda model: nn.init.zeros_(model[0].weight),
        lambda model: model[0].weight.data.mul_(2),
        lambda model: model.load_state_dict({name: one * 2 for name, one in model.state_dict().items()}),
        lambda optimizer: optimizer.param_groups[0].setdefault("lr", 1.0) and None,
    ]
    assert [w.fork(5, change).exact for change in changes] == [True] * 4


@pytest.mark.parametrize(
    "change, said",
    [
        (torch.optim.Adam, r"got Adam itself.*\n  Write: w.fork\(step, lambda model: torch.optim.Adam\(model.parameters\(\), lr=1e-3\)\)"),
        (partial(torch.optim.SGD, lr=0.1), "got SGD itself"),
    ],
)
def test_what_makes_or_takes_something_else_is_told(change: Any, said: str) -> None:
    w, *_ = watched(dropping)
    with pytest.raises(modlab_errors.QuestionError, match=said):
        w.fork(5, change)


@pytest.mark.parametrize(
    "change",
    [lambda *given: given[0][0].reset_parameters(), lambda model=None: model[0].reset_parameters(), lambda m, o: m[0].reset_parameters()],
)
def test_what_takes_model_and_optimizer_in_any_form_is_called_with_them(change: Any) -> None:
    w, *_ = watched(dropping)
    fork = w.fork(5, change)
    assert fork.exact and fork.losses != fork.original


def test_the_momentum_of_a_norm_may_be_none() -> None:
    def make() -> Run:
        model = small(nn.BatchNorm1d(8))
        return trained(model, lambda: model(torch.randn(8, 4)).square().mean(), torch.optim.SGD(model.parameters(), lr=0.1))

    w, *_ = watched(make)
    assert w.fork(5, {"2.momentum": None}).exact
    with pytest.raises(modlab_errors.QuestionError, match="takes a number"):
        w.fork(5, {"2.eps": None})


def distant() -> Run:
    model, loss = small(), nn.TripletMarginLoss(p=2.0)
    whole = nn.ModuleList([model, loss])
    return trained(whole, lambda: loss(*model(torch.randn(3, 8, 4))), torch.optim.SGD(whole.parameters(), lr=0.1))


def test_the_p_of_a_norm_is_no_probability() -> None:
    w, *_ = watched(distant)
    assert w.fork(5, {"1.p": 3.0}).exact


def by_grad() -> Run:
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(_: int) -> Tensor:
        loss: Tensor = model(torch.randn(8, 4)).square().mean()
        for one, gradient in zip(model.parameters(), torch.autograd.grad(loss, [*model.parameters()]), strict=True):
            one.grad = gradient
        optimizer.step()
        return loss

    return model, [optimizer], step


def test_where_no_loss_was_seen_nothing_is_said_to_be_equal() -> None:
    w, *_ = watched(by_grad)
    fork = w.fork(5)
    assert not fork.exact and fork.headline.startswith("There is no loss to compare") and "no loss tells whether" in str(fork)


def by_torch_func(spread: str) -> Run:
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(_: int) -> Tensor:
        x, held = torch.randn(8, 4), dict(model.named_parameters())
        found = torch.func.grad_and_value(lambda some: torch.func.functional_call(model, some, (x,)).square().mean())
        gradients, loss = found({name: one.detach() for name, one in held.items()})
        for name, one in held.items():
            if spread == "set":
                one.grad = gradients[name]
            elif spread == "copied":
                one.grad = torch.zeros_like(one)
                one.grad.copy_(gradients[name])
            else:
                one.data.sub_(gradients[name], alpha=0.1)
        optimizer.step()
        return loss  # type: ignore[no-any-return]

    return model, [optimizer], step


@pytest.mark.parametrize("spread", ["set", "copied", "onto the weights"])
def test_gradients_that_torch_func_gives_are_no_constants(spread: str) -> None:
    w, *_ = watched(lambda: by_torch_func(spread))
    fork = w.fork(5, {"lr": 0.2})
    assert not fork.exact and not fork.record.steps and fork.record.ended == "lacking"


def by_lbfgs(whole: bool) -> Run:
    model = small()
    optimizer = torch.optim.LBFGS((model if whole else model[0]).parameters(), lr=0.1, max_iter=3)

    def step(_: int) -> Tensor:
        x = torch.randn(8, 4)
        losses: list[Tensor] = []

        def closure() -> Tensor:
            optimizer.zero_grad()
            losses.append((model(x) - 1).square().mean())
            losses[-1].backward()
            return losses[-1]

        optimizer.step(closure)
        return losses[0]

    return model, [optimizer], step


def test_lbfgs_is_made_anew_for_more_parameters() -> None:
    w, *_ = watched(lambda: by_lbfgs(False))
    fork = of_finding(Finding("not held"), KeptGround(w._keeper, 0), "Net", 0, 10)  # type: ignore[arg-type]
    *_, losses = watched(lambda: by_lbfgs(True))
    assert fork.losses == losses[:10]


def test_a_finding_of_a_copied_watch_says_that_its_training_is_elsewhere() -> None:
    w, *_ = watched(plain_run)
    with pytest.raises(modlab_errors.ForkError, match="comes from a file, or was copied"):
        pickle.loads(pickle.dumps(w)).try_fix(Finding("rate too low"))


def test_so_it_is_without_kept_copies() -> None:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with modlab.watch(model, optimizer) as w:
        for _ in range(3):
            model(torch.randn(8, 4)).square().mean().backward()
            optimizer.step()
    with pytest.raises(modlab_errors.ForkError, match="comes from a file, or was copied"):
        pickle.loads(pickle.dumps(w)).try_fix(Finding("rate too low"))


def test_a_model_in_evaluation_mode_begins_in_it() -> None:
    model = small(nn.BatchNorm1d(8), nn.Dropout(0.5)).eval()
    batch, optimizer = (torch.randn(32, 4), torch.randn(32, 2)), torch.optim.SGD(model.parameters(), lr=0.1)
    made = modlab.diagnose(model, optimizer, batch=batch, loss=nn.MSELoss())
    said = str(made.try_fix(Finding("eval while training"), 3))
    assert "The unchanged one is in evaluation mode, as the model is now; the other one in training mode." in said
    assert "do not do what they do in training. Ask for the other mode before" in str(made.try_fix(Finding("too much dropout"), 3))


def test_how_to_tell_a_cause_from_its_rival_is_a_sentence_of_its_own() -> None:
    def make() -> Run:
        model = nn.Sequential(*[layer for _ in range(8) for layer in (nn.Linear(8, 8), nn.Sigmoid())], nn.Linear(8, 1))
        return trained(model, lambda: model(x := torch.randn(16, 8)).sub(x.sum(1, keepdim=True)).square().mean(), adam(model))

    def adam(model: nn.Module) -> Any:
        return torch.optim.Adam(model.parameters(), 1e-3)

    w, *_ = watched(make, steps=120, budget=1.0)  # at the default a slow machine sees too few losses
    found = next(one for one in w.findings if wording.fix_and_settled(one)[1])
    advice, settled = wording.fix_and_settled(found)
    assert advice and "o tell it from" not in advice and settled.startswith("to tell it from")
    assert wording.fix(found).endswith(settled[1:])
    for is_kept in (True, False):
        with pytest.raises(modlab_errors.ForkError) as caught:
            require_fix(found, is_kept)
        first, second, last = str(caught.value).split("\n")
        assert (first, second) == (f"Its fix cannot be applied to a copy by itself: {advice}", f"  T{settled[1:]}")
        assert ("of a watch with keep" in last) is not is_kept


def test_a_long_error_is_cut_between_words() -> None:
    assert line_of(ValueError("word " * 100)).endswith("word …") and line_of(ValueError("word")) == "ValueError: word"


def test_a_fork_that_cannot_begin_where_it_should_says_where_it_does(monkeypatch: Any) -> None:
    monkeypatch.setattr(keeping, "TAPE_ROOM", 40_000)
    w, *_ = watched(dropping, steps=64)
    assert not w.fork(8).record.facts
    for fork, said in ((w.fork(14), "the fork begins"), (w.fork(14, {"lr": 0.2}), "the change is made")):
        kept = fork.record.facts["kept"]
        note = f"Step 14 was not kept: batches are kept for {kept} steps behind the state before it, so {said} at step 0."
        assert fork.exact and fork.record.at == 0 and note in str(fork) and note in fork.html(bundle=False)
        assert "; step 14 was not kept" in fork.headline


class OwnLoss(nn.Module):
    """A loss with a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * self.scale).square().mean()


def test_it_says_why_the_first_step_is_not_kept() -> None:
    def make() -> Run:
        model, loss = small(), OwnLoss()
        return trained(model, lambda: loss(model(torch.randn(8, 4))), torch.optim.SGD([*model.parameters(), *loss.parameters()], 0.1))

    w, *_ = watched(make)
    with pytest.raises(modlab_errors.ForkError, match=r"the one at step 1, for in the steps before a module came that holds weights"):
        w.fork(0)
    assert w.fork(1).exact


def test_a_fix_that_introduces_its_code_ends_with_it() -> None:
    model = small()
    nn.init.constant_(model[0].weight, torch.nan)
    found = modlab.diagnose(model, torch.optim.SGD(model.parameters(), lr=0.1)).findings[0]
    assert wording.fix(found).startswith("If it was just made") and "If it was trained: model.load_state_dict(" in wording.fix(found)


@pytest.mark.parametrize("gone, said", [("copied", "was copied"), ("model", "The model of"), ("optimizer", "The optimizer of")])
def test_a_diagnosis_whose_training_is_gone_says_so(gone: str, said: str) -> None:
    held: dict[str, Any] = {"model": small()}
    held["optimizer"] = torch.optim.SGD(held["model"][0].parameters(), lr=0.1)
    made = modlab.diagnose(held["model"], held["optimizer"], batch=(torch.randn(8, 4), torch.randn(8, 2)), loss=nn.MSELoss())
    if gone == "copied":
        made = pickle.loads(pickle.dumps(made))
    elif gone == "model":
        held.clear()
    else:
        del held[gone]
    gc.collect()
    with pytest.raises(modlab_errors.ForkError, match=said) as raised:
        made.findings[0].try_fix()
    assert "batch=(inputs, target), loss=loss)" in str(raised.value)


def test_a_watch_whose_model_is_gone_says_so() -> None:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with modlab.watch(model, optimizer) as w:
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
    del model, optimizer
    gc.collect()
    with pytest.raises(modlab_errors.ForkError, match=r"The model of this watch no longer exists"):
        w.try_fix(Finding("rate too low"))


def test_a_fix_of_the_loop_is_refused_by_a_public_error() -> None:
    model = small()
    w = modlab.diagnose(model, torch.optim.SGD(model.parameters(), lr=0.1), batch=(torch.randn(8, 4), torch.randn(8, 2)), loss=nn.MSELoss())
    for kind in ("clipped to nothing", "too much decay"):
        with pytest.raises(modlab_errors.ForkError) as raised:
            w.try_fix(Finding(kind))
        assert type(raised.value) is modlab_errors.ForkError


def with_a_hook(take: str, use: str) -> Run:
    model = small(nn.Identity())
    seen: dict[str, Tensor] = {}
    model[2].register_forward_hook(lambda _, args, output: seen.update(one=(output if take == "output" else args[0]).detach()))

    def loss() -> Tensor:
        given = model(torch.randn(8, 4)).square().mean()
        level = seen["one"].abs().mean()
        return given * (1 + level) if use == "loss" else given + 0 * level.item()  # type: ignore[no-any-return]

    return trained(model, loss, torch.optim.SGD(model.parameters(), lr=0.1))


@pytest.mark.parametrize("take", ["output", "input"])
def test_what_a_hook_detaches_is_no_constant(take: str) -> None:
    w, *_ = watched(lambda: with_a_hook(take, "the loss"))
    assert w.fork(5, {"lr": 0.2}).exact
    w, *_ = watched(lambda: with_a_hook(take, "loss"))
    fork = w.fork(5, {"lr": 0.2})
    assert fork.record.ended == "lacking" and not fork.exact and "a hook that collects" in fork.headline


def scheduled(kind: str) -> Run:
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=10.0)
    steps = torch.optim.lr_scheduler.StepLR(optimizer, 5) if kind == "StepLR" else None

    def between(number: int) -> None:
        if steps is not None:
            steps.step()
        elif kind == "plateau":
            plateau.step(float(number))

    return trained(model, lambda: model(torch.randn(8, 4)).square().mean(), optimizer, between)


@pytest.mark.parametrize("kind", ["plateau", "StepLR", "none"])
def test_it_says_where_a_rate_may_have_followed_the_loss(kind: str) -> None:
    w, *_ = watched(lambda: scheduled(kind))
    assert ("(ReduceLROnPlateau) might" in str(w.fork(5, {"weight_decay": 0.1}))) is (kind == "plateau")
    assert "ReduceLROnPlateau" not in str(w.fork(5))


def shape(model: nn.Sequential) -> None:
    model[0] = nn.Linear(4, 8)


@pytest.mark.parametrize("mend", [shape, lambda model: model.requires_grad_(True)], ids=["shape", "frozen"])
def test_a_fix_without_which_the_model_cannot_run_is_tried(mend: Any) -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2)) if mend is shape else small().requires_grad_(False)
    optimizer, batch = torch.optim.SGD(model.parameters(), lr=0.1), (torch.randn(8, 4), torch.randn(8, 2))
    finding = modlab.diagnose(model, optimizer, batch=batch, loss=nn.MSELoss()).findings[0]
    torch.manual_seed(0)
    fork = finding.try_fix(5)
    torch.manual_seed(0)
    mend(model)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(batch[0]), batch[1])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert fork.outcome == "better" and not fork.exact and len(fork.losses) == 5
    assert mend is shape or fork.losses == losses  # the other one is drawn anew
    assert fork.headline.startswith("It runs now: after 5 steps on the batch the loss is") and "without the change it cannot run" in str(
        fork
    )
    assert "The unchanged one ended in an error: RuntimeError" in fork.html() and "original" not in str(fork)


@pytest.mark.parametrize("scale", [1e-50, 1.0, 1e40, 1e200])
def test_losses_in_double_precision_are_as_they_were(scale: float) -> None:
    def make() -> Run:
        model = small().double()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)  # whose steps are as large whatever the scale
        return trained(model, lambda: model(torch.randn(8, 4, dtype=torch.float64)).square().mean() * scale, optimizer)

    w, *_, losses = watched(make)
    fork = w.fork(0)
    assert fork.exact and len(w.record.kept.states) > 1
    assert fork.losses == fork.original == losses
    assert w.fork(0, {"lr": 0.02}).exact and "fork" in w.html()
