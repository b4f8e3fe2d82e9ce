/** What the parts of a watch view share: one moment in time, one selected series, one way to tell the panel. */
import type { Context } from "../context";
import type { WatchData } from "./data";

export interface Moment {
  data: WatchData;
  /** The time cursor. */
  step: number;
  /** The step whose numbers are said: the one that is pointed at, else the cursor's. */
  seen: number;
  /** The selected series; -1 where there is none. */
  row: number;
  /** The cursor goes with the newest step. */
  following: boolean;
  /** The visible steps, `to` excluded. */
  from: number;
  to: number;
}

export interface Part {
  readonly element: HTMLElement;
  /** Cheap: called up to ten times a second and on each move of the cursor. */
  draw(moment: Moment): void;
}

/**
 * What a part tells the panel. Parts are made by `new Part(context, hooks)`.
 *
 * A plot over time takes its axis from `time-axis.ts` (`plotOf`, `xOf`, `followTime`, `drawCursor`), so that one cursor
 * runs through all; `strip.ts` has the common form: words on the left, a canvas, an axis of values, figures on the right.
 */
export interface Hooks {
  onStep(step: number): void;
  /** A step is pointed at; -1: none any more. */
  onHover(step: number): void;
  onSelect(row: number): void;
  /** Shows the steps from … to (`to` excluded). */
  onZoom(from: number, to: number): void;
}

export type Control = "pause" | "resume" | "step" | "stop" | "budget" | "fork" | "cancel" | "pin";

/** What a person has entered for a fork; what is not here follows the run. */
export interface Entered {
  at?: number | undefined;
  rate?: string;
  setting?: string;
  value?: string;
}

export interface WatchContext extends Context {
  /** Tells the kernel; rejects when it says no. Null where nobody listens (at rest). */
  control: ((action: Control, more?: Record<string, unknown>) => Promise<unknown>) | null;
  /** Is told what the user selects, and of the step of the cursor; -1: it follows the newest. */
  told?: ((trait: "selected" | "step", value: string | number) => void) | null;
  /** Kept from view to view: the one at rest has what was entered while it ran. */
  entered?: Entered;
}
