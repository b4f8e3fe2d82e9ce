/** How a view at rest comes to life: beside the static picture, which stays when anything fails. */
import { VERSION } from "./version";

const LIVE = "modlab-live";

/** Draws the full view beside the static picture inside `host` and hides that; on failure the picture stays. */
export function mountBy(draw: (place: HTMLElement, bytes: ArrayBuffer) => void): (host: HTMLElement, bytes: ArrayBuffer) => void {
  return (host, bytes) => {
    const still = host.querySelector<HTMLElement>(".modlab-static");
    const covered = (yes: boolean): void => {
      if (!still) return;
      still.hidden = yes;
      still.style.display = yes ? "none" : "";
    };
    const place = document.createElement("div");
    place.className = `${LIVE} mathjax_ignore tex2jax_ignore`;
    try {
      host.querySelector(`:scope > .${LIVE}`)?.remove();
      host.append(place);
      draw(place, bytes);
      covered(true);
    } catch (error) {
      place.remove();
      covered(false);
      console.warn("modlab: the full view could not be drawn, so the static one stays:", error);
    }
  };
}

/** Offers `mount` to the loaders on the page: by the version, and by what it draws where that is a bundle of its own. */
export function offer(mount: ReturnType<typeof mountBy>, what = ""): void {
  ((globalThis as { modlab?: Record<string, unknown> }).modlab ??= {})[VERSION + what] = { mount };
}
