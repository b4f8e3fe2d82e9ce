/** The tree of modules at the left, what there is to know about the selected one at the right. */
import type { Context, Panel } from "../context";
import { detailPanel } from "./detail";
import { element, OURS } from "../elements";
import { copyAndSay } from "../frame";
import { panes, ROW } from "../list";
import { counted } from "../names";
import { Outline } from "./outline";
import type { TreePayload } from "../payload";
import { nameOf, originalOf, pathOf, stepsOf, stepsTo, type Place } from "./place";
import { parse, type Word } from "../search/query";
import { LISTED, search } from "./search";
import { hear, tell } from "../selection";
import { codeFor, hasReason, treeRow } from "./row";
import { Walker, type Sifted } from "../walker";

const FIRST_ROWS = 16;
/** With no more rows at first the detail stands below them; so many are as high as it is. */
const FEW = 6;
const HEAD = 22;
const HELP = "No module matches. Words match a path, a type, a shape (768, 4x3), or are: trainable, frozen, eval, train, tied, lazy, meta, hooks, hidden.";

export class TreePanel implements Panel {
  readonly #tree: TreePayload;
  readonly #context: Context;
  readonly element: HTMLElement;
  readonly keys = "↑↓ move  → open  * open siblings  u unfold  / search  c copy code";
  readonly #whole: Outline;
  readonly #detail = element("div", { class: "detail", role: "group", "aria-label": "the selected module" });
  readonly #walker: Walker<Place, Outline>;

  constructor(tree: TreePayload, context: Context) {
    this.#tree = tree;
    this.#context = context;
    this.#whole = new Outline(tree);
    this.#whole.openFirst(FIRST_ROWS);
    const body = element("div", { class: "rows", role: "tree", tabindex: 0, "aria-label": "modules", ...OURS });
    const scroller = element("div", { class: "scroller" });
    this.#walker = new Walker<Place, Outline>(this.#whole, this.#whole.root, {
      row: (_, place) => treeRow(tree, place),
      height: (place) => (hasReason(tree, place) ? 2 * ROW : ROW),
      names: (place) => [nameOf(tree, place)],
      count: () => `${this.#counted()}, ${counted(this.#whole.length, "row")}`,
      chosen: (place) => {
        this.#showDetail();
        tell({ model: tree.model, path: pathOf(tree, place), source: this });
      },
      sift: (text, flags) => this.#sift(parse(text, flags)),
      hit: (place) => place.hit,
      home: (place) => (topOf(place) === this.#whole.root ? place : (this.#whole.reveal(stepsOf(place)) ?? place)),
      act: (action, place, target) => this.#act(action, place, target),
    }, { focus: body, scroller, body, head: HEAD }, {
      label: "search the modules",
      placeholder: "/ path, type, 768, trainable…",
      chips: ["trainable", "frozen", "eval"],
      help: HELP,
    }, context, {
      Enter: () => this.#enter(),
      c: () => void copyAndSay(codeFor(tree, this.#walker.selected), context),
      u: () => this.#refold(this.#walker.listed.refold(this.#walker.selected)),
    });
    scroller.append(columnHeads(), body, this.#walker.nothing);
    this.element = element("div", { class: "body" }, this.#walker.box.element, element("div", { class: panes(this.#whole.length, FEW) }, element("div", { class: "tree" }, scroller), this.#detail));
    this.#walker.refresh();
    this.#showDetail();
  }

  arrived(): () => void {
    this.#walker.arrived();
    return hear(this.#tree.model, this, (path) => this.follow(path));
  }

  /** Selects the module of a dotted name, wherever it is folded away; says whether there is one. */
  follow(path: string): boolean {
    const steps = stepsTo(this.#tree, path);
    if (!steps) return false;
    this.#walker.show(() => this.#whole.reveal(steps) ?? this.#walker.selected);
    this.#showDetail();
    return true;
  }

  #counted(): string {
    const { modules, places } = this.#tree;
    return counted(places || modules, modules === places ? "module" : "path");
  }

  #sift(words: readonly Word[]): Sifted<Outline> {
    const { root, modules, others, capped } = search(this.#tree, words);
    const hidden = others ? `, ${others.toLocaleString("en")} hidden or reserved` : "";
    const cut = capped ? `; the first ${LISTED.toLocaleString("en")} rows listed` : "";
    return { listed: new Outline(this.#tree, root), text: `${modules.toLocaleString("en")} of ${this.#counted()}${hidden}${cut}` };
  }

  #showDetail(): void {
    this.#detail.replaceChildren(...detailPanel(this.#tree, this.#walker.selected, this.#context));
  }

  #refold(now: Place | null): void {
    if (!now) return;
    const walker = this.#walker;
    if (walker.at() < 0) walker.selected = now;
    walker.refresh();
    walker.select(walker.at());
  }

  #toOriginal(place: Place): void {
    const original = originalOf(this.#tree, place);
    if (original !== null && this.follow(original)) tell({ model: this.#tree.model, path: original, source: this });
  }

  #act(action: string, place: Place, target: HTMLElement): void {
    if (action === "refold") this.#refold(this.#walker.listed.refold(place));
    else if (action === "fold") this.#refold(this.#walker.listed.fold(place));
    else if (action === "original") this.#toOriginal(place);
    else if (action === "fix") void copyAndSay(codeFor(this.#tree, place), this.#context, target.closest("code") as HTMLElement);
  }

  #enter(): void {
    const { selected } = this.#walker;
    if (selected.kind === "alias" || selected.kind === "recursion") this.#toOriginal(selected);
    else this.#walker.toggle(selected);
  }
}

function columnHeads(): HTMLElement {
  const titles = [["module", "module"], ["tensors", "own tensors"], ["parameters", "parameters"], ["share", "share"]] as const;
  return element("div", { class: "heads", "aria-hidden": "true" }, ...titles.map(([name, title]) => element("span", { class: name }, title)));
}

function topOf(place: Place): Place {
  let here = place;
  while (here.parent) here = here.parent;
  return here;
}
