/** A sheet: its rows at the left as an ARIA treegrid, what there is to know about the selected one beside, notes below. */
import { blocks, settle } from "./blocks";
import { UNMEASURED, whenResized } from "../columns";
import type { Context, Panel } from "../context";
import { element, OURS, set, words } from "../elements";
import { Folds, sifted } from "./folds";
import { copyAndSay } from "../frame";
import { panes, ROW } from "../list";
import { counted } from "../names";
import type { Numbers } from "../payload";
import { parse } from "../search/query";
import { hear, tell } from "../selection";
import { blocksOf, saying, type Block, type SheetColumn, type SheetPayload, type SheetRow } from "./sheet";
import { SheetColumns } from "./columns";
import { codeOf, rowDetail } from "./detail";
import { extra, sheetHeads, sheetRow } from "./row";
import { marksOf, SheetSearch } from "./search";
import { Walker, type Sifted } from "../walker";

const HEAD = 26;
const FLOW_ROW = 30;
/** So few rows are searched by eye; `/` brings the box. */
const FEW = 12;
/** With no more rows what there is to know of one stands below them. */
const BELOW = 4;
const HELP = "No row matches. Words match what is in a row, its path, or sizes (768, 4x3).";

export class SheetPanel implements Panel {
  readonly #sheet: SheetPayload;
  readonly #numbers: Numbers;
  readonly #context: Context;
  readonly element: HTMLElement;
  readonly keys: string;
  readonly #whole: Folds;
  readonly #columns: SheetColumns;
  #width = UNMEASURED;
  /** Whether a row has lines of its own below it, which break by the width. */
  readonly #tall: boolean;
  /** By row, whether it is what a search has found. */
  #hits: ArrayLike<number> = [];
  readonly #head = element("div", { role: "row", "aria-rowindex": 1, class: "heads" });
  readonly #grid: HTMLElement;
  readonly #detail = element("div", { class: "detail", role: "group", "aria-label": "the selected row" });
  readonly #hasDetails: boolean;
  /** Whether it has been in the document: from then on it stays scrolled as the reader left it. */
  #seen = false;
  readonly #walker: Walker<number, Folds>;
  /** What stands below the table and has a key of its own. */
  readonly #keyed: readonly Block[];

  constructor(sheet: SheetPayload, numbers: Numbers, context: Context) {
    this.#sheet = sheet;
    this.#numbers = numbers;
    this.#context = context;
    const { rows, columns } = sheet;
    this.#keyed = blocksOf(sheet.notes).filter(({ key, code }) => key && code);
    this.#whole = new Folds(rows);
    this.#tall = rows.some((row) => extra(sheet, row, 0, this.#width) > 0);
    this.#columns = new SheetColumns(sheet, this.#whole.levels, this.#width);
    this.#hasDetails = rows.some((row) => row.details.length > 0);
    const deep = rows.some((_, row) => this.#whole.below(row));
    const high = columns.some(({ kind }) => kind === "flow") ? FLOW_ROW : ROW;
    const body = element("div", { class: "rows", role: "rowgroup" });
    this.#grid = element("div", { class: "scroller", role: "treegrid", tabindex: 0, "aria-label": sheet.view || "rows", "aria-colcount": columns.length, ...OURS }, element("div", { role: "rowgroup" }, this.#head), body);
    this.#walker = this.#walking(body, high);
    this.#walker.box.element.hidden = rows.length <= FEW;
    const table = element("div", { class: deep ? "sheet" : "sheet flat" }, this.#grid, this.#walker.nothing);
    table.style.setProperty("--row", `${high}px`);
    this.keys = rows.length ? `↑↓ move${deep ? "  → open  * open siblings" : ""}  / search  c copy${this.#keyed.map(({ key, caption }) => `  ${key} copy ${caption.toLowerCase()}`).join("")}` : "";
    this.element = element(
      "div",
      { class: "body" },
      ...(rows.length ? [this.#walker.box.element, element("div", { class: this.#hasDetails ? panes(rows.length, BELOW) : "panes single" }, table, this.#detail)] : []),
      !rows.length && sheet.empty ? element("p", { class: "nothing" }, words(sheet.empty, "", 2000)) : null,
      sheet.notes.length ? element("div", { class: "notes" }, ...blocks(sheet.notes, numbers, context)) : null,
    );
    this.#draw();
  }

  arrived(): () => void {
    const stop = hear(this.#sheet.model, this, (path) => this.#follow(path));
    const leave = whenResized(this.#grid, () => this.#fit());
    this.#fit();
    this.#walker.arrived();
    if (!this.#seen) this.#walker.reveal();
    this.#seen = true;
    return () => (leave(), stop());
  }

  #walking(body: HTMLElement, high: number): Walker<number, Folds> {
    const [sheet, context] = [this.#sheet, this.#context];
    const row = (number: number): SheetRow => sheet.rows[number] as SheetRow;
    const search = new SheetSearch(sheet);
    return new Walker<number, Folds>(this.#whole, this.#firstShown(), {
      row: (folds, number) => {
        const made = sheetRow(sheet, [...this.#columns.shown.keys()], row(number), folds.levels[number] as number);
        const more = extra(sheet, row(number), folds.levels[number] as number, this.#width);
        if (more) made.style.height = `${high + more}px`;
        return made;
      },
      height: (number) => high + (number === undefined ? 0 : extra(sheet, row(number), this.#whole.levels[number] as number, this.#width)),
      names: (number) => [row(number).name, row(number).path ?? ""],
      count: () => counted(sheet.rows.length, "row") + (this.#whole.length < sheet.rows.length ? `, ${this.#whole.length.toLocaleString("en")} listed` : ""),
      drawn: (folds) => set(this.#grid, { "aria-rowcount": folds.length + 1 }),
      chosen: (number) => {
        this.#showDetail();
        const { path } = row(number);
        if (path !== null) tell({ model: sheet.model, path, source: this });
      },
      sift: (text, marks) => {
        const words = parse(text);
        return this.#sift((number) => search.holds(number, words, marks));
      },
      hit: (number) => this.#hits[number] === 1,
      home: (number) => this.#whole.reveal(number),
    }, { focus: this.#grid, scroller: this.#grid, body, head: HEAD }, {
      label: "search the rows",
      placeholder: "/ name, kind, path, 768…",
      chips: ["careful", "broken"].filter((mark) => sheet.rows.some((some) => marksOf(some).includes(mark))),
      help: HELP,
    }, context, {
      c: () => void copyAndSay(codeOf(row(this.#walker.selected)), context),
      ...Object.fromEntries(this.#keyed.map(({ key, code }) => [key, () => void copyAndSay(code, context)])),
    });
  }

  /** What the view is about: where a way of broken rows ends, of those in sight at first; else the first row. */
  #firstShown(): number {
    const [whole, sheet] = [this.#whole, this.#sheet];
    const isBroken = (row: number): boolean => sheet.rows[row]?.mark === "broken";
    const way = (row: number): number => {
      const above = whole.above(row);
      return above !== null && isBroken(above) ? way(above) + 1 : 0;
    };
    const rank = (row: number): number => (isBroken(row) && (way(row) || whole.length <= FEW) ? way(row) + 1 : 0);
    return whole.rows.reduce((best, row) => (rank(row) > rank(best) ? row : best), 0);
  }

  /** Selects the first row of a module, unless the selected one is of it already. */
  #follow(path: string): void {
    const { rows } = this.#sheet;
    const { selected } = this.#walker;
    const row = rows[selected]?.path === path ? selected : rows.findIndex((some) => some.path === path);
    if (row < 0) return;
    this.#walker.show(() => this.#whole.reveal(row));
    this.#showDetail();
  }

  #fit(): void {
    const width = this.#grid.clientWidth || UNMEASURED;
    if (width === this.#width) return settle(this.element);
    const before = this.#gone().join();
    this.#width = width;
    if (this.#columns.fit(width) || this.#tall) return this.#draw();
    this.#share();
    if (this.#gone().join() !== before) this.#showDetail();
    settle(this.element);
  }

  #share(): void {
    this.#grid.style.setProperty("--columns", this.#columns.template());
  }

  #draw(): void {
    this.#share();
    this.#head.replaceChildren(...sheetHeads(this.#sheet, [...this.#columns.shown.keys()]));
    this.#walker.refresh(true);
    this.#showDetail();
    settle(this.element);
  }

  /** What is cut in the row, or has no room there, is told whole beside it. */
  #showDetail(): void {
    const number = this.#walker.selected;
    const row = this.#sheet.rows[number];
    const { columns } = this.#sheet;
    this.#detail.hidden = !(this.#hasDetails || this.#columns.shown.size < columns.length);
    if (!row) return;
    const gone = this.#gone().map((index) => columns[index] as SheetColumn);
    this.#detail.replaceChildren(...rowDetail(row, columns, gone, this.#numbers, this.#context));
    settle(this.#detail);
  }

  /** Which columns of the selected row are not to be seen whole. */
  #gone(): number[] {
    const number = this.#walker.selected;
    const row = this.#sheet.rows[number];
    const isGone = (column: SheetColumn): boolean => column.key !== "name" && (this.#columns.isCut(number, column) || (row !== undefined && saying(row, column) !== null));
    return this.#sheet.columns.flatMap((column, index) => (row && isGone(column) ? [index] : []));
  }

  #sift(holds: (row: number) => boolean): Sifted<Folds> {
    const { rows } = this.#sheet;
    const { folds, hits, count } = sifted(rows, this.#whole, holds);
    this.#hits = hits;
    return { listed: folds, text: `${count.toLocaleString("en")} of ${counted(rows.length, "row")}` };
  }
}
