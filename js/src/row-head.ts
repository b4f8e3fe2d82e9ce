/** What stands before the name of a row that has depth: guides, the sign that opens it, and what kind of thing it is. */
import { element, set } from "./elements";

const GUIDES = 12;

/** Hairline guides, one a level; very deep rows say their depth instead of moving out of sight. */
export function indent(depth: number): HTMLElement {
  const made = element("span", { class: "indent", "aria-hidden": "true" }, depth > GUIDES ? String(depth) : "");
  made.style.setProperty("--depth", String(depth));
  return made;
}

export function chevron(): HTMLElement {
  return element("span", { class: "chevron", "aria-hidden": "true" });
}

/** Shows in a row whether it is open; null: there is nothing to open. */
export function turn(row: HTMLElement, open: boolean | null): void {
  const sign = row.querySelector<HTMLElement>(".chevron");
  const text = open === null ? "" : open ? "▾" : "▸";
  if (!sign || sign.textContent === text) return;
  sign.textContent = text;
  set(sign, { "data-action": text && "toggle" });
}

/** A category of modules, or another kind of thing; the shape says it, the colour too. */
export function symbol(kind: string): HTMLElement {
  return element("i", { class: `kind ${kind.slice(0, 20)}` });
}
