/** What goes wrong, as a list: one line each, the chosen one open. New ones, and nothing else, are said aloud. */
import { button, element, lines, unseen, words } from "../elements";
import type { Alert } from "./data";
import { cut } from "../names";
import { counted, placeName } from "./figures";
import type { Moment, Part, WatchContext } from "./part";
import { refill } from "./refill";
import { fixOf } from "./verdict";

export class AlertsPart implements Part {
  readonly element: HTMLElement;
  readonly #list = element("ul", { class: "alerts" });
  readonly #caption = element("div", { class: "caption" });
  readonly #context: WatchContext;
  readonly #go: (alert: Alert) => void;
  #known: Set<string> | null = null;
  #said = "";
  #open = "";

  constructor(context: WatchContext, go: (alert: Alert) => void) {
    this.#context = context;
    this.#go = go;
    this.element = element("section", { role: "group", "aria-label": "alerts" }, this.#caption, this.#list);
  }

  draw(moment: Moment): void {
    const { alerts } = moment.data.payload;
    this.#announce(alerts);
    const said = JSON.stringify([alerts, this.#open]);
    if (said === this.#said) return;
    this.#said = said;
    this.#caption.textContent = alerts.length ? `alerts · ${alerts.length}` : "alerts";
    const sorted = [...alerts].sort((a, b) => Number(a.over) - Number(b.over));
    refill(this.#list, sorted.length ? sorted.map((alert) => this.#line(alert, moment)) : [element("li", { class: "soft" }, "none")]);
  }

  #announce(alerts: readonly Alert[]): void {
    const fresh = alerts.filter((alert) => !this.#known?.has(nameOf(alert)));
    if (this.#known && fresh.length) this.#context.announce(fresh.map((alert) => `${kindOf(alert)}: ${placeOf(alert)}, step ${alert.step}. ${cut(alert.text)}`).join(" "));
    this.#known = new Set(alerts.map(nameOf));
  }

  #line(alert: Alert, moment: Moment): HTMLElement {
    const name = nameOf(alert);
    const open = name === this.#open;
    const severity = alert.over ? "over" : alert.mark;
    const sign = alert.over ? "✓" : severity === "careful" ? "⚠" : "✕";
    const head = button("", { class: "alert plain", "aria-expanded": String(open) }, () => {
      this.#open = this.#open === name ? "" : name;
      this.#go(alert);
      this.draw(moment);
    });
    head.append(
      element("span", { class: "sign", "aria-hidden": "true" }, sign),
      element("b", {}, kindOf(alert), alert.over ? unseen(", over") : null),
      element("span", { class: "name" }, words(placeOf(alert))),
      element("span", { class: "when" }, unseen("step "), alert.step.toLocaleString("en")),
    );
    const rests = [alert.steps ? counted(alert.steps, "sample") : "", alert.inputs ? counted(alert.inputs, "input") : ""].filter(Boolean).join(", ");
    const more = [
      rests ? element("div", { class: "faint" }, `based on ${rests}${alert.over ? `; last seen at step ${alert.last.toLocaleString("en")}` : ""}`) : null,
      alert.trace ? element("div", { class: "trace" }, element("span", { class: "faint" }, "run again: "), lines(alert.trace)) : null,
    ];
    return element(
      "li",
      { class: severity, "data-key": name },
      head,
      element("div", { class: open ? "evidence" : "evidence short" }, lines(alert.text)),
      ...(open ? [...more, alert.fix || alert.advice ? fixOf(alert, this.#context) : null] : []),
    );
  }
}

export function placeOf({ path, unit }: Alert): string {
  return `${placeName(path)}${unit === null ? "" : `[${unit}]`}`;
}

const KINDS: Record<string, string> = { nan: "NaN", inf: "Inf" };

function kindOf({ kind }: Alert): string {
  return KINDS[kind] ?? cut(kind, 40);
}

function nameOf(alert: Alert): string {
  return `${alert.kind} ${alert.path} ${alert.unit ?? ""} ${alert.step}`;    // the whole path: places are cut
}
