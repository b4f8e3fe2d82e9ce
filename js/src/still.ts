/** The entry for views at rest: a classic script, self-contained, that an output carries with its payload. */
import { VERSION } from "./version";
import { show } from "./view";

const LIVE = "modlab-live";

/** Draws the full view beside the static picture inside `host` and hides that; on failure the picture stays. */
export function mount(host: HTMLElement, bytes: ArrayBuffer): void {
  const still = host.querySelector<HTMLElement>(".modlab-static");
  const place = document.createElement("div");
  place.className = `${LIVE} mathjax_ignore tex2jax_ignore`;
  try {
    for (const before of [...host.children]) if (before.classList.contains(LIVE)) before.remove();
    host.append(place);
    show(place, bytes);
    if (still) still.hidden = true;
    if (still) still.style.display = "none";
  } catch (error) {
    place.remove();
    if (still) still.hidden = false;
    if (still) still.style.display = "";
    console.warn("modlab: the full view could not be drawn, so the static one stays:", error);
  }
}

const registry = ((globalThis as { modlab?: Record<string, unknown> }).modlab ??= {});
registry[VERSION] = { mount };
