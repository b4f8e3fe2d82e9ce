/** What there is to know about one module: its tensors, what its class says, where its code is, how to get it. */
import type { Context } from "../context";
import { button, element, lines, OURS, words } from "../elements";
import { howToGet, table } from "../facts";
import { counted, cut, follow, join, legibleLines, shown } from "../names";
import type { ClassFacts, Entry, Subtree, TreePayload } from "../payload";
import { ghostOf, isNote, labelOf, originalOf, pathOf, subtreeOf, whyHidden, type Place } from "./place";
import { tensorsOf } from "./traits";
import { codeFor, shapeOf } from "./row";
import { askFor } from "../values/panel";

const LONG = 50_000;
const LONG_DOC = 2_000;

export function detailPanel(tree: TreePayload, place: Place, context: Context): HTMLElement[] {
  const path = pathOf(tree, place);
  const subtree = subtreeOf(tree, place);
  const facts = subtree ? tree.classes[subtree.class] : undefined;
  const values = element("div", { class: "values" });
  return [
    element("p", { class: "path" }, lines(shown(path), "", 500)),
    ...(subtree ? about(tree, place, subtree) : absent(tree, place)),
    subtree ? tensorTable(tensorsOf(tree, subtree), path, values, context) : null,
    ...(subtree ? leftOut(subtree) : []),
    values,
    ...(facts ? classFacts(facts) : []),
    howToGet(codeFor(tree, place), context),
  ].filter((part) => part !== null);
}

function about(tree: TreePayload, place: Place, subtree: Subtree): HTMLElement[] {
  const lines = [element("p", {}, words(subtree.type), " ", subtree.extra ? words(subtree.extra, "extra", 1000) : null)];
  if (place.count > 1) lines.push(element("p", { class: "soft" }, `the first of ${counted(place.count, "equal module")}, `, words(labelOf(tree, place), "code")));
  const original = originalOf(tree, place);
  if (original !== null) lines.push(element("p", { class: "soft" }, "the same module as ", words(shown(original), "code")));
  lines.push(element("p", { class: "soft" }, words(totals(subtree), "", 1000)));
  if (subtree.unit) lines.push(element("p", {}, words(subtree.unit.text, "", 300)));
  return lines;
}

/** "2.36 M parameters, 9.4 MB, float32 on cpu; 786 k of them trainable". */
export function totals(subtree: Subtree): string {
  const mode = `in ${subtree.training ? "training" : "evaluation"} mode`;
  if (!subtree.total && !subtree.buffers) {
    return subtree.lazy ? `parameters: not yet, the first forward pass makes them; ${mode}` : `no parameters and no buffers, here or below; ${mode}`;
  }
  const kinds = subtree.dtypes.length ? `, ${subtree.dtypes.join(", ")} on ${subtree.devices.join(", ")}` : "";
  const inside = subtree.own === subtree.total ? "" : subtree.own ? `, ${subtree.ownText} its own` : ", none its own";
  const trained = !subtree.total ? "" : subtree.trainable === subtree.total ? ", all trainable" : subtree.trainable ? `, ${exact(subtree.trainable)} trainable, ${exact(subtree.total - subtree.trainable)} frozen` : ", all frozen";
  const buffers = subtree.buffers ? `, ${exact(subtree.buffers)} numbers in buffers` : "";
  return `${subtree.totalText || "0"} parameters${inside}${trained}${buffers}${subtree.bytesText ? `, ${subtree.bytesText}` : ""}${kinds}; ${mode}`;
}

function exact(number: number): string {
  return number.toLocaleString("en-US");
}

function absent(tree: TreePayload, place: Place): HTMLElement[] {
  const ghost = ghostOf(tree, place);
  if (!ghost) {
    const original = originalOf(tree, place);
    const text = original === null ? "a name registered for a module that is None" : `the module contains itself: this is ${shown(original)} again`;
    return [element("p", { class: "absent" }, words(text))];
  }
  const why = whyHidden(ghost);
  const reason = why ? [element("p", { class: ghost.harmless ? "absent" : "absent careful" }, words(why, "", 1000))] : [];
  return [element("p", {}, words(ghost.what)), ...reason];
}

function tensorTable(entries: readonly Entry[], path: string, values: HTMLElement, context: Context): HTMLElement {
  if (!entries.length) return element("p", { class: "soft" }, "no tensors of its own");
  const notes = entries.some((entry) => noteOf(entry, path));
  const lies = entries.some((entry) => entry.placement);
  const titles = ["tensor", "shape", ...(lies ? ["here", "placement"] : []), "dtype", "device", "trained", ...(notes ? ["note"] : [])];
  return table(titles, entries.map((entry) => tensorRow(entry, path, lies, notes, values, context)));
}

/** What this output does not hold of a module. */
function leftOut(subtree: Subtree): HTMLElement[] {
  return subtree.ghosts.filter(isNote).map(({ what, reason }) => element("p", { class: "soft" }, words([what, reason].filter(Boolean).join(": "))));
}

function tensorRow(entry: Entry, path: string, lies: boolean, notes: boolean, values: HTMLElement, context: Context): HTMLElement {
  const askable = context.ask !== null && entry.kind !== "reserved";
  const name = askable
    ? button("", { class: "plain link", title: "show its values" }, () => void askFor(`${entry.name} · values`, join(path, entry.name), values, context))
    : element("span");
  name.append(words(entry.name));
  const cells = [entry.kind === "reserved" ? "None" : shapeOf(entry), ...(lies ? [entry.here, entry.placement] : []), entry.dtype, entry.device, trained(entry)];
  return element(
    "tr",
    { class: entry.kind === "reserved" ? "reserved" : null },
    element("th", { scope: "row" }, name),
    ...cells.map((text) => element("td", {}, words(text || "–"))),
    notes ? element("td", { class: "note" }, words(noteOf(entry, path))) : null,
  );
}

function trained(entry: Entry): string {
  if (entry.kind === "parameter") return entry.trainable ? "yes" : "frozen";
  return entry.kind;
}

export function noteOf(entry: Entry, path: string): string {
  const tied = entry.tied ? `⇄ ${follow(entry.tied, join(path, entry.name))}` : "";
  const unsaved = entry.kind === "buffer" && !entry.persistent ? "not in the state_dict" : "";
  return [tied, unsaved, entry.note].filter(Boolean).join(", ");
}

function classFacts(facts: ClassFacts): HTMLElement[] {
  const parts = [
    ...docs(facts.doc),
    facts.signature ? element("p", {}, element("code", {}, lines(facts.signature))) : null,
    facts.where ? element("p", { class: "soft" }, lines(facts.where, "code")) : null,
    facts.code ? source(facts.code, facts.codeNote) : null,
    !facts.code && facts.codeNote ? element("p", { class: "soft" }, words(facts.codeNote)) : null,
  ];
  return parts.filter((part) => part !== null);
}

/** The first paragraph as one line, the others when asked for. */
function docs(doc: string): HTMLElement[] {
  const [first = "", ...others] = doc.trim().split(/\n\s*\n/);
  if (!first) return [];
  const more = element("details", {}, element("summary", OURS, "more"), element("p", { class: "doc further" }, legibleLines(cut(others.join("\n\n"), LONG_DOC))));
  return [element("p", { class: "doc" }, words(first.replace(/\s+/g, " "), "", 1200)), ...(others.length ? [more] : [])];
}

/** The code when asked for; how much of it there is, always. */
function source(code: string, note: string): HTMLElement {
  const summary = element("summary", OURS, "code", note ? ": " : null, note ? words(note) : null);
  const short = code.length > LONG ? `${code.slice(0, LONG)}\n… cut: ${code.length.toLocaleString("en")} characters` : code;
  return element("details", {}, summary, element("pre", { tabindex: 0, "data-lm-suppress-shortcuts": "true" }, legibleLines(short)));
}
