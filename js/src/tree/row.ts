/** One row of the tree: what it says, in words and as elements. */
import { element, named, unseen, words } from "../elements";
import { attribute, cut, follow, join, partAt, shown } from "../names";
import type { Entry, Subtree, TreePayload } from "../payload";
import { chevron, indent, symbol } from "../row-head";
import { ghostOf, isNote, labelOf, nameOf, originalOf, pathOf, subtreeOf, type Place } from "./place";
import { isLazy, tensorsOf } from "./traits";

/** Signs beside the words, so that a flag is seen before it is read. */
const SIGNS: Record<string, string> = {
  lazy: "◌", meta: "◌", frozen: "■", "partly frozen": "◧", compiled: "»", scripted: "§", parametrized: "ƒ", "weight-normed": "ƒ",
  "spectral-normed": "ƒ", pruned: "⊘", quantized: "#", "tensor parallel": "∥", "several devices": "≠", eval: "○", train: "●",
};

export function treeRow(tree: TreePayload, place: Place): HTMLElement {
  const made = element(
    "div",
    { role: "treeitem", class: `row ${place.kind}${place.hit ? " hit" : ""}${isAlarming(tree, place) ? " careful" : ""}` },
    moduleCell(tree, place),
    element("span", { class: "tensors" }, tensorsText(tree, place)),
    element("span", { class: "parameters" }, ...parametersCell(tree, place)),
    element("span", { class: "share" }, shareBar(tree, place)),
  );
  if (hasReason(tree, place)) made.append(ghostLine(tree, place));
  return made;
}

function moduleCell(tree: TreePayload, place: Place): HTMLElement {
  const subtree = subtreeOf(tree, place);
  const ghost = ghostOf(tree, place);
  return element(
    "span",
    { class: "module" },
    indent(place.depth),
    chevron(),
    symbol(isNote(ghost) ? "note" : ghost || place.kind === "reserved" ? "dashed" : (subtree?.category ?? "own")),
    named(place.parent ? labelOf(tree, place) : shown("")),
    subtree ? words(subtree.type, "type") : null,
    ghost ? words(ghost.what, "type") : null,
    ghost && !isNote(ghost) ? unseen("not registered") : null,
    ...pills(tree, place),
    subtree?.extra ? words(subtree.extra, "extra") : null,
  );
}

function pills(tree: TreePayload, place: Place): HTMLElement[] {
  const made: HTMLElement[] = [];
  if (place.kind === "reserved") made.push(element("span", { class: "type" }, "reserved (None)"));
  if (place.count > 1) made.push(pill(`${place.count.toLocaleString("en")} equal`, "run", "refold", "show each of them (u)"));
  if (place.whole?.first === place.first) made.push(pill(`fold ${place.whole.count.toLocaleString("en")}`, "run", "fold", "show them as one row (u)"));
  if (place.kind === "alias" || place.kind === "recursion") made.push(aliasPill(tree, place));
  if (isAlarming(tree, place)) made.push(pill(cut(ghostOf(tree, place)?.where || "hidden", 60), "careful", null, null, "⚠"));
  for (const flag of flagsOf(tree, place)) made.push(pill(flag, "flag", null, null, SIGNS[flag] ?? (flag.includes("hook") ? "↪" : "⚠")));
  return made;
}

function aliasPill(tree: TreePayload, place: Place): HTMLElement {
  const original = originalOf(tree, place) ?? "";
  const verb = place.kind === "recursion" ? "contains itself: " : "";
  const made = pill(`${verb}same as ${cut(shown(original), 80)}`, "alias", "original", `go to ${shown(original)} (Enter)`);
  return made;
}

/** A `sign` before the text is for the eye: the words say it already. */
function pill(text: string, className: string, action: string | null = null, title: string | null = null, sign = ""): HTMLElement {
  return element("span", { class: `pill ${className}`, "data-action": action, title }, sign ? element("span", { "aria-hidden": "true" }, `${sign} `) : null, text);
}

/** A module's own flags, and its mode where that is not the root's. */
export function flagsOf(tree: TreePayload, place: Place): string[] {
  const subtree = subtreeOf(tree, place);
  const root = tree.subtrees[tree.subtrees.length - 1];
  if (!subtree) return [];
  return subtree.training === root?.training ? [...subtree.flags] : [...subtree.flags, subtree.training ? "train" : "eval"];
}

function isAlarming(tree: TreePayload, place: Place): boolean {
  const ghost = ghostOf(tree, place);
  return ghost !== null && !ghost.harmless;
}

/** The shapes of a module's own tensors: "768×2304 · 2304". */
export function tensorsText(tree: TreePayload, place: Place): string {
  const subtree = subtreeOf(tree, place);
  if (!subtree) return "";
  const shapes = tensorsOf(tree, subtree).filter((entry) => entry.kind !== "reserved").map(shapeOf);
  return shapes.length > 4 ? `${shapes.slice(0, 3).join(" · ")} · … ${shapes.length}` : shapes.join(" · ");
}

export function shapeOf(entry: Entry): string {
  return entry.shapeText || (isLazy(entry) ? "lazy" : "scalar");
}

export function parametersText(tree: TreePayload, place: Place): string {
  const subtree = subtreeOf(tree, place);
  const ghost = ghostOf(tree, place);
  if (ghost) return ghost.parameters ? ghost.parametersText : "";
  if (!subtree) return "";
  const tied = place.kind === "module" ? tiedTo(tree, subtree, place) : null;
  if (tied !== null) return `⇄ ${cut(tied, 24)}`;
  if (subtree.lazy) return subtree.total ? `≥ ${subtree.totalText}` : "not yet";
  return subtree.total ? subtree.totalText : "";
}

/** Words for signs, as a screen reader says them. */
const SPOKEN: Record<string, string> = { "⇄": "parameters tied to ", "≥": "at least ", "": "" };

/** What stands in the column of parameters; those who hear it hear the unit too, and no sign. */
function parametersCell(tree: TreePayload, place: Place): HTMLElement[] {
  const text = parametersText(tree, place);
  if (!text) return subtreeOf(tree, place) ? [unseen("no parameters")] : [];
  if (text === "not yet") return [unseen("parameters "), element("span", {}, text)];
  const sign = Object.keys(SPOKEN).find((one) => text.startsWith(one)) ?? "";
  return [
    unseen(SPOKEN[sign] ?? ""),
    element("span", { "aria-hidden": "true" }, sign && `${sign} `),
    element("span", {}, text.slice(sign.length).trim()),
    unseen(sign === "⇄" ? "" : " parameters"),
  ];
}

/** Whose parameters these are, when a module without children owns none first. */
function tiedTo(tree: TreePayload, subtree: Subtree, place: Place): string | null {
  const own = tensorsOf(tree, subtree).filter((entry) => entry.kind === "parameter");
  const [first] = own;
  if (subtree.runs.length || !first?.tied || own.some((entry) => !entry.tied)) return null;
  const parts = follow(first.tied, join(pathOf(tree, place), first.name)).split(".");
  return parts[parts.length - 2] ?? parts[parts.length - 1] ?? "";
}

function shareBar(tree: TreePayload, place: Place): HTMLElement | null {
  const subtree = subtreeOf(tree, place);
  const whole = tree.subtrees[tree.subtrees.length - 1]?.total ?? 0;
  if (place.kind !== "module" || !subtree || !whole) return null;
  const bar = element("i", { class: subtree.category });
  bar.style.width = subtree.total ? `max(1px, ${((100 * subtree.total) / whole).toFixed(2)}%)` : "0";
  return bar;
}

/** Whether a second line stands under a row: why it is hidden or left out, and the code that helps. */
export function hasReason(tree: TreePayload, place: Place | undefined): boolean {
  const ghost = place ? ghostOf(tree, place) : null;
  return ghost !== null && (ghost.reason !== "" || ghost.fix !== "" || ghost.advice !== "");
}

/** What is wrong and how to put it right, under the ghost it is about. */
function ghostLine(tree: TreePayload, place: Place): HTMLElement {
  const ghost = ghostOf(tree, place);
  const reason = ghost?.reason ?? "";
  return element(
    "span",
    { class: "reason" },
    indent(place.depth),
    words(reason && (ghost?.fix || ghost?.advice) ? `${reason}.` : reason),
    ghost?.fix || ghost?.advice ? element("span", {}, isNote(ghost) ? "All of it:" : "Fix:") : null,
    ghost?.advice ? words(ghost.advice) : null,
    ghost?.fix ? element("code", { "data-action": "fix", title: "copy (c)" }, words(ghost.fix)) : null,
  );
}

/** The code that gets the thing in this row. */
export function codeFor(tree: TreePayload, place: Place): string {
  const ghost = ghostOf(tree, place);
  if (ghost && isNote(ghost)) return ghost.fix || codeFor(tree, place.parent as Place);
  if (ghost) return ghost.fix || attribute(codeFor(tree, place.parent as Place), nameOf(tree, place));
  if (place.kind === "reserved") return attribute(codeFor(tree, place.parent as Place), nameOf(tree, place));
  return partAt(tree, "submodule", pathOf(tree, place));
}
