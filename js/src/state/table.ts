/** The rows of a state: walked out of the folded nodes, filtered, sorted, grouped. No recursion. */
import { follow, join, nameAt, sizeOf } from "../names";
import type { Signature, StatePayload } from "../payload";
import { begin, hasSizes, readPart, type Reading, type Word } from "../search/query";

/** Where tensors live: a module under one path. Parents come before their children. */
export interface Owner {
  parent: number;
  name: string;
  type: string;
}

export interface StateRow {
  owner: number;
  name: string;
  signature: Signature;
  /** Its number in the order of the payload. */
  order: number;
}

export type Item =
  | { kind: "tensor"; row: StateRow }
  | { kind: "divider" }
  | { kind: "group"; owner: number; count: number };

export interface Sorting {
  column: string;
  down: boolean;
}

const MOST = 200_000;

export class StateTable {
  readonly owners: Owner[] = [];
  readonly rows: StateRow[] = [];
  /** Whether there are more rows than are listed. */
  readonly capped: boolean;

  constructor(readonly payload: StatePayload) {
    const [saved, others] = this.#walked();
    this.capped = saved.length + others.length >= MOST;
    this.rows = [...saved, ...others];
    this.rows.forEach((row, order) => (row.order = order));
  }

  /** Whether its tensors say different things in a column; what has nothing to say does not count, except for a note. */
  differs(column: string): boolean {
    const said = this.#said(column);
    said.delete(column === "note" ? "" : "–");
    return said.size > Number(column !== "note");
  }

  /** Characters of the longest thing that it says in a column. */
  longest(column: string): number {
    return [...this.#said(column)].reduce((most, { length }) => Math.max(most, length), 0);
  }

  #said(column: string): Set<string> {
    return new Set(this.payload.signatures.map((signature) => textOf(this, { owner: 0, name: "", signature, order: 0 }, column)));
  }

  ownerPath(owner: number): string {
    const names: string[] = [];
    for (let at = owner; at > 0; at = (this.owners[at] as Owner).parent) names.push((this.owners[at] as Owner).name);
    return names.reverse().join(".");
  }

  path(row: StateRow): string {
    return join(this.ownerPath(row.owner), row.name);
  }

  /** What the table shows: first what the state_dict holds, then the rest; or module by module. */
  items(words: readonly Word[], sorting: Sorting | null, grouped: boolean): Item[] {
    const rows = this.#sorted(this.#matching(words), sorting);
    if (grouped) return this.#groups(rows);
    const saved = rows.filter((row) => row.signature.saved);
    const others = rows.filter((row) => !row.signature.saved);
    const items: Item[] = saved.map((row) => ({ kind: "tensor", row }));
    if (others.length) items.push({ kind: "divider" });
    return items.concat(others.map((row) => ({ kind: "tensor", row })));
  }

  #walked(): [StateRow[], StateRow[]] {
    const { nodes, signatures } = this.payload;
    const [saved, others]: [StateRow[], StateRow[]] = [[], []];
    const waiting: [parent: number, name: string, node: number][] = [[-1, "", nodes.length - 1]];
    for (let next = waiting.pop(); next && saved.length + others.length < MOST; next = waiting.pop()) {
      const [parent, name, index] = next;
      const node = nodes[index];
      if (!node) continue;
      const owner = this.owners.push({ parent, name, type: node.type }) - 1;
      for (const [slot, number] of node.slots) {
        const signature = signatures[number];
        if (signature) (signature.saved ? saved : others).push({ owner, name: slot, signature, order: 0 });
      }
      for (let run = node.runs.length - 1; run >= 0; run -= 1) {
        const [names, below] = node.runs[run] as [never, number];
        for (let member = sizeOf(names) - 1; member >= 0; member -= 1) waiting.push([owner, nameAt(names, member), below]);
      }
    }
    return [saved, others];
  }

  #matching(words: readonly Word[]): StateRow[] {
    if (!words.length) return [...this.rows];
    const readings: Reading[] = [];
    this.owners.forEach(({ parent, name }) => {
      readings.push(parent < 0 ? begin(words) : readPart(words, readings[parent] as Reading, name, parent === 0));
    });
    const said = new Map<Signature, boolean[]>();
    return this.rows.filter(({ owner, name, signature }) => {
      const read = readPart(words, readings[owner] as Reading, name, owner === 0);
      let holds = said.get(signature);
      if (!holds) said.set(signature, (holds = words.map((word) => says(signature, word))));
      const type = this.owners[owner]?.type ?? "";
      return words.every((word, index) => read.fresh[index] || read.above[index] || holds[index] || word.path?.matches(type));
    });
  }

  #sorted(rows: StateRow[], sorting: Sorting | null): StateRow[] {
    if (!sorting) return rows;
    const { column, down } = sorting;
    const keys = new Map<StateRow, string | number>(rows.map((row) => [row, this.#key(row, column)]));
    const compare = (a: StateRow, b: StateRow): number => ordered(keys.get(a) ?? 0, keys.get(b) ?? 0) || a.order - b.order;
    return rows.sort(down ? (a, b) => compare(b, a) : compare);
  }

  #key(row: StateRow, column: string): string | number {
    if (column === "tensor") return this.path(row);
    if (column === "shape") return row.signature.count;
    if (column === "bytes") return row.signature.bytes;
    if (column === "lr" || column === "decay") return Number(row.signature.optimizer[0]?.[column] ?? Number.NaN);
    return textOf(this, row, column);
  }

  #groups(rows: readonly StateRow[]): Item[] {
    const members = new Map<number, StateRow[]>();
    for (const row of rows) {
      const some = members.get(row.owner);
      if (some) some.push(row);
      else members.set(row.owner, [row]);
    }
    const owners = [...members.keys()].sort((a, b) => a - b);
    return owners.flatMap((owner): Item[] => {
      const some = members.get(owner) ?? [];
      return [{ kind: "group", owner, count: some.length }, ...some.map((row): Item => ({ kind: "tensor", row }))];
    });
  }
}

const NATURAL = new Intl.Collator("en", { numeric: true });

function ordered(a: string | number, b: string | number): number {
  if (typeof a === "string" || typeof b === "string") return NATURAL.compare(String(a), String(b));
  if (Number.isNaN(a) || Number.isNaN(b)) return Number(Number.isNaN(a)) - Number(Number.isNaN(b));
  return a - b;
}

/** Whether a search word holds for a tensor whatever its path. */
function says(signature: Signature, word: Word): boolean {
  const { text, sizes } = word;
  if (sizes && hasSizes(signature.shape, sizes)) return true;
  switch (text) {
    case "trainable":
      return signature.trained === "yes";
    case "frozen":
      return signature.trained === "frozen";
    case "tied":
      return signature.tied !== null;
    case "saved":
      return signature.saved;
    case "unsaved":
      return !signature.saved;
    case "lazy":
      return signature.kind !== "reserved" && signature.note.startsWith("lazy");
    default:
      return text.length > 1 && [signature.kind, signature.dtype, signature.device, signature.mark, signature.note].some((part) => part.toLowerCase().includes(text));
  }
}

/** What a cell says. */
export function textOf(table: StateTable, row: StateRow, column: string): string {
  const { signature } = row;
  switch (column) {
    case "tensor":
      return table.path(row);
    case "kind":
      return signature.kind;
    case "shape":
      return shapeText(signature);
    case "dtype":
      return signature.dtype || "–";
    case "here":
      return signature.here || "–";
    case "placement":
      return signature.placement || "–";
    case "device":
      return signature.device || "–";
    case "bytes":
      return signature.bytesText || "–";
    case "saved":
      return signature.saved ? "✓ yes" : "– no";
    case "trained":
      return signature.trained || "–";
    case "gradient":
      return signature.grad || "–";
    case "group":
      return [signature.mark && `⚠ ${signature.mark}`, ...signature.optimizer.map((one) => one.label)].filter(Boolean).join(", ") || "–";
    case "lr":
    case "decay":
      return signature.optimizer.map((one) => one[column]).join(", ") || "–";
    case "state":
      return signature.optimizer.flatMap((one) => one.state).join(", ") || "–";
    default:
      return noteOf(table, row);
  }
}

function shapeText(signature: Signature): string {
  if (signature.shapeText) return signature.shapeText;
  if (signature.kind === "reserved") return "None";
  if (signature.shape) return "scalar";
  return signature.note.startsWith("lazy") ? "not yet" : "–";
}

export function noteOf(table: StateTable, row: StateRow): string {
  const { kind, persistent, tied, note } = row.signature;
  const fleeting = kind === "buffer" && !persistent && "not persistent";
  return [tied && `⇄ ${follow(tied, table.path(row))}`, fleeting, note].filter(Boolean).join(", ");
}
