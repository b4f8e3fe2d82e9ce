/** What every panel of one view shares. */
import type { Numbers, Values } from "./payload";

export interface Asked {
  values: Values | null;
  numbers: Numbers;
}

export interface Context {
  root: ShadowRoot;
  /** Asks the kernel for the values of a tensor; null where nobody answers (at rest). */
  ask: ((path: string) => Promise<Asked>) | null;
  /** Says something in the polite live region. */
  announce(text: string): void;
  isDark(): boolean;
}

export interface Panel {
  element: HTMLElement;
  /** The keys that work here, for the foot line. */
  keys: string;
  /** Called when the view enters the document; gives what to do when it leaves. */
  arrived(): () => void;
}

/** Told to whatever carries `data-paint` when the theme has changed. */
export const PAINT = "modlab:paint";

export function repaint(root: ShadowRoot): void {
  for (const painted of root.querySelectorAll("[data-paint]")) painted.dispatchEvent(new Event(PAINT));
}
