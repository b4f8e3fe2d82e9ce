/** What flows along depth: of each module the size of its output and of the gradient of it, at a moment and over all time. */
import type { WatchData } from "./data";
import { figure, percent, placeWords } from "./figures";

export type Measure = "rms" | "L2";

/** One module. */
export interface FlowRow {
  path: string;
  /** The series of its activation and of its gradient; -1 where there is none. */
  series: readonly [activation: number, gradient: number];
  /** Nothing below it was called: only such ones are compared. */
  leaf: boolean;
}

export function flowRows(data: WatchData): FlowRow[] {
  const paths = new Set(data.payload.series.filter(({ role }) => role === "activation" || role === "gradient").map(({ path }) => path));
  const above = new Set<string>();
  for (const path of paths) {
    for (let dot = path.lastIndexOf("."); dot >= 0; dot = path.lastIndexOf(".", dot - 1)) above.add(path.slice(0, dot));
    if (path) above.add("");
  }
  return [...paths].map((path) => ({ path, series: [data.row(path, "activation"), data.row(path, "gradient")], leaf: !above.has(path) }));
}

export type Size = number | "bad" | "none";

/** L2 or root mean square at a step, or when it was measured last before it; "bad" where numbers were NaN or infinite. */
export function sizeAt(data: WatchData, step: number, row: number, measure: Measure): Size {
  if (row < 0) return "none";
  const slot = data.seenAt(step, row);
  if (data.value("bad", slot, row) > 0) return "bad";
  const size = data.norm(slot, row);
  return Number.isNaN(size) ? "none" : size / divisor(data, row, measure);
}

export function divisor(data: WatchData, row: number, measure: Measure): number {
  return measure === "L2" ? 1 : Math.sqrt(data.payload.series[row]?.count || 1);
}

/** The least and the greatest L2 norm of each series so far; zeros apart. They only widen. */
export class Spans {
  readonly #spans = new Map<string, [low: number, high: number]>();
  #measured = 0;

  /** To be called whenever the data have changed. */
  take(data: WatchData, rows: readonly FlowRow[]): void {
    const from = data.slots < this.#measured ? 0 : Math.max(0, this.#measured - 1);
    this.#measured = data.slots;
    for (const { series } of rows) for (const row of series) this.#widen(data, row, from);
  }

  #widen(data: WatchData, row: number, from: number): void {
    const series = data.payload.series[row];
    if (!series) return;
    const key = `${series.role} ${series.path}`;
    // A series that came later has slots that were passed over.
    const [span, begin] = [this.#spans.get(key), this.#spans.has(key) ? from : 0];
    let [low, high] = span ?? [Number.POSITIVE_INFINITY, 0];
    for (let slot = begin; slot < data.slots; slot += 1) {
      const size = data.norm(slot, row);
      if (!(size > 0 && size < Number.POSITIVE_INFINITY)) continue;
      if (size < low) low = size;
      if (size > high) high = size;
    }
    if (low <= high) this.#spans.set(key, [low, high]);
  }

  of(data: WatchData, row: number, measure: Measure): readonly [low: number, high: number] | null {
    const series = data.payload.series[row];
    const span = series && this.#spans.get(`${series.role} ${series.path}`);
    const by = divisor(data, row, measure);
    return span ? [span[0] / by, span[1] / by] : null;
  }

  /** Whole powers of ten around all spans of one lane. */
  decades(data: WatchData, rows: readonly FlowRow[], lane: 0 | 1, measure: Measure): [from: number, to: number] {
    let [low, high] = [Number.POSITIVE_INFINITY, 0];
    for (const { series } of rows) {
      const [least, most] = this.of(data, series[lane], measure) ?? [low, high];
      low = Math.min(low, least);
      high = Math.max(high, most);
    }
    if (!(low <= high)) return [-1, 0];
    // The numbers are float32: a power of ten may lie beside itself.
    const [from, to] = [Math.floor(Math.log10(low) + 1e-6), Math.ceil(Math.log10(high) - 1e-6) + 0];
    return [from, Math.max(from + 1, to)];
  }
}

const LANES = ["activation", "gradient"] as const;
/** Along depth so much is nothing to speak of. */
const EVEN = 10;

/** How the two change along depth, in sentences: from the first layer with a number to the last. */
export function flowWords(data: WatchData, rows: readonly FlowRow[], step: number, measure: Measure): string[] {
  return LANES.map((name, lane) => {
    const sizes = rows.filter(({ leaf }) => leaf).map(({ path, series }) => [path, sizeAt(data, step, series[lane] as number, measure)] as const);
    // Where it comes from: activations flow from the first to the last, gradients back.
    const bad = (lane ? [...sizes].reverse() : sizes).find(([, size]) => size === "bad");
    if (bad) return `${name}: NaN or Inf at ${placeWords(bad[0])}`;
    const known = sizes.filter((some): some is readonly [string, number] => typeof some[1] === "number");
    const [first, last] = [known[0], known.at(-1)];
    if (!first || !last) return `${name}: not sampled`;
    if (first === last) return `${name}: ${figure(first[1])} at ${placeWords(first[0])}`;
    const said = `${name}: ${figure(first[1])} at ${placeWords(first[0])}, ${figure(last[1])} at ${placeWords(last[0])}`;
    const zeros = known.filter(([, size]) => size === 0).length;
    if (zeros) return `${said}; zero in ${zeros} of ${known.length} (${percent(zeros / known.length)})`;
    const ratio = lane ? first[1] / last[1] : last[1] / first[1];
    if (ratio < EVEN && ratio > 1 / EVEN) return said;
    return `${said}: ${ratio < 1 ? "falls" : "grows"} ${figure(ratio < 1 ? 1 / ratio : ratio, 2)}-fold${lane ? " on its way back" : ""}`;
  });
}
