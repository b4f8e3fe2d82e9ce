/** Sliders and switches over pictures that are there already: each setting is one `<details>`, and its summary the line of code. */
import { element } from "../elements";
import style from "./knobs.css";

/** What a knob is called and the values that it takes, as Python writes them. */
type Knob = readonly [name: string, values: readonly string[]];

const KEYS_ARE_OURS = { "data-lm-suppress-shortcuts": "true" };
const SWITCHED = 4; // values that stand side by side; more become a slider

/** Put controls above the settings, and show one of them at a time. Without them all stand folded below each other. */
export function knobs(host: HTMLElement): void {
  const settings = [...host.querySelectorAll<HTMLDetailsElement>(":scope > .modlab-static > details")];
  const all = JSON.parse(host.dataset.knobs ?? "[]") as Knob[];
  const count = all.reduce((product, [, values]) => product * values.length, 1);
  if (!all.length || count !== settings.length || host.querySelector("form")) return;
  const chosen = all.map(() => 0);
  const line = element("output", { class: "modlab-line", "aria-live": "polite" });

  const show = (): void => {
    const at = all.reduce((index, [, values], knob) => index * values.length + (chosen[knob] ?? 0), 0);
    settings.forEach((setting, index) => {
      setting.hidden = index !== at;
      setting.open = index === at;
    });
    line.textContent = settings[at]?.querySelector("summary")?.textContent ?? "";
  };
  const controls = all.map((knob, index) =>
    control(knob, (value) => {
      chosen[index] = value;
      show();
    }),
  );
  host.classList.add("modlab-turning");
  host.prepend(element("style", {}, style), element("form", { ...KEYS_ARE_OURS }, ...controls, line));
  show();
}

function control(knob: Knob, choose: (value: number) => void): HTMLElement {
  return knob[1].length > SWITCHED ? slider(knob, choose) : switches(knob, choose);
}

function slider([name, values]: Knob, choose: (value: number) => void): HTMLElement {
  const said = element("output", {}, values[0]);
  const range = element("input", { type: "range", min: 0, max: values.length - 1, value: 0, "aria-valuetext": values[0], ...KEYS_ARE_OURS });
  range.addEventListener("input", () => {
    const text = values[range.valueAsNumber] ?? "";
    said.textContent = text;
    range.setAttribute("aria-valuetext", text);
    choose(range.valueAsNumber);
  });
  return element("label", { class: "modlab-knob" }, element("span", {}, name), range, said);
}

let groups = 0;

function switches([name, values]: Knob, choose: (value: number) => void): HTMLElement {
  const group = `modlab-knob-${++groups}`;
  const buttons = values.map((value, index) => {
    const radio = element("input", { type: "radio", name: group, checked: index === 0, ...KEYS_ARE_OURS });
    radio.addEventListener("change", () => choose(index));
    return element("label", {}, radio, element("span", {}, value));
  });
  return element("fieldset", { class: "modlab-knob" }, element("legend", {}, name), ...buttons);
}
