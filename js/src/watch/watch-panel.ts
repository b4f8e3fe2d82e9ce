/** The view of a watch: the verdict first, then every plot on one axis of steps; one selection, one cursor. */
import { PAINT } from "../context";
import { button, element, lines } from "../elements";
import { copyButton } from "../frame";
import { hear, tell } from "../selection";
import { AlertsPart } from "./alerts";
import { BinsMap } from "./bins-map";
import { Controls } from "./controls";
import { MovementCurves, ScalarCurves, SeriesCurve } from "./curve";
import { isRunning, ROLES, type Alert, type Role, type Series, type WatchData } from "./data";
import { DepthMap, sameIn } from "./depth-map";
import { ForkPart } from "./fork";
import { GradientFlow } from "./gradient-flow";
import { Neurons } from "./neurons";
import type { Hooks, Moment, Part, WatchContext } from "./part";
import { roomFor, TimeAxis, zoomed } from "./time-axis";
import { play, silence } from "./tones";
import { VerdictPart } from "./verdict";

export class WatchPanel {
  readonly elements: readonly HTMLElement[];
  readonly #data: WatchData;
  readonly #context: WatchContext;
  readonly #parts: readonly Part[];
  readonly #map: DepthMap;
  readonly #axis: TimeAxis;
  readonly #controls: Controls;
  readonly #headline = element("span", { class: "headline" });
  readonly #error = element("p", { class: "failure broken", hidden: true });
  readonly #remarks = element("ul", { class: "remarks" });
  readonly #status = element("bdi");
  readonly #follow: HTMLButtonElement;
  readonly #body: HTMLElement;
  #step = 0;
  /** The step that is pointed at; -1 is none. */
  #hovered = -1;
  #row = -1;
  /** By its name: other series can come before it. */
  #selected: Series | undefined;
  /** Until one has chosen, it is what tells most. */
  #isOwnChoice = false;
  #following: boolean;
  /** Where one has zoomed; null shows all. */
  #zoom: readonly [from: number, to: number] | null = null;
  #plays = false;
  #due = 0;
  #tries = 0;
  #said = "";

  constructor(data: WatchData, context: WatchContext) {
    this.#data = data;
    this.#context = context;
    const hooks: Hooks = {
      onStep: (step) => this.goTo(Math.max(0, step)),
      onHover: (step) => this.#point(step),
      onSelect: (row) => this.#select(row),
      onZoom: (from, to) => this.#show(from, to),
    };
    this.#map = new DepthMap(context, hooks);
    this.#axis = new TimeAxis(context, hooks, this.#map.reading);
    this.#controls = new Controls(context);
    const verdict = new VerdictPart(context, (path) => this.#goToPath(path, "parameter"));
    const alerts = new AlertsPart(context, (alert) => this.#goToAlert(alert));
    const neurons = new Neurons(context, hooks);
    const flow = new GradientFlow(context, hooks);
    // The loss first: it is in sight beside the verdict, however high the pictures below are.
    const time = [new ScalarCurves(context, hooks), this.#axis];
    const plots = [this.#map, new SeriesCurve(context, hooks), new BinsMap(context, hooks), new MovementCurves(context, hooks)];
    const fork = new ForkPart(context, hooks);
    this.#parts = [this.#controls, verdict, alerts, neurons, flow, fork, ...plots, ...time]; // the axis says what the map has read
    const told = element("div", { class: "told" }, verdict.element, alerts.element, flow.element, this.#remarks);
    const drawn = element("div", { class: "plots", role: "group", "aria-label": "plots over time" }, ...[...time, fork, neurons, ...plots].map((part) => part.element));
    this.#axis.element.after(this.#map.reading);
    this.#body = element("div", { class: "watch", "data-paint": true }, told, drawn);
    this.#follow = button("", { class: "plain key", title: "go with the newest step" }, () => this.#followAgain());
    this.elements = [this.#head(), this.#controls.note, this.#error, this.#body, this.#foot()];
    drawn.addEventListener("pointerup", (event) => {
      if (event.target instanceof HTMLCanvasElement && !event.target.hasAttribute("tabindex")) this.#axis.element.focus({ preventScroll: true });
    });
    this.#body.addEventListener(PAINT, () => {
      this.#tries = 10;    // JupyterLab hides all for a frame or two when its theme changes
      this.#schedule();
    });
    for (const part of this.elements) part.addEventListener("keydown", (event) => this.#key(event));
    this.#following = this.#running;
    this.#chose(this.#firstRow());
    this.#step = Math.max(0, data.end - 1);
    this.draw();
  }

  /** The data have changed: drawn with the next picture of the screen. */
  update(): void {
    const kept = this.#selected && this.#isOwnChoice ? this.#data.row(this.#selected.path, this.#selected.role) : -1;
    this.#chose(kept >= 0 ? kept : this.#firstRow());
    this.#schedule();
  }

  /** Called when the view enters the document; gives what to do when it leaves. */
  arrived(): () => void {
    const observer = typeof ResizeObserver === "function" ? new ResizeObserver(() => this.#schedule()) : null;
    observer?.observe(this.#body);
    const deaf = hear(this.#data.payload.model, this, (path) => this.#hear(path));
    this.#schedule();
    return () => {
      observer?.disconnect();
      deaf();
      cancelAnimationFrame(this.#due);
      this.#due = 0;
      if (this.#plays) silence();
    };
  }

  /** Goes to the series of a role that is nearest to a module's, or to the selected one; false where there is none yet. */
  see(role: Role, path: string | null): boolean {
    const own = path === null ? -1 : this.#data.row(path, "activation");
    const row = sameIn(this.#data, own < 0 ? this.#row : own, role);
    if (row < 0) return false;
    this.#chose(row);
    this.#schedule();
    return true;
  }

  /** Selects a module or parameter; false where nothing of it was measured. */
  choose(path: string): boolean {
    const row = rowOf(this.#data, path, [this.#data.payload.series[this.#row]?.role ?? "activation"]);
    if (row < 0) return false;
    const own = this.#selected && this.#isOwnChoice && moduleOf(this.#selected) === path;
    if (!own) {
      this.#isOwnChoice = true;
      this.#chose(row);
      this.#schedule();
    }
    return true;
  }

  get moment(): Moment {
    const { from, to } = this.#visible();
    const seen = this.#hovered < 0 ? this.#step : Math.min(this.#hovered, this.#data.end - 1);
    return { data: this.#data, step: this.#step, seen, row: this.#row, following: this.#following, from, to };
  }

  draw(): void {
    if (this.#following) this.#step = Math.max(0, this.#data.end - 1);
    const { moment } = this;
    this.#sayWords();
    this.#axis.element.hidden = !this.#data.end;
    for (const part of this.#parts) part.draw(moment);
  }

  #schedule(): void {
    this.#due ||= requestAnimationFrame(() => {
      this.#due = 0;
      this.draw();
      this.#tries = this.#body.clientWidth ? 0 : this.#tries - 1;
      if (this.#tries > 0) this.#schedule();
    });
  }

  get #running(): boolean {
    const { live, state } = this.#data.payload;
    return live && isRunning(state);    // nobody tells a picture how the training goes on
  }

  /** The end of the axis grows in jumps while the training runs; a window goes along with the newest step. */
  #visible(): { from: number; to: number } {
    const { end } = this.#data;
    if (!this.#zoom) return { from: 0, to: Math.max(1, this.#running ? roomFor(end) : end) };
    const [from, to] = this.#zoom;
    const past = this.#following ? end - to : 0;
    if (past > 0) {
      const shift = Math.ceil(past + (to - from) / 4);
      this.#zoom = [from + shift, to + shift];
    }
    const [low, high] = this.#zoom;
    return { from: low, to: high };
  }

  #head(): HTMLElement {
    const { code } = this.#data.payload;
    return element(
      "header",
      { class: "head" },
      element("span", { class: "what caption" }, "watch"),
      this.#headline,
      this.#controls.element,
      code && !this.#context.control ? copyButton("code", `copy ${code}`, () => code, this.#context) : null,
    );
  }

  #foot(): HTMLElement {
    const key = (sign: string, word: string, about: string): HTMLElement => element("span", { title: about }, element("kbd", {}, sign), ` ${word}`);
    const listen = button("", { class: "plain key", title: "play the selected series as tones" }, () => this.#listen());
    listen.append(element("kbd", {}, "s"), " listen");
    return element(
      "footer",
      { class: "foot" },
      this.#status,
      element(
        "span",
        { class: "keys" },
        key("← →", "time", "to the sample before or after; with shift, or by Page Up and Page Down, ten; Home, End: to the first, to the last"),
        key("↑ ↓", "series", "the row above or below"),
        key("+ −", "zoom", "about the cursor; 0 shows all; or sweep with shift"),
        key("Esc", "leave", "back to what is around the view"),
        this.#follow,
        ...(this.#context.control ? [key("p", "pause", "pause or resume the training"), key(".", "step", "one step of the training")] : []),
        listen,
      ),
    );
  }

  #sayWords(): void {
    const { payload } = this.#data;
    const [strong, rest] = payload.headline;
    const running = this.#running;
    const said = JSON.stringify([strong, rest, payload.foot, payload.error, payload.remarks, this.#following, running]);
    if (said === this.#said) return;
    this.#said = said;
    this.#headline.replaceChildren(element("b", {}, lines(strong)), ...(rest ? [" ", lines(rest, "soft", 2000)] : []));
    this.#error.replaceChildren(...(payload.error ? ["✕ ", lines(payload.error)] : []));
    this.#error.hidden = !payload.error;
    this.#remarks.replaceChildren(...payload.remarks.map((remark) => element("li", {}, lines(remark))));
    this.#status.textContent = payload.foot.replaceAll(" %", "\u00a0%");
    this.#follow.hidden = !running;
    this.#follow.setAttribute("aria-pressed", String(this.#following));
    this.#follow.replaceChildren(element("kbd", {}, "f"), this.#following ? " following" : " follow");
  }

  #key(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const target = event.target as HTMLElement;
    if (/^(SELECT|INPUT|TEXTAREA)$/.test(target.tagName)) return;
    const run = this.#commands(event.shiftKey ? 10 : 1)[event.key];
    if (!run) return;
    run();
    event.preventDefault();
  }

  #commands(far: number): Record<string, (() => void) | undefined> {
    const controls = this.#controls.active ? this.#controls : null;
    return {
      ArrowLeft: () => this.#move(-far),
      ArrowRight: () => this.#move(far),
      PageUp: () => this.#move(10),
      PageDown: () => this.#move(-10),
      Home: () => this.goTo(0),
      End: () => this.goTo(this.#data.end - 1),
      ArrowUp: () => this.#moveRow(-far),
      ArrowDown: () => this.#moveRow(far),
      "+": () => this.#zoomBy(0.5),
      "=": () => this.#zoomBy(0.5),
      "-": () => this.#zoomBy(2),
      "0": () => this.#show(0, Number.POSITIVE_INFINITY),
      f: () => this.#followAgain(),
      s: () => this.#listen(),
      p: controls ? () => controls.pause() : undefined,
      ".": controls ? () => controls.step() : undefined,
    };
  }

  /** From sample to sample. */
  #move(by: number): void {
    const { first, slots } = this.#data;
    if (!slots) return this.goTo(Math.max(0, this.#step + by));
    const slot = this.#data.slotOf(this.#step);
    const back = by < 0 && (first[slot] as number) < this.#step ? slot + by + 1 : slot + by;
    this.goTo(first[Math.max(0, Math.min(slots - 1, back))] as number);
  }

  /** Moves the cursor to a step; -1 follows the newest. */
  goTo(step: number): void {
    if (step < 0) return this.#followAgain();
    const to = Math.max(0, Math.min(this.#data.end - 1, step));
    this.#following = false;
    this.#context.told?.("step", to);
    this.#hovered = -1;
    this.#step = to;
    if (this.#zoom && (to < this.#zoom[0] || to >= this.#zoom[1])) {
      const span = this.#zoom[1] - this.#zoom[0];
      const from = Math.max(0, Math.round(to - span / 2));
      this.#zoom = [from, from + span];
    }
    this.#schedule();
  }

  #point(step: number): void {
    if (step === this.#hovered) return;
    this.#hovered = step;
    this.#schedule();
  }

  #followAgain(): void {
    if (!this.#running) return this.goTo(Math.max(0, this.#data.end - 1));
    this.#following = true;
    this.#context.told?.("step", -1);
    this.#schedule();
  }

  #moveRow(by: number): void {
    const rows = this.#map.rows;
    const at = rows.indexOf(this.#row);
    const row = rows[Math.max(0, Math.min(rows.length - 1, at < 0 ? 0 : at + by))];
    if (row !== undefined) this.#select(row);
  }

  #select(row: number): void {
    const series = this.#data.payload.series[row];
    if (!series) return;
    this.#isOwnChoice = true;
    this.#hovered = -1;
    this.#chose(row);
    const module = moduleOf(series);
    tell({ model: this.#data.payload.model, path: module, source: this });
    this.#context.told?.("selected", module);
    this.#schedule();
  }

  #chose(row: number): void {
    this.#row = row;
    this.#selected = this.#data.payload.series[row];
  }

  #hear(path: string): void {
    const row = sameIn(this.#data, this.#data.row(path, "activation"), this.#data.payload.series[this.#row]?.role ?? "activation");
    if (this.#data.row(path, "activation") < 0 || row < 0) return;
    this.#isOwnChoice = true;
    this.#chose(row);
    this.#schedule();
  }

  #show(from: number, to: number): void {
    const whole = this.#running ? roomFor(this.#data.end) : this.#data.end;
    const [low, high] = [Math.max(0, from), Math.min(whole, to)];
    this.#zoom = low <= 0 && high >= whole ? null : [Math.min(low, Math.max(0, high - 4)), Math.max(high, low + 4)];
    this.#schedule();
  }

  #zoomBy(factor: number): void {
    this.#show(...zoomed(this.moment, factor, this.#step));
  }

  #goToPath(path: string, role: Role): void {
    this.#select(rowOf(this.#data, path, [this.#data.payload.series[this.#row]?.role ?? role, role, "activation"]));
  }

  #goToAlert(alert: Alert): void {
    this.#select(rowOf(this.#data, alert.path, ROLES_OF[alert.kind] ?? ["activation"]));
    this.goTo(alert.step);
  }

  /** The conclusion first: what an alert that still holds is about. */
  #firstRow(): number {
    const alert = this.#data.payload.alerts.find((one) => !one.over);
    const row = alert ? rowOf(this.#data, alert.path, ROLES_OF[alert.kind] ?? ["activation"]) : -1;
    const { series } = this.#data.payload;
    return row >= 0 ? row : (ROLES.map((role) => series.findIndex((one) => one.role === role)).find((first) => first >= 0) ?? -1);
  }

  #listen(): void {
    this.#plays = play(this.#map.values(this.moment)) > 0;
  }
}

/** What an alert is seen in, the best first. */
const ROLES_OF: Record<string, readonly Role[]> = {
  "no gradient": ["parameter gradient", "gradient"], vanishing: ["gradient", "parameter gradient"], exploding: ["gradient", "parameter gradient"],
  "not owned": ["parameter", "update"], "not zeroed": ["parameter gradient"], rounding: ["update", "parameter"],
};

/** The module that a series is of, or whose parameter. */
function moduleOf({ path, role }: Series): string {
  return role === "activation" || role === "gradient" ? path : path.split(".").slice(0, -1).join(".");
}

function rowOf(data: WatchData, path: string, roles: readonly Role[]): number {
  const all: readonly Role[] = [...roles, "activation", "parameter", "gradient", "parameter gradient", "update"];
  const role = all.find((one) => data.row(path, one) >= 0);
  return role ? data.row(path, role) : -1;
}
