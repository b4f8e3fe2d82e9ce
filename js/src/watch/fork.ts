/** A fork: a part of the training run again with another rate or setting, asked for here, and drawn beside the original as it grows. */
import { button, element, lines, OURS, words } from "../elements";
import { choice, options } from "./choice";
import { SOON } from "./controls";
import { extentOf } from "./curve";
import { isRunning, slotAt, type Fork, type Kept, type State } from "./data";
import { figure, scaleFor, steps } from "./figures";
import type { Entered, Hooks, Moment, Part, WatchContext } from "./part";
import { hairline } from "./pen";
import { refill } from "./refill";
import { drawScale, MARGIN, put, Strip } from "./strip";
import { hatchSlots, ticksOf, xOf } from "./time-axis";
import { clipped, placed, Trace } from "./trace";

const HEIGHT = 132;
/** Below the curves: the steps. */
const AXIS = 18;

/** What a person writes for a number. */
const NUMBER = /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i;

/** A field for a number: filled in with what holds, until one has written something else. */
class NumberField {
  readonly input: HTMLInputElement;
  readonly element: HTMLElement;
  #own = false;
  #holds: number | null = null;

  /** `keep` is told what one has written, or "". */
  constructor(label: string, described: string, entered: () => void, keep: (text: string) => void) {
    this.input = element("input", { type: "text", inputmode: "decimal", size: 8, autocomplete: "off", spellcheck: "false", "aria-describedby": described, ...OURS });
    this.element = element("label", { class: "field" }, element("span", { class: "faint" }, label), this.input);
    this.input.addEventListener("input", () => {
      this.#own = this.input.value.trim() !== "";
      keep(this.#own ? this.input.value : "");
      this.input.removeAttribute("aria-invalid");
    });
    this.input.addEventListener("change", () => this.fill(this.#holds));
    this.input.addEventListener("keydown", (event) => event.key === "Enter" && entered());
  }

  /** What holds at the step that is chosen. */
  fill(value: number | null): void {
    this.#holds = value;
    const text = value === null ? "" : String(value);
    if (!this.#own && this.input.value !== text) this.input.value = text;
  }

  /** As if one had written it; "": what holds. */
  enter(text = ""): void {
    this.#own = text !== "";
    if (text) this.input.value = text;
  }

  /** The number, null where it is what holds; a sentence where it is none. */
  read(what: string): number | null | string {
    const text = this.input.value.trim().replace(/^−/, "-").replace(",", ".");
    if (!this.#own) return null;
    const value = Number(text);
    const wrong = !NUMBER.test(text) || !Number.isFinite(value) ? `${what} must be a number, such as 0.001.` : value < 0 ? `${what} must not be negative.` : "";
    if (!wrong) return value === this.#holds ? null : value;
    this.input.setAttribute("aria-invalid", "true");
    this.input.focus();
    return wrong;
  }
}

let made = 0;

export class ForkPart implements Part {
  readonly element: HTMLElement;
  readonly #context: WatchContext;
  readonly #form: HTMLElement;
  readonly #slider: HTMLInputElement;
  readonly #at = element("output", { class: "at" });
  readonly #rate: NumberField;
  readonly #setting: HTMLSelectElement;
  readonly #value: NumberField;
  readonly #go: HTMLButtonElement;
  readonly #hint = element("span", { class: "faint hint" });
  readonly #note = element("p", { class: "fork-note", role: "alert", hidden: true });
  readonly #outcome = element("div", { class: "outcomes" });
  readonly #strip: Strip;
  readonly #traces = [new Trace(), new Trace()] as const;
  #kept: Kept | null = null;
  #entered: Entered = {};
  /** Which fork is drawn; -1: the last. */
  #shown = -1;
  /** Asked for, and not yet seen. */
  #asked = false;
  #running = false;
  #last = "null";
  #refused = "";
  #moment: Moment | null = null;

  constructor(context: WatchContext, hooks: Hooks) {
    this.#context = context;
    const id = `fork-note-${(made += 1)}`;
    this.#note.id = id;
    this.#slider = element("input", { type: "range", min: 0, max: 0, step: 1, ...OURS });
    this.#slider.addEventListener("input", () => this.#choose());
    this.#rate = new NumberField("learning rate", id, () => this.#begin(), (text) => (this.#entered.rate = text));
    this.#setting = choice("setting of a module", () => this.#chooseSetting());
    this.#value = new NumberField("=", id, () => this.#begin(), (text) => (this.#entered.value = text));
    this.#value.input.ariaLabel = "its value";
    this.#go = button("Fork", { class: "control go" }, () => (this.#busy ? void this.#ask("cancel", {}) : this.#begin()));
    this.#form = element(
      "div",
      { class: "fork-form", role: "group", "aria-label": "a fork" },
      element("label", { class: "field from" }, element("span", { class: "faint" }, "from"), this.#slider, this.#at),
      this.#rate.element,
      element("span", { class: "field" }, element("label", { class: "field" }, element("span", { class: "faint" }, "setting"), this.#setting), this.#value.element),
      this.#go,
    );
    this.#strip = new Strip(context, { ...hooks, onZoom: () => {} }, HEIGHT, "fork-strip");
    this.element = element(
      "section",
      { class: "fork", role: "group", "aria-label": "forks", hidden: true },
      element("div", { class: "bar" }, element("span", { class: "caption" }, "fork"), this.#hint),
      this.#form,
      this.#note,
      this.#strip.element,
      this.#outcome,
    );
  }

  draw(moment: Moment): void {
    this.#moment = moment;
    const { payload } = moment.data;
    const { forks } = payload;
    this.#kept = this.#context.control ? payload.kept : null;
    this.element.hidden = !this.#kept && !forks.length;
    if (this.element.hidden) return;
    this.#restore(this.#context.entered);
    const last = forks.at(-1);
    this.#follow(last, payload.refused);
    this.#form.hidden = this.#hint.hidden = !this.#kept;
    if (this.#kept) this.#offer(this.#kept, payload.state, Boolean((payload as { paused?: unknown }).paused));
    this.#tell(forks);
    this.#paint(moment);
  }

  // ---- what can be asked

  /** What was entered in the view that was here before. */
  #restore(entered: Entered = this.#entered): void {
    if (entered === this.#entered) return;
    this.#entered = entered;
    this.#rate.enter(entered.rate);
    this.#value.enter(entered.value);
  }

  get #place(): number {
    const known = this.#kept?.steps ?? [];
    const { at } = this.#entered;
    return at === undefined ? known.length - 1 : slotAt(known, at);
  }

  #offer(kept: Kept, state: State, paused: boolean): void {
    const place = this.#place;
    const from = kept.steps[place] as number;
    const step = `step ${steps(from)}`;
    const { at = from } = this.#entered;
    if (at !== from) {
      this.#say(`Step ${steps(at)} is no longer kept: the fork begins at ${step}.`);
      this.#pin(from);
    }
    this.#slider.max = String(kept.steps.length - 1);
    this.#slider.value = String(place);
    this.#slider.setAttribute("aria-valuetext", step);
    put(this.#at, step);
    this.#rate.fill(kept.rates[place] ?? null);
    const setting = kept.settings.find(({ name }) => name === this.#entered.setting);
    options(this.#setting, [["", "none"], ...kept.settings.map(({ name, kind }) => [name, `${name} (${kind})`] as const)], setting?.name ?? "");
    this.#setting.disabled = !kept.settings.length;
    this.#value.element.hidden = !setting;
    this.#value.fill(setting?.values[place] ?? null);
    this.#go.title = this.#running ? "make no more steps; those that were made stay" : `run on from ${step}, with what is set here`;
    put(this.#go, this.#running ? "Cancel" : "Fork");
    const running = isRunning(state);
    const where = !running ? "runs while the kernel runs no cell" : paused ? "runs while the training is paused" : "runs between the training's steps, which take longer meanwhile";
    put(this.#hint, `${where}; the training itself is not changed${kept.groups > 1 ? "; the rate holds for all groups of parameters" : ""}`);
  }

  #choose(): void {
    const place = Number(this.#slider.value);
    const known = this.#kept?.steps ?? [];
    this.#pin(place < known.length - 1 ? known[place] : undefined);
    this.#say("");
    if (this.#moment) this.draw(this.#moment);
  }

  /** What one has chosen stays: of a long training fewer and fewer steps are kept. Without a step, it is the newest one. */
  #pin(at: number | undefined): void {
    this.#entered.at = at;
    void this.#context.control?.("pin", { at }).catch(() => {});    // what is wrong there is told by "fork"
  }

  #chooseSetting(): void {
    this.#entered.setting = this.#setting.value;
    this.#entered.value = "";
    this.#value.enter();
    if (this.#moment) this.draw(this.#moment);
  }

  get #busy(): boolean {
    return this.#running || this.#asked;
  }

  /** From the button, or by Enter in a field. */
  #begin(): void {
    const kept = this.#kept;
    if (!kept) return;
    if (this.#busy) return this.#say("A fork runs already.");
    const lr = this.#rate.read("The learning rate");
    const setting = this.#value.element.hidden ? "" : this.#setting.value;
    const value = setting ? this.#value.read(setting) : null;
    const wrong = [lr, value].find((one) => typeof one === "string");
    if (typeof wrong === "string") return this.#say(wrong);
    this.#shown = -1;
    this.#asked = true;
    void this.#ask("fork", { at: kept.steps[this.#place], lr, setting: value === null ? "" : setting, value });
  }

  async #ask(action: "fork" | "cancel", more: Record<string, unknown>): Promise<void> {
    const { control } = this.#context;
    if (!control) return;
    this.#refused = "";
    this.#say("");
    this.#go.setAttribute("aria-busy", "true");
    const timer = setTimeout(() => this.#say("Waiting for the kernel …"), SOON);
    try {
      await control(action, more);
      this.#say("");
    } catch (error) {
      this.#asked = false;
      this.#say(error instanceof Error ? error.message : String(error));
    } finally {
      clearTimeout(timer);
      this.#go.removeAttribute("aria-busy");
    }
  }

  /** What has become of the one that was asked for. */
  #follow(last: Fork | undefined, refused: string): void {
    const [now, awaited] = [JSON.stringify(last ?? null), this.#busy];
    this.#running = Boolean(last?.running);
    if (awaited && now !== this.#last) {
      this.#asked = false;
      if (last && !last.running) this.#context.announce(last.headline.join(" "));
    }
    this.#last = now;
    if (refused && refused !== this.#refused) {
      this.#asked = false;
      this.#say(refused);
    }
    this.#refused = refused;
  }

  #say(text: string): void {
    this.#note.replaceChildren(...text.split("\n").flatMap((line, at) => [at ? element("br") : "", lines(line)]));
    this.#note.hidden = !text;
  }

  // ---- what came of it

  #tell(forks: readonly Fork[]): void {
    const shown = this.#index(forks);
    refill(this.#outcome, forks.map((fork, index) => this.#row(fork, index, index === shown, forks.length > 1)).reverse());
  }

  #index(forks: readonly Fork[]): number {
    return this.#shown >= 0 && this.#shown < forks.length ? this.#shown : forks.length - 1;
  }

  #row(fork: Fork, index: number, shown: boolean, several: boolean): HTMLElement {
    const [strong, rest] = fork.headline;
    const sentence = [element("b", {}, words(strong)), " ", lines(rest, "soft", 400)];
    const press = (): void => {
      this.#shown = index;
      if (this.#moment) this.draw(this.#moment);
    };
    const row = several ? button("", { class: "plain outcome", "aria-pressed": String(shown), title: "show its curves" }, press) : element("p", { class: "outcome" });
    row.append(...sentence);
    const notes = shown ? fork.notes.map((note) => element("p", { class: "fork-more" }, lines(note))) : [];
    return element("div", { "data-key": index }, row, ...notes);
  }

  #paint(moment: Moment): void {
    const { data } = moment;
    const { forks } = data.payload;
    const index = this.#index(forks);
    const fork = forks[index];
    const strip = this.#strip;
    strip.element.hidden = !fork || fork.end <= fork.began;
    if (!fork || strip.element.hidden) return;
    const [original, changed] = [data.fork(index, "original"), data.fork(index, "fork")];
    const own: Moment = { ...moment, from: fork.began, to: Math.max(fork.began + 1, fork.running ? fork.until : fork.end) };
    const seen = moment.seen >= fork.began && moment.seen < fork.end ? moment.seen : fork.end - 1;
    const slot = slotAt(changed.first, seen);
    const [first, last] = [changed.first[slot], changed.last[slot]] as [number, number];
    const [what, when] = first < last ? ["mean of steps", `${steps(first)} – ${steps(last)}`] : ["at step", steps(seen)];
    const name = fork.changed ? "fork" : "unchanged";
    strip.title("loss", "", `of step ${steps(fork.began)} and the steps behind it`);
    strip.figures(
      [["original", figure(original.mid(slot)), "line-original"], [name, figure(changed.mid(slot)), "line-fork"], [what as string, when as string, "then"]],
      `the loss as it was and in the fork, ${fork.changed || "unchanged"}, steps ${steps(fork.began)} to ${steps(fork.end - 1)}`,
    );
    const drawing = strip.begin(own);
    if (!drawing) return;
    const { pen, palette, plot } = drawing;
    const [one, other] = [extentOf(original, own), extentOf(changed, own)];
    const scale = scaleFor(Math.min(one.low, other.low), Math.max(one.high, other.high), Math.min(one.least, other.least), 0, 25);
    const bottom = HEIGHT - AXIS;
    drawScale(drawing, scale, MARGIN, bottom);
    const y = placed(scale, MARGIN, bottom);
    clipped(drawing, plot, () => {
      const pair = [[original, palette.faint, 3], [changed, palette.careful, 1.6]] as const;
      pair.forEach(([reading, colour, width], at) => {
        const trace = this.#traces[at as 0 | 1];
        trace.gather(reading, own, plot);
        pen.fillStyle = pen.strokeStyle = colour;
        pen.lineWidth = width;
        pen.globalAlpha = 0.2;
        trace.band(pen, "low", "high", y);
        pen.globalAlpha = 1;
        trace.line(pen, y);
      });
      pen.globalAlpha = 0.35;
      hatchSlots(drawing, own, plot, changed, (at) => !Number.isFinite(changed.mid(at)), 0, bottom);
      pen.globalAlpha = 1;
    });
    pen.fillStyle = palette.quiet;
    pen.textAlign = "center";
    for (const tick of ticksOf(own, plot)) {
      const x = xOf(own, tick, plot);
      hairline(drawing, x, bottom + 2, x, bottom + 6, palette.faint);
      pen.fillText(steps(tick), Math.min(x, plot.left + plot.width - 12), HEIGHT - 5);
    }
    if (fork.changed) {
      const x = xOf(own, fork.at, plot);
      pen.setLineDash([2, 3]);
      hairline(drawing, x, 0, x, bottom, palette.soft);
      pen.setLineDash([]);
    }
    pen.textAlign = "left";
    strip.end(drawing, own);
  }
}
