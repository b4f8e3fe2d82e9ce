/** Pause, one step, stop and the budget: flags in the kernel, set while the cell runs. */
import { button, element } from "../elements";
import { choice, options } from "./choice";
import type { Control, Moment, Part, WatchContext } from "./part";
import { isRunning } from "./data";

/** So long may an answer take, in milliseconds; then nobody hears while the cell runs. */
export const SOON = 500;
export const DEAF = "no click arrives while the cell runs: use ■ of the notebook";

const BUDGETS = [0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1];

export class Controls implements Part {
  readonly element: HTMLElement;
  /** What went wrong with a click, in a line of its own. */
  readonly note = element("p", { class: "control-note", role: "status", hidden: true });
  readonly #pause: HTMLButtonElement;
  readonly #step: HTMLButtonElement;
  readonly #budget: HTMLSelectElement;
  readonly #context: WatchContext;
  #paused = false;
  #waiting = 0;
  #steps = 0;

  constructor(context: WatchContext) {
    this.#context = context;
    this.#pause = button("", { class: "control" }, () => this.pause());
    this.#step = button("", { class: "control", title: "one step (.)" }, () => this.step());
    this.#step.append(glyph("▸|"), "step");
    const stop = button("", { class: "control", title: "end the watch; the next lines of the cell run" }, () => void this.#tell("stop"));
    stop.append(glyph("■"), "stop");
    this.#budget = choice("budget: the share of the loop's time that watching may take", (share) => void this.#tell("budget", { budget: Number(share) }));
    this.#budget.title = this.#budget.ariaLabel ?? "";
    this.element = element("span", { class: "controls", role: "group", "aria-label": "the training" }, this.#pause, this.#step, stop, element("label", { class: "budget" }, element("span", { class: "faint" }, "budget"), this.#budget));
    this.#showPause();
  }

  draw({ data: { payload } }: Moment): void {
    const running = isRunning(payload.state);
    this.element.hidden = !this.#context.control || !running;
    if (this.element.hidden) this.#say("");
    const { paused } = payload as { paused?: unknown };
    if (typeof paused === "boolean" && !this.#waiting) this.#setPaused(paused);
    this.#steps = payload.steps;
    this.#offer(payload.budget);
  }

  get active(): boolean {
    return !this.element.hidden;
  }

  pause(): void {
    const paused = !this.#paused;
    void this.#tell(paused ? "pause" : "resume", {}, this.#pause).then((done) => done && this.#setPaused(paused));
  }

  step(): void {
    void this.#tell("step", {}, this.#step).then((done) => done && this.#setPaused(true));
  }

  /** Whether the kernel took it, who is told what was seen when it was clicked; says so when it does not answer soon, and takes that back when it does after all. */
  async #tell(action: Control, more: Record<string, unknown> = {}, pressed?: HTMLElement): Promise<boolean> {
    const { control } = this.#context;
    if (!control) return false;
    pressed?.setAttribute("aria-busy", "true");
    this.#waiting += 1;
    const timer = setTimeout(() => this.#say(DEAF), SOON);
    try {
      await control(action, { ...more, steps: this.#steps });
      this.#say("");
      return true;
    } catch (error) {
      if (this.note.textContent !== DEAF) this.#say(error instanceof Error ? error.message : String(error));
      return false;
    } finally {
      clearTimeout(timer);
      this.#waiting -= 1;
      pressed?.removeAttribute("aria-busy");
    }
  }

  #say(text: string): void {
    this.note.textContent = text;
    this.note.hidden = !text;
  }

  #setPaused(paused: boolean): void {
    if (paused === this.#paused) return;
    this.#paused = paused;
    this.#showPause();
  }

  #showPause(): void {
    const [sign, word] = this.#paused ? ["▶", "resume"] : ["❚❚", "pause"];
    this.#pause.title = `${word} (p)`;
    this.#pause.replaceChildren(glyph(sign), word);
  }

  #offer(budget: number): void {
    const all = BUDGETS.includes(budget) || !budget ? BUDGETS : [...BUDGETS, budget].sort((a, b) => a - b);
    options(this.#budget, all.map((one) => [String(one), `${Number((one * 100).toPrecision(3))} %`]), this.#waiting ? this.#budget.value : String(budget));
  }
}

function glyph(sign: string): HTMLElement {
  return element("span", { class: "glyph", "aria-hidden": "true" }, sign);
}
