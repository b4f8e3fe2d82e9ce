/** The sliders of a watch's knobs, which are ipywidgets' own: they do not say what they are of, and of a logarithmic one they say the exponent. */
import { element, OURS, set } from "./elements";

/** ipywidgets hides where the focus is. */
const FOCUS = ".modlab-steered .noUi-handle:focus-visible{outline:2px solid var(--jp-brand-color1,#2a63ab)!important;outline-offset:2px}";

/** Those that say the value that stands beside them. */
const spoken = new WeakSet<Element>();

/** Names each slider beside a view as its label does, shows when it has the focus, and keeps its keys from JupyterLab. */
export function nameKnobs(view: HTMLElement): void {
  const steered = view.closest(".modlab-steered");
  const all = steered?.querySelectorAll(".widget-slider") ?? [];
  if (all.length && !steered?.querySelector(":scope > style")) steered?.append(element("style", {}, FOCUS));
  for (const one of all) {
    const name = one.querySelector("label")?.textContent;
    const handle = one.querySelector("[role=slider]");
    if (name && handle?.getAttribute("aria-label") !== name) handle?.setAttribute("aria-label", name);
    const readout = one.querySelector(".widget-readout");
    if (handle && readout && !spoken.has(handle)) speak(handle, readout);
    // What has the focus itself must say so: JupyterLab binds letters to `:focus`, and looks no further.
    for (const own of [handle, readout]) if (own) set(own, OURS);
  }
}

/** Lets a slider say its value as it is written beside it, whenever one of the two has changed. */
function speak(handle: Element, readout: Element): void {
  spoken.add(handle);
  const tell = (): void => {
    const value = readout.textContent ?? "";
    if (handle.getAttribute("aria-valuetext") !== value) handle.setAttribute("aria-valuetext", value);
  };
  const observer = new MutationObserver(tell);
  observer.observe(handle, { attributeFilter: ["aria-valuetext"] });
  observer.observe(readout, { childList: true, characterData: true, subtree: true });
  tell();
}
