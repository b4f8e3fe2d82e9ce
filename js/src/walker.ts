/** Rows that have depth, as a panel shows them: one is selected, the keys of a tree walk through them, a search sifts them. */
import type { Context } from "./context";
import { element, set } from "./elements";
import { onKeys, type Commands } from "./keys";
import { List, mark } from "./list";
import { turn } from "./row-head";
import { searchBox, type SearchBox } from "./search/box";
import { TypeAhead } from "./type-ahead";

/** How deep a row is, and where among its neighbours: all from 1. */
export interface Standing {
  level: number;
  position: number;
  size: number;
}

/** The rows that are not inside a closed one. */
export interface Listed<T> {
  readonly length: number;
  at(index: number): T | undefined;
  standing(index: number): Standing;
  /** −1 for one that is not listed. */
  indexOf(item: T): number;
  /** null: there is nothing to open. */
  isOpen(item: T): boolean | null;
  open(item: T, open: boolean): void;
  openSiblings(item: T): void;
  above(item: T): T | null;
}

export interface Sifted<L> {
  listed: L;
  /** What was found, in words. */
  text: string;
}

/** What a panel knows of its rows. */
export interface Source<T, L> {
  /** What stays as it is wherever the row stands; the rest is the walker's. */
  row(listed: L, item: T): HTMLElement;
  height(item: T | undefined): number;
  /** What typed letters may begin. */
  names(item: T): readonly string[];
  /** "163 modules, 12 rows". */
  count(): string;
  /** The rows have been drawn anew. */
  drawn?(listed: L): void;
  /** The reader has selected it. */
  chosen(item: T): void;
  /** `text` is what stands in the search box, `flags` are the pressed chips. */
  sift(text: string, flags: readonly string[]): Sifted<L>;
  hit(item: T): boolean;
  /** The same among all rows, in sight there. */
  home(item: T): T;
  /** A click on what carries `data-action`, other than "toggle". */
  act?(action: string, item: T, target: HTMLElement): void;
}

export interface Parts {
  /** Has the keys, and hears clicks. */
  focus: HTMLElement;
  scroller: HTMLElement;
  body: HTMLElement;
  /** Pixels that a sticky head covers. */
  head: number;
}

export interface Searching {
  label: string;
  placeholder: string;
  chips: readonly string[];
  /** What is said where nothing matches. */
  help: string;
}

export class Walker<T, L extends Listed<T>> {
  readonly #whole: L;
  readonly #source: Source<T, L>;
  readonly #parts: Parts;
  readonly #context: Context;
  listed: L;
  readonly box: SearchBox;
  readonly nothing: HTMLElement;
  readonly #list: List<T | undefined>;
  /** Of how many rows there have been, each with an id of its own. */
  #rows = 0;
  readonly #typed = new TypeAhead({
    count: () => this.listed.length,
    at: () => this.at(),
    names: (index) => this.#source.names(this.listed.at(index) as T),
    go: (index) => this.select(index),
  });

  constructor(
    whole: L,
    public selected: T,
    source: Source<T, L>,
    parts: Parts,
    searching: Searching,
    context: Context,
    commands: Commands,
  ) {
    this.#whole = whole;
    this.#source = source;
    this.#parts = parts;
    this.#context = context;
    const { focus, scroller, body, head } = parts;
    this.listed = whole;
    this.nothing = element("p", { class: "nothing", hidden: true }, searching.help);
    this.box = searchBox({ ...searching, changed: () => this.#sift(), leave: (go) => this.#leaveSearch(go) });
    this.#list = new List(scroller, body, {
      count: () => this.listed.length,
      height: (index) => source.height(this.listed.at(index)),
      key: (index) => this.listed.at(index),
      row: (index) => this.#row(index),
      stand: (row, index) => this.#stand(row, index),
    }, head);
    onKeys(focus, this.#typed, { ...this.#commands, ...commands });
    for (const type of ["click", "dblclick"]) focus.addEventListener(type, (event) => this.#click(event));
  }

  /** Where the selected row stands, or −1. */
  at(): number {
    return this.listed.indexOf(this.selected);
  }

  /** The view has come back into the document. */
  arrived(): void {
    this.#list.restore();
  }

  /** Draws the rows in sight; with `anew` those too that are drawn already. */
  refresh(anew = false): void {
    this.#list.refresh(anew);
    this.#paint();
    this.#source.drawn?.(this.listed);
    if (this.listed === this.#whole) this.box.say(this.#source.count());
  }

  /** Scrolls to the selected row. */
  reveal(): void {
    this.#list.reveal(this.at());
    this.#paint();
  }

  select(index: number): void {
    const item = this.listed.at(index);
    if (item === undefined) return;
    this.selected = item;
    this.reveal();
    this.#source.chosen(item);
  }

  /** Ends a search and shows a row that other than the reader has chosen. */
  show(item: () => T): void {
    if (this.listed !== this.#whole) this.#endSearch();
    this.selected = item();
    this.refresh();
    this.reveal();
  }

  toggle(item: T): void {
    const open = this.listed.isOpen(item);
    if (open === null) return;
    this.listed.open(item, !open);
    let inside: T | null = this.selected;
    while (open && inside !== null && inside !== item) inside = this.listed.above(inside);
    if (open && inside !== null && inside !== this.selected) this.select(this.listed.indexOf(item));
    this.refresh();
  }

  #row(index: number): HTMLElement {
    const row = this.#source.row(this.listed, this.listed.at(index) as T);
    row.id = `row-${(this.#rows += 1)}`;
    return row;
  }

  #stand(row: HTMLElement, index: number): void {
    const item = this.listed.at(index) as T;
    const { level, position, size } = this.listed.standing(index);
    const open = this.listed.isOpen(item);
    const number = row.getAttribute("role") === "row" ? index + 2 : null;
    set(row, { "aria-level": level, "aria-posinset": position, "aria-setsize": size, "aria-rowindex": number, "aria-expanded": open === null ? null : String(open) });
    turn(row, open);
    mark(row, item === this.selected);
  }

  /** Shows which row is selected, and tells assistive technology. */
  #paint(): void {
    const { body, focus } = this.#parts;
    const row = this.#list.element(this.at());
    for (const other of body.querySelectorAll(".selected")) if (other !== row) mark(other, false);
    if (row) mark(row, true);
    set(focus, { "aria-activedescendant": row?.id });
  }

  #sift(): void {
    const [typed, flags] = [this.box.text(), this.box.flags()];
    if (!typed.trim() && !flags.length) return this.#showWhole();
    const { listed, text } = this.#source.sift(typed, flags);
    this.listed = listed;
    this.#list.toTop();
    this.refresh(true);
    this.nothing.hidden = this.#hits(this.#first());
    this.box.say(text);
    this.#context.announce(text);
  }

  /** Back to all rows; what is selected among the results stays so. */
  #showWhole(): void {
    this.listed = this.#whole;
    this.nothing.hidden = true;
    this.selected = this.#source.home(this.selected);
    this.refresh(true);
    this.reveal();
  }

  #endSearch(): void {
    this.box.clear();
    this.#showWhole();
  }

  #leaveSearch(go: boolean): void {
    if (!go) this.#endSearch();
    this.#parts.focus.focus({ preventScroll: true });
    if (go && !this.#hits(this.at())) this.select(this.#first());
  }

  #hits(index: number): boolean {
    const item = this.listed.at(index);
    return item !== undefined && this.#source.hit(item);
  }

  /** The first row that a search is about. */
  #first(): number {
    let index = 0;
    while (index < this.listed.length && !this.#hits(index)) index += 1;
    return index < this.listed.length ? index : 0;
  }

  #click(event: Event): void {
    this.#typed.settle();
    const target = event.target as HTMLElement;
    const index = this.#list.indexOf(target);
    const item = this.listed.at(index);
    const action = target.closest<HTMLElement>("[data-action]")?.dataset.action;
    if (item === undefined) return;
    if (event.type === "click") this.select(index);
    if ((event.type === "click") === (action === "toggle")) this.toggle(item);
    else if (action && event.type === "click") this.#source.act?.(action, item, target);
  }

  #go(index: number): void {
    this.select(Math.max(0, Math.min(index, this.listed.length - 1)));
  }

  #walk(right: boolean): void {
    const item = this.listed.at(this.at());
    if (item === undefined) return;
    const open = this.listed.isOpen(item);
    const above = this.listed.above(item);
    if (open === !right) this.toggle(item);
    else if (right && open) this.#go(this.at() + 1);
    else if (!right && above !== null) this.#go(this.listed.indexOf(above));
  }

  readonly #commands: Commands = {
    ArrowDown: () => this.#go(this.at() < 0 ? this.#first() : this.at() + 1),
    ArrowUp: () => this.#go(this.at() - 1),
    Home: () => this.#go(0),
    End: () => this.#go(this.listed.length - 1),
    PageDown: () => this.#go(this.at() + this.#list.page()),
    PageUp: () => this.#go(this.at() - this.#list.page()),
    ArrowRight: () => this.#walk(true),
    ArrowLeft: () => this.#walk(false),
    Enter: () => this.toggle(this.selected),
    " ": () => this.toggle(this.selected),
    "*": () => {
      this.listed.openSiblings(this.selected);
      this.refresh();
    },
    "/": () => {
      this.box.element.hidden = false;
      this.box.focus();
    },
    Escape: () => {
      if (this.listed === this.#whole) return false;
      return this.#endSearch();
    },
  };
}
