/** The checks from data to learning, and what was found beside them: what the headline is about apart, with its evidence and what mends it. */
import { button, element, lines, words } from "../elements";
import { copyAndSay } from "../frame";
import { cut } from "../names";
import type { Mending, Check } from "./data";
import type { Moment, Part, WatchContext } from "./part";
import { refill } from "./refill";

const SIGNS: Record<Check["state"], readonly [sign: string, word: string]> = {
  passed: ["✓", "passed"], broken: ["✕", "broken"], careful: ["⚠", "careful"], "not seen": ["○", "not seen"],
};

export class VerdictPart implements Part {
  readonly element: HTMLElement;
  readonly #list = element("ol", { class: "checks" });
  readonly #context: WatchContext;
  readonly #go: (path: string) => void;
  #said = "";

  /** `go` is called with the path of a check that is pressed. */
  constructor(context: WatchContext, go: (path: string) => void) {
    this.#context = context;
    this.#go = go;
    this.element = element("section", { class: "verdict", role: "group", "aria-label": "verdict" }, element("div", { class: "caption" }, "verdict"), this.#list);
  }

  draw({ data }: Moment): void {
    const { verdict } = data.payload;
    const said = JSON.stringify(verdict);
    if (said === this.#said) return;
    this.#said = said;
    this.element.hidden = !verdict.length;
    const first = verdict.find((check) => check.cause) ?? verdict.find((check) => check.state === "broken");
    refill(this.#list, verdict.map((check) => this.#check(check, check === first)));
  }

  #check(check: Check, first: boolean): HTMLElement {
    const [sign, word] = SIGNS[check.state];
    const name = check.path
      ? button("", { class: "check-name plain", title: `show ${cut(check.path)}` }, () => this.#go(check.path))
      : element("span", { class: "check-name" });
    name.append(first ? element("b", {}, words(check.name, "", 120)) : words(check.name, "", 120));
    const open = check.state === "broken" || check.state === "careful";
    return element(
      "li",
      { class: `check ${check.state.replace(" ", "-")}${first ? " first" : ""}`, "data-key": `${check.name} ${check.kind} ${check.path}` },
      element("span", { class: "sign", role: "img", "aria-label": word, title: word }, sign),
      element("div", {}, name, check.text ? element("span", { class: "evidence" }, check.state === "passed" ? " " : ": ", lines(check.text, "", 400)) : null, open && (check.fix || check.advice) ? fixOf(check, this.#context) : null),
    );
  }
}

/** What mends it: code, which is copied when pressed, advice, or both. */
export function fixOf({ fix, advice }: Mending, context: WatchContext): HTMLElement {
  const mends = element("span", { class: "faint" }, "Fix: ");
  if (!fix) return element("div", { class: "fix" }, mends, lines(advice));
  const word = element("span", { class: "faint" });
  const made = button("", { class: "fix plain", title: "press to copy" }, () => void copyAndSay(fix, context, word));
  made.append(mends, element("code", {}, lines(fix)), word);
  return advice ? element("div", {}, made, element("div", { class: "fix" }, lines(advice))) : made;
}
