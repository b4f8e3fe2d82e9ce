/** A histogram of equal steps, with its ends and, where it lies inside, zero. */
import { element, svg, words } from "../elements";
import { counted } from "../names";
import type { Bars, Numbers } from "../payload";

export function histogram(bars: Bars, numbers: Numbers): HTMLElement {
  const counts = Array.from(numbers(bars.counts));
  if (!counts.length) return element("p", { class: "soft" }, "no histogram: there is no finite value");
  const zero = -bars.low / (bars.high - bars.low);
  const inside = bars.hi && zero > 0.15 && zero < 0.82;
  return element(
    "figure",
    { class: "histogram" },
    drawing(counts, summary(bars, counts)),
    element(
      "div",
      { class: "axis", "aria-hidden": "true" },
      words(bars.lo),
      inside ? zeroTick(zero) : null,
      bars.hi ? words(bars.hi) : null,
    ),
    bars.note ? element("figcaption", { class: "soft" }, words(bars.note)) : null,
  );
}

function zeroTick(at: number): HTMLElement {
  const tick = element("span", { class: "zero" }, "0");
  tick.style.left = `${(100 * at).toFixed(1)}%`;
  return tick;
}

function drawing(counts: readonly number[], label: string): SVGElement {
  const most = Math.max(...counts, 1);
  const path = counts.map((count, index) => bar(index, count / most)).join("");
  return svg(
    "svg",
    { class: "bars", viewBox: `0 0 ${counts.length} 100`, preserveAspectRatio: "none", role: "img", "aria-label": label },
    svg("path", { d: path }),
  );
}

/** A bar that holds anything is never too low to see. */
function bar(index: number, share: number): string {
  if (!share) return "";
  const height = Math.max(1.5, 100 * share);
  return `M${index + 0.06} 100v${(-height).toFixed(2)}h.88V100z`;
}

export function summary(bars: Bars, counts: readonly number[]): string {
  const total = counts.reduce((sum, count) => sum + count, 0);
  if (!bars.hi) return `histogram of ${counted(total, "value")}: ${bars.lo}`;
  const most = counts.indexOf(Math.max(...counts));
  const step = (bars.high - bars.low) / counts.length;
  const [from, to] = [bars.low + most * step, bars.low + (most + 1) * step].map((edge) => String(Number(edge.toPrecision(2))));
  return `histogram of ${counted(total, "value")} from ${bars.lo} to ${bars.hi}; most, ${(counts[most] ?? 0).toLocaleString("en")}, lie between ${from} and ${to}`;
}
