/** Parameters, buffers and what else a model holds: an ARIA grid, with the values of the selected tensor. */
import { columnsOf, fitting, template, UNMEASURED, whenResized, type Column } from "../columns";
import type { Context, Panel } from "../context";
import { element, OURS, set, words } from "../elements";
import { copyAndSay } from "../frame";
import { onKeys, type Commands } from "../keys";
import { List, mark, panes, ROW } from "../list";
import { counted } from "../names";
import type { Numbers, StatePayload } from "../payload";
import { parse } from "../search/query";
import { chip, searchBox, type SearchBox } from "../search/box";
import { hear, tell } from "../selection";
import { cellId, headCells, itemRow, type Layout } from "./row";
import { StateTable, type Item, type Sorting, type StateRow } from "./table";
import { codeFor, tensorDetail } from "./detail";
import { TypeAhead } from "../type-ahead";

const HEAD = 26;
/** With no more tensors the values stand below them; so many are as high as these. */
const FEW = 8;

export class StatePanel implements Panel {
  readonly #payload: StatePayload;
  readonly #numbers: Numbers;
  readonly #context: Context;
  readonly element: HTMLElement;
  readonly keys = "↑↓ ←→ move  Enter sorts in the head  g group  / filter  c copy code";
  readonly #table: StateTable;
  #items: Item[] = [];
  #columns: Column[];
  readonly #all: readonly Column[];
  #sorting: Sorting | null = null;
  /** The cell that has the focus; row −1 is the head. */
  #at = { row: 0, column: 0 };
  /** The tensor that the panel beside is about; a filter may hide its row. */
  #selected: StateRow | null;
  /** The tensor that the panel shows at present. */
  #told: StateRow | null = null;
  readonly #typed = new TypeAhead({
    count: () => this.#items.length,
    at: () => this.#at.row,
    names: (index) => this.#names(this.#items[index]),
    go: (index) => this.#go(index, this.#at.column),
  });
  readonly #box: SearchBox;
  readonly #grouping: HTMLButtonElement;
  readonly #grid: HTMLElement;
  readonly #head = element("div", { role: "row", "aria-rowindex": 1, class: "heads" });
  readonly #body = element("div", { class: "rows", role: "rowgroup" });
  readonly #detail = element("div", { class: "detail", role: "group", "aria-label": "the selected tensor" });
  readonly #list: List<number>;

  constructor(payload: StatePayload, numbers: Numbers, context: Context) {
    this.#payload = payload;
    this.#numbers = numbers;
    this.#context = context;
    this.#table = new StateTable(payload);
    const notes = payload.signatures.some((some) => some.note || some.tied);
    this.#all = columnsOf(payload.optimizer, notes, (key) => this.#table.differs(key), payload.signatures.some(({ placement }) => placement), (key) => this.#table.longest(key));
    this.#columns = fitting(this.#all, UNMEASURED);
    this.#grouping = chip("group by module", () => this.#refresh());
    this.#box = searchBox({
      label: "filter the tensors",
      placeholder: "/ path, kind, 768, frozen…",
      chips: ["trainable", "frozen"],
      changed: () => this.#refresh(),
      leave: (go) => this.#leaveFilter(go),
      extra: this.#grouping,
    });
    this.#grid = element("div", { class: "scroller", role: "grid", tabindex: 0, "aria-label": "the state", ...OURS }, element("div", { role: "rowgroup" }, this.#head), this.#body);
    this.#list = new List(this.#grid, this.#body, { count: () => this.#items.length, height: () => ROW, key: (index) => index, row: (index) => this.#row(index) }, HEAD);
    onKeys(this.#grid, this.#typed, this.#commands);
    this.#grid.addEventListener("click", (event) => this.#click(event));
    const table = element("div", { class: "state" }, this.#grid, orphans(payload.orphans), ...payload.remarks.map(remark));
    this.element = element("div", { class: "body" }, this.#box.element, element("div", { class: panes(this.#table.rows.length, FEW) }, table, this.#detail));
    this.#selected = this.#table.rows[0] ?? null;
    this.#refresh();
  }

  arrived(): () => void {
    const stop = hear(this.#payload.model, this, (path) => this.#follow(path));
    const leave = whenResized(this.#grid, () => this.#fit());
    this.#fit();
    this.#list.restore();
    return () => (leave(), stop());
  }

  /** Goes to the first tensor at or below a module. */
  #follow(path: string): void {
    const under = this.#items.findIndex((item) => item.kind === "tensor" && isAt(this.#table.ownerPath(item.row.owner), path));
    if (under < 0) return;
    this.#at.row = under;
    this.#list.reveal(under);
    this.#select();
  }

  #fit(): void {
    const columns = fitting(this.#all, this.#grid.clientWidth || UNMEASURED);
    if (columns.map(({ key }) => key).join() === this.#columns.map(({ key }) => key).join()) return;
    this.#columns = columns;
    this.#at.column = Math.min(this.#at.column, columns.length - 1);
    this.#draw();
  }

  #refresh(): void {
    this.#items = this.#table.items(parse(this.#box.text(), this.#box.flags()), this.#sorting, this.#isGrouped());
    const same = this.#items.findIndex((item) => this.#isSelected(item));
    if (this.#at.row >= 0) this.#at.row = same >= 0 ? same : Math.max(0, this.#items.findIndex((item) => item.kind === "tensor"));
    this.#draw();
    this.#say();
    this.#showDetail();
  }

  #isSelected(item: Item | undefined): boolean {
    return item?.kind === "tensor" && item.row === this.#selected;
  }

  /** Makes the row that has the focus the selected one. */
  #select(): void {
    const item = this.#items[this.#at.row];
    if (item?.kind === "tensor") this.#selected = item.row;
    this.#paint();
    this.#showDetail();
  }

  #draw(): void {
    this.#grid.style.setProperty("--columns", template(this.#columns));
    set(this.#grid, { "aria-rowcount": this.#items.length + 1, "aria-colcount": this.#all.length });
    this.#head.replaceChildren(...headCells(this.#layout, this.#sorting));
    this.#list.refresh();
    this.#paint();
  }

  #say(): void {
    const { rows, saved, text: words } = this.#payload.summary;
    const shownRows = this.#items.filter((item) => item.kind === "tensor").length;
    const total = rows || this.#table.rows.length;
    const cut = this.#table.capped ? `, the first ${this.#table.rows.length.toLocaleString("en")} listed` : "";
    const filtered = this.#box.text() || this.#box.flags().length;
    const text = filtered ? `${shownRows.toLocaleString("en")} of ${counted(total, "row")}${cut}` : `${words || `${counted(total, "tensor")}, ${saved.toLocaleString("en")} in the state_dict`}${cut}`;
    this.#box.say(text);
    if (filtered) this.#context.announce(text);
  }

  #isGrouped(): boolean {
    return this.#grouping.getAttribute("aria-pressed") === "true";
  }

  get #layout(): Layout {
    return { columns: this.#columns, all: this.#all, grouped: this.#isGrouped() };
  }

  #row(index: number): HTMLElement {
    const item = this.#items[index] as Item;
    return itemRow(this.#table, item, index, this.#layout, this.#isSelected(item));
  }

  /** Shows which row is selected and which cell has the focus. */
  #paint(): void {
    const isWhole = this.#at.row < 0 || this.#items[this.#at.row]?.kind === "tensor";
    const id = cellId(this.#at.row, isWhole ? this.#at.column : 0);
    this.#grid.setAttribute("aria-activedescendant", id);
    for (const cell of this.#grid.querySelectorAll(".at")) cell.classList.remove("at");
    for (const row of this.#body.querySelectorAll(".selected")) mark(row, false);
    const row = this.#list.element(this.#at.row);
    if (row && this.#isSelected(this.#items[this.#at.row])) mark(row, true);
    [...(this.#at.row < 0 ? this.#head : row)?.children ?? []].find((cell) => cell.id === id)?.classList.add("at");
  }

  #go(row: number, column: number): void {
    const moved = row !== this.#at.row;
    this.#at = { row: Math.max(-1, Math.min(this.#items.length - 1, row)), column: Math.max(0, Math.min(this.#columns.length - 1, column)) };
    if (this.#at.row >= 0) this.#list.reveal(this.#at.row);
    const item = this.#items[this.#at.row];
    if (item?.kind !== "tensor" || (!moved && this.#isSelected(item))) return this.#paint();
    this.#select();
    tell({ model: this.#payload.model, path: this.#table.ownerPath(item.row.owner), source: this });
  }

  #sort(column: Column | undefined): void {
    if (!column) return;
    const same = this.#sorting?.column === column.key;
    this.#sorting = !same ? { column: column.key, down: false } : this.#sorting?.down ? null : { column: column.key, down: true };
    this.#refresh();
    const order = this.#sorting ? `sorted by ${column.title}, ${this.#sorting.down ? "descending" : "ascending"}` : "in the order of the state_dict";
    this.#context.announce(order);
  }

  #showDetail(): void {
    const row = this.#selected;
    const nothing = this.#table.rows.length ? "no tensor matches" : "this model has no parameters, no buffers and no reserved names";
    if (!row || !this.#items.length) {
      this.#told = null;
      this.#detail.replaceChildren(element("p", { class: "absent" }, nothing));
      return;
    }
    if (row === this.#told) return;
    this.#told = row;
    this.#detail.replaceChildren(...tensorDetail(this.#table, row, this.#all, this.#numbers, this.#context));
  }

  #leaveFilter(go: boolean): void {
    if (!go) {
      this.#box.clear();
      this.#refresh();
    }
    this.#grid.focus({ preventScroll: true });
    if (go && this.#items.length) this.#go(Math.max(0, this.#at.row), this.#at.column);
  }

  #click(event: MouseEvent): void {
    this.#typed.settle();
    const target = event.target as HTMLElement;
    const column = Number(target.closest<HTMLElement>("[data-column]")?.dataset.column ?? 0);
    if (target.closest('[role="columnheader"]')) {
      this.#at = { row: -1, column };
      this.#sort(this.#columns[column]);
      return;
    }
    const row = target.closest<HTMLElement>("[data-index]")?.dataset.index;
    if (row !== undefined) this.#go(Number(row), column);
  }

  /** What typed letters may begin: a tensor's name or its path. */
  #names(item: Item | undefined): string[] {
    return item?.kind === "tensor" ? [item.row.name, this.#table.path(item.row)] : [];
  }

  readonly #commands: Commands = {
    ArrowDown: () => this.#go(this.#at.row + 1, this.#at.column),
    ArrowUp: () => this.#go(this.#at.row - 1, this.#at.column),
    ArrowLeft: () => this.#go(this.#at.row, this.#at.column - 1),
    ArrowRight: () => this.#go(this.#at.row, this.#at.column + 1),
    Home: () => this.#go(this.#at.row, 0),
    End: () => this.#go(this.#at.row, this.#columns.length - 1),
    "Ctrl+Home": () => this.#go(-1, 0),
    "Ctrl+End": () => this.#go(this.#items.length - 1, this.#columns.length - 1),
    PageDown: () => this.#go(Math.max(0, this.#at.row) + this.#list.page(), this.#at.column),
    PageUp: () => this.#go(Math.max(0, this.#at.row - this.#list.page()), this.#at.column),
    Enter: () => {
      if (this.#at.row < 0) this.#sort(this.#columns[this.#at.column]);
      else this.#select();
    },
    " ": () => void this.#commands.Enter?.(),
    "/": () => this.#box.focus(),
    Escape: () => {
      if (!this.#box.text() && !this.#box.flags().length) return false;
      return this.#leaveFilter(false);
    },
    g: () => this.#grouping.click(),
    c: () => {
      const item = this.#items[this.#at.row];
      void copyAndSay(item?.kind === "tensor" ? codeFor(this.#table, item.row) : this.#payload.code, this.#context);
    },
  };
}

/** At a module or below it; the root is above all. */
function isAt(owner: string, path: string): boolean {
  return path === "" || owner === path || owner.startsWith(`${path}.`);
}

function remark(text: string): HTMLElement {
  return element("p", { class: "orphans careful" }, "⚠ ", words(text, "", 1000));
}

function orphans(names: readonly string[]): HTMLElement | null {
  if (!names.length) return null;
  return element(
    "p",
    { class: "orphans careful" },
    `⚠ the optimizer holds ${counted(names.length, "tensor")} that the model no longer has: `,
    words(names.slice(0, 20).join(", ") + (names.length > 20 ? ", …" : ""), "code", 1000),
  );
}
