/** The rows of a tree as the reader has opened it. No recursion: a tree may be 10,000 levels deep. */
import type { TreePayload } from "./payload";
import { childrenOf, fold, isOpenable, nameOf, rootOf, single, subtreeOf, unfold, type Place } from "./place";

export interface Row {
  place: Place;
  /** Among its neighbours, from 1. */
  position: number;
  size: number;
}

export class Outline {
  private made: Row[] | null = null;

  constructor(
    readonly tree: TreePayload,
    readonly root: Place = rootOf(tree),
  ) {}

  /** All rows that are not inside a closed one, in order. */
  get rows(): readonly Row[] {
    return (this.made ??= this.listed());
  }

  indexOf(place: Place): number {
    return this.rows.findIndex((row) => row.place === place);
  }

  /** Opens what there is to open; says whether something changed. */
  open(place: Place, open = true): boolean {
    if (place.open === open || !isOpenable(this.tree, place)) return false;
    place.open = open;
    this.made = null;
    return true;
  }

  openSiblings(place: Place): void {
    const neighbours = place.parent ? standing(childrenOf(this.tree, place.parent)) : [this.root];
    for (const neighbour of neighbours) this.open(neighbour);
  }

  /** Opens further levels from the top as long as the rows stay few. */
  openFirst(most: number): void {
    let rows = 1;
    const waiting = [this.root];
    for (let place = waiting.shift(); place; place = waiting.shift()) {
      const subtree = subtreeOf(this.tree, place);
      const size = subtree ? subtree.runs.length + subtree.ghosts.length : 0;
      if (!size || (rows + size > most && place !== this.root)) continue;
      this.open(place);
      rows += size;
      if (rows <= most) waiting.push(...childrenOf(this.tree, place).filter((child) => child.kind === "module"));
    }
  }

  /** Unfolds the nearest run at or above a row, or folds the one it is a piece of; gives what stands there now. */
  refold(place: Place): Place | null {
    for (let here: Place | null = place; here; here = here.parent) {
      if (here.count > 1) return this.changed(unfold(here));
      if (here.whole) return this.changed(fold(here));
    }
    return null;
  }

  /** Puts the run together that a place is a piece of. */
  fold(place: Place): Place {
    return this.changed(fold(place));
  }

  /** Opens the way to a place given by its steps, taking members out of their runs; null when it is not here. */
  reveal(steps: readonly (readonly [run: number, member: number])[]): Place | null {
    let here = this.root;
    for (const [run, member] of steps) {
      const child = childrenOf(this.tree, here).find((some) => some.run === run && contains(some, member));
      if (!child) return null;
      this.open(here);
      here = single(child, member);
    }
    this.made = null;
    return here;
  }

  /** The next row after `from`, going round, whose name begins with `prefix`. */
  named(prefix: string, from: number): number {
    const rows = this.rows;
    const wanted = prefix.toLowerCase();
    for (let step = 0; step < rows.length; step += 1) {
      const index = (from + step) % rows.length;
      const row = rows[index];
      if (row && nameOf(this.tree, row.place).toLowerCase().startsWith(wanted)) return index;
    }
    return -1;
  }

  private changed(now: Place): Place {
    this.made = null;
    return now;
  }

  private listed(): Row[] {
    const rows: Row[] = [];
    const waiting: Row[] = [{ place: this.root, position: 1, size: 1 }];
    for (let row = waiting.pop(); row; row = waiting.pop()) {
      rows.push(row);
      if (!row.place.open) continue;
      const below = standing(childrenOf(this.tree, row.place));
      for (let index = below.length - 1; index >= 0; index -= 1) {
        waiting.push({ place: below[index] as Place, position: index + 1, size: below.length });
      }
    }
    return rows;
  }
}

/** Neighbours as they stand: unfolded runs by their pieces. */
function standing(places: readonly Place[]): Place[] {
  return places.some((place) => place.pieces) ? places.flatMap((place) => place.pieces ?? [place]) : (places as Place[]);
}

function contains(place: Place, member: number): boolean {
  return member >= place.first && member < place.first + place.count;
}
