/**
 * One row's worth of a folded tree: a module under one path, or a run of equal neighbours.
 *
 * Places are made when they come into view; they hold what the reader did (opened, unfolded) and no path, so that
 * a tree of 10,000 levels costs no more than its rows.
 */
import { follow, indexOfName, join, label, nameAt, sizeOf } from "../names";
import type { Ghost, Link, Names, Subtree, TreePayload } from "../payload";

export type Kind = "module" | "alias" | "recursion" | "reserved" | "ghost";

export interface Place {
  parent: Place | null;
  kind: Kind;
  depth: number;
  /** The index of the run among the parent's; ghosts are numbered behind them. */
  run: number;
  /** The members of the run that this place stands for. */
  first: number;
  count: number;
  subtree: number;
  open: boolean;
  /** Made when asked for. */
  children: Place[] | null;
  /** What a search found below: the only children then. Patterns, of which each member of a run gets copies. */
  found: readonly Place[] | null;
  /** An unfolded run: the places that stand in its stead. */
  pieces: Place[] | null;
  /** The run that this place is a piece of. */
  whole: Place | null;
  hit: boolean;
}

// A run with more members unfolds into runs first: a million rows at once help nobody.
const UNFOLDED_AT_ONCE = 10_000;

export function rootOf(tree: TreePayload): Place {
  return place(null, "module", -1, 0, 1, tree.subtrees.length - 1);
}

export function place(parent: Place | null, kind: Kind, run: number, first: number, count: number, subtree: number): Place {
  const depth = parent ? parent.depth + 1 : 0;
  return { parent, kind, depth, run, first, count, subtree, open: false, children: null, found: null, pieces: null, whole: null, hit: false };
}

export function subtreeOf(tree: TreePayload, at: Place | null): Subtree | null {
  return (at && tree.subtrees[at.subtree]) ?? null;
}

export function ghostOf(tree: TreePayload, at: Place): Ghost | null {
  const above = subtreeOf(tree, at.parent);
  return at.kind === "ghost" && above ? (above.ghosts[at.run - above.runs.length] ?? null) : null;
}

/** What a ghost is called that tells how much was left out of this output: it stands for no module. */
const LEFT_OUT = "…";

export function isNote(ghost: Ghost | null): boolean {
  return ghost !== null && ghost.harmless && ghost.name === LEFT_OUT;
}

/** Why PyTorch does not see it: "in a Python list: not trained, not moved, not saved". */
export function whyHidden(ghost: Ghost): string {
  return [ghost.where, ghost.reason].filter(Boolean).join(": ");
}

export function linkOf(tree: TreePayload, at: Place): Link | null {
  return subtreeOf(tree, at.parent)?.runs[at.run]?.[2] ?? null;
}

function namesOf(tree: TreePayload, at: Place): Names {
  return subtreeOf(tree, at.parent)?.runs[at.run]?.[0] ?? [];
}

export function nameOf(tree: TreePayload, at: Place): string {
  if (!at.parent) return "";
  return at.kind === "ghost" ? (ghostOf(tree, at)?.name ?? "?") : nameAt(namesOf(tree, at), at.first);
}

/** The name, or the first and the last of a run. */
export function labelOf(tree: TreePayload, at: Place): string {
  return at.count > 1 ? label(namesOf(tree, at), at.first, at.count) : nameOf(tree, at);
}

/** The dotted name; of a run, that of its first member. */
export function pathOf(tree: TreePayload, at: Place): string {
  const names: string[] = [];
  for (let here: Place | null = at; here?.parent; here = here.parent) names.push(nameOf(tree, here));
  return names.reverse().join(".");
}

/** The dotted name of the last member of a run. */
export function lastPathOf(tree: TreePayload, at: Place): string {
  const above = at.parent ? pathOf(tree, at.parent) : "";
  return join(above, nameAt(namesOf(tree, at), at.first + at.count - 1));
}

/** Where the module stands in the tree for the first time, if this is another of its places. */
export function originalOf(tree: TreePayload, at: Place): string | null {
  const link = linkOf(tree, at);
  return link && follow(link, pathOf(tree, at));
}

export function isOpenable(tree: TreePayload, at: Place): boolean {
  if (at.found) return true;
  const subtree = subtreeOf(tree, at);
  return subtree !== null && subtree.runs.length + subtree.ghosts.length > 0;
}

export function kindOf(subtree: number, link: Link | null): Kind {
  if (subtree < 0) return link ? "recursion" : "reserved";
  return link ? "alias" : "module";
}

/** The children, each run as one place. */
export function childrenOf(tree: TreePayload, at: Place): Place[] {
  return (at.children ??= at.found ? at.found.map((some) => ({ ...some, parent: at })) : made(tree, at));
}

function made(tree: TreePayload, at: Place): Place[] {
  const subtree = subtreeOf(tree, at);
  if (!subtree) return [];
  const runs = subtree.runs.map(([names, index, link], run) => place(at, kindOf(index, link), run, 0, sizeOf(names), index));
  const ghosts = subtree.ghosts.map((_, index) => place(at, "ghost", subtree.runs.length + index, 0, 1, -1));
  return [...runs, ...ghosts];
}

/** Puts members, or smaller runs of them, in the stead of a run; gives the one that now stands where the run stood. */
export function unfold(at: Place): Place {
  if (at.count < 2) return at;
  const size = at.count > UNFOLDED_AT_ONCE ? 1000 : 1;
  const pieces: Place[] = [];
  for (let from = 0; from < at.count; from += size) pieces.push(piece(at, at.first + from, Math.min(size, at.count - from)));
  return replaced(at, pieces);
}

/** Takes one member out of a run, `0 – 11` becomes `0 – 4`, `5`, `6 – 11`; the first of a run stands for it anyway. */
export function single(at: Place, member: number): Place {
  if (at.pieces) {
    const holder = at.pieces.find((some) => member >= some.first && member < some.first + some.count);
    return holder ? single(holder, member) : at;
  }
  if (at.first === member) return at;
  const end = at.first + at.count;
  const alone = piece(at, member, 1);
  const pieces = [piece(at, at.first, member - at.first), alone, piece(at, member + 1, end - member - 1)];
  replaced(at, pieces.filter((some) => some.count > 0));
  return alone;
}

/** Puts a run back together; gives the run. */
export function fold(at: Place): Place {
  const whole = at.whole;
  if (!whole?.pieces) return at;
  const [head] = whole.pieces;
  if (head?.children) adopt(whole, head.children);
  whole.open = head?.open ?? false;
  whole.pieces = null;
  return whole;
}

function piece(of: Place, first: number, count: number): Place {
  const made = place(of.parent, of.kind, of.run, first, count, of.subtree);
  return Object.assign(made, { hit: of.hit, found: of.found, open: of.found !== null, whole: of.whole ?? of });
}

function replaced(at: Place, pieces: Place[]): Place {
  const [head] = pieces as [Place, ...Place[]];
  if (at.children) {
    adopt(head, at.children);
    head.open = at.open;
  }
  const whole = at.whole;
  if (whole?.pieces) whole.pieces = whole.pieces.flatMap((some) => (some === at ? pieces : [some]));
  else at.pieces = pieces;
  return head;
}

function adopt(parent: Place, children: Place[]): void {
  parent.children = children;
  const waiting = [...children];
  for (let child = waiting.pop(); child; child = waiting.pop()) {
    child.parent = parent;
    if (child.pieces) waiting.push(...child.pieces);
  }
}

/** The members to go through from the root to a dotted name: [run, member] each; null when there is no such name. */
export function stepsTo(tree: TreePayload, path: string): [run: number, member: number][] | null {
  const steps: [number, number][] = [];
  let subtree: Subtree | null = tree.subtrees[tree.subtrees.length - 1] ?? null;
  for (const name of path ? path.split(".") : []) {
    const step = stepTo(subtree, name);
    if (!step) return null;
    steps.push(step);
    subtree = tree.subtrees[subtree?.runs[step[0]]?.[1] ?? -1] ?? null;
  }
  return steps;
}

function stepTo(subtree: Subtree | null, name: string): [number, number] | null {
  if (!subtree) return null;
  for (let run = 0; run < subtree.runs.length; run += 1) {
    const member = indexOfName(subtree.runs[run]?.[0] ?? [], name);
    if (member >= 0) return [run, member];
  }
  const ghost = subtree.ghosts.findIndex((some) => some.name === name);
  return ghost < 0 ? null : [subtree.runs.length + ghost, 0];
}

/** The members that lead from the root to a place. */
export function stepsOf(at: Place): [run: number, member: number][] {
  const steps: [number, number][] = [];
  for (let here: Place | null = at; here?.parent; here = here.parent) steps.push([here.run, here.first]);
  return steps.reverse();
}
