/** The kernel behind a picture at rest: where a live view was before it, that view's widget still answers. */
import { Kernel, type WidgetModel } from "../kernel";
import { decode } from "../payload";
import { VERSION } from "../version";
import type { Shown } from "./show";

type Models = WeakMap<Element, Map<number, WidgetModel>>;

/** By JupyterLab's output area: the widgets of its outputs, by place. All bundles on the page share it. */
function models(): Models {
  const shared = ((globalThis as { modlab?: Record<string, unknown> }).modlab ??= {});
  return (shared[`${VERSION}+models`] ??= new WeakMap()) as Models;
}

function placeOf(el: Element): readonly [area: Element, index: number] | null {
  const child = el.closest(".jp-OutputArea-child");
  const area = child?.parentElement;
  return area && child ? [area, [...area.children].indexOf(child)] : null;
}

/** Notes which widget an output shows: the picture that takes its place finds it there. */
export function remember(el: Element, model: WidgetModel): void {
  const place = placeOf(el);
  if (!place) return;
  const [area, index] = place;
  const known = models().get(area) ?? new Map<number, WidgetModel>();
  models().set(area, known.set(index, model));
}

/** So many pictures of the screen later a view stands in its document. */
const TRIES = 60;

/** Lets a picture at rest be told by the widget that was there before it; where there was none, it stays what it is. */
export function wake(host: HTMLElement, bytes: ArrayBuffer, shown: Shown, tries = TRIES): void {
  if (!host.isConnected) {
    if (tries) requestAnimationFrame(() => wake(host, bytes, shown, tries - 1));
    return;
  }
  const place = placeOf(host);
  const model = place && models().get(place[0])?.get(place[1]);
  if (!model) return;
  const kernel = new Kernel(model, () => {}, (more) => (host.isConnected ? void shown.take(more) : kernel.close()));
  const gone = (): void => kernel.close();
  kernel.ask("hello").then((fresh) => {
    if (said(fresh) !== said(bytes) || !shown.take(fresh)) return gone();
    shown.listen?.((action, more) => kernel.tell(action, more));
  }, gone);
}

/** By what two pictures of one watch that has ended are known to be of one. */
function said(bytes: ArrayBuffer): string {
  const { headline, steps, samples } = decode(bytes).json as Record<string, unknown>;
  return JSON.stringify([headline, steps, samples]);
}
