"""Make docs/tour.html: the tour as one page that needs no kernel and no network, and in which the views are alive.

    .venv/bin/python -m scripts.pages

The notebook is executed and its outputs are kept whole; what several outputs have in common (the front end, the style) stands once in the
page. README's links to pages are set as well, since they depend on where the repository lives (`[tool.modlab]` in pyproject.toml).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path
from string import Template
from typing import Any

import mistune
import nbformat
from pygments import highlight  # type: ignore[import-untyped]
from pygments.formatters import HtmlFormatter  # type: ignore[import-untyped]
from pygments.lexers import PythonLexer  # type: ignore[import-untyped]

from modlab.lessons import answers, cards, lookup
from modlab.lessons.content import Question
from modlab.lessons.kinds import Number
from modlab.views import html as views
from scripts import notebooks
from scripts.notebooks import UNKNOWN, launch, repository

ROOT = Path(__file__).resolve().parent.parent
TOUR = ROOT / "notebooks" / "00_tour.ipynb"
PAGE = ROOT / "docs" / "tour.html"
FRAME = ROOT / "scripts" / "page.html"
README = ROOT / "README.md"
ASKING = ROOT / "scripts" / "tour.js"
MOST_BYTES = 1_500_000
UNUSUAL, BLANK = 987_654_321, "\u2047"
"""A number that no question expects, and what stands for it in its card: there the page's script writes what a reader answered."""

"""What stands in pyproject.toml for as long as the repository has no public home."""

LIVE = re.compile(r'\(document\.currentScript,"(?P<key>[^"]+)","(?P<payload>[^"]+)","(?P<bundle>[^"]+)"\)</script>')
STYLE = re.compile(r"<style>.*?</style>\n?", re.DOTALL)
README_LINKS = {"tour": "**[The tour, alive in your browser]({})**", "clinic": "[The clinic: why does it not learn?]({})"}
"""What stands in README between comments of these names; each is a page in docs/."""
NOTEBOOK_LINK = re.compile(r'href="(\w+\.ipynb)"')
HEADING = re.compile(r"<h([1-6])>(.*?)</h\1>")
ANSI = re.compile(r"\x1b\[[0-9;]*m")


def main() -> None:
    """Execute the tour and write the page; a tour that fails leaves it as it was."""
    os.environ["JUPYTER_PREFER_ENV_PATH"] = "1"
    stored = json.loads(TOUR.read_text(encoding="utf-8"))
    notebook = nbformat.reads(json.dumps(notebooks.with_names(stored)), as_version=4)
    notebook.cells.insert(0, nbformat.v4.new_code_cell("from modlab.lessons import stills\n\nstills.WHOLE = True"))
    notebooks.execute(notebook, TOUR.parent)
    del notebook.cells[0]
    text = page(notebook, fingerprint(stored), repository())
    if len(text.encode()) > MOST_BYTES:
        sys.exit(f"{PAGE.name}: {len(text.encode()):,} bytes, more than {MOST_BYTES:,}; show less in the tour. The file is unchanged.")
    PAGE.write_text(text, encoding="utf-8")
    README.write_text(with_link(README.read_text(encoding="utf-8"), repository()), encoding="utf-8")
    notebooks.INDEX.write_text(notebooks.index(), encoding="utf-8")
    print(f"{PAGE.relative_to(ROOT)}: {len(text.encode()) / 1000:.0f} KB")


def page_link(home: str, name: str) -> str:
    """Where README finds a page: on GitHub's pages, or, without a public home, in the clone."""
    owner, repository = home.split("/")
    return f"docs/{name}.html" if home == UNKNOWN else f"https://{owner}.github.io/{repository}/{name}.html"


def with_link(readme: str, home: str) -> str:
    """README with its links to pages as they are for this home."""
    for name, link in README_LINKS.items():
        readme = re.sub(rf"(?<=<!--{name}-->).*?(?=<!--/{name}-->)", link.format(page_link(home, name)), readme, flags=re.DOTALL)
    return readme


def fingerprint(notebook: dict[str, Any]) -> str:
    """Of what the stored tour says: its cells, and the texts of outputs that are the same in each run."""
    told: list[Any] = []
    for cell in notebook["cells"]:
        steady = "nbval-ignore-output" not in cell["metadata"].get("tags", ())
        outputs = cell.get("outputs", []) if steady else []
        texts = ["".join(out.get("text") or out.get("data", {}).get("text/plain") or "") for out in outputs]
        told.append([cell["cell_type"], "".join(cell["source"]), texts])
    told.append(asked(TOUR.stem))
    return hashlib.sha256(json.dumps(told, ensure_ascii=False).encode()).hexdigest()[:16]


def page(notebook: dict[str, Any], mark: str, home: str) -> str:
    """One page of an executed notebook."""
    bundles: dict[str, str] = {}
    styles: set[str] = set()
    parts: list[str] = []
    for cell in notebook["cells"]:
        parts += _cell(cell, bundles, styles)
    body = "\n".join(parts)
    title, _, rest = body.partition("</h1>")
    return Template(FRAME.read_text(encoding="utf-8")).substitute(
        title=f"{title}</h1>",
        body=NOTEBOOK_LINK.sub(lambda link: f'href="{escape(launch(home, link[1]))}"', rest),
        contents="\n".join(f'<li><a href="#{anchor}">{words}</a></li>' for anchor, words in re.findall(r'<h2 id="(.*?)">(.*?)</h2>', rest)),
        launch=escape(launch(home, TOUR.name)),
        homeless="" if home != UNKNOWN else '<p class="note">This copy has no public home yet: the button works once it has one.</p>',
        fingerprint=mark,
        loader=views.static_file("loader.js").strip(),
        bundles=json.dumps(bundles),
        questions=json.dumps(asked(TOUR.stem)).replace("</", "<\\/"),
        asking=ASKING.read_text(encoding="utf-8").strip(),
    )


def asked(lesson: str) -> dict[str, dict[str, Any]]:
    """What the page's script knows of each question: how it is answered, and the cards for its usual answers and for any other number."""
    known = {}
    for question in lookup.find(lesson).questions:
        letters = [letter for letter, _ in question.kind.options]
        given = letters or ["yes", "no"] if not isinstance(question.kind, Number) else _numbers(question)
        known[question.name] = {"form": question.kind.form, "answers": [_cards(lesson, question, one) for one in given]}
    return known


def _numbers(question: Question) -> list[Any]:
    return [question.answer, *(wrong.answer for wrong in question.wrong), UNUSUAL]


def _cards(lesson: str, question: Question, given: Any) -> tuple[str, str, str]:
    """An answer, the card of who asked for it, and the one that settles it."""
    answer = answers.read(question, given)
    sides = answers.asked(answer, "predict"), answers.settled(answer, "recall" if question in lookup.find(lesson).recalls else "see")
    html = [cards.of_cards((side,), lesson).replace(f"<style>{cards.style()}</style>", "") for side in sides]
    asked, settled = (one.replace(question.kind.write(UNUSUAL), BLANK) for one in html) if given is UNUSUAL else html
    return str(given), asked, settled


def _cell(cell: dict[str, Any], bundles: dict[str, str], styles: set[str]) -> Iterator[str]:
    if cell["cell_type"] == "markdown":
        yield _prose(cell["source"])
        return
    code = highlight(cell["source"], PythonLexer(), HtmlFormatter(nowrap=True)).rstrip()
    yield f'<pre class="code" tabindex="0"><code>{code}</code></pre>'
    for output in cell["outputs"]:
        _style_once(output, styles)
        yield f'<div class="output">{_output(output, bundles)}</div>'


def _style_once(output: dict[str, Any], known: set[str]) -> None:
    """Keep a style where it comes first: all pictures stand on one page."""
    html = output.get("data", {}).get("text/html")
    if html is not None:
        for style in STYLE.findall(html):
            if style in known:
                html = html.replace(style, "")
            known.add(style)
        output["data"]["text/html"] = html


def _prose(source: str) -> str:
    """Markdown as HTML; each heading has a name to jump to."""
    made = str(mistune.create_markdown(escape=False, plugins=["table"])(source))
    return HEADING.sub(lambda found: f'<h{found[1]} id="{_anchor(found[2])}">{found[2]}</h{found[1]}>', made)


def _anchor(words: str) -> str:
    return re.sub(r"\W+", "-", re.sub(r"<.*?>", "", words).lower()).strip("-")


def _output(output: dict[str, Any], bundles: dict[str, str]) -> str:
    data = output.get("data", {})
    if "text/html" in data:
        return _shared(data["text/html"], bundles)
    if "image/png" in data:
        words = escape(output["metadata"]["image/png"]["alt"])
        return f'<img alt="{words}" src="data:image/png;base64,{data["image/png"].strip()}">'
    text = output.get("text") or data.get("text/plain") or "\n".join(output.get("traceback", ()))
    return f'<pre tabindex="0">{escape(notebooks.without_paths(ANSI.sub("", text)).rstrip())}</pre>'


def _shared(html: str, bundles: dict[str, str]) -> str:
    """An output without the code that others bring as well: it names it, and the page has it once."""
    loader = f"<script>({views.static_file('loader.js').strip()})"

    def named(found: re.Match[str]) -> str:
        bundles[found["key"]] = found["bundle"]
        return f'(document.currentScript,"{found["key"]}","{found["payload"]}")</script>'

    return LIVE.sub(named, html.replace(loader, "<script>modlabShow"))


if __name__ == "__main__":
    main()
