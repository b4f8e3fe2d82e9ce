/** The axis of a histogram in half octaves: which of its 65 bins are shown, where a value lies, and what is written beside it. */
import { BINS } from "./data";
import { figure } from "./figures";

export const ZERO = 32;
/** Bins of one sign. */
const SIDE = 32;
/** Fewer look like nothing. */
const FEWEST = 4;

/** Which bins ever held something: of each sign the far end, and the one nearest to zero of both. They only widen. */
export class Reach {
  /** Counted from the smallest magnitude; -1 where there is none. */
  negative = -1;
  positive = -1;
  nearest = SIDE;
  /** The share of 255 that gets the brightest colour: of twenty histograms' fullest bins one may be fuller. */
  most = 0;
  #highest = 0;
  readonly #fullest = new Uint32Array(256);

  /** All histograms of a series. */
  takeAll(count: number, bins: (slot: number) => ArrayLike<number>): void {
    this.#fullest.fill(0);
    for (let slot = 0; slot < count; slot += 1) this.#take(bins(slot));
    let left = Math.floor((count - (this.#fullest[0] as number)) / 20);
    let most = 255;
    while (most > 0 && (left -= this.#fullest[most] as number) >= 0) most -= 1;
    this.most = Math.max(this.most, most);
    this.#highest = Math.max(this.#highest, lastFilled(this.#fullest));
  }

  /** Whether some bin holds more than that. */
  get fuller(): boolean {
    return this.#highest > this.most;
  }

  #take(bins: ArrayLike<number>): void {
    let fullest = 0;
    for (let bin = 0; bin < BINS; bin += 1) {
      const share = bins[bin] as number;
      if (!share) continue;
      if (share > fullest) fullest = share;
      const away = Math.abs(bin - ZERO) - 1;
      if (away < 0) continue;
      if (bin < ZERO) this.negative = Math.max(this.negative, away);
      else this.positive = Math.max(this.positive, away);
      this.nearest = Math.min(this.nearest, away);
    }
    this.#fullest[fullest] = (this.#fullest[fullest] as number) + 1;
  }
}

/** The shown bins in a row, from the most negative value to the most positive one; one place of the axis each. */
export class BinAxis {
  readonly bins: readonly number[];
  /** The place of the bin about zero. */
  readonly zero: number;
  readonly #nearest: number;
  readonly #top: number;

  constructor({ negative, positive, nearest }: Reach, top: number) {
    const empty = negative < 0 && positive < 0;
    const [far, near] = [Math.max(negative, positive), Math.min(nearest, Math.max(negative, positive) - FEWEST + 1)];
    this.#nearest = empty ? SIDE - FEWEST : Math.max(0, near);
    this.#top = top;
    const side = (end: number): number[] => Array.from({ length: Math.max(0, end - this.#nearest + 1) }, (_, index) => this.#nearest + index);
    const below = side(empty ? far + SIDE : negative).reverse().map((away) => ZERO - 1 - away);
    this.zero = below.length;
    this.bins = [...below, ZERO, ...side(empty ? far + SIDE : positive).map((away) => ZERO + 1 + away)];
  }

  get length(): number {
    return this.bins.length;
  }

  /** Where a magnitude begins: 2 ** (half octaves / 2). */
  #edge(away: number): number {
    return 2 ** ((this.#top - SIDE + 1 + away) / 2);
  }

  /** The values of the bin at a place. */
  edges(place: number): [low: number, high: number] {
    const away = Math.abs((this.bins[place] ?? ZERO) - ZERO) - 1;
    if (away < 0) return [-this.#edge(this.#nearest), this.#edge(this.#nearest)];
    const [near, far] = [this.#edge(away), this.#edge(away + 1)];
    return place < this.zero ? [-far, -near] : [near, far];
  }

  /** In words; the outermost bins hold all that is larger, too. */
  named(place: number): string {
    const [low, high] = this.edges(place);
    const bin = this.bins[place];
    if (bin === ZERO) return `within ±${figure(high, 2)}`;
    if (bin === 0) return `below ${figure(high, 2)}`;
    if (bin === BINS - 1) return `above ${figure(low, 2)}`;
    return `${figure(low, 2)} to ${figure(high, 2)}`;
  }

  /** Where a value lies, in places from the low end. */
  position(value: number): number {
    const size = Math.abs(value);
    const least = this.#edge(this.#nearest);
    if (size < least) return this.zero + 0.5 + (0.5 * value) / least;
    const away = 2 * Math.log2(size) - (this.#top - SIDE + 1) - this.#nearest;
    return value < 0 ? this.zero - away : this.zero + 1 + away;
  }

  /** Powers of ten, or of two where the axis spans few, on both sides of zero, no closer than `apart` places. */
  ticks(apart: number): number[] {
    const [low, high] = [this.edges(0)[0], this.edges(this.length - 1)[1]];
    const [least, most] = [this.#edge(this.#nearest), Math.max(-low, high)];
    const tens = powers(10, least, most);
    const chosen = tens.length > 1 ? tens : powers(2, least, most);
    const kept: number[] = [];
    for (const tick of chosen.reverse()) {
      const at = this.position(tick);
      const room = at - (this.zero + 0.5) >= apart;
      if (room && kept.every((other) => this.position(other) - at >= apart)) kept.push(tick);
    }
    return [...kept.map((tick) => -tick), 0, ...kept.reverse()].filter((tick) => tick >= low * 1.0001 && tick <= high * 1.0001);
  }
}

function powers(base: number, low: number, high: number): number[] {
  const log = (value: number): number => Math.log(value) / Math.log(base);
  const [from, to] = [Math.ceil(log(low) - 1e-9), Math.floor(log(high) + 1e-9)];
  return Array.from({ length: Math.max(0, to - from + 1) }, (_, index) => base ** (from + index));
}

function lastFilled(counts: Uint32Array): number {
  let at = counts.length - 1;
  while (at > 0 && !counts[at]) at -= 1;
  return at;
}
