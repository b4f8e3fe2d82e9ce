/** The tree of modules at the left, what there is to know about the selected one at the right. */
import type { Context, Panel } from "./context";
import { detailPanel } from "./detail-panel";
import { element, OURS } from "./elements";
import { copyAndSay } from "./frame";
import { List, ROW } from "./list";
import { counted, quoted } from "./names";
import { Outline } from "./outline";
import type { TreePayload } from "./payload";
import { childrenOf, isOpenable, originalOf, pathOf, stepsOf, stepsTo, type Place } from "./place";
import { parse } from "./query";
import { searchBox, type SearchBox } from "./search-box";
import { LISTED, search, type Found } from "./search";
import { hear, tell } from "./selection";
import { TypeAhead } from "./type-ahead";
import { codeFor, hasReason, treeRow } from "./tree-row";

const FIRST_ROWS = 16;
const HEAD = 22;
const HELP = "Words match a path, a type, a shape (768, 4x3), or are: trainable, frozen, eval, train, tied, lazy, meta, hooks, hidden.";

export class TreePanel implements Panel {
  readonly element: HTMLElement;
  readonly keys = "↑↓ move  → open  * open siblings  u unfold  / search  c copy code";
  private readonly whole: Outline;
  private outline: Outline;
  private found: Found | null = null;
  private selected: Place;
  private readonly typed = new TypeAhead({
    begins: (text) => this.outline.named(text, 0) >= 0,
    go: (text) => this.typeAhead(text),
  });
  private readonly box: SearchBox;
  private readonly body = element("div", { class: "rows", role: "tree", tabindex: 0, "aria-label": "modules", ...OURS });
  private readonly scroller = element("div", { class: "scroller" });
  private readonly nothing = element("p", { class: "nothing", hidden: true });
  private readonly detail = element("aside", { class: "detail", "aria-label": "the selected module" });
  private readonly list: List;

  constructor(
    private readonly tree: TreePayload,
    private readonly context: Context,
  ) {
    this.whole = this.outline = new Outline(tree);
    this.whole.openFirst(FIRST_ROWS);
    this.selected = this.whole.root;
    this.box = searchBox({
      label: "search the modules",
      placeholder: "/ path, type, 768, trainable…",
      chips: ["trainable", "frozen", "eval"],
      changed: () => this.search(),
      leave: (go) => this.leaveSearch(go),
    });
    this.scroller.append(columnHeads(), this.body, this.nothing);
    this.list = new List(this.scroller, this.body, {
      count: () => this.outline.rows.length,
      height: (index) => (hasReason(this.tree, this.outline.rows[index]?.place) ? 2 * ROW : ROW),
      row: (index) => this.row(index),
    }, HEAD);
    this.body.addEventListener("keydown", (event) => this.key(event));
    this.body.addEventListener("blur", () => this.typed.settle());
    this.body.addEventListener("click", (event) => this.click(event));
    this.body.addEventListener("dblclick", (event) => this.click(event));
    this.element = element("div", { class: "body" }, this.box.element, element("div", { class: "panes" }, element("div", { class: "tree" }, this.scroller), this.detail));
    this.refresh();
    this.showDetail();
  }

  arrived(): () => void {
    this.list.restore();
    return hear(this.tree.model, this, (path) => this.follow(path));
  }

  /** Selects the module of a dotted name, wherever it is folded away; says whether there is one. */
  follow(path: string): boolean {
    const steps = stepsTo(this.tree, path);
    if (!steps) return false;
    if (this.found) this.endSearch();
    const place = this.whole.reveal(steps);
    if (!place) return false;
    this.selected = place;
    this.refresh();
    this.list.reveal(this.outline.indexOf(place));
    this.mark();
    this.showDetail();
    return true;
  }

  private row(index: number): HTMLElement {
    const row = this.outline.rows[index];
    if (!row) return element("div");
    const made = treeRow(this.tree, row, `row-${index}`, row.place === this.selected);
    made.dataset.index = String(index);
    return made;
  }

  private refresh(): void {
    this.list.refresh();
    this.mark();
    this.say();
  }

  private say(): void {
    const { modules, places } = this.tree;
    const noun = modules === places ? "module" : "path";
    this.nothing.hidden = true;
    if (!this.found) return this.box.say(`${counted(places || modules, noun)}, ${counted(this.outline.rows.length, "row")}`);
    const { modules: hits, others, capped } = this.found;
    const text = `${hits.toLocaleString("en")} of ${counted(places || modules, noun)}${others ? `, ${others.toLocaleString("en")} hidden or reserved` : ""}${capped ? `; the first ${LISTED.toLocaleString("en")} rows listed` : ""}`;
    this.box.say(text);
    this.context.announce(text);
    if (hits + others) return;
    this.nothing.hidden = false;
    this.nothing.textContent = `No module matches. ${HELP}`;
  }

  /** Tells assistive technology which row has the focus. */
  private mark(): void {
    const index = this.outline.indexOf(this.selected);
    const shown = index >= 0 && this.list.element(index) !== null;
    if (shown) this.body.setAttribute("aria-activedescendant", `row-${index}`);
    else this.body.removeAttribute("aria-activedescendant");
  }

  private select(index: number): void {
    const row = this.outline.rows[index];
    if (!row) return;
    const before = this.outline.indexOf(this.selected);
    this.selected = row.place;
    this.list.reveal(index);
    for (const [at, on] of [[before, false], [index, true]] as const) {
      if (at === before && at === index && !on) continue;
      const shown = this.list.element(at);
      shown?.classList.toggle("selected", on);
      shown?.setAttribute("aria-selected", String(on));
    }
    this.mark();
    this.showDetail();
    tell({ model: this.tree.model, path: pathOf(this.tree, row.place), source: this });
  }

  private showDetail(): void {
    this.detail.replaceChildren(...detailPanel(this.tree, this.selected, this.context));
  }

  private toggle(place: Place, open = !place.open): void {
    if (!this.outline.open(place, open)) return;
    if (!open && isInside(this.selected, place)) this.select(this.outline.indexOf(place));
    this.refresh();
  }

  private refold(now: Place | null): void {
    if (!now) return;
    if (this.outline.indexOf(this.selected) < 0) this.selected = now;
    this.refresh();
    this.select(this.outline.indexOf(this.selected));
  }

  private toOriginal(place: Place): void {
    const original = originalOf(this.tree, place);
    if (original !== null && this.follow(original)) tell({ model: this.tree.model, path: original, source: this });
  }

  private search(): void {
    const words = parse(this.box.text(), this.box.flags());
    if (!words.length) return this.showWhole();
    this.found = search(this.tree, words);
    this.outline = new Outline(this.tree, this.found.root);
    this.scroller.scrollTop = 0;
    this.refresh();
  }

  /** Back to the whole tree; what was selected among the results stays selected. */
  private showWhole(): void {
    const steps = this.outline !== this.whole && topOf(this.selected) === this.outline.root ? stepsOf(this.selected) : null;
    this.found = null;
    this.outline = this.whole;
    if (steps) this.selected = this.whole.reveal(steps) ?? this.selected;
    this.refresh();
    this.list.reveal(this.outline.indexOf(this.selected));
    this.mark();
  }

  private endSearch(): void {
    this.box.clear();
    this.showWhole();
  }

  private leaveSearch(go: boolean): void {
    if (!go) this.endSearch();
    this.body.focus({ preventScroll: true });
    if (go && this.outline.indexOf(this.selected) < 0) this.select(this.firstHit());
  }

  private firstHit(): number {
    return Math.max(0, this.outline.rows.findIndex((row) => row.place.hit));
  }

  private click(event: MouseEvent): void {
    this.typed.settle();
    const target = event.target as HTMLElement;
    const index = Number(target.closest<HTMLElement>("[data-index]")?.dataset.index ?? -1);
    const place = this.outline.rows[index]?.place;
    if (!place) return;
    const action = target.closest<HTMLElement>("[data-action]")?.dataset.action;
    if (event.type === "dblclick") return action ? undefined : this.toggle(place);
    this.select(index);
    if (action === "toggle") this.toggle(place);
    else if (action === "refold") this.refold(this.outline.refold(place));
    else if (action === "fold") this.refold(this.outline.fold(place));
    else if (action === "original") this.toOriginal(place);
    else if (action === "fix") void copyAndSay(codeFor(this.tree, place, quoted), this.context, target.closest("code") as HTMLElement);
  }

  private key(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const command = this.commands[event.key];
    const run = command && ((): void => command(this.outline.indexOf(this.selected)));
    if (!this.typed.takes(event.key, run)) {
      if (!run) return;
      run();
    }
    event.preventDefault();
  }

  private typeAhead(text: string): void {
    const found = this.outline.named(text, this.outline.indexOf(this.selected) + (text.length === 1 ? 1 : 0));
    if (found >= 0) this.select(found);
  }

  /** The keys, each with what it does at the selected row. */
  private readonly commands: Record<string, (index: number) => void> = {
    ArrowDown: (index) => this.select(index < 0 ? this.firstHit() : Math.min(index + 1, this.outline.rows.length - 1)),
    ArrowUp: (index) => this.select(Math.max(index - 1, 0)),
    Home: () => this.select(0),
    End: () => this.select(this.outline.rows.length - 1),
    PageDown: (index) => this.select(Math.min(index + this.list.page(), this.outline.rows.length - 1)),
    PageUp: (index) => this.select(Math.max(index - this.list.page(), 0)),
    ArrowRight: (index) => this.into(index),
    ArrowLeft: () => this.out(),
    Enter: () => this.enter(),
    " ": () => this.toggle(this.selected),
    "*": () => {
      this.outline.openSiblings(this.selected);
      this.refresh();
    },
    "/": () => this.box.focus(),
    Escape: () => {
      if (this.found) this.endSearch();
    },
    c: () => void copyAndSay(codeFor(this.tree, this.selected, quoted), this.context),
    u: () => this.refold(this.outline.refold(this.selected)),
  };

  private into(index: number): void {
    const place = this.selected;
    if (!isOpenable(this.tree, place)) return;
    if (!place.open) this.toggle(place, true);
    else if (childrenOf(this.tree, place).length) this.select(index + 1);
  }

  private out(): void {
    if (this.selected.open) this.toggle(this.selected, false);
    else if (this.selected.parent) this.select(this.outline.indexOf(this.selected.parent));
  }

  private enter(): void {
    if (this.selected.kind === "alias" || this.selected.kind === "recursion") this.toOriginal(this.selected);
    else this.toggle(this.selected);
  }
}

function columnHeads(): HTMLElement {
  const titles = [["module", "module"], ["tensors", "own tensors"], ["parameters", "parameters"], ["share", "share"]] as const;
  return element("div", { class: "heads", "aria-hidden": "true" }, ...titles.map(([name, title]) => element("span", { class: name }, title)));
}

function isInside(place: Place, above: Place): boolean {
  for (let here = place.parent; here; here = here.parent) if (here === above) return true;
  return false;
}

function topOf(place: Place): Place {
  let here = place;
  while (here.parent) here = here.parent;
  return here;
}
