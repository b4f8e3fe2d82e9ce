/** DOM from data. Every string becomes a text node: nothing a user wrote is ever parsed as HTML. */
import { cut, legible } from "./names";

type Child = Node | string | null | undefined | false;
type Attributes = Record<string, string | number | boolean | null | undefined>;

/** `element("td", { class: "name" }, "weight")`; an attribute that is null or false is left out. */
export function element<K extends keyof HTMLElementTagNameMap>(tag: K, attributes: Attributes = {}, ...children: Child[]): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  set(made, attributes);
  append(made, children);
  return made;
}

const SVG = "http://www.w3.org/2000/svg";

export function svg(tag: string, attributes: Attributes = {}, ...children: Child[]): SVGElement {
  const made = document.createElementNS(SVG, tag);
  set(made, attributes);
  append(made, children);
  return made;
}

export function set(target: Element, attributes: Attributes): void {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) target.removeAttribute(name);
    else target.setAttribute(name, value === true ? "" : String(value));
  }
}

function append(to: Element, children: readonly Child[]): void {
  for (const child of children) if (child) to.append(child);
}

/** What a user wrote, in a box of its own: cut, unseen characters made visible, its direction kept inside. */
export function words(text: string, className = "", limit = 300): HTMLElement {
  const full = legible(text);
  const short = cut(full, limit);
  return element("bdi", { class: className || null, dir: "ltr", title: short === full ? null : full.slice(0, 2000) }, short);
}

/** The same for text that may fill several lines: long names break behind a dot, a slash or an underscore, numbers nowhere, nor before their "%". */
export function lines(text: string, className = "", limit = 600): HTMLElement {
  const made = words(text, className, limit);
  const parts = (made.textContent ?? "").split(/(?<=[\w)\]][./_])(?=[a-z_])|([\d.]+ %)/i);
  made.replaceChildren(...parts.map((part, index) => (index % 2 ? (part ? element("span", { class: "share" }, part) : document.createElement("wbr")) : part)));
  return made;
}

/** Text of a table, which breaks between words and not inside a number. */
export function apart(text: string): HTMLElement {
  const made = words(text, "apart");
  const parts = (made.textContent ?? "").split(" ");
  made.replaceChildren(...parts.flatMap((part, index) => [index ? " " : "", element("span", {}, part)]));
  return made;
}

/** A name in one line: where it has no room its end stays, for neighbours often begin alike. */
export function named(text: string): HTMLElement {
  const made = words(text);
  return element("span", { class: "name ending", title: made.title ? null : made.textContent }, made);
}

/** Words for those who hear a view: what the eye takes from a sign, a colour or the head of a column. */
export function unseen(text: string): HTMLElement {
  return element("span", { class: "unseen" }, text);
}

/** A button whose keys stay in the view. */
export function button(text: string, attributes: Attributes, pressed: () => void): HTMLButtonElement {
  const made = element("button", { type: "button", ...OURS, ...attributes }, text);
  made.addEventListener("click", pressed);
  return made;
}

/** JupyterLab leaves the keys of an element alone that carries this. */
export const OURS = { "data-lm-suppress-shortcuts": "true" } as const;
