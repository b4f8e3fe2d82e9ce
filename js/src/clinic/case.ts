/** One case: what is wrong, the looks, the causes, and how it ends. */
import { copy } from "../clipboard";
import { element } from "../elements";
import { drawn } from "./blocks";
import type { Case, Cause, Look } from "./data";
import { count, counted, isClosed, isRight, type Ledger, type Progress, result, shared } from "./progress";

export interface Surroundings {
  ledger: Ledger;
  /** How many cases there are. */
  cases: number;
  /** Where this page is, for a line to send. */
  place: string;
  /** Tells those who hear the page. */
  tell(text: string): void;
  /** Something was done. */
  changed(): void;
  /** Open a case anew; its first end goes on counting. */
  restart(number: number): void;
}

/** The case as it stands; `anew` draws it again. */
export class CaseView {
  readonly root = element("article", { class: "case", "aria-labelledby": "case-title" });
  readonly #looks = element("div", { class: "opened" });
  readonly #causes = element("ul", { class: "causes" });
  readonly #end = element("section", { class: "end", hidden: true, tabindex: -1, "aria-label": "how it ended" });
  readonly #spent = element("p", { class: "says" });
  readonly #buying = element("h3", { tabindex: -1 }, "Buy a look");
  readonly #naming = element("h3", { tabindex: -1 }, "Name the cause");
  readonly #progress: Progress;

  constructor(
    private readonly one: Case,
    private readonly around: Surroundings,
  ) {
    this.#progress = around.ledger.of(one.number);
    this.root.append(this.#head(), this.#desk());
    for (const id of this.#progress.looks) this.#open(id);
    this.#settle();
  }

  #head(): HTMLElement {
    const { number, kind, task, complaint } = this.one;
    return element(
      "header",
      {},
      element("h2", { id: "case-title", tabindex: -1 }, `Case ${number}`, element("span", { class: "kind" }, ` · ${kind}`)),
      element("p", {}, task),
      element("p", { class: "complaint" }, complaint),
    );
  }

  #desk(): HTMLElement {
    const buttons = this.one.looks.map((look) => element("li", {}, this.#buyer(look)));
    const left = element(
      "section",
      { class: "looking", "aria-label": "looks" },
      this.#way("Skip to the causes", this.#naming, "skip"),
      this.#buying,
      element("ul", { class: "looks" }, ...buttons),
      this.#spent,
      this.#looks,
      element("p", { class: "way" }, this.#way("Name the cause", this.#naming)),
    );
    const giveUp = element("button", { type: "button", class: "plain give-up" }, "Show the answer");
    giveUp.addEventListener("click", () => this.#giveUp());
    const back = element("p", { class: "way" }, this.#way("Back to the looks", this.#buying));
    const right = element("section", { class: "naming", "aria-label": "causes" }, this.#naming, back, this.#causes, giveUp, this.#end);
    this.one.causes.forEach((cause, index) => this.#causes.append(this.#row(cause, index)));
    return element("div", { class: "desk" }, left, right);
  }

  /** A link to a heading of the case; the address stays. */
  #way(says: string, to: HTMLElement, kind: string | null = null): HTMLElement {
    const link = element("a", { class: kind, href: `#case-${this.one.number}` }, says);
    link.addEventListener("click", (event) => {
      event.preventDefault();
      to.focus({ preventScroll: true });
      to.scrollIntoView?.({ block: "start" });
    });
    return link;
  }

  // ---- looks

  #buyer(look: Look): HTMLElement {
    const made = element("button", { type: "button", class: "look", "data-look": look.id }, element("b", {}, look.title), element("span", {}, look.hint));
    made.addEventListener("click", () => this.#buy(look));
    return made;
  }

  #buy(look: Look): void {
    const { looks } = this.#progress;
    if (!looks.includes(look.id)) {
      if (!isClosed(this.one, this.#progress)) looks.push(look.id);
      this.#open(look.id);
      this.#changed();
      this.around.tell(`${look.title}: ${count(looks.length, "look")} bought.`);
    }
    const opened = this.#looks.querySelector<HTMLElement>(`[data-opened="${look.id}"] h4`);
    opened?.focus({ preventScroll: true });
    opened?.scrollIntoView?.({ block: "nearest" });
  }

  #open(id: string): void {
    const look = this.one.looks.find((known) => known.id === id);
    if (!look || this.#looks.querySelector(`[data-opened="${id}"]`)) return;
    this.#looks.prepend(element("section", { "data-opened": id }, this.#titled(look), ...look.blocks.map((block) => drawn(block, look.title))));
    this.#button(id)?.setAttribute("aria-pressed", "true");
  }

  /** From what was opened Tab goes on to the next look, and back to its own. */
  #titled(look: Look): HTMLElement {
    const { looks } = this.one;
    const title = element("h4", { tabindex: -1 }, look.title);
    title.addEventListener("keydown", (event) => {
      const to = looks[looks.indexOf(look) + (event.shiftKey ? 0 : 1)];
      if (event.key !== "Tab" || !to) return;
      this.#button(to.id)?.focus();
      event.preventDefault();
    });
    return title;
  }

  #button(id: string): HTMLElement | null {
    return this.root.querySelector<HTMLElement>(`[data-look="${id}"]`);
  }

  // ---- causes

  #row(cause: Cause, index: number): HTMLElement {
    const pick = element("button", { type: "button", class: "cause" }, cause.says);
    pick.addEventListener("click", () => this.#name(index));
    return element("li", { "data-cause": index }, pick);
  }

  #name(index: number): void {
    const cause = this.one.causes[index];
    if (!cause) return;
    if (isClosed(this.one, this.#progress)) {
      this.#answer(cause, index);
      this.around.tell(cause.why);
    } else if (!this.#progress.named.includes(index)) {
      this.#progress.named.push(index);
      this.#changed();
      this.around.tell(cause.right ? `Right. ${cause.why}` : `No. ${cause.why}`);
      if (cause.right) return this.#showEnd();
    }
    // whether smoothly is for the page's style to say, which asks how much motion one wants
    this.#causes.querySelector(`[data-cause="${index}"]`)?.scrollIntoView?.({ block: "nearest" });
  }

  #giveUp(): void {
    this.#progress.shown = true;
    this.#changed();
    const { says, why } = this.#right;
    this.around.tell(`The answer: ${says}. ${why}`);
    this.#showEnd();
  }

  /** Its beginning, where it is higher than the window. */
  #showEnd(): void {
    this.#end.focus({ preventScroll: true });
    this.#end.scrollIntoView?.({ block: this.#end.offsetHeight > innerHeight - 80 ? "start" : "nearest" });
  }

  get #right(): Cause {
    return this.one.causes.find((cause) => cause.right)!;
  }

  #changed(): void {
    this.around.ledger.keep();
    this.#settle();
    this.around.changed();
  }

  /** Everything that follows from what was done. */
  #settle(): void {
    const { looks, named } = this.#progress;
    const closed = isClosed(this.one, this.#progress);
    const bought = looks.length ? `${count(looks.length, "look")} bought. The newest is on top.` : "Each look counts. How few do you need?";
    this.#spent.textContent = closed ? `${count(looks.length, "look")} bought. From now on they are free.` : bought;
    this.one.causes.forEach((cause, index) => {
      if (named.includes(index) || (closed && cause.right)) this.#answer(cause, index);
    });
    this.root.querySelector<HTMLElement>(".give-up")!.hidden = closed;
    this.root.classList.toggle("closed", closed);
    if (closed && this.#end.hidden) this.#close();
  }

  #answer(cause: Cause, index: number): void {
    const row = this.#causes.querySelector<HTMLElement>(`[data-cause="${index}"]`);
    if (!row || row.querySelector("p")) return;
    row.classList.add(cause.right ? "right" : "wrong");
    row.querySelector("button")?.setAttribute("aria-disabled", "true");
    row.append(element("p", {}, element("b", {}, cause.right ? "✓ This is it. " : "✕ No. "), cause.why));
  }

  #close(): void {
    const { one, around } = this;
    const { first } = this.#progress;
    const right = isRight(one, this.#progress);
    const shown = one.looks.filter((look) => one.shown.includes(look.id)).map((look) => look.title);
    const line = shared(one, this.#progress, around.place);
    const copier = element("button", { type: "button" }, "Copy");
    copier.addEventListener("click", () => void this.#copy(line));
    const again = element("button", { type: "button", class: "plain" }, "Start this case again");
    again.addEventListener("click", () => around.restart(one.number));
    const parts = [
      element("h3", {}, right ? `Solved: ${result(one, this.#progress)}` : "The answer"),
      first ? element("p", { class: "says" }, `The first time counts: ${result(one, first)}.`) : null,
      element("p", { class: "named" }, element("b", {}, "The cause: "), `${this.#right.says}.`),
      element("p", {}, `It can be seen in ${count(shown.length, "look")}: ${shown.join(" and ")}. Press another cause to see why it is not that one.`),
      element("p", {}, element("b", {}, "modlab: "), `${one.modlab.grade}${one.modlab.named ? ` (${one.modlab.named})` : ""}.`),
      element("blockquote", {}, ...one.modlab.says.flatMap(quoted)),
      isRight(one, counted(this.#progress)) ? element("p", { class: "share" }, element("code", {}, line), " ", copier) : null,
      one.number < around.cases ? element("a", { class: "next", href: `#case-${one.number + 1}` }, `Case ${one.number + 1}`) : null,
      again,
    ];
    for (const part of parts) if (part) this.#end.append(part);
    this.#end.hidden = false;
  }

  async #copy(line: string): Promise<void> {
    this.around.tell((await copy(line, document)) ? "Copied." : "It cannot be copied here: mark the line and copy it with your keys.");
  }
}

/** What modlab says, and behind it what it tells as a list. */
function quoted([who, what, parts]: Case["modlab"]["says"][number]): HTMLElement[] {
  const said = element("p", {}, element("b", {}, `${who}: `), what);
  return parts.length ? [said, element("ul", {}, ...parts.map((part) => element("li", {}, part)))] : [said];
}
