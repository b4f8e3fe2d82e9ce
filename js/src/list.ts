/**
 * A scrolled list that keeps only the rows in sight in the document.
 *
 * Heights are known, so that what is in sight is found by bisection and drawn at once, without measuring. A row stays the
 * same element as long as it is about the same thing: opening one costs the rows that come, not those that only move.
 */

export const ROW = 25;
const ALL = 60;
const SPARE = 8;
/** How high a scroller grows, and what is below its last row, in pixels; style.css says the same. */
const HIGHEST = 442;
const BELOW = 2;

interface Source<K> {
  count(): number;
  height(index: number): number;
  /** What a row is about. */
  key(index: number): K;
  row(index: number): HTMLElement;
  /** Says in a row, new or kept, where it stands now; without it no row is kept. */
  stand?(row: HTMLElement, index: number): void;
}

export class List<K> {
  readonly #scroller: HTMLElement;
  readonly #body: HTMLElement;
  readonly #source: Source<K>;
  readonly #above: number;
  #tops = new Float64Array(1);
  #drawn = new Map<K, HTMLElement>();
  /** The first row that is in the document. */
  #from = 0;
  #scrolled = 0;

  /** `body` holds the rows, `scroller` scrolls them; `above` pixels of it are covered by a sticky head. */
  constructor(scroller: HTMLElement, body: HTMLElement, source: Source<K>, above = 0) {
    this.#scroller = scroller;
    this.#body = body;
    this.#source = source;
    this.#above = above;
    scroller.addEventListener("scroll", () => {
      this.#scrolled = scroller.scrollTop;
      this.#draw();
    });
  }

  /** The rows have changed; those that are about the same are kept unless all must be made `anew`. */
  refresh(anew = false): void {
    const count = this.#source.count();
    this.#tops = new Float64Array(count + 1);
    for (let index = 0; index < count; index += 1) this.#tops[index + 1] = this.#top(index) + this.#source.height(index);
    this.#scrolled = Math.max(0, Math.min(this.#scrolled, this.#top(count) + BELOW - this.#height()));
    if (anew || !this.#source.stand) this.#drawn.clear();
    this.#draw(true);
  }

  /** A browser forgets how far an element was scrolled when it leaves the document; the list does not. */
  restore(): void {
    this.#scroller.scrollTop = this.#scrolled;
    this.#draw();
  }

  /** Scrolls as little as needed to show a row. */
  reveal(index: number): void {
    const top = this.#top(index);
    const to = Math.min(top, Math.max(this.#scrolled, this.#top(index + 1) - this.#height()));
    if (to === this.#scrolled) return;
    this.#scroller.scrollTop = this.#scrolled = to;
    this.#draw();
  }

  /** Scrolls to the first row. */
  toTop(): void {
    this.#scroller.scrollTop = this.#scrolled = 0;
  }

  /** The row as it stands in the document, if it is in sight. */
  element(index: number): HTMLElement | null {
    return (this.#body.children[index - this.#from] as HTMLElement | undefined) ?? null;
  }

  /** Which row a part of it belongs to, or −1. */
  indexOf(part: Node): number {
    const at = [...this.#body.children].findIndex((row) => row.contains(part));
    return at < 0 ? at : at + this.#from;
  }

  /** How many rows fit in sight. */
  page(): number {
    return Math.max(1, Math.floor(this.#height() / this.#source.height(0)) - 1);
  }

  /** Pixels for rows: not measured, for that would make the browser lay out what has not changed for the last time. */
  #height(): number {
    return HIGHEST - this.#above;
  }

  /** Where a row begins; behind the last one, where all end. */
  #top(index: number): number {
    return this.#tops[Math.min(index, this.#tops.length - 1)] ?? 0;
  }

  #draw(moved = false): void {
    const [from, to] = this.#range();
    const before = this.#drawn;
    this.#drawn = new Map();
    this.#from = from;
    const rows: HTMLElement[] = [];
    for (let index = from; index < to; index += 1) {
      const key = this.#source.key(index);
      const known = before.get(key);
      const row = known ?? this.#source.row(index);
      if (moved || !known) this.#source.stand?.(row, index);
      this.#drawn.set(key, row);
      rows.push(row);
    }
    this.#body.style.padding = `${this.#top(from)}px 0 ${this.#top(this.#tops.length) - this.#top(to)}px`;
    place(this.#body, rows);
  }

  #range(): [number, number] {
    const count = this.#tops.length - 1;
    if (count <= ALL) return [0, count];
    const from = this.#at(this.#scrolled) - SPARE;
    const to = this.#at(this.#scrolled + this.#height()) + 1 + SPARE;
    return [Math.max(0, from), Math.min(count, to)];
  }

  /** The row at a height. */
  #at(offset: number): number {
    let low = 0;
    let high = this.#tops.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.#top(middle) <= offset) low = middle;
      else high = middle - 1;
    }
    return low;
  }
}

/** How rows and what there is to know of one share the box: side by side, or below each other where there are few. */
export function panes(rows: number, few: number): string {
  return rows > few ? "panes" : "panes single few";
}

/** Shows whether a row is the selected one. */
export function mark(row: Element, selected: boolean): void {
  row.classList.toggle("selected", selected);
  row.setAttribute("aria-selected", String(selected));
}

/** Puts exactly these rows into `body`, touching only what differs. */
function place(body: HTMLElement, rows: readonly HTMLElement[]): void {
  const wanted = new Set<Element>(rows);
  for (const child of [...body.children]) if (!wanted.has(child)) child.remove();
  let next = body.firstElementChild;
  for (const row of rows) {
    if (row === next) next = next.nextElementSibling;
    else body.insertBefore(row, next);
  }
}
