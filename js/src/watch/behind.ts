/** The kernel behind a picture at rest: where a live view was before it, that view's widget still answers. */
import type { Kernel } from "../kernel";
import { decode } from "../payload";
import { VERSION } from "../version";
import type { Entered } from "./part";
import type { Shown } from "./show";

/** Makes one more way to the kernel; the given function hears what the kernel sends unasked. */
interface Way {
  (unasked: (bytes: ArrayBuffer) => void): Kernel;
  /** When the focus left the widget; infinite while it is there, and where the widget was taken away with it. */
  left?: number;
  /** For a fork: the widget and the pictures after it have it together. */
  entered?: Entered;
}

/** By JupyterLab's output area: the ways of its outputs, by place. All bundles on the page share it. */
function ways(): WeakMap<Element, Map<number, Way>> {
  const shared = ((globalThis as { modlab?: Record<string, unknown> }).modlab ??= {});
  return (shared[`${VERSION}+ways`] ??= new WeakMap()) as WeakMap<Element, Map<number, Way>>;
}

function placeOf(el: Element): readonly [area: Element, index: number] | null {
  const child = el.closest(".jp-OutputArea-child");
  const area = child?.parentElement;
  return area && child ? [area, [...area.children].indexOf(child)] : null;
}

/** Notes how the kernel is asked by the widget that an output shows: the picture that takes its place finds it there. */
export function remember(el: Element, way: Way): void {
  const place = placeOf(el);
  if (!place) return;
  const [area, index] = place;
  if (way.left === undefined) {
    way.left = 0;
    el.addEventListener("focusin", () => (way.left = Number.POSITIVE_INFINITY));
    el.addEventListener("focusout", () => (way.left = Date.now()));
  }
  ways().set(area, (ways().get(area) ?? new Map<number, Way>()).set(index, way));
}

/** In milliseconds: so soon the picture at rest is in the widget's place. */
const SOON = 1000;

/** So many pictures of the screen later a view stands in its document. */
const TRIES = 60;

/** Lets a picture at rest be told by the widget that was there before it; where there was none, it stays what it is. */
export function wake(host: HTMLElement, bytes: ArrayBuffer, shown: Shown, tries = TRIES): void {
  if (!host.isConnected) {
    if (tries) requestAnimationFrame(() => wake(host, bytes, shown, tries - 1));
    return;
  }
  const place = placeOf(host);
  let isOld = false;
  const way = place && ways().get(place[0])?.get(place[1]);
  // The focus went with the widget, and is nowhere: whoever pressed "stop" goes on here.
  if (way?.left) {
    if (Date.now() - way.left < SOON && document.activeElement === document.body) host.shadowRoot?.querySelector<HTMLElement>(".axis-track")?.focus({ preventScroll: true });
    way.left = 0;
  }
  const kernel = way?.((more) => {
    if (!host.isConnected) return kernel?.close();
    shown.take(more);
    isOld = shown.settled?.() ?? false;
    leave();
  });
  if (!kernel) return;
  /** Once nobody works here, the notebook gets the picture with the forks that were made since. */
  const leave = (to: EventTarget | null = document.activeElement): void => {
    if (!isOld || host.contains(to as Node | null)) return;
    isOld = false;
    void kernel.tell("leave").catch(() => {});
  };
  const close = (): void => kernel.close();
  kernel.ask("hello").then((fresh) => {
    if (said(fresh) !== said(bytes) || !shown.take(fresh)) return close();
    shown.listen?.((action, more) => kernel.tell(action, more), (way!.entered ??= {}));
    // A press on a plot takes the focus, and is one in this picture: it is left when the pointer has gone.
    host.addEventListener("focusout", (event) => host.matches(":active") || leave(event.relatedTarget));
    host.addEventListener("pointerleave", () => leave());
  }, close);
}

/** By what two pictures of one watch that has ended are known to be of one. */
function said(bytes: ArrayBuffer): string {
  const { headline, steps, samples } = decode(bytes).json as Record<string, unknown>;
  return JSON.stringify([headline, steps, samples]);
}
