"""The tour's page and the map: fresh, whole in themselves, and no home named but one."""

import base64
import gzip
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch
from torch import nn

pytest.importorskip("mistune")
pytest.importorskip("matplotlib")

from scripts import module_map, pages

ROOT = Path(__file__).resolve().parent.parent
TEXT = pages.PAGE.read_text(encoding="utf-8")


class Reader(HTMLParser):
    """Every attribute that could fetch something, the ids, and the pictures without words."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.wordless: list[str] = []
        self.headings: list[int] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.ids.add(given.get("id") or "")
        if tag == "a":
            self.links.append(given.get("href") or "")
        if tag == "img" and not given.get("alt"):
            self.wordless.append(str(given)[:60])
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        for name in ("src", "href", "srcset", "data", "poster", "action"):
            if tag != "a" and given.get(name):
                self.fetched.append(given[name] or "")


@pytest.fixture(scope="module")
def reader() -> Reader:
    found = Reader()
    found.feed(TEXT)
    return found


def payloads(text: str) -> list[str]:
    """What the views are made of, unpacked."""
    packed = re.findall(r'\(document\.currentScript,"[^"]+","([^"]+)"\)', text)
    return [gzip.decompress(base64.b64decode(one)).decode("utf-8", "replace") for one in packed]


def test_the_page_is_of_this_tour():
    stored = json.loads(pages.TOUR.read_text(encoding="utf-8"))
    assert f'<meta name="modlab-tour" content="{pages.fingerprint(stored)}">' in TEXT, "the tour has changed since: run `make pages`"


def test_the_fingerprint_changes_with_the_tour_and_not_with_what_differs_from_run_to_run():
    stored = json.loads(pages.TOUR.read_text(encoding="utf-8"))
    before = pages.fingerprint(stored)
    steady = next(c for c in stored["cells"] if c.get("outputs") and "text/plain" in c["outputs"][0].get("data", {}) and not c["metadata"])
    steady["outputs"][0]["data"]["text/plain"] = "another"
    assert pages.fingerprint(stored) != before


def test_the_page_fetches_nothing(reader: Reader):
    assert len(TEXT.encode()) <= pages.MOST_BYTES
    assert [one for one in reader.fetched if not one.startswith("data:")] == []
    assert not re.search(r"url\(|@import", TEXT)
    assert "default-src 'none'" in TEXT
    assert "connect-src" not in TEXT
    outside = {one for one in reader.links if not one.startswith("#")}
    homes = f"https://mybinder.org/v2/gh/{pages.repository()}/", "https://docs.pytorch.org/docs/stable/"
    assert all(one.startswith(homes) for one in outside)
    assert pages.launch(pages.repository(), pages.TOUR.name) in outside


def test_links_inside_the_page_lead_somewhere_and_headings_do_not_jump(reader: Reader):
    inside = [one[1:] for one in reader.links if one.startswith("#")]
    assert len(inside) >= 5
    assert set(inside) <= reader.ids
    assert reader.headings[0] == 1
    assert all(after <= before + 1 for before, after in zip(reader.headings, reader.headings[1:], strict=False))
    assert reader.wordless == []


def test_the_front_end_stands_once():
    bundles = json.loads(re.search(r"modlabBundles = (\{.*?\});\n", TEXT)[1])
    assert set(bundles) >= {"0.1.0", "0.1.0+sheet", "0.1.0+watch"}
    for bundle in bundles.values():
        assert TEXT.count(bundle) == 1
    assert len(payloads(TEXT)) == TEXT.count('<div class="modlab-static"') >= 10
    assert TEXT.count("DecompressionStream") == 1


def test_nothing_in_it_is_of_the_machine_that_made_it():
    told = re.sub(r"[A-Za-z0-9+/=]{400,}", "", TEXT)  # what is packed says by chance whatever one looks for
    for text in (told, *payloads(TEXT)):
        assert not re.search(r"ipykernel_\d|site-packages/|/tmp/|/home/|/Users/|\b0x[0-9a-f]{8,}", text)
        assert str(ROOT) not in text


@pytest.mark.parametrize(
    ("home", "link"), [("OWNER/REPO", "docs/tour.html"), ("ada/modlab", "https://ada.github.io/modlab/tour.html")], ids=["none", "a home"]
)
def test_readme_links_to_the_tour_and_the_clinic_first(home: str, link: str):
    readme = pages.with_link(pages.README.read_text(encoding="utf-8"), home)
    assert re.findall(r"\]\(([^)]+)\)", readme)[:2] == [link, link.replace("tour", "clinic")]
    if home == pages.repository():
        assert readme == pages.README.read_text(encoding="utf-8")


def test_the_home_stands_in_one_place():
    asked = ["pyproject.toml", "README.md", "Makefile", "CONTRIBUTING.md", *(f"binder/{file.name}" for file in (ROOT / "binder").iterdir())]
    holders = [name for name in asked if pages.repository() in (ROOT / name).read_text(encoding="utf-8")]
    if pages.repository() != pages.UNKNOWN:
        holders.remove("README.md")  # its link is made from it
    assert holders == ["pyproject.toml"]


def test_the_map_says_what_torch_does():
    fates = {owned.name: module_map.fates(owned.name) for owned in module_map.OWNED}
    assert fates == {
        "scale": (True, True, True),
        "mean": (False, True, True),
        "mask": (False, False, True),
        "linear": (True, True, True),
        "loose": (False, False, False),
        "layers": (False, False, False),
    }
    assert [module_map.store(name) for name in fates] == ["_parameters", "_buffers", "_buffers", "_modules", "__dict__", "__dict__"]


def test_the_map_has_the_order_of_a_call():
    said: list[str] = []

    class Told(nn.Linear):
        def forward(self, input):
            said.append("forward")
            return super().forward(input)

    module = Told(2, 2)
    module.register_full_backward_hook(lambda *_: said.append("backward hook"))
    module.register_full_backward_pre_hook(lambda *_: said.append("full backward pre-hook"))
    module.register_forward_hook(lambda *_: said.append("forward hook"))
    module.register_forward_pre_hook(lambda *_: said.append("forward pre-hook"))
    module.weight.register_hook(lambda _: said.append("backward"))
    module(torch.ones(1, 2, requires_grad=True)).sum().backward()
    assert module_map.stages() == [*said, "step"]


def test_the_map_tells_modes_from_autograd():
    found = {switch.code: module_map.effects(switch) for switch in module_map.SWITCHES}
    assert found["m.train()"] == (True,) * 5
    assert found["m.eval()"] == (False, False, False, False, True)
    assert found["with torch.no_grad():"] == (True, True, True, True, False)
    assert found["m.eval() and no_grad"] == (False,) * 5
    assert found["m.requires_grad_(False)"] == (True, True, True, True, False)


def test_the_map_is_fresh_and_the_same_each_time(tmp_path: Path):
    pdf, svg = module_map.written(tmp_path)
    assert svg.read_bytes() == (module_map.DOCS / "map.svg").read_bytes(), "the map has changed: run `make pages`"
    assert pdf.read_bytes() == (module_map.DOCS / "map.pdf").read_bytes()
    text = svg.read_text(encoding="utf-8")
    assert '<title id="t">' in text
    assert '<desc id="d">' in text
    assert pdf.read_bytes().count(b"/Type /Page\n") + pdf.read_bytes().count(b"/Type /Page ") == 1
    assert re.search(rb"/MediaBox \[ ?0 0 841\.\d+ 595\.\d+ ?\]", pdf.read_bytes()), "A4, landscape"
