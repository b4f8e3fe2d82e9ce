/**
 * Matches one search word against a dotted path that is read part by part.
 *
 * A tree is walked from its root down, so a path is never built: each place continues from its parent's state.
 * The states are sets of positions in the pattern (a subset construction, made as far as it is needed).
 */

const ANY = -1;
const MANY = -2;
const DOT = 46;

export class Automaton {
  readonly #tokens: number[];
  readonly #states: number[][] = [];
  readonly #numbers = new Map<string, number>();
  readonly #steps: (number | undefined)[][] = [];
  readonly start: number;

  /** A plain pattern is found anywhere; a glob (`*`, `?`) begins at a part and ends where the text ends. */
  constructor(pattern: string, readonly glob: boolean) {
    this.#tokens = Array.from(pattern.toLowerCase(), (sign) => token(sign, glob));
    this.start = this.#state(this.#closed([0]));
  }

  /** The state after one more character (lower case, by its code). */
  step(state: number, code: number): number {
    const known = this.#steps[state]?.[code];
    if (known !== undefined) return known;
    const next = this.#state(this.#closed(this.#moved(this.#states[state] ?? [], code)));
    if (code < 128) (this.#steps[state] ??= [])[code] = next;
    return next;
  }

  accepts(state: number): boolean {
    const positions = this.#states[state];
    return positions !== undefined && positions[positions.length - 1] === this.#tokens.length;
  }

  /** Whether a whole text matches. */
  matches(text: string): boolean {
    let state = this.start;
    let found = this.accepts(state);
    for (const character of text.toLowerCase()) {
      state = this.step(state, character.codePointAt(0) ?? 0);
      if (!this.glob && (found ||= this.accepts(state))) return true;
    }
    return this.glob ? this.accepts(state) : found;
  }

  #moved(positions: readonly number[], code: number): number[] {
    const next: number[] = [];
    for (const position of positions) {
      const wanted = this.#tokens[position];
      if (wanted === MANY) next.push(position);
      else if (wanted === ANY || wanted === code) next.push(position + 1);
    }
    if (!this.glob || code === DOT) next.push(0);
    return next;
  }

  #closed(positions: number[]): number[] {
    const all = new Set<number>();
    for (let position of positions) {
      all.add(position);
      while (this.#tokens[position] === MANY) all.add(++position);
    }
    return [...all].sort((a, b) => a - b);
  }

  #state(positions: number[]): number {
    const key = positions.join(" ");
    let number = this.#numbers.get(key);
    if (number === undefined) {
      number = this.#states.push(positions) - 1;
      this.#numbers.set(key, number);
    }
    return number;
  }
}

function token(sign: string, glob: boolean): number {
  if (glob && sign === "*") return MANY;
  if (glob && sign === "?") return ANY;
  return sign.codePointAt(0) ?? 0;
}
