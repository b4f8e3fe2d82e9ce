/** One view in one shadow root: the panel that a payload asks for, in its frame. */
// First, so that what gzip compares (32 KB) is code with code: 500 bytes.
import style from "./style.css";
import type { Context, Panel } from "./context";
import { element } from "./elements";
import { filled } from "./fields";
import { frame } from "./frame";
import { COMMON, decode, type Numbers } from "./payload";
import { enclose } from "./shell";

/** What draws some of the views, so that an output carries only what its view needs. */
export interface Drawing {
  /** The style that these views have of their own. */
  style: string;
  /** null: it is none of these views. */
  panel(json: Record<string, unknown>, numbers: Numbers, context: Context): Panel | null;
}

/** Draws the view of `bytes` into `host`, which becomes a shadow host. */
export function show(host: HTMLElement, bytes: ArrayBuffer, drawings: readonly Drawing[], ask: Context["ask"] = null): void {
  const { json, numbers } = decode(bytes);
  const common = filled(COMMON, json);
  const own = drawings.map((drawing) => drawing.style).join("");
  enclose(host, common.headline.join(" ") || common.view, style + own, (shell) => {
    const context = { ...shell, ask: common.live ? ask : null };
    const panel = firstOf(drawings, (drawing) => drawing.panel(json, numbers, context)) ?? missing(`this page has no view called “${common.view}”: run the cell again with this version of modlab`);
    return [frame(common, panel, context), panel];
  });
}

function firstOf(drawings: readonly Drawing[], made: (drawing: Drawing) => Panel | null): Panel | null {
  for (const drawing of drawings) {
    const panel = made(drawing);
    if (panel) return panel;
  }
  return null;
}

/** The place of a view that cannot be drawn: with the reason, never empty. */
export function missing(reason: string): Panel {
  return { element: element("div", { class: "body" }, element("p", { class: "absent" }, reason)), keys: "", arrived: () => () => {} };
}
