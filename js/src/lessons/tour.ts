/** The tour as a page without a kernel: a reader answers, or passes on, and then sees what came of it. */
import { button, element } from "../elements";
import { focus, type Given, open, say } from "./answering";
import style from "./answering.css";

/** An answer, and the HTML of two cards: the one that asked, and the one that settles it. */
type Said = readonly [given: string, asked: string, settled: string];

/** A question and its usual answers; the last one stands for all others, with BLANK for what was said. */
export interface TourQuestion {
  readonly form: string;
  readonly answers: readonly Said[];
}

const BLANK = "\u2047";
const NOTE = { class: "note" };

/** Asks the questions of a page, whose parts are one below the other. Without this script all of it can be read. */
export function tour(main: HTMLElement, questions: Readonly<Record<string, TourQuestion>>): void {
  const curtains: Curtain[] = [];
  let curtain: Curtain | null = null;
  for (const part of [...main.children] as HTMLElement[]) {
    const card = part.querySelector<HTMLElement>(".modlab-card[data-question]");
    const question = questions[card?.dataset.question ?? ""];
    if (part.tagName === "H2") curtain = null;
    if (!card || !question || card.dataset.label === "see") {
      curtain?.take(part);
    } else if (card.dataset.label === "predict") {
      if (!curtain || curtain.isDrawn) curtains.push((curtain = new Curtain()));
      curtain.ask(part, card, question);
    } else {
      ask(card, question, ([, , settled]) => focus(put(card, settled)));
    }
  }
  const all = button("Show everything", { class: "modlab-again" }, () => {
    for (const one of curtains) one.open();
    line.remove();
  });
  const line = element("p", NOTE, "Each question hides its result until you answer it. ", all);
  main.prepend(element("style", {}, style), line);
}

/** What follows some questions, up to the next heading or question: out of sight until all of them are answered. */
class Curtain {
  readonly #parts: HTMLElement[] = [];
  readonly #settled = new Map<string, string>();
  readonly #line = element("p", NOTE, "Answer to see what this gives, or ", button("show it now", { class: "modlab-again" }, () => this.#lookBehind()), ".");
  #asked = 0;
  #last: HTMLElement | null = null;

  get isDrawn(): boolean {
    return this.#parts.length > 0;
  }

  ask(part: HTMLElement, card: HTMLElement, question: TourQuestion): void {
    this.#asked += 1;
    this.#last = part;
    ask(card, question, ([, asked, settled]) => {
      this.#settled.set(card.dataset.question ?? "", settled);
      focus(put(card, asked));
      if (this.#settled.size === this.#asked) this.#lookBehind();
    });
  }

  /** The code that is to run stays in sight. */
  take(part: HTMLElement): void {
    if (!this.isDrawn && part.matches("pre.code")) {
      this.#last = part;
      return;
    }
    if (!this.isDrawn) this.#last?.after(this.#line);
    this.#parts.push(part);
    part.hidden = true;
  }

  /** Shows all parts; returns the cards that settle the questions. */
  open(): HTMLElement[] {
    this.#line.remove();
    for (const part of this.#parts) part.hidden = false;
    const cards = this.#parts.flatMap((part) => [...part.querySelectorAll<HTMLElement>('.modlab-card[data-label="see"]')]);
    return cards.map((card) => put(card, this.#settled.get(card.dataset.question ?? "") ?? ""));
  }

  #lookBehind(): void {
    const [first] = this.open();
    if (first) focus(first);
  }
}

function ask(card: HTMLElement, question: TourQuestion, answer: (said: Said) => void): void {
  open(card, (given) => {
    const said = meant(question, card.dataset.kind === "number", given);
    if (said) answer(said);
    else say(card, `That is not a valid answer: write ${question.form}.`);
  });
}

/** What there is to say about an answer; null where it is not a number and should be. */
export function meant({ answers }: TourQuestion, numeric: boolean, given: Given): Said | null {
  const text = String(given).trim();
  const number = Number(text.replace(/,(?=\d{3}\b)/g, ""));
  if (numeric && !Number.isFinite(number)) return null;
  const known = answers.find(([one]) => one === text || (numeric && Number(one) === number));
  const [, asked, settled] = answers[answers.length - 1] as Said;
  const shown = numeric ? number.toLocaleString("en") : text;
  return known ?? [text, asked.replaceAll(BLANK, shown), settled.replaceAll(BLANK, shown)];
}

/** A card in the place of another one. */
function put(card: HTMLElement, html: string): HTMLElement {
  const made = new DOMParser().parseFromString(html, "text/html").querySelector<HTMLElement>(".modlab-card");
  if (!made) return card;
  const placed = document.importNode(made, true);
  card.replaceWith(placed);
  return placed;
}
