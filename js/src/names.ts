/** Names of neighbours: a list, or the numbers `from` … `to`. Paths: names joined by dots. */
import type { Link, Names } from "./payload";

export const ROOT = "(root)";

export function sizeOf(names: Names): number {
  return "from" in names ? Math.max(0, names.to - names.from + 1) : names.length;
}

export function nameAt(names: Names, index: number): string {
  return "from" in names ? String(names.from + index) : (names[index] ?? "?");
}

/** The place of a name among its neighbours, or −1. */
export function indexOfName(names: Names, name: string): number {
  if (!("from" in names)) return names.indexOf(name);
  const number = Number(name);
  return String(number) === name && number >= names.from && number <= names.to ? number - names.from : -1;
}

/** What a row that stands for `count` neighbours is called: `3`, or `0 – 11`. */
export function label(names: Names, first: number, count: number): string {
  return count === 1 ? nameAt(names, first) : `${nameAt(names, first)} – ${nameAt(names, first + count - 1)}`;
}

export function join(path: string, name: string): string {
  return path ? `${path}.${name}` : name;
}

/** The dotted name a link points at, seen from the dotted name `place`; `up` 0 means from the root. */
export function follow(link: Link, place: string): string {
  const [up, path] = link;
  if (up === 0) return path;
  const above = place.split(".").slice(0, -up).join(".");
  return path ? join(above, path) : above;
}

export function shown(path: string): string {
  return path || ROOT;
}

/** Text of any length, short enough for a row. */
export function cut(text: string, limit = 300): string {
  return text.length > limit ? `${text.slice(0, limit)}… (${text.length.toLocaleString("en")} characters)` : text;
}

// Control and bidirectional characters would hide or reorder what stands beside them.
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/** Text with every unseen character made visible, as Python's `repr` would write it. */
export function legible(text: string): string {
  return text.replace(UNSEEN, escaped);
}

/** The same for text of several lines. */
export function legibleLines(text: string): string {
  return text.replace(UNSEEN, (character) => (character === "\n" || character === "\t" ? character : escaped(character)));
}

function escaped(character: string): string {
  if (character === "\n") return "\\n";
  if (character === "\t") return "\\t";
  const code = character.charCodeAt(0).toString(16);
  return code.length > 2 ? `\\u${code.padStart(4, "0")}` : `\\x${code.padStart(2, "0")}`;
}

/** A string as Python writes it. */
export function quoted(text: string): string {
  return JSON.stringify(text).replace(UNSEEN, escaped);
}

/** A name that Python takes behind a dot: no keyword. */
const PLAIN = /^(?!(?:False|None|True|and|as|assert|async|await|break|class|continue|def|del|elif|else|except|finally|for|from|global|if|import|in|is|lambda|nonlocal|not|or|pass|raise|return|try|while|with|yield)$)[A-Za-z_]\w*$/;

export function isPlain(name: string): boolean {
  return PLAIN.test(name);
}

/** How Python gets an attribute of what `code` gives. */
export function attribute(code: string, name: string): string {
  return isPlain(name) ? `${code}.${name}` : `getattr(${code}, ${quoted(name)})`;
}

/** How Python gets a part of a model, a "submodule", "parameter" or "buffer", by its dotted name. */
export function partAt({ variable, scripted }: { variable: string; scripted: boolean }, kind: string, path: string): string {
  if (!path) return variable;
  return scripted ? `dict(${variable}.named_${kind.replace("sub", "")}s(remove_duplicate=False))[${quoted(path)}]` : `${variable}.get_${kind}(${quoted(path)})`;
}

export function counted(count: number, noun: string): string {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
}
