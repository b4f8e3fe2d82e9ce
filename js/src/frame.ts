/** What frames every view: the headline first, the body, the keys that work here and what the view cost. */
import { copy } from "./clipboard";
import type { Context, Panel } from "./context";
import { button, element, lines, svg, words } from "./elements";
import type { Headed } from "./payload";

export function frame(payload: Headed, panel: Panel, context: Context): HTMLElement[] {
  const [strong, rest] = payload.headline;
  const head = element(
    "header",
    { class: "head" },
    element("span", { class: "what caption" }, payload.view),
    element("span", { class: "headline" }, element("b", {}, lines(strong)), rest ? " " : "", rest ? lines(rest, "soft", 2000) : null),
    payload.code ? copyButton("code", `copy ${payload.code}`, () => payload.code, context) : null,
  );
  const foot = element(
    "footer",
    { class: "foot" },
    element("span", { class: "keys" }, ...`${panel.keys}${panel.keys && "  Esc leave"}`.split("  ").map((key) => element("span", {}, key))),
    words(payload.foot),
  );
  return panel.keys || payload.foot ? [head, panel.element, foot] : [head, panel.element];
}

/** Copies what `text` gives when pressed, and says so. */
export function copyButton(label: string, title: string, text: () => string, context: Context): HTMLButtonElement {
  const word = element("span", {}, label);
  const made = button("", { class: "plain copy", title }, () => void copyAndSay(text(), context, word));
  made.append(copyGlyph(), word);
  return made;
}

/** Copies, and says in the live region, and where `word` is given in its place, how it went. */
export async function copyAndSay(text: string, context: Context, word?: HTMLElement): Promise<void> {
  const done = await copy(text, context.root);
  const said = done ? "copied" : "the browser refused to copy";
  context.announce(done ? `copied: ${text.slice(0, 200)}` : said);
  if (!word || word.dataset.said) return;
  const before = word.textContent;
  word.dataset.said = "yes";
  word.textContent = said;
  setTimeout(() => {
    word.textContent = before;
    delete word.dataset.said;
  }, 1200);
}

function copyGlyph(): SVGElement {
  return svg("svg", { class: "glyph-copy", viewBox: "0 0 12 12", "aria-hidden": "true" }, svg("path", { d: "M4.5 3.5h6v7h-6z M2 8.5h-.5v-7h6V2" }));
}
