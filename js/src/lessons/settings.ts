/** Sliders and switches over pictures that are there already: each variant is one `<details>`, and its summary the line of code. */
import { element } from "../elements";
import style from "./settings.css";

/** What a setting is called and the values that it takes, as Python writes them. */
type Setting = readonly [name: string, values: readonly string[]];

const KEYS_ARE_OURS = { "data-lm-suppress-shortcuts": "true" };
const SWITCHED = 4; // values that stand side by side; more become a slider, and so do numbers in an order

/** Put controls above the variants, and show one of them at a time. Without them all stand folded below each other. */
export function settings(host: HTMLElement): void {
  const variants = [...host.querySelectorAll<HTMLDetailsElement>(":scope > .modlab-static > details")];
  const all = JSON.parse(host.dataset.settings ?? "[]") as Setting[];
  const count = all.reduce((product, [, values]) => product * values.length, 1);
  if (!all.length || count !== variants.length || host.querySelector("form")) return;
  const chosen = all.map(() => 0);
  const line = element("output", { class: "modlab-line", "aria-live": "polite" });

  const show = (): void => {
    const at = all.reduce((index, [, values], setting) => index * values.length + (chosen[setting] ?? 0), 0);
    variants.forEach((variant, index) => {
      variant.hidden = index !== at;
      variant.open = index === at;
    });
    line.textContent = variants[at]?.querySelector("summary")?.textContent ?? "";
  };
  const controls = all.map((setting, index) =>
    control(setting, (value) => {
      chosen[index] = value;
      show();
    }),
  );
  host.classList.add("modlab-turning");
  host.prepend(element("style", {}, style), element("form", { ...KEYS_ARE_OURS }, ...controls, line));
  show();
}

function control(setting: Setting, choose: (value: number) => void): HTMLElement {
  return setting[1].length > SWITCHED || isOrdered(setting[1]) ? slider(setting, choose) : switches(setting, choose);
}

function isOrdered(values: readonly string[]): boolean {
  const steps = values.slice(1).map((value, index) => Number(value) - Number(values[index]));
  return steps.every((step) => step > 0) || steps.every((step) => step < 0);
}

function slider([name, values]: Setting, choose: (value: number) => void): HTMLElement {
  const said = element("output", {}, values[0]);
  const range = element("input", { type: "range", min: 0, max: values.length - 1, value: 0, "aria-valuetext": values[0], ...KEYS_ARE_OURS });
  range.addEventListener("input", () => {
    const text = values[range.valueAsNumber] ?? "";
    said.textContent = text;
    range.setAttribute("aria-valuetext", text);
    choose(range.valueAsNumber);
  });
  return element("label", { class: "modlab-setting" }, element("span", {}, name), range, said);
}

let groups = 0;

function switches([name, values]: Setting, choose: (value: number) => void): HTMLElement {
  const group = `modlab-setting-${++groups}`;
  const buttons = values.map((value, index) => {
    const radio = element("input", { type: "radio", name: group, checked: index === 0, ...KEYS_ARE_OURS });
    radio.addEventListener("change", () => choose(index));
    return element("label", {}, radio, element("span", {}, value));
  });
  return element("fieldset", { class: "modlab-setting" }, element("legend", {}, name), ...buttons);
}
