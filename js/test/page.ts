/** A page with one view on it, and what a person does there. */
import { mount as mountSheet } from "../src/sheet/entry";
import { mount } from "../src/still";
import { pack, type Sample } from "./samples";

export interface Page {
  host: HTMLElement;
  root: ShadowRoot;
  find(selector: string): HTMLElement;
  all(selector: string): HTMLElement[];
  press(key: string, more?: KeyboardEventInit): KeyboardEvent;
  search(text: string): void;
}

export function page(sample: Sample, arrays: Parameters<typeof pack>[1] = {}): Page {
  const host = document.createElement("div");
  host.className = "modlab";
  host.innerHTML = '<div class="modlab-static">the static picture</div>';
  document.body.append(host);
  (sample.layout === "sheet" ? mountSheet : mount)(host, pack(sample, arrays));
  return over(host);
}

/** The same for a host that has been drawn by other means. */
export function over(host: HTMLElement): Page {
  const live = host.classList.contains("modlab-live") ? host : host.querySelector(".modlab-live");
  const root = live?.shadowRoot as ShadowRoot;
  const all = (selector: string): HTMLElement[] => [...root.querySelectorAll<HTMLElement>(selector)];
  const find = (selector: string): HTMLElement => {
    const [first] = all(selector);
    if (!first) throw new Error(`nothing is called ${selector}`);
    return first;
  };
  return {
    host,
    root,
    all,
    find,
    press(key, more = {}) {
      const target = root.activeElement ?? find("[role=tree], [role=grid], [role=treegrid]");
      const event = new KeyboardEvent("keydown", { key, bubbles: true, composed: true, cancelable: true, ...more });
      target.dispatchEvent(event);
      return event;
    },
    search(text) {
      const input = find("input") as HTMLInputElement;
      input.value = text;
      input.dispatchEvent(new Event("input", { bubbles: true }));
    },
  };
}
