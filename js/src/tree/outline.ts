/** The rows of a tree as the reader has opened it. No recursion: a tree may be 10,000 levels deep. */
import type { TreePayload } from "../payload";
import type { Listed, Standing } from "../walker";
import { childrenOf, fold, isOpenable, rootOf, single, subtreeOf, unfold, type Place } from "./place";

export interface Row {
  place: Place;
  /** Among its neighbours, from 1. */
  position: number;
  size: number;
}

export class Outline implements Listed<Place> {
  #made: Row[] | null = null;

  constructor(readonly tree: TreePayload, readonly root: Place = rootOf(tree)) {}

  /** All rows that are not inside a closed one, in order. */
  get rows(): readonly Row[] {
    return (this.#made ??= this.#listed());
  }

  get length(): number {
    return this.rows.length;
  }

  at(index: number): Place | undefined {
    return this.rows[index]?.place;
  }

  standing(index: number): Standing {
    const { place, position, size } = this.rows[index] as Row;
    return { level: place.depth + 1, position, size };
  }

  above(place: Place): Place | null {
    return place.parent;
  }

  isOpen(place: Place): boolean | null {
    return isOpenable(this.tree, place) ? place.open : null;
  }

  indexOf(place: Place): number {
    return this.rows.findIndex((row) => row.place === place);
  }

  /** Opens what there is to open. */
  open(place: Place, open = true): void {
    if (place.open === open || !isOpenable(this.tree, place)) return;
    place.open = open;
    this.#made = null;
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
      if (here.count > 1) return this.#changed(unfold(here));
      if (here.whole) return this.#changed(fold(here));
    }
    return null;
  }

  /** Puts the run together that a place is a piece of. */
  fold(place: Place): Place {
    return this.#changed(fold(place));
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
    this.#made = null;
    return here;
  }

  #changed(now: Place): Place {
    this.#made = null;
    return now;
  }

  #listed(): Row[] {
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
