"""What was named for its neighbour: the same training with the fault, which is named for what it is, and without."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import modlab
from modlab.results.watch import Watch
from modlab.running import loss_graph
from tests.causes.test_untrue import blobs, mlp, watched


def kinds(w: Watch) -> list[str]:
    """The causes that are named."""
    return [one.kind for one in w.verdict.findings if "tier" in one.facts]


def hooked(hook: Callable[[Tensor], Tensor]) -> nn.Sequential:
    net = mlp()
    for one in net.parameters():
        one.register_hook(hook)
    return net


@pytest.mark.parametrize("sign", [-1, 1])
def test_hooks_that_turn_gradients_around(sign: int) -> None:
    net = hooked(lambda gradient: sign * gradient)
    w = watched(net, lambda: _fit(net), steps=100)
    assert (kinds(w)[:1] == ["wrong sign"]) is (sign < 0)


def _fit(net: nn.Module) -> Tensor:
    x, label = blobs()
    return F.cross_entropy(net(x), label)


class HookedNet(nn.Module):
    """A hook stands between its body and its head: on the head, or on the tensor that goes into it."""

    def __init__(self, where: str, change: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body, self.head = nn.Sequential(nn.Linear(16, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU()), nn.Linear(48, 5)
        self.change = change if where == "tensor" else None
        if where == "module":
            self.head.register_full_backward_hook(lambda module, taken, given: tuple(map(change, taken)))

    def forward(self, x: Tensor) -> Tensor:
        middle = self.body(x)
        if self.change is not None and middle.requires_grad:
            middle.register_hook(self.change)
        return self.head(middle)


CHANGES: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "zeros": (torch.zeros_like, "a hook stands at head, which gets gradients, and in front of it all are zero"),
    "ones": (torch.ones_like, "hooks stand at head, and the loss does not fall"),
    "NaN": (lambda gradient: gradient * float("nan"), "turns finite gradients into NaN"),
}


@pytest.mark.parametrize("where", ["module", "tensor"])
@pytest.mark.parametrize("change", CHANGES)
def test_hooks_on_the_way_that_replace_gradients(where: str, change: str) -> None:
    net = HookedNet(where, CHANGES[change][0])
    w = watched(net, lambda: _fit(net), steps=150)
    assert kinds(w)[0] == "gradients overwritten" and not {"vanishing gradient", "not finite by the rate"} & {*kinds(w)}
    assert CHANGES[change][1] in w.verdict.findings[0].text


@pytest.mark.parametrize("where", ["module", "tensor"])
def test_hooks_on_the_way_that_look(where: str) -> None:
    net = HookedNet(where, lambda gradient: gradient)
    assert kinds(watched(net, lambda: _fit(net), steps=150)) == []


@pytest.mark.parametrize("change", [torch.ones_like, lambda gradient: gradient])
def test_a_diagnosis_asks_what_hooks_on_the_way_do(change: Callable[[Tensor], Tensor]) -> None:
    net = HookedNet("tensor", change)
    w = watched(net, lambda: F.cross_entropy(net(torch.randn(64, 16)), torch.randint(5, (64,))), steps=150)
    assert kinds(w)[0] == "targets shuffled"
    result = w.diagnose()
    assert [one.outcome for one in result.experiments if one.name == "hooks"] == ["failed" if change is torch.ones_like else "passed"]
    assert "gradients overwritten" not in [one.kind for one in result.findings]


def test_dead_units_behind_a_hook_are_dead_units() -> None:
    net = HookedNet("module", lambda gradient: gradient)
    with torch.no_grad():
        net.body[2].bias.fill_(-100.0)
    assert "gradients overwritten" not in kinds(watched(net, lambda: _fit(net), steps=150))


class Gate(nn.Module):
    """Units that fire above a threshold: of a layer, or of one written by hand."""

    def __init__(self, inputs: int, way: str, threshold: float) -> None:
        super().__init__()
        self.layer, self.way, self.threshold, self.relu = nn.Linear(inputs, 48), way, threshold, nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        layer, above = self.layer, self.threshold
        if self.way == "by hand":
            return F.relu(x @ layer.weight.T - above + layer.bias)
        if self.way == "times zero":
            return (layer(x) * float(not above)).clamp(min=0)
        h = layer(x) - above
        if self.way == "turned":
            return (above - layer(x)).clamp(max=0)
        if self.way == "maximum":
            return torch.maximum(torch.zeros(()), h)
        return F.relu(h) if self.way == "relu" else self.relu(h) if self.way == "module" else h.clamp(min=0)


@pytest.mark.parametrize("threshold", [50.0, 0.0])
@pytest.mark.parametrize("way", ["clamp", "relu", "module", "maximum", "turned", "by hand", "times zero"])
def test_units_that_never_get_above_a_threshold(way: str, threshold: float) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(Gate(16, way, threshold), Gate(48, way, threshold), nn.Linear(48, 5))
    w = watched(net, lambda: _fit(net), steps=150)
    cause = "overwritten activation" if way == "times zero" else "dead units"
    assert kinds(w)[:1] == [cause] * bool(threshold)
    assert [one.kind for one in w.diagnose().experiments if one.name == "collapse"] == [cause if threshold else "outputs differ"]


@pytest.mark.parametrize("guided", [True, False])
def test_backward_hooks_that_leave_no_gradient_below_zero(guided: bool) -> None:
    net = nn.Sequential(nn.Linear(16, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 5))
    for one in net[1], net[3]:
        one.register_full_backward_hook(lambda module, taken, given: (taken[0].clamp_min(0),) if guided else None)
    w = watched(net, lambda: _fit(net), steps=150, optimizer=torch.optim.SGD(net.parameters(), 0.3))
    told = [one for one in w.verdict.findings if one.kind == "gradients overwritten"]
    assert [one.facts["places"] for one in told] == ([("1", "3")] if guided else [])
    assert not told or "no gradient in front of layers 1 and 3 was below zero" in told[0].text


@pytest.mark.parametrize("scale", [2.0**19, 3.0])
def test_a_scale_that_the_loop_keeps_and_no_step_follows(scale: float) -> None:
    net = mlp()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    with modlab.watch(net, optimizer) as w:
        for _ in range(40):
            optimizer.zero_grad()
            (scale * _fit(net)).backward()
            if all(one.grad is not None and one.grad.abs().max() < 1e-9 for one in net.parameters()):
                optimizer.step()
    assert kinds(w)[0] == ("scaler misused" if scale > 1000 else "no step")


@pytest.mark.parametrize("by_hand", [True, False])
def test_an_optimizer_without_a_step_beside_weights_that_are_moved(by_hand: bool) -> None:
    net, other = mlp(), nn.Linear(16, 5)
    asleep, steps = torch.optim.AdamW(net.parameters(), 1e-3), torch.optim.SGD(other.parameters(), 1e-3)

    def loop() -> None:
        for _ in range(80):
            x, label = blobs()
            asleep.zero_grad()
            steps.zero_grad()
            F.cross_entropy(net[0](x)[:, :5] * 0 + net(x) + other(x), label).backward()
            steps.step()
            with torch.no_grad():
                for one in net.parameters() if by_hand else ():
                    one += 0.05 * one.grad  # type: ignore[operator]

    both = nn.ModuleList([net, other])
    with modlab.watch(both, [asleep, steps]) as w:
        loop()
    assert ("no step" in kinds(w)) is not by_hand


@pytest.mark.parametrize("anew", [True, False])
def test_a_warm_up_that_counts_the_batches_of_an_epoch(anew: bool) -> None:
    net = mlp()
    optimizer = torch.optim.AdamW(net.parameters(), 0.0)
    with modlab.watch(net, optimizer) as w:
        for step in range(200):
            optimizer.param_groups[0]["lr"] = 1e-3 * min(1.0, (step % 10 if anew else step) / 5000)
            optimizer.zero_grad()
            _fit(net).backward()
            optimizer.step()
    (found,) = [one for one in w.verdict.findings if one.kind == "warmup never ends"]
    assert ("was back at 0 in" in found.text) is anew


@pytest.mark.parametrize(("dim", "found"), [(0, True), (1, False)])
def test_a_loss_that_normalizes_over_the_samples(dim: int, found: bool) -> None:
    net = mlp()
    w = watched(net, lambda: -net(blobs(96)[0]).log_softmax(dim)[:, 0].mean())
    assert ("softmax over the wrong dimension" in kinds(w)) is found


class AtEachPlace(nn.Module):
    """Says something of each place of a sentence: by a linear layer, whose classes come last, or by a convolution."""

    def __init__(self, classes: int, convolves: bool = False) -> None:
        super().__init__()
        self.word, self.convolves = nn.Embedding(9, 16), convolves
        self.out = nn.Conv1d(16, classes, 1) if convolves else nn.Linear(16, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.word(x)
        return self.out(x.mT if self.convolves else x)


PLACES = {
    "last": (4, lambda out, y: F.cross_entropy(out, y), True),
    "likelihood": (4, lambda out, y: F.nll_loss(out.log_softmax(1), y), True),
    "turned": (4, lambda out, y: F.cross_entropy(out.mT, y), False),
    "in rows": (4, lambda out, y: F.cross_entropy(out.flatten(0, 1), y.flatten()), False),
    "where is each": (3, lambda out, y: F.cross_entropy(out, y[:, :3]), False),
    "convolution": (4, lambda out, y: F.cross_entropy(out, y), False),
}


@pytest.mark.parametrize("name", PLACES)
def test_as_many_places_as_classes_that_come_last(name: str) -> None:
    classes, criterion, found = PLACES[name]
    net = AtEachPlace(classes, name == "convolution")

    def loss() -> Tensor:
        words = torch.randint(9, (32, 4))
        return criterion(net(words), words % 4)

    assert ("softmax over the wrong dimension" in kinds(watched(net, loss))) is found


def test_each_sample_against_each_may_be_normalized_both_ways() -> None:
    left, right = mlp(), mlp()

    def loss() -> Tensor:
        scores = left(blobs(32)[0]) @ right(blobs(32)[0]).T
        return F.cross_entropy(scores, torch.arange(32)) - scores.log_softmax(0).diagonal().mean()

    assert "softmax over the wrong dimension" not in kinds(watched(nn.ModuleList([left, right]), loss))


WORTH: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "the greatest": lambda said, done: 0.8 * said.max(1).values,
    "amax": lambda said, done: 0.8 * said.amax(1) * (1 - done),
    "of another net": lambda said, done: 0.8 * (1 - done) * said.gather(1, said.detach().argmax(1, keepdim=True)).squeeze(1),
}


@pytest.mark.parametrize("worth", WORTH.values(), ids=WORTH)
@pytest.mark.parametrize("wrong", [True, False])
def test_the_side_of_an_error_that_is_cut_off(wrong: bool, worth: Callable[[Tensor, Tensor], Tensor]) -> None:
    net = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 4))

    def loss() -> Tensor:
        place, then, move, reward = torch.randn(64, 6), torch.randn(64, 6), torch.randint(4, (64,)), torch.rand(64)
        said, later = net(place).gather(1, move[:, None])[:, 0], reward + worth(net(then), (reward > 0.9).float())
        return F.smooth_l1_loss(later, said.detach()) if wrong else F.smooth_l1_loss(said, later.detach())

    told = [one for one in watched(net, loss, steps=100).verdict.findings if one.kind == "detached"]
    assert bool(told) is wrong
    assert not told or "the loss trains the target" in told[0].text


@pytest.mark.parametrize("zero", [True, False])
def test_a_frozen_table_of_zeros(zero: bool) -> None:
    torch.manual_seed(0)
    vectors = torch.zeros(20, 8) if zero else torch.randn(20, 8)
    net = nn.Sequential(nn.Embedding.from_pretrained(vectors), nn.Flatten(), nn.Linear(32, 3))

    def loss() -> Tensor:
        x = torch.randint(20, (64, 4))
        return F.cross_entropy(net(x), x.sum(1) % 3)

    w = watched(net, loss)
    assert kinds(w) == ["frozen"]  # nothing was overwritten
    assert ("0.weight holds only zeros, and has requires_grad=False" in w.verdict.findings[0].text) is zero


def test_of_two_sides_that_are_trained_none_is_said_to_have_no_graph() -> None:
    net = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 4))

    def worth(part: float) -> Tensor:
        return torch.randn(64) + part * net(torch.randn(64, 6)).max(1).values

    assert "detached" not in kinds(watched(net, lambda: F.mse_loss(worth(0.8), worth(0.5)), steps=100))


class Placed(nn.Module):
    """Words and their places; or the places alone, where somebody forgot to add them."""

    def __init__(self, added: bool) -> None:
        super().__init__()
        self.words, self.places, self.head, self.added = nn.Embedding(12, 16), nn.Embedding(6, 16), nn.Linear(16, 3), added

    def forward(self, x: Tensor) -> Tensor:
        h, places = self.words(x), self.places(torch.arange(6)).expand(len(x), 6, 16)
        return self.head((h + places if self.added else places).mean(1))


@pytest.mark.parametrize("added", [True, False])
def test_a_table_in_the_place_of_another_one(added: bool) -> None:
    net = Placed(added)

    def loss() -> Tensor:
        x = torch.randint(12, (64, 6))
        return F.cross_entropy(net(x), x[:, 0] % 3)

    w = watched(net, loss)
    assert kinds(w)[:1] == ([] if added else ["overwritten activation"])
    assert added or w.verdict.findings[0].text.startswith("a value is thrown away")


@pytest.mark.parametrize("hides", ["answers", "others"])
def test_masks_of_single_steps_that_hide_the_answers(hides: str) -> None:
    scores, label = torch.randn(3, 16, 5, requires_grad=True), torch.randint(5, (16, 3))
    steps = []
    for step in range(3):
        mask = F.one_hot(label[:, step], 5).bool()
        steps.append(scores[step].masked_fill(mask if hides == "answers" else ~mask, -20))
    loss = F.cross_entropy(torch.stack(steps, 1).view(48, 5), label.view(48))
    assert ("answers hidden" in loss_graph.risks(loss)) is (hides == "answers")


@pytest.mark.parametrize("joined", [True, False])
def test_recordings_that_are_joined_over_the_batch(joined: bool) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(80, 32), nn.Tanh(), nn.Linear(32, 2))

    def loss() -> Tensor:
        x = torch.randn(32, 20, 4) + 1.5 * torch.randn(32, 1, 4)
        label = (x.mean(1)[:, 0] > 0).long()
        x = torch.cat([*x.transpose(1, 2)], 1).reshape(32, 20, 4) if joined else x
        return F.cross_entropy(net(x), label)

    assert ("wrong axes" in kinds(watched(net, loss, steps=120))) is joined


def falling(end: float) -> Watch:
    """A loss without a lower end, down to a value, which may be no number."""
    net = nn.Linear(1, 1)
    with torch.no_grad():
        net.bias.fill_(-2.0)
    net.weight.requires_grad_(False)
    count = iter(range(1000))

    def loss() -> Tensor:
        said, step = net(torch.ones(8, 1)).mean(), next(count)
        return said * 1.08**step if step < 70 else said * end

    return watched(net, loss, steps=100, optimizer=torch.optim.SGD(net.parameters(), 1e-3))


def test_a_loss_that_falls_without_end_and_comes_to_nan_is_turned_around() -> None:
    found = falling(float("nan")).verdict.findings
    assert found[0].kind == "wrong sign" and "the loss falls without end, down to -" in found[0].text
    assert "the outputs grow" not in found[0].text  # which is not known of NaN
    assert not {"not finite by the rate", "not a number in data"} & {one.kind for one in found}


@pytest.mark.parametrize(("alive", "found"), [(0, True), (4, False)])
def test_units_that_are_left_may_serve(alive: int, found: bool) -> None:
    net = mlp()
    with torch.no_grad():
        net[0].bias[alive:] = -100.0
    w = watched(net, lambda: F.cross_entropy(net(blobs()[0]), torch.randint(5, (64,))))
    assert ("dead units" in kinds(w)) is found


class Ordered(nn.Module):
    """Attention over words whose places are all the same one of a table."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(12, 16), nn.Embedding(30, 16)
        self.mixed, self.head = nn.MultiheadAttention(16, 2, batch_first=True), nn.Linear(16, 12)

    def forward(self, x: Tensor) -> Tensor:
        h = self.words(x) + self.places(torch.zeros_like(x))
        return self.head(h + self.mixed(h, h, h, need_weights=False)[0])


def test_places_that_are_all_the_same_are_no_tokens() -> None:
    torch.manual_seed(0)
    net = Ordered()

    def loss(out: Tensor, target: Any) -> Tensor:
        return F.cross_entropy(out.flatten(0, 1), target.flatten())

    optimizer = torch.optim.Adam(net.parameters(), 3e-3)
    with modlab.watch(net, optimizer) as w:
        for _ in range(150):
            x = torch.randint(12, (32, 8))
            optimizer.zero_grad()
            loss(net(x), x.roll(1, 1)).backward()
            optimizer.step()
    x = torch.randint(12, (32, 8))
    assert [one.kind for one in w.diagnose(batch=(x, x.roll(1, 1)), loss=loss).findings][:1] == ["no positions"]


@pytest.mark.parametrize("killed", [0, 60])
def test_a_unit_of_three_that_was_never_alive_is_missed_by_nothing_that_was_learnt(killed: int) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 3), nn.ReLU(), nn.Linear(3, 8))
    mixed = torch.randn(2, 8)
    with torch.no_grad():
        net[0].weight[:2] = mixed / 4
        net[0].bias[:2] = 2.0
    count = iter(range(1000))

    def loss() -> Tensor:
        if next(count) == killed:
            net[0].bias.data[2] = -100.0
        x = torch.rand(64, 2) @ mixed
        return F.mse_loss(net(x), x)

    w = watched(net, loss, steps=300, optimizer=torch.optim.Adam(net.parameters(), 1e-2), budget=1.0)
    (found,) = [one for one in w.verdict.findings if one.kind == "dead units"]
    assert found.severity == ("broken" if killed else "careful")


@pytest.mark.parametrize(("levels", "found"), [(3, []), (0, ["few samples"])])
def test_pictures_of_few_levels_of_grey_are_the_same_by_chance(levels: int, found: list[str]) -> None:
    torch.manual_seed(0)
    kept, net = torch.rand(40, 1, 8, 8), nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 3))
    if levels:
        kept = (kept * levels).round() / levels

    def loss() -> Tensor:
        some = torch.randint(40, (16,))
        return F.cross_entropy(net(kept[some]), some % 3)

    assert kinds(watched(net, loss, steps=100)) == found


@pytest.mark.parametrize("alike", [True, False])
def test_one_huge_feature_is_no_noise_where_the_others_tell_the_target(alike: bool) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1))
    scale = torch.tensor([3000.0] * 8) if alike else torch.tensor([1.0, 1, 1, 5000, 1, 1, 1, 1])

    def loss() -> Tensor:
        x = torch.randn(32, 8)
        return F.mse_loss(net(x * scale), 2 * x[:, :1] + x[:, 1:2])

    found = kinds(watched(net, loss, steps=200, optimizer=torch.optim.Adam(net.parameters(), 3e-3)))
    assert found[0] == ("inputs not scaled" if alike else "one huge feature")
    assert "too much noise" not in found


def test_inputs_that_are_noise_alone_are_told_with_what_was_looked_for() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1))
    w = watched(net, lambda: F.mse_loss(net(20 * torch.randn(32, 8)), torch.randn(32, 1)), steps=200)
    told = [one for one in w.verdict.findings if one.kind == "too much noise"]
    assert "neither a line nor neighbours found the targets in" in told[0].text


@pytest.mark.parametrize("shuffled", [True, False])
def test_passes_that_add_up_are_compared_with_as_many_constant_answers(shuffled: bool) -> None:
    net = mlp()
    optimizer = torch.optim.Adam(net.parameters(), 3e-3)
    with modlab.watch(net, optimizer) as w:
        for _ in range(60):
            optimizer.zero_grad()
            for _ in range(4):
                x, label = blobs()
                (F.cross_entropy(net(x), label[torch.randperm(len(label))] if shuffled else label) / 4).backward()
            optimizer.step()
    assert kinds(w) == (["targets shuffled"] if shuffled else [])
    assert not shuffled or w.verdict.findings[0].facts["baseline"] == pytest.approx(1.6, abs=0.05)


def test_a_loss_of_next_to_nothing_is_no_constant_loss() -> None:
    net = mlp()
    assert kinds(watched(net, lambda: 1e-9 * _fit(net), steps=150))[0] == "loss too small"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_softmax_over_the_samples_in_16_bits(dtype: torch.dtype) -> None:
    net = mlp()

    def loss() -> Tensor:
        x, label = blobs()
        return F.nll_loss(net(x).to(dtype).log_softmax(0).float(), label)

    assert kinds(watched(net, loss, steps=100))[0] == "softmax over the wrong dimension"


def clicks(size: int, seed: int, *, told: bool) -> tuple[Tensor, Tensor]:
    """Yes or no, of which the inputs change the chances a little, and not by a line."""
    made = torch.Generator().manual_seed(seed)
    x = torch.randn(size, 10, generator=made)
    chances = torch.sigmoid(1.1 * torch.sin(2 * x[:, 0]) * torch.sign(x[:, 1]))
    y = (torch.rand(size, generator=made) < chances).float()
    return x, y if told else y[torch.randperm(size, generator=made)]


@pytest.mark.parametrize("told", [True, False])
def test_a_weak_relation_that_is_being_learned_is_not_shuffled(told: bool) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    seeds = iter(range(1000))
    optimizer = torch.optim.Adam(net.parameters(), 2e-3)

    def loss() -> Tensor:
        x, y = clicks(128, next(seeds), told=told)
        return F.binary_cross_entropy_with_logits(net(x)[:, 0], y)

    assert kinds(watched(net, loss, 400, optimizer, budget=1.0)) == ([] if told else ["targets shuffled"])


class Tastes(nn.Module):
    """Tables of users and goods, which somebody drew, and a level of their own."""

    def __init__(self, *, freeze: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.users = nn.Embedding.from_pretrained(0.3 * torch.randn(60, 8), freeze=freeze)
        self.goods = nn.Embedding.from_pretrained(0.3 * torch.randn(40, 8), freeze=freeze)
        self.level = nn.Embedding(60, 1)

    def forward(self, user: Tensor, good: Tensor) -> Tensor:
        return (self.users(user) * self.goods(good)).sum(1) + 0.1 * self.level(user)[:, 0]


@pytest.mark.parametrize("freeze", [True, False])
def test_tables_drawn_at_random_that_are_frozen(freeze: bool) -> None:
    net = Tastes(freeze=freeze)
    torch.manual_seed(1)
    likes = torch.randn(60, 3) @ torch.randn(3, 40)

    def loss() -> Tensor:
        user, good = torch.randint(60, (128,)), torch.randint(40, (128,))
        return F.mse_loss(net(user, good), likes[user, good])

    w = watched(net, loss, 300, torch.optim.Adam([one for one in net.parameters() if one.requires_grad], 2e-2))
    assert kinds(w)[:1] == (["frozen"] if freeze else [])
    assert not freeze or "as if drawn at random" in w.verdict.findings[0].text


@pytest.mark.parametrize("noise", [10.0, 0.1])
def test_images_of_which_noise_leaves_nothing(noise: float) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(800, 2))
    ways = torch.arange(12.0).expand(12, 12)

    def loss() -> Tensor:
        label = torch.randint(2, (32,))
        turned = torch.where(label[:, None, None] == 1, ways, ways.T) + 6 * torch.rand(32, 1, 1)
        x = (0.5 + 0.4 * torch.sin(turned) + noise * torch.randn(32, 12, 12)).clamp(0, 1)
        return F.cross_entropy(net(x[:, None]), label)

    found = kinds(watched(net, loss, 150))
    assert found == (["too much noise", "targets shuffled"] if noise > 1 else [])
