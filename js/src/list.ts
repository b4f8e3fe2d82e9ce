/**
 * A scrolled list that keeps only the rows in sight in the document.
 *
 * Heights are known, so that what is in sight is found by bisection and drawn at once, without measuring.
 */

export const ROW = 25;
const ALL = 60;
const SPARE = 8;
const UNMEASURED = 420;

interface Source {
  count(): number;
  height(index: number): number;
  row(index: number): HTMLElement;
}

export class List {
  readonly #scroller: HTMLElement;
  readonly #body: HTMLElement;
  readonly #source: Source;
  readonly #above: number;
  #tops = new Float64Array(1);
  readonly #drawn = new Map<number, HTMLElement>();
  #scrolled = 0;

  /** `body` holds the rows, `scroller` scrolls them; `above` pixels of it are covered by a sticky head. */
  constructor(scroller: HTMLElement, body: HTMLElement, source: Source, above = 0) {
    this.#scroller = scroller;
    this.#body = body;
    this.#source = source;
    this.#above = above;
    scroller.addEventListener("scroll", () => {
      this.#scrolled = scroller.scrollTop;
      this.#draw();
    });
  }

  /** Draws anew: the rows have changed. */
  refresh(): void {
    const count = this.#source.count();
    this.#tops = new Float64Array(count + 1);
    for (let index = 0; index < count; index += 1) this.#tops[index + 1] = (this.#tops[index] ?? 0) + this.#source.height(index);
    this.#drawn.clear();
    this.#draw();
  }

  /** A browser forgets how far an element was scrolled when it leaves the document; the list does not. */
  restore(): void {
    this.#scroller.scrollTop = this.#scrolled;
    this.#draw();
  }

  /** Scrolls as little as needed to show a row. */
  reveal(index: number): void {
    const top = this.#tops[index] ?? 0;
    const bottom = this.#tops[index + 1] ?? top;
    const height = this.#height();
    let to = this.#scroller.scrollTop;
    if (bottom - to > height) to = bottom - height;
    if (top < to) to = top;
    if (to !== this.#scroller.scrollTop) this.#scroller.scrollTop = this.#scrolled = to;
    this.#draw();
  }

  /** The row as it stands in the document, if it is in sight. */
  element(index: number): HTMLElement | null {
    return this.#drawn.get(index) ?? null;
  }

  /** How many rows fit in sight. */
  page(): number {
    return Math.max(1, Math.floor(this.#height() / this.#source.height(0)) - 1);
  }

  #height(): number {
    return (this.#scroller.clientHeight || UNMEASURED) - this.#above;
  }

  #draw(): void {
    const [from, to] = this.#range();
    for (const index of this.#drawn.keys()) if (index < from || index >= to) this.#drawn.delete(index);
    const rows: HTMLElement[] = [];
    for (let index = from; index < to; index += 1) {
      let row = this.#drawn.get(index);
      if (!row) this.#drawn.set(index, (row = this.#source.row(index)));
      rows.push(row);
    }
    const end = this.#tops[this.#tops.length - 1] ?? 0;
    this.#body.style.paddingTop = `${this.#tops[from] ?? 0}px`;
    this.#body.style.paddingBottom = `${end - (this.#tops[to] ?? end)}px`;
    place(this.#body, rows);
  }

  #range(): [number, number] {
    const count = this.#tops.length - 1;
    if (count <= ALL) return [0, count];
    const from = this.#at(this.#scroller.scrollTop) - SPARE;
    const to = this.#at(this.#scroller.scrollTop + this.#height()) + 1 + SPARE;
    return [Math.max(0, from), Math.min(count, to)];
  }

  /** The row at a height. */
  #at(offset: number): number {
    let low = 0;
    let high = this.#tops.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if ((this.#tops[middle] ?? 0) <= offset) low = middle;
      else high = middle - 1;
    }
    return low;
  }
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
  rows.forEach((row, index) => {
    if (body.children[index] !== row) body.insertBefore(row, body.children[index] ?? null);
  });
}
