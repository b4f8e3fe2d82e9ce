/** The views that describe themselves as sheets. */
import { completeSheet } from "./sheet";
import { SheetPanel } from "./panel";
import style from "./sheet.css";
import type { Drawing } from "../view";

export const sheets: Drawing = {
  style,
  panel: (json, numbers, context) => (json.layout === "sheet" ? new SheetPanel(completeSheet(json), numbers, context) : null),
};
