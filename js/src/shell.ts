/** What encloses every view: a shadow root with its style, the theme, the keys kept from the notebook, the live region. */
import { repaint } from "./context";
import { element } from "./elements";
import { PALETTES, variables } from "./palette";
import { presence } from "./presence";
import { isDark, onThemeChange } from "./theme";

const SHEET = `:host{all:initial;display:block}.view{${variables(PALETTES.light)}}.view[data-theme=dark]{${variables(PALETTES.dark)}}`;

export interface Shell {
  root: ShadowRoot;
  announce(text: string): void;
  isDark(): boolean;
}

/** What stands in a view, and what hears when it enters the document; that gives what to do when it leaves. */
export type Inside = readonly [parts: readonly HTMLElement[], panel: { arrived(): () => void }];

/** Makes `host` a shadow host and fills it; `label` names the region. */
export function enclose(host: HTMLElement, label: string, style: string, build: (shell: Shell) => Inside): void {
  const root = host.shadowRoot ?? host.attachShadow({ mode: "open" });
  const view = element("section", { class: "view", role: "group", "aria-label": label });
  const said = element("span", { class: "unseen", role: "status", "aria-live": "polite" });
  const theme = (): void => {
    const now = isDark() ? "dark" : "light";
    if (view.dataset.theme === now) return;
    view.dataset.theme = now;
    repaint(root);
  };
  theme();
  const [parts, panel] = build({ root, announce: (text) => (said.textContent = text), isDark: () => view.dataset.theme === "dark" });
  view.append(...parts, said, presence(() => {
    theme();
    const [still, leave] = [onThemeChange(theme), panel.arrived()];
    return () => (still(), leave());
  }));
  keepKeys(host, view);
  root.replaceChildren(element("style", {}, SHEET + style), view);
}

/** The notebook must not see the keys: JupyterLab cuts a cell on `x`. Escape, where no part of the view needs it, leads out. */
function keepKeys(host: HTMLElement, view: HTMLElement): void {
  view.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || event.defaultPrevented) return;
    event.preventDefault();
    (event.target as HTMLElement).blur();
    around(host)?.focus({ preventScroll: true });
  });
  for (const some of [host, host.parentElement]) some?.setAttribute("data-lm-suppress-shortcuts", "true");
  for (const type of ["keydown", "keypress", "keyup"]) view.addEventListener(type, (event) => event.stopPropagation());
}

/** What takes the focus and holds the view: in JupyterLab its cell, in a lab the tab. */
function around(host: HTMLElement): HTMLElement | null {
  const root = host.getRootNode();
  return host.parentElement?.closest<HTMLElement>("[tabindex]") ?? (root instanceof ShadowRoot ? around(root.host as HTMLElement) : null);
}
