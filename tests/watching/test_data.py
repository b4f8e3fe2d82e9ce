"""What is taken home of a watch: a page, plain data, a part of the model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import modlab
from modlab.errors import PathNotFoundError, QuestionError, SaveError


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.b(self.a(x).relu())


def model() -> nn.Module:
    torch.manual_seed(0)
    made = nn.Sequential()
    made.add_module("emb", nn.Linear(4, 6))
    made.add_module("blocks", nn.Sequential(*[Block() for _ in range(3)]))
    made.add_module("head", nn.Linear(6, 1))
    return made


def watched(steps: int = 24, **how: Any) -> modlab.results.watch.Watch:
    net = model()
    optimizer = torch.optim.Adam(net.parameters(), 1e-2)
    with modlab.watch(net, optimizer, budget=1.0, **how) as w:
        for _ in range(steps):
            x = torch.randn(16, 4)
            loss = (net(x) - x.sum(1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            w.log(loss=loss)
    return w


# ---- a part of the model


@pytest.mark.parametrize(
    ("only", "modules", "parameters"),
    [
        ("blocks.*", {f"blocks.{i}{end}" for i in range(3) for end in ("", ".a", ".b")}, 12),
        ("blocks.1", {"blocks.1", "blocks.1.a", "blocks.1.b"}, 4),
        ("*.a", {"blocks.0.a", "blocks.1.a", "blocks.2.a"}, 6),
        (["head", "emb"], {"head", "emb"}, 4),
        ("emb.weight", set(), 1),
        (["blocks.0.a.bias", "head"], {"head"}, 3),
    ],
    ids=["below", "one", "end", "list", "a parameter", "both"],
)
def test_only_a_part_is_measured(only: Any, modules: set[str], parameters: int) -> None:
    w = watched(only=only)
    series = w.record.history.series
    assert {one.path for one in series if one.role in ("activation", "gradient")} == modules
    assert len([one for one in series if one.role == "parameter"]) == parameters
    left = next(one for one in w.findings if one.kind == "left out")
    assert left.facts["left"] == 13 - len(modules) and left.facts["weights"] == 16 - parameters
    assert "Left out by only=" in w.headline and w.verdict.ok and w.record.steps == 24
    assert set(w.record.verdict.unseen) == (set() if modules else {"every module is called"})


def test_all_is_nothing_left_out() -> None:
    assert not [one for one in watched(only="*").findings if one.kind == "left out"]


@pytest.mark.parametrize(
    ("only", "error", "says"),
    [
        ("blok", PathNotFoundError, "Nearest: 'blocks'"),
        (["head", "x.*"], PathNotFoundError, "'x.*'"),
        ([], QuestionError, "takes a dotted name"),
        (3, QuestionError, "got 3"),
        ([3], QuestionError, "got"),
        ("", QuestionError, "got ''"),
    ],
)
def test_what_fits_nothing_is_refused(only: Any, error: type[Exception], says: str) -> None:
    net = model()
    with pytest.raises(error, match=says.replace("*", r"\*")):
        modlab.watch(net, only=only)


# ---- plain data


def test_plain_data_have_all_that_the_watch_came_to() -> None:
    w = watched()
    data = json.loads(json.dumps(w.to_dict()))
    assert data["schema"] == 3 and data["kind"] == "watch" and data["headline"] == w.headline
    assert data["run"] == {"model": "Sequential", "optimizer": "Adam", "state": "ended", "error": "", "steps": 24, "samples": 24}
    assert data["verdict"]["exit_code"] == w.verdict.exit_code == 0
    assert data["verdict"]["ok"] is w.verdict.ok is True and data["verdict"]["broken"] is None
    assert [one["name"] for one in data["verdict"]["checks"]] == [one.name for one in w.verdict.checks]
    assert data["scalars"]["loss"]["count"] == 24 == len(data["scalars"]["loss"]["mean"])
    assert len(data["records"]) == len(w.history["path"]) and data["alerts"] == []


def test_the_table_has_what_was_logged_and_the_rest_beside_it() -> None:
    pytest.importorskip("pandas")
    w = watched()
    table = w.to_pandas()
    assert list(table.columns) == list(w.history)
    scalars = table[table.role == "scalar"]
    logged = scalars[scalars.path == "loss"]
    assert len(logged) == 24 and set(scalars.path) == {one.name for one in w.record.scalars}
    assert logged["mean"].tolist() == pytest.approx(next(one for one in w.record.scalars if one.name == "loss").mean.tolist())
    assert len(table) - len(scalars) == len(w.history["path"])
    assert table.attrs["verdict"]["ok"] and table.attrs["schema"] == 3 and table.attrs["headline"] == w.headline


# ---- whether all is well


def test_ok_is_false_where_nothing_was_judged() -> None:
    net = model()
    with modlab.watch(net) as w:
        pass
    assert not w.verdict.ok and w.verdict.broken is None and len(w.verdict.unseen) == len(w.verdict.checks)


def test_ok_is_false_where_something_is_broken() -> None:
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    with modlab.watch(net, optimizer, budget=1.0) as w:
        for _ in range(20):
            net(torch.randn(4, 4)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert not w.verdict.ok and w.verdict.broken is not None and w.verdict.broken.name == "it moves"


# ---- a page


@pytest.mark.parametrize("kind", [str, Path])
def test_a_page_stands_alone(kind: Any, tmp_path: Path) -> None:
    w = watched()
    target = tmp_path / "run.html"
    target.write_text("before")
    assert w.save(kind(target)) == target
    page = target.read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>") and page.rstrip().endswith("</html>") and w.html() in page
    assert "http://" not in page.replace("http://www.w3.org", "") and "<script src" not in page
    assert [one.name for one in tmp_path.iterdir()] == ["run.html"]


@pytest.mark.parametrize(
    ("path", "says"),
    [
        (".", "is a folder"),
        ("run.png", "suffix .html"),
        ("run", "without a suffix"),
        ("none/run.html", "does not exist"),
        (3, "takes the name"),
        (b"run.html", "takes the name"),
    ],
    ids=str,
)
def test_what_is_no_page_is_refused(path: Any, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    w = watched(steps=3)
    with pytest.raises(SaveError, match=says):
        w.save(path)
    assert not [*tmp_path.iterdir()]


def test_every_result_can_be_saved(tmp_path: Path) -> None:
    net = model()
    for name, result in (("tree", modlab.tree(net)), ("state", modlab.state(net))):
        saved = result.save(tmp_path / f"{name}.html").read_text(encoding="utf-8")
        assert result.html() in saved.partition("<main>")[2].partition("</main>")[0]
        assert f"<h1>modlab {name}</h1>" in saved and "<h1" not in result.html()  # a page has a heading; a view in a notebook is none
