/** The search line above a tree or a table: words, chips for the common questions, and what was found. */
import { button, element, OURS } from "../elements";

export interface SearchBox {
  element: HTMLElement;
  text(): string;
  flags(): string[];
  clear(): void;
  focus(): void;
  /** What stands at the right: "163 modules, 12 rows". */
  say(text: string): void;
}

interface Needs {
  label: string;
  placeholder: string;
  chips: readonly string[];
  changed(): void;
  /** Esc (`go` false) or Enter and ↓ (`go` true) in the box. */
  leave(go: boolean): void;
  extra?: HTMLElement;
}

export function searchBox({ label, placeholder, chips, changed, leave, extra }: Needs): SearchBox {
  const input = element("input", { type: "search", placeholder, "aria-label": label, spellcheck: "false", autocomplete: "off", ...OURS });
  const pills = chips.map((flag) => chip(flag, changed));
  const count = element("span", { class: "count" });
  input.addEventListener("input", changed);
  input.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" && event.key !== "Enter" && event.key !== "ArrowDown") return;
    event.preventDefault();
    leave(event.key !== "Escape");
  });
  return {
    element: element("div", { class: "search" }, input, ...pills, extra, count),
    text: () => input.value,
    flags: () => pills.filter((pill) => pill.getAttribute("aria-pressed") === "true").map((pill) => pill.textContent ?? ""),
    clear: () => {
      input.value = "";
      for (const pill of pills) pill.setAttribute("aria-pressed", "false");
    },
    focus: () => {
      input.focus();
      input.select();
    },
    say: (text) => {
      count.textContent = text;
    },
  };
}

export function chip(text: string, changed: () => void): HTMLButtonElement {
  const made = button(text, { class: "chip", "aria-pressed": "false" }, () => {
    made.setAttribute("aria-pressed", String(made.getAttribute("aria-pressed") !== "true"));
    changed();
  });
  return made;
}
