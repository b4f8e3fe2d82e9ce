"""Text, HTML, payload and figure are faces of one record: they say the same, and what users wrote is text in each of them.

`MODLAB_GOLDEN=write pytest tests/views/test_faces.py` writes tests/golden (open them: they are what a person sees) and
tests/fixtures (which the front end's tests read) anew; look at the difference before it is committed.
"""

import base64
import gzip
import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import modlab
from bench.deepseek import DeepSeek
from modlab import format
from modlab.errors import ModlabError
from modlab.inspection import slots, structure, values
from modlab.lessons import note
from modlab.records.definition import Definition
from modlab.views import headline, html, payload
from modlab.views.text import WIDEST
from tests import zoo

HERE = Path(__file__).parent.parent
WRITE = os.environ.get("MODLAB_GOLDEN") == "write"
SMALL = [case for case in zoo.every(listed=True, large=False)]


def unpack(data: bytes) -> tuple[dict[str, object], dict[str, np.ndarray]]:
    """As `js/src/payload.ts` does it."""
    size = int.from_bytes(data[:4], "little")
    content = json.loads(data[4 : 4 + size])
    start = 4 + size + -(4 + size) % 8
    arrays = {}
    for name, where in content["arrays"].items():
        count = int(np.prod(where["shape"], dtype=int))
        arrays[name] = np.frombuffer(data, where["dtype"], count, start + where["offset"]).reshape(where["shape"])
    return content, arrays


def embedded(page: str) -> tuple[bytes, str]:
    """The payload and the front end that stand in an output."""
    key, data, bundle = re.search(r'document\.currentScript,"([^"]*)","([A-Za-z0-9+/=]*)","([A-Za-z0-9+/=]*)"\)</script>', page).groups()
    assert key.partition("+")[0] == modlab.__version__
    return gzip.decompress(base64.b64decode(data)), gzip.decompress(base64.b64decode(bundle)).decode()


def watched(net: nn.Module):
    """A watch that saw one step."""
    with modlab.watch(net) as watch:
        net(torch.ones(4)).sum().backward()
    return watch


def expand(names):
    return [str(i) for i in range(names["from"], names["to"] + 1)] if isinstance(names, dict) else names


def rows_of_tree(content):
    """Every place, as the page would unfold it."""
    found, stack = [], [("", len(content["subtrees"]) - 1)]
    while stack:
        path, index = stack.pop()
        subtree = content["subtrees"][index]
        found.append((path, subtree["type"], subtree["total"]))
        children = [(f"{path}.{name}" if path else name, i) for names, i, _ in subtree["runs"] for name in expand(names) if i >= 0]
        stack.extend(reversed(children))
    return found


def rows_of_table(content):
    found, stack = [], [("", len(content["nodes"]) - 1)]
    while stack:
        path, index = stack.pop()
        node = content["nodes"][index]
        found += [(f"{path}.{name}" if path else name, content["signatures"][i]) for name, i in node["slots"]]
        stack.extend(reversed([(f"{path}.{name}" if path else name, i) for names, i in node["runs"] for name in expand(names)]))
    return [r for r in found if r[1]["saved"]] + [r for r in found if not r[1]["saved"]]


class Page(HTMLParser):
    """The tags, attributes and words of a piece of HTML."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, tuple[tuple[str, str | None], ...]]] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, tuple(attrs)))
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"</{tag}> closes something else"

    def handle_data(self, data):
        self.words.append(data)

    def handle_comment(self, data):
        assert data in ("modlab:live", "/modlab:live")

    def handle_decl(self, decl):
        raise AssertionError(decl)

    handle_pi = unknown_decl = handle_decl


def head(shown):
    """The headline as the static picture has it."""
    words = "".join(Page(shown.html(bundle=False).split('<p class="modlab-head">')[1].split("</p>")[0]).words)
    assert words.startswith(f"{shown.kind.upper()} ")
    return words.partition(" ")[2].rstrip()


# ---- the faces agree ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", SMALL, ids=str)
def test_faces_of_a_tree_agree(case):
    model = case.build()
    shown = modlab.tree(model)
    data, _ = embedded(shown.html())
    content, _ = unpack(data)
    page = Page(shown.html(bundle=False))
    assert shown.headline == " ".join(content["headline"]).rstrip() == str(shown).splitlines()[0] == head(shown)
    assert rows_of_tree(content) == [(r.path, r.type, r.total_parameters) for r in shown.records]
    assert (content["modules"], content["places"]) == (shown.record.modules, len(shown))
    folded = list(shown.record.rows(folded=True))
    ghosts = sum(len(record.subtree.ghosts) for record in folded)
    assert len(str(shown).splitlines()) == 2 + len(folded) + ghosts
    assert sum(attrs == (("class", "modlab-leaf"),) or tag == "summary" for tag, attrs in page.tags) == len(folded)
    for record, line in zip(folded, [line for line in str(shown).splitlines()[2:] if not line.startswith("? ")], strict=True):
        assert line.startswith(format.cut(format.clean(record.path), WIDEST) or "(root)")
        if record.total_parameters and not record.reserved:
            assert re.search(rf"\s{record.total_parameters:,}(\s|$)", line)


@pytest.mark.parametrize("case", SMALL, ids=str)
def test_faces_of_a_state_agree(case):
    model = case.build()
    shown = modlab.state(model)
    data, _ = embedded(shown.html())
    content, arrays = unpack(data)
    assert shown.headline == " ".join(content["headline"]).rstrip() == str(shown).splitlines()[0] == head(shown)
    found = rows_of_table(content)
    assert [path for path, _ in found] == shown.paths
    for (_, row), record, told in zip(found, shown.records, shown.to_dict()["records"], strict=True):
        assert (row["kind"], row["saved"], row["count"], row["grad"], row["trainable"], row["persistent"], row["note"]) == (
            record.kind,
            record.in_state_dict,
            record.count,
            record.grad,
            record.trainable,
            record.persistent,
            told["note"],
        )
        assert row["shape"] == (None if record.shape is None else list(record.shape))
    assert content["summary"] == {
        "rows": len(shown.records),
        "saved": len(shown.find(in_state_dict=True)),
        "text": headline.counter(shown.record),
    }
    for carried in shown.record.values:
        body = content["values"][carried.path]
        assert body["nan"] == carried.stats.nan and body["inf"] == carried.stats.posinf + carried.stats.neginf
        if body["bars"]:
            assert arrays[body["bars"]["counts"]].sum() <= carried.stats.finite
        if body["grid"]:
            assert arrays[body["grid"]["array"]].shape == (len(carried.matrix.numbers), len(carried.matrix.numbers[0]))


@pytest.mark.parametrize("view", [modlab.tree, modlab.state])
@pytest.mark.parametrize("case", SMALL, ids=str)
def test_data_is_plain(case, view):
    model = case.build()
    told = view(model).to_dict()
    assert told["schema"] == 1 and told["kind"] == view.__name__ and len(told["records"]) == len(view(model).records)
    assert json.loads(json.dumps(told))["headline"] == view(model).headline


def test_to_pandas():
    pandas = pytest.importorskip("pandas")
    table = modlab.tree(zoo.Net()).to_pandas()
    assert isinstance(table, pandas.DataFrame) and list(table.path) == ["", "l0", "l1"] and list(table.total_parameters) == [19, 15, 4]
    assert list(modlab.state(zoo.Net()).to_pandas().path) == ["l0.weight", "l0.bias", "l1.weight", "l1.bias"]


# ---- what users wrote is text ------------------------------------------------------------------------------------------------


def harmless():
    model = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 2))
    model[0].hidden = [nn.Linear(1, 1)]
    model.register_parameter("none", None)
    model.same = model[0]
    model.more = nn.ModuleList(nn.Linear(2, 2) for _ in range(3))
    return model


def hostile_optimizer(model):
    cls = type("Optimizer", (torch.optim.SGD,), {})
    cls.__name__ = zoo.HOSTILE[0]
    return cls([*model.parameters(), nn.Parameter(torch.ones(1))], lr=1)


def views(model):
    yield modlab.tree(model)
    yield modlab.state(model)
    yield modlab.state(model, hostile_optimizer(model))
    yield modlab.state(model)[modlab.state(model).find(in_state_dict=True)[0].path]


def test_hostile_names_bring_no_tag_and_no_attribute():
    """All markup of a hostile model is markup that a harmless one has too."""
    plain, model = harmless(), zoo.named("hostile_names").build()
    known = {tag for shown in views(plain) for tag in Page(shown.html(bundle=False)).tags} | {("i", ()), ("p", ()), ("caption", ())}
    for shown in views(model):
        page = Page(shown.html(bundle=False))
        assert set(page.tags) <= known and not page.open
        full = shown.html()
        assert full.count("</script") == full.count("<script") == 1 and full.index("<script") > full.index("</style>")


def test_hostile_names_are_readable_in_every_face():
    model = zoo.named("hostile_names").build()
    shown = modlab.tree(model)
    words, text = "".join(Page(shown.html(bundle=False)).words), str(shown)
    told = json.dumps(unpack(embedded(shown.html())[0])[0])
    for name in zoo.HOSTILE:
        assert format.clean(name) in text and format.clean(name) in words
        assert json.dumps(name)[1:-1] in told
    assert len(text.splitlines()) == 2 + sum(1 + len(r.subtree.ghosts) for r in shown.record.rows(folded=True))


# ---- the self-contained output -----------------------------------------------------------------------------------------------


def test_a_large_model_is_a_small_output():
    model = DeepSeek()
    shown = modlab.tree(model)
    page = shown.html()
    assert len(page) <= 200_000
    content, _ = unpack(embedded(page)[0])
    assert content["modules"] == shown.record.modules > 45_000 and len(json.dumps(content)) < 100_000
    assert shown.total_parameters == sum(p.numel() for p in model.parameters())
    assert len(modlab.state(model).html()) <= 200_000


@pytest.mark.parametrize("name", ["fan_out_of_1000", "ten_thousand_deep", "dag_of_2_to_the_40"])
def test_an_output_that_does_not_fold_is_small_too(name):
    model = zoo.named(name).build()
    page = modlab.tree(model).html()
    assert len(page) <= 200_000
    content, _ = unpack(embedded(page)[0])
    assert content["headline"] == list(modlab.tree(model)._sentence())


def marked(model):
    """What may come and go and leaves the structure as it is: hooks, flags, ties, dtypes, attributes."""
    yield "as built", model
    yield "a hook", (model[3].register_forward_hook(print), model)[1]
    yield "a flag", (model[5].eval(), model)[1]
    yield "frozen", (model[7].weight.requires_grad_(False), model)[1]
    yield "an attribute", (setattr(model[8], "note", [nn.Linear(1, 1)]), model)[1]
    yield "a dtype", model.double()
    model[2].weight = model[1].weight
    yield "a tie", model
    model[4] = model[6]
    yield "one module in two places", model


def test_views_of_one_structure_share_a_selection():
    """However it is folded; and views of two structures do not."""

    def told(model):
        return structure.extract(model).fingerprint

    def build(*sizes):
        return nn.Sequential(*(nn.Linear(size, 2) for size in sizes))

    first = told(build(*[2] * 12))
    assert {what: told(model) for what, model in marked(build(*[2] * 12)) if told(model) != first} == {}
    others = [build(*[2] * 11), build(*[2] * 11, 3), nn.ModuleList(build(*[2] * 12)), nn.Sequential(build(*[2] * 12))]
    renamed = nn.Sequential()
    for i, child in enumerate(build(*[2] * 12)):
        renamed.add_module(f"layer{i}", child)
    assert len({first, *map(told, [*others, renamed])}) == 6
    model = build(*[2] * 12)
    before = modlab.tree(model)
    model[3].register_forward_hook(print)
    assert modlab.hooks(model)._fingerprint() == modlab.snapshot(model)._fingerprint() == before.record.fingerprint


def test_an_output_carries_no_time():
    page = modlab.tree(zoo.Net()).html()
    for data in re.findall(r'"([A-Za-z0-9+/=]{200,})"', page):
        assert base64.b64decode(data)[4:8] == bytes(4), "gzip's clock"


@pytest.mark.parametrize(
    "file, make",
    [
        ("still.js", modlab.tree),
        ("still.js", modlab.state),
        ("still.js", lambda net: modlab.state(net)["l0.weight"]),
        ("sheet.js", modlab.hooks),
        ("sheet.js", lambda net: modlab.trace(net)(torch.ones(4))),
        ("watch.js", watched),
    ],
)
def test_an_output_carries_the_front_end_of_its_view_and_no_other(file, make):
    page = make(zoo.Net()).html()
    assert embedded(page)[1] == (HERE.parent / "modlab/views/static" / file).read_text(encoding="utf-8")
    assert page.count("<script") == 1


def test_the_front_end_and_the_loader_agree_on_a_name():
    """What a loader asks the page for is what the front end of that view offers."""
    for bundle, name in (("still", "{0}"), ("sheet", "{0}+sheet"), ("watch", "{0}+watch")):
        views = [view for view, one in (*html.BUNDLES.items(), ("hooks", "sheet")) if one == bundle]
        for view in views:
            page = html.frame(view, ("a", "b"), "", b"x", "1.2")
            assert f'(document.currentScript,"{name.format("1.2")}","' in page
    source = HERE.parent / "js/src"
    if source.exists():
        for entry, what in (
            ("still.ts", "offer(mount);"),
            ("sheet/entry.ts", 'offer(mount, "+sheet");'),
            ("watch/entry.ts", 'offer(mount, "+watch");'),
        ):
            assert what in (source / entry).read_text(encoding="utf-8")


def test_the_plain_picture_has_no_script():
    for shown in views(zoo.Net()):
        assert "<script" not in shown.html(bundle=False) and shown._repr_html_() == shown.html() != shown.html(bundle=False)


# ---- golden files ------------------------------------------------------------------------------------------------------------


NOTE = {"Net": note.Net, "BigNet": note.BigNet, "DynamicNet": lambda: note.DynamicNet(3), "StatefulModule": note.StatefulModule}


def numbered(model: nn.Module) -> nn.Module:
    """Values that no version of a random generator changes."""
    with torch.no_grad():
        for i, tensor in enumerate([*model.parameters(), *model.buffers()]):
            tensor.copy_(torch.arange(tensor.numel()).view(tensor.shape) / 8 - i)
    return model


def agree(path: Path, made: bytes) -> None:
    """A committed file is what is made now."""
    if WRITE:
        path.write_bytes(made)
    assert path.exists() and path.read_bytes() == made, f"{path.name} differs; MODLAB_GOLDEN=write writes it anew"


@pytest.mark.parametrize("view", [modlab.tree, modlab.state])
@pytest.mark.parametrize("name", NOTE)
def test_golden(name, view):
    model = numbered(NOTE[name]())
    shown = view(model)
    text, page = str(shown), shown.html(bundle=False)
    assert text.startswith(f"{name}: ") and f"{sum(p.numel() for p in model.parameters()):,} parameters" in str(modlab.tree(model))
    agree(HERE / "golden" / f"{view.__name__}_{name}.txt", f"{text}\n".encode())
    agree(HERE / "golden" / f"{view.__name__}_{name}.html", f"<!doctype html><meta charset=utf-8>\n{page}\n".encode())


def tree_fixture():
    model = note.BigNet()
    record = structure.extract(model)
    about = Definition("BigNet", "modlab/lessons/note.py:1", "forward(x)", "A layer, then a whole net.", "class BigNet(nn.Module): ...", "")
    return payload.of_tree(record, {record.root: about}, "modlab.tree(model)", "0")


def state_fixture():
    model = numbered(note.StatefulModule())
    optimizer = torch.optim.SGD([*model.linear.parameters(), nn.Parameter(torch.ones(2))], lr=0.1, momentum=0.9)
    model.linear(torch.ones(2)).sum().backward()
    record = slots.extract(model, (optimizer,))
    return payload.of_table(record, structure.extract(model).fingerprint, "modlab.state(model, optimizer)", "0")


def values_fixture():
    tensor = torch.arange(-6.0, 6.0).view(3, 4)
    tensor[0, 0], tensor[1, 1], tensor[2, 2] = float("nan"), float("inf"), -float("inf")
    return payload.of_measurement(values.read(tensor, "weight"), "modlab.measure(tensor)", "0")


def hostile_fixture():
    return payload.of_tree(structure.extract(zoo.named("hostile_names").build()), {}, "modlab.tree(model)", "0")


FIXTURES = {"tree": tree_fixture, "state": state_fixture, "measure": values_fixture, "hostile": hostile_fixture}


@pytest.mark.parametrize("name", FIXTURES)
def test_fixtures_of_the_front_end(name):
    made = FIXTURES[name]()
    content, arrays = unpack(made)
    assert made == FIXTURES[name]() and content["schema"] == 1 and content["view"] in (name, "tree")
    assert all(array.size for array in arrays.values())
    agree(HERE / "fixtures" / f"{name}.bin", made)


# ---- figures -----------------------------------------------------------------------------------------------------------------


FIGURES = ["mlp", "hostile_names", "dtypes", "empty", "zero_elements", "not_finite", "dag_of_2_to_the_40", "tied_blocks", "holes", "nested"]


@pytest.mark.parametrize("name", FIGURES)
def test_figures_are_drawn(name):
    from matplotlib.figure import Figure

    case = zoo.named(name)
    model = case.build()
    shown = [modlab.tree(model), *([modlab.state(model)] if case.listed else [])]
    for one in shown:
        figure = one.figure()
        assert isinstance(figure, Figure)
        figure.canvas.draw()
        assert figure.axes[0].get_title(loc="left").startswith(one._sentence()[0].rstrip(";.")[:30])
    for r in modlab.state(model).find(in_state_dict=True)[:3] if case.listed else ():
        modlab.state(model).figure(r.path).canvas.draw()


def test_a_figure_goes_where_it_is_told():
    from matplotlib.figure import Figure

    model = zoo.Net()
    ax = Figure().add_subplot()
    for draw in (modlab.tree(model).figure, modlab.state(model).figure, modlab.measure(torch.ones(3)).figure):
        assert draw(ax=ax) is ax.figure


def test_a_figure_shows_each_parameter_once():
    ax = modlab.tree(nn.Sequential(nn.Linear(3, 1), nn.Linear(11, 1))).figure().axes[0]
    assert [round(bar.get_width(), 6) for bar in ax.patches] == [1, 0.25, 0.75]


def test_figures_leave_pyplot_alone():
    code = (
        "import sys, torch, modlab; net = torch.nn.Linear(2, 2); modlab.tree(net).figure(); modlab.state(net).figure('weight');"
        "print('matplotlib.pyplot' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "False"


# ---- IPython and the widget --------------------------------------------------------------------------------------------------


def shown_by(shell, thing):
    return shell.display_formatter.format(thing)[0]


def test_the_extension_shows_a_bare_module_and_stops(shell):
    net = zoo.Net()
    shell.run_line_magic("load_ext", "modlab")
    assert shown_by(shell, net)["text/html"] == modlab.tree(net).html() and shown_by(shell, net)["text/plain"] == repr(net)
    assert "text/html" not in shown_by(shell, torch.ones(2))
    shell.run_line_magic("unload_ext", "modlab")
    assert "text/html" not in shown_by(shell, net)
    shell.run_line_magic("load_ext", "modlab")
    shell.run_line_magic("reload_ext", "modlab")
    assert "text/html" in shown_by(shell, net)


def test_the_extension_never_fails_a_display(shell):
    shell.run_line_magic("load_ext", "modlab")
    for broken in (zoo.Forgot(), zoo.named("class_lies").build(), zoo.named("len_and_bool_raise").build(), zoo.named("bool_false").build()):
        html = shown_by(shell, broken).get("text/html")
        assert html is None or "modlab" in html or "super().__init__()" in html


def test_a_result_shows_itself(shell):
    model = zoo.Net()
    for result in views(model):
        data = shown_by(shell, result)
        assert data["text/html"] == result.html() and data["text/plain"] == str(result)


@pytest.fixture
def ask(monkeypatch):
    """Send a message to a widget as the page would; returns what it answers."""

    def put(widget, content):
        answers = []
        monkeypatch.setattr(widget, "send", lambda content, buffers=None: answers.append((content, buffers)))
        widget._handle_custom_msg(content, [])
        return answers

    return put


def test_the_widget_says_hello_and_gives_values(ask):
    model = zoo.Net()
    for shown in (modlab.tree(model), modlab.state(model)):
        widget = shown.widget()
        [(content, [data])] = ask(widget, {"id": 1, "action": "hello"})
        assert content == {"id": 1, "ok": True} and unpack(data)[0]["live"] and unpack(data)[0]["headline"] == list(shown._sentence())
        with torch.no_grad():
            model.l1.bias.fill_(7)
        [(content, [data])] = ask(widget, {"id": 2, "action": "values", "path": "l1.bias"})
        assert content == {"id": 2, "ok": True} and unpack(data)[1]["grid 0"].tolist() == [[7]]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ({"id": 3, "action": "dance"}, "does not know the action 'dance'"),
        ({"id": 3}, "does not know the action None"),
        ({"id": 3, "action": "values", "path": "l9.weight"}, "has no tensor 'l9.weight'"),
        ({"id": 3, "action": "values"}, "has no tensor"),
        ({"id": 3, "action": ["x"]}, "does not know"),
    ],
)
def test_the_widget_answers_nonsense_with_an_error(ask, content, text):
    model = zoo.Net()
    [(answer, _)] = ask(modlab.tree(model).widget(), content)
    assert answer["id"] == 3 and not answer["ok"] and text in answer["error"]


@pytest.mark.parametrize("content", ["text", None, [], {"action": "hello"}, 3])
def test_the_widget_is_silent_where_nobody_waits(ask, content):
    assert ask(modlab.measure(torch.ones(3)).widget(), content) == []


def test_a_measurement_answers_that_it_has_no_paths(ask):
    [(answer, _)] = ask(modlab.measure(torch.ones(3)).widget(), {"id": 1, "action": "values", "path": "x"})
    assert not answer["ok"] and answer["error"]


def test_the_widget_tells_that_the_model_is_gone(ask):
    shown = modlab.state(zoo.Net())
    widget = shown.widget()
    [(answer, _)] = ask(widget, {"id": 1, "action": "values", "path": "l0.weight"})
    assert not answer["ok"] and "no longer exists" in answer["error"]
    [(answer, _)] = ask(widget, {"id": 2, "action": "hello"})
    assert answer["ok"]


def test_the_widget_is_text_and_picture_too():
    model = zoo.Net()
    shown = modlab.tree(model)
    widget = shown.widget()
    data, _ = widget._repr_mimebundle_()
    assert repr(widget) == repr(shown) == data["text/plain"] and data["text/html"] == shown.html(bundle=False)
    assert data["application/vnd.jupyter.widget-view+json"]["model_id"] == widget.model_id
    big = [
        name for name, value in widget.get_state().items() if isinstance(value, str) and len(value) > 1_000 and name not in ("_esm", "_css")
    ]
    assert not big, "nothing big in what a saved notebook keeps"


@pytest.mark.parametrize("answer", [ModlabError("told"), ValueError("raw")])
def test_whatever_fails_is_an_answer(ask, answer, monkeypatch):
    def fail(**_):
        raise answer

    shown = modlab.measure(torch.ones(3))
    monkeypatch.setattr(shown, "_payload", fail, raising=False)
    [(content, _)] = ask(shown.widget(), {"id": 1, "action": "hello"})
    assert not content["ok"] and str(answer) in content["error"]
