"""Errors of files, state_dicts, constructors and losses: what is said is so, and the code that is offered runs and cures."""

import gzip
import io
import json
import struct
import zipfile

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, prune

import modlab


def explained(cause):
    try:
        cause()
    except Exception as error:  # noqa: BLE001 - what it is, is told by the explanation
        return modlab.explain(error)
    raise AssertionError("it did not fail")


def codes(result):
    return [fix.code for fix in result.fixes if fix.code]


# ---- files that are no checkpoints ---------------------------------------------------------------------------------------------


def saved(model=None):
    file = io.BytesIO()
    torch.save((model or nn.Linear(30, 30)).state_dict(), file)
    return file.getvalue()


def safetensors():
    head = json.dumps({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    return struct.pack("<Q", len(head)) + head + bytes(4)


FILES = {
    "html": (b"<!DOCTYPE html><html>404", "is a web page (HTML)"),
    "lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:abc\nsize 3", "is a pointer of Git LFS"),
    "json": (b'{"a": 1}', "contains text, and begins with '{\"a\": 1}'"),
    "empty": (b"", "is empty"),
    "gzip": (gzip.compress(b"x" * 100), "is compressed (gzip)"),
    "safetensors": (safetensors(), "is a safetensors file"),
    "hdf5": (b"\x89HDF\r\n\x1a\n" + bytes(60), "is HDF5"),
    "other bytes": (bytes(range(256)), "It begins with different bytes."),
    "half": (saved()[: len(saved()) // 2], "The file is cut off"),
    "without its end": (saved()[:-10], "The file is cut off"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_no_checkpoint_is_told_by_what_is_in_it(name, tmp_path):
    content, words = FILES[name]
    path = tmp_path / "weights.pt"
    path.write_bytes(content)
    result = explained(lambda: torch.load(path))
    assert words in result.headline
    assert "one of your classes" not in str(result) and "weights_only=False" not in str(result) and "safe_globals" not in str(result)
    assert str(tmp_path) not in str(result)


def test_the_file_is_read_and_not_moved(tmp_path):
    path = tmp_path / "page.pt"
    path.write_bytes(b"<html>" + b"x" * 50)
    with path.open("rb") as file:
        try:
            torch.load(file)
        except Exception as error:  # noqa: BLE001 - what it is, is told by the explanation
            place = file.tell()
            assert "web page" in modlab.explain(error).headline and file.tell() == place


def test_a_packed_file_is_unpacked_by_the_fix(tmp_path):
    path = str(tmp_path / "weights.pt.gz")
    with gzip.open(path, "wb") as file:
        file.write(saved())
    code = codes(explained(lambda: torch.load(path)))[0]
    room = {"torch": torch, "path": path}
    exec(code.replace("    torch.load", "    found = torch.load"), room)
    assert "weight" in room["found"]


def test_other_archives_and_old_pickles(tmp_path):
    other = tmp_path / "z.zip"
    with zipfile.ZipFile(other, "w") as file:
        file.writestr("a.txt", "x")
    assert "a zip archive of something else" in explained(lambda: torch.load(other)).headline
    page = tmp_path / "page.pt"
    page.write_bytes(b"<html></html>")
    assert "web page" in explained(lambda: torch.load(page, weights_only=False)).headline


class Own:
    """Pickled by reference."""


def test_a_class_of_ones_own_is_still_refused_by_name(tmp_path):
    path = tmp_path / "own.pt"
    torch.save({"net": Own()}, path)
    result = explained(lambda: torch.load(path))
    assert "The file holds more than weights" in result.headline and "Own" in result.headline


# ---- state_dicts of pruned and normalised models, and of a part ------------------------------------------------------------------


def pruned():
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    prune.l1_unstructured(model[0], "weight", 0.5)
    return model


def test_a_pruned_file_is_loaded_with_its_masks():
    source, model = pruned(), nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    state = source.state_dict()
    result = explained(lambda: model.load_state_dict(state))
    assert result.headline.startswith("The state_dict is from a pruned model, but Sequential is not pruned.")
    exec(codes(result)[0], {"model": model, "state": state})
    assert torch.equal(model[0].weight, source[0].weight) and (model[0].weight == 0).sum() == 4


NORMS = {
    "weight": parametrizations.weight_norm,
    "spectral": parametrizations.spectral_norm,
    "old spectral": nn.utils.spectral_norm,
}


@pytest.mark.parametrize("name", NORMS)
def test_a_file_of_normalised_weights(name):
    torch.manual_seed(0)
    source, model = nn.Sequential(NORMS[name](nn.Linear(4, 3))).eval(), nn.Sequential(nn.Linear(4, 3)).eval()
    state = source.state_dict()
    result = explained(lambda: model.load_state_dict(state))
    assert "-normed model" in result.headline and "names = " not in str(result), "another name alone would load other numbers"
    exec(codes(result)[0], {"model": model, "state": state, "nn": nn})
    x = torch.ones(2, 4)
    assert torch.equal(model.eval()(x), source(x))


def test_a_plain_file_for_a_pruned_model():
    model, state = pruned(), nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)).state_dict()
    result = explained(lambda: model.load_state_dict(state))
    assert result.headline.startswith("Sequential is pruned, but the state_dict is from a model that is not.") and codes(result) == []


def test_a_file_of_a_part_of_the_model():
    class Head(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList(nn.Linear(n, n + 1) for n in (2, 3, 4))
            self.out = nn.Linear(5, 1)

    model, state = Head(), nn.Linear(3, 4).state_dict()
    result = explained(lambda: model.load_state_dict(state))
    assert "all its 2 names fit blocks.1" in result.headline
    exec(codes(result)[0], {"model": model, "state": state})
    assert torch.equal(model.blocks[1].weight, state["weight"])
    twins = nn.ModuleDict({"a": nn.Linear(3, 4), "b": nn.Linear(3, 4)})
    assert "names fit" not in explained(lambda: twins.load_state_dict(state)).headline, "it may be of either"


# ---- layers that are made anew -----------------------------------------------------------------------------------------------------


class Holder(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, *args):
        return self.layer(*args)


D = torch.float64
LAYERS = {
    "group": (nn.GroupNorm(2, 4), torch.zeros(2, 6, 3), "has weights for 4"),
    "layer": (nn.LayerNorm(4, eps=1e-3, bias=False), torch.zeros(2, 6), "has weights for 4"),
    "bare layer": (nn.LayerNorm(4, elementwise_affine=False), torch.zeros(2, 6), "is made for 4"),
    "batch": (nn.BatchNorm1d(4), torch.zeros(2, 6), "keeps statistics for 4"),
    "batch without statistics": (nn.BatchNorm1d(4, track_running_stats=False), torch.zeros(2, 6), "has weights for 4"),
    "instance": (nn.InstanceNorm1d(4, affine=True), torch.zeros(2, 6, 5), "has weights for 4"),
    "double": (nn.Linear(4, 3, dtype=D), torch.zeros(2, 6, dtype=D), "has weights for 4"),
    "attention": (nn.MultiheadAttention(8, 2, dropout=0.1, batch_first=True, bias=False), torch.zeros(2, 3, 6), "6"),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_of_another_size_keeps_the_rest(name):
    layer, x, words = LAYERS[name]
    model = Holder(layer)
    given = (x, x, x) if name == "attention" else (x,)
    result = explained(lambda: model(*given))
    assert words in result.headline
    code = next(one for one in codes(result) if one.startswith("self.layer = "))
    exec(code, {"self": model, "nn": nn, "torch": torch})
    model(*given)
    made = model.layer
    for attribute in ("eps", "elementwise_affine", "affine", "track_running_stats", "dropout", "batch_first", "num_groups"):
        assert getattr(made, attribute, None) == getattr(layer, attribute, None)
    for parameter in ("weight", "bias", "in_proj_bias"):
        one, other = (getattr(module, parameter, None) for module in (made, layer))
        assert (one is None) is (other is None) and (one is None or one.dtype == other.dtype)


@pytest.mark.parametrize(
    "layer, given",
    [(nn.Embedding(4, 3, padding_idx=0, sparse=True), torch.tensor([7])), (nn.EmbeddingBag(4, 3, mode="sum"), torch.tensor([[7]]))],
)
def test_a_larger_table_keeps_the_rest(layer, given):
    model = Holder(layer)
    code = codes(explained(lambda: model(given)))[0]
    exec(code, {"self": model, "nn": nn})
    model(given)
    assert type(model.layer) is type(layer) and model.layer.padding_idx == layer.padding_idx and model.layer.sparse == layer.sparse
    assert getattr(model.layer, "mode", "") == getattr(layer, "mode", "")


def test_small_words():
    assert explained(lambda: nn.InstanceNorm2d(3)(torch.zeros(1, 3, 1, 1))).fixes[0].prose.startswith("Normalise over")
    result = explained(lambda: nn.LazyConv2d(4, 3)(torch.zeros(2, 2)))
    assert "0 channels" not in result.headline + " ".join(fix.prose for fix in result.fixes)


# ---- shapes ------------------------------------------------------------------------------------------------------------------------


def test_sizes_that_are_unpacked():
    x, image = torch.zeros(2, 3), torch.zeros(3, 4, 4)

    def four():
        B, C, H, W = image.shape
        return B, C, H, W

    result = explained(four)
    assert result.headline.startswith("image has 3 dimensions, but its sizes are unpacked into 4: B, C, H, W.")
    assert codes(result) == ["image = image.unsqueeze(0)"]

    def one():
        (rows,) = x.size()
        return rows

    assert explained(one).headline.startswith("x has 2 dimensions, but its sizes are unpacked into 1: rows.")

    def both():
        out, hidden, more = x
        return out, hidden, more

    assert explained(both).headline.startswith("x has 2 rows, but they are unpacked into 3")

    def others():
        a, b = [1, 2, 3]
        return a, b

    assert explained(others).family == ""


def test_channels_that_are_shared():
    result = explained(lambda: nn.Conv2d(3, 6, 3, groups=2))
    assert result.headline.startswith("Conv2d cannot share 3 in_channels evenly among 2 groups.")
    assert "nn.Conv2d(3, 6, 3, groups=1)" in codes(result)[0]
    assert "nn.Conv2d(..., 12, ...)" in codes(explained(lambda: nn.PixelShuffle(2)(torch.zeros(1, 3, 4, 4))))
    x = torch.zeros(1, 3, 5, 4)
    result = explained(lambda: nn.PixelUnshuffle(2)(x))
    room = {"x": x, "F": F}
    exec(codes(result)[0], room)
    assert nn.PixelUnshuffle(2)(room["x"]).shape == (1, 12, 3, 2)


def test_places_and_lengths_of_losses():
    scores, labels = torch.randn(2, 3, 8, 8), torch.zeros(2, 4, 4, dtype=torch.long)
    result = explained(lambda: F.cross_entropy(scores, labels))
    assert result.headline.startswith("The scores are for 8×8 places, and the target has 4×4.")
    room = {"scores": scores, "F": F}
    exec(codes(result)[0], room)
    F.cross_entropy(room["scores"], labels)
    probabilities, targets = torch.randn(2, 6, 4).log_softmax(2), torch.ones(2, 3, dtype=torch.long)
    result = explained(lambda: F.ctc_loss(probabilities, targets, torch.tensor([6, 6]), torch.tensor([3, 3])))
    assert "(time, batch, classes)" in result.headline
    room = {"probabilities": probabilities}
    exec(codes(result)[0], room)
    F.ctc_loss(room["probabilities"], targets, torch.tensor([6, 6]), torch.tensor([3, 3]))
    time = torch.randn(5, 2, 4).log_softmax(2)
    assert "target_lengths has 4" in explained(lambda: F.ctc_loss(time, targets, torch.tensor([5, 5]), torch.tensor([3, 4]))).headline
    assert "has 1 number for a batch of 2" in explained(lambda: F.ctc_loss(time, targets, torch.tensor([5]), torch.tensor([3, 3]))).headline


def test_keys_of_another_width():
    model, q = Holder(nn.MultiheadAttention(8, 2, kdim=4)), torch.zeros(5, 2, 8)
    result = explained(lambda: model(q, q, q))
    assert result.headline.startswith("layer got keys of 8 numbers, but was made for 4 (kdim=4).")
    plain = Holder(nn.MultiheadAttention(8, 2))
    assert "each key needs a value" in explained(lambda: plain(q, q, q[:4])).headline


# ---- arguments, hooks, optimizers, dtypes --------------------------------------------------------------------------------------------


class Mute(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 2)

    def forward(self, x):
        self.fc(x)


@pytest.mark.parametrize(
    "cause",
    [
        lambda: F.mse_loss(Mute()(torch.zeros(2)), torch.zeros(2)),
        lambda: Mute()(torch.zeros(2)).sum(),
        lambda: nn.CrossEntropyLoss()(Mute()(torch.zeros(2)), torch.tensor(0)),
    ],
)
def test_a_forward_without_return_called_within_an_expression(cause):
    result = explained(cause)
    assert result.headline.startswith("Mute's forward gives None: it has no return.") and codes(result) == ["return self.fc(x)"]


def test_a_forward_that_returns_is_not_blamed():
    net = nn.Linear(2, 2)
    assert "gives None" not in explained(lambda: F.mse_loss(net(torch.zeros(2)), None)).headline


class Helped(nn.Module):
    def helper(self, x, scale):
        return x * scale

    def forward(self, x):
        return self.helper(x)


def test_missing_arguments_of_constructors_and_methods():
    result = explained(lambda: Helped()(torch.zeros(2)))
    assert result.headline.startswith("helper takes x and scale; scale is missing.") and codes(result) == ["self.helper(x, scale=...)"]
    result = explained(lambda: nn.Linear(10))
    assert result.headline.startswith("nn.Linear takes in_features and out_features; out_features is missing.")
    assert codes(result) == ["nn.Linear(10, out_features=...)"]
    assert codes(explained(lambda: nn.Conv2d(3, 8))) == ["nn.Conv2d(3, 8, kernel_size=...)"]


def test_a_hook_that_is_none():
    net = nn.Linear(3, 3)
    net.register_forward_hook(print)
    net.register_forward_hook(None)
    result = explained(lambda: net(torch.zeros(3)))
    assert result.headline.startswith("A forward hook of Linear is None")
    exec(codes(result)[0], {"modlab": modlab, "net": net})
    assert [*net._forward_hooks.values()] == [print] and net(torch.zeros(3)) is not None


class Tokens(nn.Module):
    def forward(self, ids, mask=None):
        return ids.size(0) if mask is None else mask


def test_a_dict_whose_members_are_arguments():
    net, batch = Tokens(), {"ids": torch.zeros(2), "mask": torch.ones(2)}
    result = explained(lambda: net(batch))
    assert result.headline.startswith("Tokens got a dict as ids") and codes(result) == ["net(**batch)"]
    eval(codes(result)[0], {"net": net, "batch": batch})
    other = {"x": 1}
    assert "members are arguments" not in explained(lambda: net(other)).headline


def test_super_with_a_class_alone():
    class Unbound(nn.Module):
        def __init__(self):
            super(Unbound).__init__()
            self.fc = nn.Linear(2, 2)

    result = explained(Unbound)
    assert result.headline.startswith("super(Unbound).__init__() calls no constructor of nn.Module")
    assert codes(result) == ["super().__init__()"]


def test_an_optimizer_that_gets_names():
    net = nn.Linear(2, 2)
    result = explained(lambda: torch.optim.SGD(net.state_dict(), lr=0.1))
    assert result.headline.startswith("The optimizer takes parameters, but got their names (str).")
    eval(codes(result)[0], {"torch": torch, "net": net})
    assert codes(explained(lambda: torch.optim.SGD([n for n, _ in net.named_parameters()], lr=0.1))) == [
        "torch.optim.SGD(net.parameters(), lr=0.1)"
    ]


def test_whole_numbers_and_fractions():
    x = torch.tensor([1, 2])
    result = explained(lambda: x.requires_grad_())
    room = {"x": x}
    exec(codes(result)[0], room)
    assert room["x"].requires_grad
    y = torch.tensor([1.0, 2.0])
    assert eval(codes(explained(lambda: F.one_hot(y, num_classes=4)))[0], {"F": F, "y": y}).shape == (2, 4)
    z = torch.tensor([-1, 2])
    found = eval(codes(explained(lambda: F.one_hot(z)))[0], {"F": F, "z": z})
    assert found.tolist() == [[0, 0, 0], [0, 0, 1]]
    mask = torch.tensor([True, False])
    result = explained(lambda: nn.Embedding(3, 2)(mask))
    assert "booleans" in result.headline and codes(result) == ["mask = mask.long()"]


def test_nothing_of_it_stays():
    import gc
    import weakref

    there = []

    def fail():
        net = nn.Sequential(nn.Linear(3, 3))
        there.append(weakref.ref(net))
        net.load_state_dict(pruned().state_dict())

    result = explained(fail)
    gc.collect()
    assert there[0]() is None and str(result) == str(result)
