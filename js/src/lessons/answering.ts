/** Answering a question on its card: by a click, by keys, in a field, or by moving lines. */
import { button, element, OURS } from "../elements";

/** What an answer is, as JSON; null asks anew. */
export type Given = string | readonly string[] | null;

/** An option of a question: its letter, and the nodes that say what it is. */
interface Option {
  letter: string;
  line: HTMLElement;
}

/** Puts the controls that fit its question into an open card; `answer` is told what was chosen. */
export function open(card: HTMLElement, answer: (given: Given) => void): void {
  const kind = card.dataset.kind ?? "";
  const list = card.querySelector<HTMLUListElement>(":scope > ul");
  const options = list ? optionsOf(list) : [];
  card.querySelector(":scope > .modlab-foot")?.setAttribute("hidden", "");
  if (kind === "choice" && list) choose(list, options, answer);
  else if (kind === "several" && list) choose(list, options, answer, true);
  else if (kind === "order" && list) arrange(list, options, answer);
  else if (kind === "yesno") card.append(row(card, ["yes", "no"].map((word) => button(word, {}, () => answer(word)))));
  else card.append(field(card, answer));
}

/** The way back from an answer that was clicked. */
export function answered(card: HTMLElement, answer: (given: Given) => void): void {
  if (card.dataset.by !== "click") return;
  const words = card.dataset.label === "predict" ? "Change" : "Try again";
  card.append(row(card, [button(words, { class: "modlab-again" }, () => answer(null))]));
}

/** Leads to what a card says after an answer, or to its first control. */
export function focus(card: HTMLElement): void {
  const control = card.querySelector<HTMLElement>("button, input");
  const said = card.querySelector<HTMLElement>(".modlab-said");
  if (said && card.dataset.said) {
    said.tabIndex = -1;
    said.focus();
  } else control?.focus();
}

/** Says below a card why an answer could not be taken. */
export function say(card: HTMLElement, words: string): void {
  const place = card.querySelector(".modlab-trouble") ?? card.appendChild(element("p", { class: "modlab-trouble", role: "alert" }));
  place.textContent = words;
}

function optionsOf(list: HTMLUListElement): Option[] {
  return [...list.querySelectorAll<HTMLElement>(":scope > li")].map((line) => ({ letter: line.querySelector("code")?.textContent ?? "", line }));
}

/** A group of controls that says which question it answers. */
function row(card: HTMLElement, controls: readonly HTMLElement[]): HTMLElement {
  return element("div", { class: "modlab-answers", role: "group", "aria-label": `answer ${card.dataset.question ?? ""}` }, ...controls);
}

/** Each option is a button; of several ones each is pressed or not, and Enter or one more button answers. Its letter is its key. */
function choose(list: HTMLUListElement, options: readonly Option[], answer: (given: Given) => void, several = false): void {
  const chosen = new Set<string>();
  const go = (): void => answer([...chosen].sort());
  const buttons = options.map(({ letter, line }) => {
    const made = button("", { class: "modlab-option", "aria-pressed": several ? "false" : null }, () => {
      if (!several) return answer(letter);
      if (!chosen.delete(letter)) chosen.add(letter);
      made.setAttribute("aria-pressed", String(chosen.has(letter)));
    });
    made.append(...line.childNodes);
    made.querySelector(".modlab-sign")?.remove();
    line.replaceChildren(made);
    return made;
  });
  list.addEventListener("keydown", (event) => {
    const at = options.findIndex(({ letter }) => letter === event.key);
    const now = buttons.findIndex((one) => one === document.activeElement);
    const to = event.key === "ArrowDown" ? now + 1 : event.key === "ArrowUp" ? now - 1 : -1;
    if (several && event.key === "Enter") go();
    else if (at >= 0) buttons[at]?.click();
    else if (to >= 0) buttons[to]?.focus();
    else return;
    event.preventDefault();
  });
  list.classList.add("modlab-options");
  if (several) list.after(row(list.parentElement as HTMLElement, [button("Answer", { class: "modlab-go" }, go)]));
}

/** Lines that are moved up and down, by buttons or by the arrow keys, and a button that answers. */
function arrange(list: HTMLUListElement, options: readonly Option[], answer: (given: Given) => void): void {
  const moved = element("span", { class: "modlab-unseen", role: "status" });
  const move = (line: HTMLElement, by: number): void => {
    const lines = [...list.children];
    const to = lines.indexOf(line) + by;
    if (to < 0 || to >= lines.length) return;
    if (by < 0) list.insertBefore(line, lines[to] ?? null);
    else list.insertBefore(line, lines[to + 1] ?? null);
    moved.textContent = `${to + 1} of ${lines.length}`;
  };
  for (const { letter, line } of options) {
    const arrows = ([[-1, "↑", "up"], [1, "↓", "down"]] as const).map(([by, sign, word]) => {
      const made = button(sign, { class: "modlab-move", "aria-label": `move ${letter} ${word}` }, () => {
        move(line, by);
        made.focus();
      });
      return made;
    });
    line.querySelector(".modlab-sign")?.replaceWith(...arrows);
    line.addEventListener("keydown", (event) => {
      const by = event.key === "ArrowUp" ? -1 : event.key === "ArrowDown" ? 1 : 0;
      if (!by) return;
      event.preventDefault();
      const focused = document.activeElement as HTMLElement | null;
      move(line, by);
      focused?.focus();
    });
  }
  list.classList.add("modlab-order");
  const go = button("Answer", { class: "modlab-go" }, () => answer([...list.children].map((line) => line.querySelector("code")?.textContent ?? "")));
  list.after(row(list.parentElement as HTMLElement, [go, moved]));
}

/** A free answer. */
function field(card: HTMLElement, answer: (given: Given) => void): HTMLElement {
  const numeric = card.dataset.kind === "number";
  const input = element("input", { type: "text", inputmode: numeric ? "decimal" : null, autocomplete: "off", spellcheck: "false", "aria-label": `your answer: ${card.dataset.question ?? ""}`, ...OURS });
  const go = (): void => {
    const given = input.value.trim();
    if (given) answer(given);
    else say(card, "Write an answer first.");
  };
  input.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") event.stopPropagation();
    if (event.key !== "Enter") return;
    event.preventDefault();
    go();
  });
  return row(card, [input, button("Answer", { class: "modlab-go" }, go)]);
}
