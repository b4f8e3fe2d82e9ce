/** The grammar of the search boxes: words, all of which must match. */
import { Automaton } from "./automaton";

export interface Word {
  text: string;
  /** Reads paths; null for a chip, which asks for a flag alone. */
  path: Automaton | null;
  /** The sizes in "768" or "4x3"; null when the word is no shape. */
  sizes: readonly number[] | null;
}

const MOST = 8;

/** "attn 768" → two words; `flags` are those of the pressed chips. */
export function parse(text: string, flags: readonly string[] = []): Word[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean).slice(0, MOST);
  return [...words.map(word), ...flags.map((flag) => ({ text: flag, path: null, sizes: null }))];
}

function word(text: string): Word {
  const sizes = /^\d+([x×]\d+)*$/.test(text) ? text.split(/[x×]/).map(Number) : null;
  return { text, path: new Automaton(text, /[*?]/.test(text)), sizes };
}

/** Whether a shape has these sizes side by side. */
export function hasSizes(shape: readonly number[] | null, sizes: readonly number[]): boolean {
  if (!shape) return false;
  for (let start = 0; start + sizes.length <= shape.length; start += 1) {
    if (sizes.every((size, offset) => shape[start + offset] === size)) return true;
  }
  return false;
}

/** Where reading a path has come to: for each word its automaton's state, and whether a part above has matched. */
export interface Reading {
  states: readonly number[];
  above: readonly boolean[];
}

export function begin(words: readonly Word[]): Reading {
  return { states: words.map((word) => word.path?.start ?? 0), above: words.map(() => false) };
}

/** Reads one more part of a path; `fresh[i]`: word i matches in a way that touches this part. */
export function readPart(words: readonly Word[], from: Reading, name: string, first: boolean): Reading & { fresh: boolean[] } {
  const text = (first ? "" : ".") + name.toLowerCase();
  const states: number[] = [];
  const fresh: boolean[] = [];
  words.forEach((word, index) => {
    let state = from.states[index] ?? 0;
    let found = false;
    if (word.path) {
      for (const character of text) {
        state = word.path.step(state, character.codePointAt(0) ?? 0);
        found ||= !word.path.glob && word.path.accepts(state);
      }
      found ||= word.path.glob && word.path.accepts(state);
    }
    states.push(state);
    fresh.push(found);
  });
  return { states, fresh, above: from.above.map((was, index) => was || (fresh[index] === true && words[index]?.path?.glob === false)) };
}
