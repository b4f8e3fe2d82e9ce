/** The sliders of a watch's knobs, which are ipywidgets' own: they say their values, but not what they are of. */

/** Names each slider beside a view as its label does. */
export function nameKnobs(view: HTMLElement): void {
  const all = view.closest(".modlab-steered")?.querySelectorAll(".widget-slider") ?? [];
  for (const one of all) {
    const name = one.querySelector("label")?.textContent;
    const handle = one.querySelector("[role=slider]");
    if (name && handle?.getAttribute("aria-label") !== name) handle?.setAttribute("aria-label", name);
    one.setAttribute("data-lm-suppress-shortcuts", "true");
  }
}
