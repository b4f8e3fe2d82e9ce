/** A choice of few: made once, offered anew when what there is changes. */
import { element, OURS } from "../elements";

export function choice(name: string, changed: (value: string) => void): HTMLSelectElement {
  const made = element("select", { "aria-label": name, ...OURS });
  made.addEventListener("change", () => changed(made.value));
  return made;
}

export function options(select: HTMLSelectElement, given: readonly (readonly [value: string, text: string])[], chosen: string): void {
  const key = given.join("|");
  if (select.dataset.offered !== key) {
    select.dataset.offered = key;
    select.replaceChildren(...given.map(([value, text]) => element("option", { value }, text)));
  }
  if (select.value !== chosen) select.value = chosen;
}
