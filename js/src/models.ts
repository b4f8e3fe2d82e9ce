/** The views of what stands in a model: its tree, its state, the values of one tensor. */
import { measurePanel } from "./values/measure";
import style from "./models.css";
import { complete, type Payload } from "./payload";
import { StatePanel } from "./state/panel";
import { TreePanel } from "./tree/panel";
import { missing, type Drawing } from "./view";

const VIEWS = new Set(["tree", "state", "measure"]);

export const models: Drawing = {
  style,
  panel(json, numbers, context) {
    if (json.layout === "sheet" || !VIEWS.has(json.view as string)) return null;
    const payload: Payload = complete(json);
    if (payload.view === "state") return new StatePanel(payload, numbers, context);
    if (payload.view === "measure") return measurePanel(payload, numbers, context);
    return payload.subtrees.length ? new TreePanel(payload, context) : missing("this output holds no tree: run the cell again");
  },
};
