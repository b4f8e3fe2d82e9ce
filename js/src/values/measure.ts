/** One tensor measured. */
import type { Context, Panel } from "../context";
import { element } from "../elements";
import { completeValues, type MeasurePayload, type Numbers } from "../payload";
import { noValues, valuesPanel } from "./panel";

export function measurePanel(payload: MeasurePayload, numbers: Numbers, context: Context): Panel {
  const values = completeValues(payload.values[""] ?? Object.values(payload.values)[0]);
  const parts = values ? valuesPanel(values.title ? `${values.title} · values` : "values", values, numbers, context) : noValues("values", payload.valuesNote || "there are no values in this output");
  const heat = values?.grid && !values.grid.texts;
  return {
    element: element("div", { class: "body measure" }, element("div", { class: "values" }, ...parts)),
    keys: heat ? "↑↓ ←→ read cells of the heat map" : "",
    arrived: () => () => {},
  };
}
