/** The ladder from data to learning: what passed, and the first broken rung with its evidence and what mends it. */
import { button, element, lines, words } from "../elements";
import { copyAndSay } from "../frame";
import { cut } from "../names";
import type { Mending, Rung } from "./data";
import type { Moment, Part, WatchContext } from "./part";
import { refill } from "./refill";

const SIGNS: Record<Rung["state"], readonly [sign: string, word: string]> = {
  passed: ["✓", "passed"], broken: ["✕", "broken"], careful: ["⚠", "careful"], "not seen": ["○", "not seen"],
};

export class VerdictPart implements Part {
  readonly element: HTMLElement;
  readonly #list = element("ol", { class: "ladder" });
  readonly #context: WatchContext;
  readonly #go: (path: string) => void;
  #said = "";

  /** `go` is called with the path of a rung that is pressed. */
  constructor(context: WatchContext, go: (path: string) => void) {
    this.#context = context;
    this.#go = go;
    this.element = element("section", { class: "verdict", "aria-label": "verdict" }, element("div", { class: "caption" }, "verdict"), this.#list);
  }

  draw({ data }: Moment): void {
    const { verdict } = data.payload;
    const said = JSON.stringify(verdict);
    if (said === this.#said) return;
    this.#said = said;
    this.element.hidden = !verdict.length;
    const broken = verdict.findIndex((rung) => rung.state === "broken");
    refill(this.#list, verdict.map((rung, index) => this.#rung(rung, index === broken)));
  }

  #rung(rung: Rung, first: boolean): HTMLElement {
    const [sign, word] = SIGNS[rung.state];
    const name = rung.path
      ? button("", { class: "rung-name plain", title: `show ${cut(rung.path)}` }, () => this.#go(rung.path))
      : element("span", { class: "rung-name" });
    name.append(first ? element("b", {}, words(rung.name, "", 120)) : words(rung.name, "", 120));
    const open = rung.state === "broken" || rung.state === "careful";
    return element(
      "li",
      { class: `rung ${rung.state.replace(" ", "-")}${first ? " first" : ""}`, "data-key": `${rung.name} ${rung.path}` },
      element("span", { class: "sign", role: "img", "aria-label": word, title: word }, sign),
      element("div", {}, name, rung.text ? element("span", { class: "evidence" }, rung.state === "passed" ? " " : ": ", lines(rung.text, "", 400)) : null, open && (rung.fix || rung.advice) ? fixOf(rung, this.#context) : null),
    );
  }
}

/** What mends it: code, which is copied when pressed, advice, or both. */
export function fixOf({ fix, advice }: Mending, context: WatchContext): HTMLElement {
  const mends = element("span", { class: "faint" }, "Fix: ");
  if (!fix) return element("div", { class: "fix" }, mends, lines(advice));
  const word = element("span", { class: "faint" });
  const made = button("", { class: "fix plain", title: "press to copy", "aria-label": `copy the fix: ${cut(fix)}` }, () => void copyAndSay(fix, context, word));
  made.append(mends, element("code", {}, lines(fix)), word);
  return advice ? element("div", {}, made, element("div", { class: "fix" }, lines(advice))) : made;
}
