/** What somebody has done in each case, and what it adds up to. */
import type { Case } from "./data";

export interface Progress {
  /** The looks that were bought, in order. */
  looks: string[];
  /** The numbers of the causes that were named, in order. */
  named: number[];
  /** Whether the answer was shown instead of found. */
  shown: boolean;
  /** How the case ended for the first time, where it was begun again since: that is what counts. */
  first?: Progress;
}

/** What counts of a case: how it ended first. */
export function counted(progress: Progress): Progress {
  return progress.first ?? progress;
}

const KEY = "modlab-clinic";

export function isRight(one: Case, progress: Progress): boolean {
  return progress.named.some((number) => one.causes[number]?.right);
}

export function isClosed(one: Case, progress: Progress): boolean {
  return progress.shown || isRight(one, progress);
}

export function atOnce(one: Case, progress: Progress): boolean {
  return !progress.shown && progress.named.length === 1 && isRight(one, progress);
}

/** All cases, kept in the browser where it allows that. */
export class Ledger {
  readonly #all: Map<number, Progress>;

  constructor(private readonly store: Storage | null = localOne()) {
    this.#all = new Map(read(store));
  }

  of(number: number): Progress {
    let found = this.#all.get(number);
    if (!found) this.#all.set(number, (found = { looks: [], named: [], shown: false }));
    return found;
  }

  /** Begins a closed case again; its first end is kept. */
  restart(number: number): void {
    const { looks, named, shown } = counted(this.of(number));
    this.#all.set(number, { looks: [], named: [], shown: false, first: { looks, named, shown } });
    this.keep();
  }

  keep(): void {
    try {
      this.store?.setItem(KEY, JSON.stringify([...this.#all]));
    } catch {
      // a browser may keep nothing; the page works without
    }
  }
}

function localOne(): Storage | null {
  try {
    return globalThis.localStorage ?? null;
  } catch {
    return null;
  }
}

function read(store: Storage | null): [number, Progress][] {
  try {
    const found: unknown = JSON.parse(store?.getItem(KEY) ?? "[]");
    return Array.isArray(found) ? found.filter(isEntry) : [];
  } catch {
    return [];
  }
}

function isEntry(entry: unknown): entry is [number, Progress] {
  if (!Array.isArray(entry) || typeof entry[0] !== "number") return false;
  return isProgress(entry[1]);
}

function isProgress(found: unknown): boolean {
  const { looks, named, shown, first } = (found ?? {}) as Partial<Progress>;
  return Array.isArray(looks) && Array.isArray(named) && typeof shown === "boolean" && (first === undefined || isProgress(first));
}

/** The line above the cases: of each case its first end. */
export function score(cases: readonly Case[], ledger: Ledger): string {
  const of = (one: Case): Progress => counted(ledger.of(one.number));
  const closed = cases.filter((one) => isClosed(one, of(one)));
  if (!closed.length) return `${count(cases.length, "case")}. modlab names the cause first in ${byModlab(cases)}.`;
  const first = closed.filter((one) => atOnce(one, of(one))).length;
  const found = closed.filter((one) => isRight(one, of(one)));
  const looks = found.reduce((sum, one) => sum + of(one).looks.length, 0) / Math.max(1, found.length);
  const how = found.length ? `, ${first} at the first try, with ${looks.toFixed(1)} looks on average` : "";
  return `${closed.length} of ${cases.length} cases closed. You named ${found.length} of them${how}; modlab names the cause first in ${byModlab(closed)}.`;
}

/** In how many modlab names the cause as what is wrong, and in how many as something worth a look. */
function byModlab(cases: readonly Case[]): string {
  const hinted = cases.filter((one) => one.modlab.hinted).length;
  return `${cases.filter((one) => one.modlab.first).length} of them${hinted ? `, and tells it as something worth a look in ${hinted} more` : ""}`;
}

/** How it went, in a few words. */
export function result(one: Case, progress: Progress): string {
  if (!isRight(one, progress)) return "answer shown";
  const tries = progress.named.length;
  return `cause in ${count(progress.looks.length, "look")}, ${tries === 1 ? "at the first try" : `at try ${tries}`}`;
}

/** A line for friends that does not tell the cause: of the first end. */
export function shared(one: Case, progress: Progress, place: string): string {
  return `modlab clinic, case ${one.number} (${one.kind}): ${result(one, counted(progress))}. ${place}#case-${one.number}`;
}

export function count(number: number, word: string): string {
  return `${number} ${word}${number === 1 ? "" : "s"}`;
}
