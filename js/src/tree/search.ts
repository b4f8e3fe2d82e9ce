/**
 * Finds modules in a folded tree of any size without unfolding it.
 *
 * What lies below a place depends on its subtree and on where each word's reading of the path has come to, so
 * both together are counted once: 58 equal layers cost as much as one. No recursion (depth) and no path is built.
 */
import { nameAt, sizeOf } from "../names";
import type { TreePayload } from "../payload";
import { isNote, kindOf, place, rootOf, whyHidden, type Place } from "./place";
import { begin, readPart, type Reading, type Word } from "../search/query";
import { describes } from "./traits";

export interface Found {
  /** The tree of what matches, with what leads there. */
  root: Place;
  /** Matching paths; each member of a run counts. */
  modules: number;
  /** Matching ghosts and reserved names. */
  others: number;
  /** Whether not all of them could be listed. */
  capped: boolean;
}

/** A stretch of a run whose members match alike. */
interface Stretch {
  run: number;
  first: number;
  count: number;
  subtree: number;
  reading: number;
  hit: boolean;
}

/** What a name read from a reading on gives. */
interface Read {
  number: number;
  fresh: readonly boolean[];
  above: readonly boolean[];
}

interface Tally {
  modules: number;
  others: number;
}

export const LISTED = 2000;

export function search(tree: TreePayload, words: readonly Word[], listed = LISTED): Found {
  return new Search(tree, words).found(listed);
}

class Search {
  readonly #tree: TreePayload;
  readonly #words: readonly Word[];
  readonly #readings: Reading[] = [];
  readonly #numbers = new Map<string, number>();
  readonly #described: Map<number, boolean>[];
  readonly #tallies = new Map<number, Tally>();
  readonly #stretched = new Map<number, Stretch[]>();

  constructor(tree: TreePayload, words: readonly Word[]) {
    this.#tree = tree;
    this.#words = words;
    this.#described = words.map(() => new Map());
  }

  found(most: number): Found {
    const root = rootOf(this.#tree);
    const reading = this.#number(begin(this.#words));
    this.#count(root.subtree, reading);
    const below = this.#tally(root.subtree, reading);
    root.hit = root.subtree >= 0 && this.#hits(root.subtree, this.#words.map(() => false), this.#words.map(() => false));
    const capped = this.#list(root, reading, most);
    return { root, modules: below.modules + (root.hit ? 1 : 0), others: below.others, capped };
  }

  /** Fills the tallies of a subtree and of all below it, innermost first. */
  #count(subtree: number, reading: number): void {
    const waiting: [number, number][] = [[subtree, reading]];
    while (waiting.length) {
      const [here, from] = waiting[waiting.length - 1] as [number, number];
      const stretches = this.#stretches(here, from);
      const missing = stretches.filter((some) => some.subtree >= 0 && !this.#tallies.has(this.#key(some.subtree, some.reading)));
      if (missing.length && !this.#tallies.has(this.#key(here, from))) {
        for (const some of missing) waiting.push([some.subtree, some.reading]);
        continue;
      }
      waiting.pop();
      this.#tallies.set(this.#key(here, from), this.#summed(stretches));
    }
  }

  #summed(stretches: readonly Stretch[]): Tally {
    const sum = { modules: 0, others: 0 };
    for (const { subtree, reading, count, hit } of stretches) {
      if (subtree < 0) {
        if (hit) sum.others += count;
        continue;
      }
      const below = this.#tally(subtree, reading);
      sum.modules += count * (below.modules + (hit ? 1 : 0));
      sum.others += count * below.others;
    }
    return sum;
  }

  /** The children of a subtree, neighbours that match alike taken together. */
  #stretches(subtree: number, reading: number): Stretch[] {
    const key = this.#key(subtree, reading);
    let known = this.#stretched.get(key);
    if (!known) this.#stretched.set(key, (known = this.#stretch(subtree, reading)));
    return known;
  }

  #stretch(index: number, reading: number): Stretch[] {
    const subtree = this.#tree.subtrees[index];
    if (!subtree) return [];
    const stretches: Stretch[] = [];
    const first = index === this.#tree.subtrees.length - 1;
    subtree.runs.forEach(([names, below, link], run) => {
      const size = sizeOf(names);
      for (let member = 0; member < size; member += 1) {
        this.#append(stretches, run, member, below, this.#read(reading, nameAt(names, member), first), kindOf(below, link));
      }
    });
    subtree.ghosts.forEach((ghost, offset) => {
      if (isNote(ghost)) return;
      const read = this.#read(reading, ghost.name, first);
      const hit = this.#hits(-1, read.fresh, read.above, `hidden ghost ${ghost.what} ${whyHidden(ghost)}`.toLowerCase());
      stretches.push({ run: subtree.runs.length + offset, first: 0, count: 1, subtree: -1, reading: read.number, hit });
    });
    return stretches;
  }

  #append(to: Stretch[], run: number, member: number, subtree: number, read: Read, kind: string): void {
    const hit = this.#hits(subtree, read.fresh, read.above, kind);
    const last = to[to.length - 1];
    if (last && last.run === run && last.hit === hit && last.reading === read.number) last.count += 1;
    else to.push({ run, first: member, count: 1, subtree, reading: read.number, hit });
  }

  /** All words hold, one of them by what this place adds itself: what stands below a match is no match by that alone. */
  #hits(subtree: number, fresh: readonly boolean[], above: readonly boolean[], says = ""): boolean {
    let own = false;
    for (let index = 0; index < this.#words.length; index += 1) {
      if (fresh[index] || this.#describes(subtree, index, says)) own = true;
      else if (!above[index]) return false;
    }
    return own;
  }

  #describes(subtree: number, index: number, says: string): boolean {
    const word = this.#words[index] as Word;
    if (subtree < 0) return word.text.length > 2 && says.includes(word.text);
    const known = this.#described[index]?.get(subtree);
    if (known !== undefined) return known;
    const record = this.#tree.subtrees[subtree];
    const result = record !== undefined && describes(this.#tree, record, word);
    this.#described[index]?.set(subtree, result);
    return result;
  }

  #read(from: number, name: string, first: boolean): Read {
    const reading = readPart(this.#words, this.#readings[from] as Reading, name, first);
    return { number: this.#number(reading), fresh: reading.fresh, above: reading.above };
  }

  #number(reading: Reading): number {
    const key = `${reading.states.join()} ${reading.above.map(Number).join("")}`;
    let number = this.#numbers.get(key);
    if (number === undefined) {
      number = this.#readings.push({ states: reading.states, above: reading.above }) - 1;
      this.#numbers.set(key, number);
    }
    return number;
  }

  #key(subtree: number, reading: number): number {
    return reading * this.#tree.subtrees.length + subtree;
  }

  #tally(subtree: number, reading: number): Tally {
    return this.#tallies.get(this.#key(subtree, reading)) ?? { modules: 0, others: 0 };
  }

  /** Puts what matches below `root`, and what leads there, into `found`; says whether the list was cut. */
  #list(root: Place, reading: number, most: number): boolean {
    let left = most;
    const waiting: [Place, number][] = [[root, reading]];
    for (let next = waiting.pop(); next; next = waiting.pop()) {
      const [here, from] = next;
      const found: Place[] = [];
      for (const some of this.#stretches(here.subtree, from)) {
        const below = some.subtree < 0 ? null : this.#tally(some.subtree, some.reading);
        const leads = below !== null && below.modules + below.others > 0;
        if (!some.hit && !leads) continue;
        if (left <= 0) return this.#cutShort(here, found, waiting);
        if (some.hit) left -= 1;
        found.push(Object.assign(this.#placed(here, some), { hit: some.hit, open: leads }));
      }
      finish(here, found);
      for (let index = found.length - 1; index >= 0; index -= 1) {
        const child = found[index] as Place;
        if (child.open) waiting.push([child, (this.#readingOf(here, from, child) as Stretch).reading]);
      }
    }
    return false;
  }

  /** What was not listed any more stays closed; opened by hand it shows all it has. */
  #cutShort(here: Place, found: Place[], waiting: readonly [Place, number][]): true {
    for (const [place] of waiting) place.open = false;
    for (const place of found) place.open = false;
    finish(here, found);
    return true;
  }

  #placed(parent: Place, some: Stretch): Place {
    const { runs } = this.#tree.subtrees[parent.subtree] ?? { runs: [] };
    const run = runs[some.run];
    return place(parent, run ? kindOf(run[1], run[2]) : "ghost", some.run, some.first, some.count, some.subtree);
  }

  #readingOf(parent: Place, from: number, child: Place): Stretch | undefined {
    return this.#stretches(parent.subtree, from).find((some) => some.run === child.run && some.first === child.first);
  }
}

function finish(place: Place, found: Place[]): void {
  place.found = found.length ? found : null;
  place.open = found.length > 0;
}
