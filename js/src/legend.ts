/** What colours mean: boxes from the low end to the high one, with the numbers of both. */
import { css, type Rgb } from "./colour";
import { element } from "./elements";

const BOXES = 12;

/** `colour` gives what a share from 0 to 1 is drawn in. */
export function fillLegend(legend: HTMLElement, low: string, high: string, colour: (share: number) => Rgb): void {
  const boxes = Array.from({ length: BOXES + 1 }, (_, index) => {
    const box = element("i");
    box.style.background = css(colour(index / BOXES));
    return box;
  });
  legend.replaceChildren(element("span", {}, low), ...boxes, element("span", {}, high));
}
