"""Calls of ``modlab.diagnose`` on what is well, or has one mistake that is not where it seems to be: nothing untrue is said of them."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import modlab

CROSS = nn.CrossEntropyLoss()


def kinds(result):
    return [one.kind for one in result.findings]


def the(result, name):
    return next(one for one in result.experiments if one.name == name)


def diagnosed(model, batch, loss, rate=1e-3):
    return modlab.diagnose(model, torch.optim.Adam(model.parameters(), rate), batch=batch, loss=loss)


def net(features, outputs):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(features, 16), nn.LeakyReLU(0.2), nn.Linear(16, outputs))


ONE_KIND = {
    "one image": lambda: (
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)),
        (torch.randn(1, 3, 16, 16), torch.tensor([0])),
        CROSS,
    ),
    "two of one class": lambda: (net(8, 3), (torch.randn(2, 8), torch.tensor([1, 1])), CROSS),
    "a discriminator's real half": lambda: (net(8, 1), (torch.randn(32, 8), torch.ones(32, 1)), nn.BCEWithLogitsLoss()),
    "one number": lambda: (nn.Linear(1, 1), (torch.tensor([2.0]), torch.tensor([3.0])), nn.MSELoss()),
}


@pytest.mark.parametrize("case", ONE_KIND)
def test_one_batch_of_one_target_is_no_certain_mistake(case):
    torch.manual_seed(0)
    assert kinds(diagnosed(*ONE_KIND[case]())) == []


class Forecast(nn.Module):
    """The number after each window."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.head = nn.GRU(1, 16, batch_first=True), nn.Linear(16, 1)

    def forward(self, x):
        return self.head(self.rnn(x)[0][:, -1])


def windows(step, leak):
    series = (torch.arange(400.0) * step).sin()
    return torch.stack([series[i : i + 16 + leak] for i in range(150)]), torch.stack([series[i + 16 : i + 17] for i in range(150)])


FORECASTS = {
    "recurrent": lambda length: (Forecast(), lambda x: x[..., None]),
    "recurrent, backwards": lambda length: (Forecast(), lambda x: x.flip(1)[..., None]),
    "convolution": lambda length: (
        nn.Sequential(nn.Conv1d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * (length - 2), 1)),
        lambda x: x[:, None],
    ),
    "linear": lambda length: (net(length, 1), lambda x: x),
}


@pytest.mark.parametrize("leak", [False, True], ids=["healthy", "target in the window"])
@pytest.mark.parametrize("step", [0.2, 0.1, 0.05, 0.01])
@pytest.mark.parametrize("case", FORECASTS)
def test_the_last_number_of_a_smooth_series_is_no_leak(case, step, leak):
    torch.manual_seed(0)
    x, y = windows(step, leak)
    model, laid = FORECASTS[case](x.shape[1])
    result = diagnosed(model, (laid(x), y), nn.MSELoss(), 1e-2)
    assert ("leak" in kinds(result), the(result, "targets").outcome == "failed") == (leak, leak)


class Translator(nn.Module):
    """An encoder that may look ahead, and a decoder that may not."""

    def __init__(self, masked: bool) -> None:
        super().__init__()
        self.embed, self.places, self.masked = nn.Embedding(30, 16), nn.Parameter(torch.randn(20, 16) * 0.1), masked
        self.body, self.head = nn.Transformer(16, 2, 1, 1, 32, batch_first=True), nn.Linear(16, 30)

    def forward(self, src, tgt):
        source, target = (self.embed(one) + self.places[: one.shape[1]] for one in (src, tgt))
        mask = nn.Transformer.generate_square_subsequent_mask(tgt.shape[1]) if self.masked else None
        return self.head(self.body(source, target, tgt_mask=mask)).transpose(1, 2)


@pytest.mark.parametrize("masked", [True, False])
def test_not_the_encoder_sees_the_future(masked):
    torch.manual_seed(0)
    source = torch.randint(2, 30, (16, 9))
    target = torch.cat([torch.ones(16, 1, dtype=torch.long), source.flip(1)], 1)
    result = diagnosed(Translator(masked), ({"src": source, "tgt": target[:, :-1]}, target[:, 1:]), CROSS)
    found = [(one.kind, one.path) for one in result.findings]
    assert found == ([] if masked else [("sees the future", "body.decoder.layers.0.self_attn")])


class Conditioned(nn.Module):
    """A block that its condition scales (adaLN-zero), and a last layer of zeros, as in a diffusion transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.take, self.time, self.scales = nn.Linear(8, 16), nn.Linear(1, 16), nn.Linear(16, 48)
        self.norm, self.inner, self.last = nn.LayerNorm(16, elementwise_affine=False), nn.Linear(16, 16), nn.Linear(16, 8)
        for layer in (self.scales, self.last):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, x, t):
        shift, scale, gate = self.scales(F.silu(self.time(t))).chunk(3, 1)
        h = self.take(x)
        return self.last(self.norm(h + gate * self.inner(self.norm(h) * (1 + scale) + shift)))


@pytest.mark.parametrize("stuck", [False, True], ids=["adaLN-zero", "all zeros"])
def test_zeros_that_learn_their_way_out_are_not_stuck(stuck):
    torch.manual_seed(0)
    model, x, t, noise = Conditioned(), torch.randn(64, 8), torch.rand(64, 1), torch.randn(64, 8)
    if stuck:
        for parameter in model.parameters():
            nn.init.zeros_(parameter)
    result = diagnosed(model, (((1 - t) * x + t * noise, t), noise - x), nn.MSELoss(), 1e-4)
    assert the(result, "symmetry").outcome == ("failed" if stuck else "passed")
    assert ("vanishing gradient" in kinds(result)) is False and bool(kinds(result)) is stuck


def test_as_many_pictures_as_classes_end_no_search(capsys):
    """Of a target with as many rows as there are classes, and rows behind these."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 4, 1))
    target = torch.randint(0, 4, (4, 8, 8))
    target[:, 0] = 255
    assert kinds(diagnosed(model, (torch.randn(4, 3, 8, 8), target), nn.CrossEntropyLoss(ignore_index=255))) == []
    with modlab.watch(model, torch.optim.SGD(model.parameters(), 0.1)) as w:
        for _ in range(3):
            nn.CrossEntropyLoss(ignore_index=255)(model(torch.randn(4, 3, 8, 8)), target).backward()
    assert "search for causes" not in "".join(capsys.readouterr()) and not w.record.remarks


SIGNS = {
    "a likeness is made less": (lambda o, t: F.cosine_similarity(o, t).mean(), "wrong sign"),
    "a likeness is made more": (lambda o, t: -F.cosine_similarity(o, t).mean(), "right is best"),
    "chances where logarithms are asked": (nn.KLDivLoss(reduction="batchmean"), None),
}


@pytest.mark.parametrize("case", SIGNS)
def test_what_is_upside_down(case):
    loss, kind = SIGNS[case]
    torch.manual_seed(0)
    softmax = isinstance(loss, nn.Module)
    model = nn.Sequential(*net(8, 8), *([nn.Softmax(1)] if softmax else []))
    target = torch.rand(64, 8).softmax(1) if softmax else torch.randn(64, 8)
    result = modlab.diagnose(model, batch=(torch.randn(64, 8), target), loss=loss)
    assert [one.kind for one in result.experiments if one.name == "aim"] == ([kind] if kind else [])


@pytest.mark.parametrize(("low", "found"), [(-1.0, ["targets not scaled"]), (0.0, [])])
def test_chances_are_from_0_to_1(low, found):
    torch.manual_seed(0)
    x = torch.randn(64, 8)
    target = torch.where(x[:, :1] + torch.randn(64, 1) > 0, 1.0, low)
    result = diagnosed(net(8, 1), (x, target), nn.BCEWithLogitsLoss(), 1e-2)
    assert kinds(result) == found
    if found:
        assert "they go from -1 to 1" in result.findings[0].sentence
