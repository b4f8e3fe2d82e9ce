/** One view in one shadow root: the panel that a payload asks for, its frame, its theme, its keys. */
// First, so that what gzip compares (32 KB) is code with code: 500 bytes.
import style from "./style.css";
import { repaint, type Asked, type Context, type Panel } from "./context";
import { element } from "./elements";
import { frame } from "./frame";
import { measurePanel } from "./measure-panel";
import { PALETTES, variables } from "./palette";
import { complete, decode, type Numbers, type Payload } from "./payload";
import { presence } from "./presence";
import { SheetPanel } from "./sheet-panel";
import { StatePanel } from "./state-panel";
import { isDark, onThemeChange } from "./theme";
import { TreePanel } from "./tree-panel";

const SHEET = `:host{all:initial;display:block}.view{${variables(PALETTES.light)}}.view[data-theme=dark]{${variables(PALETTES.dark)}}`;

/** Draws the view of `bytes` into `host`, which becomes a shadow host. */
export function show(host: HTMLElement, bytes: ArrayBuffer, ask: Context["ask"] = null): void {
  const { json, numbers } = decode(bytes);
  const payload = complete(json);
  const root = host.shadowRoot ?? host.attachShadow({ mode: "open" });
  const view = element("section", { class: "view", role: "region", "aria-label": payload.headline.join(" ") || payload.view });
  const said = element("span", { class: "unseen", role: "status", "aria-live": "polite" });
  const context: Context = {
    root,
    ask: payload.live ? ask : null,
    announce: (text) => (said.textContent = text),
    isDark: () => view.dataset.theme === "dark",
  };
  const theme = (): void => {
    const now = isDark() ? "dark" : "light";
    if (view.dataset.theme === now) return;
    view.dataset.theme = now;
    repaint(root);
  };
  theme();
  const panel = panelOf(payload, numbers, context);
  view.append(...frame(payload, panel, context), said, presence(() => {
    theme();
    const [still, leave] = [onThemeChange(theme), panel.arrived()];
    return () => (still(), leave());
  }));
  keepKeys(host, view);
  root.replaceChildren(element("style", {}, SHEET + style), view);
}

function panelOf(payload: Payload, numbers: Numbers, context: Context): Panel {
  if (payload.layout === "sheet") return new SheetPanel(payload, numbers, context);
  if (payload.view === "tree" && payload.subtrees.length) return new TreePanel(payload, context);
  if (payload.view === "state") return new StatePanel(payload, numbers, context);
  if (payload.view === "measure") return measurePanel(payload, numbers, context);
  const known = (payload as Payload).view === "tree";
  return missing(known ? "this output holds no tree: run the cell again" : `this page knows no view called “${(payload as { view: string }).view}”: run the cell again with this version of modlab`);
}

function missing(reason: string): Panel {
  return { element: element("div", { class: "body" }, element("p", { class: "absent" }, reason)), keys: "", arrived: () => () => {} };
}

/** The notebook must not see the keys: JupyterLab cuts a cell on `x`. */
function keepKeys(host: HTMLElement, view: HTMLElement): void {
  for (const some of [host, host.parentElement]) some?.setAttribute("data-lm-suppress-shortcuts", "true");
  for (const type of ["keydown", "keypress", "keyup"]) view.addEventListener(type, (event) => event.stopPropagation());
}

export type { Asked };
