/** One watch in one host: at rest, or fed by a kernel. */
// First, and together, so that what gzip compares (32 KB) is like with like.
import style from "../style.css";
import own from "./watch.css";
import parts from "./parts.css";
import { enclose } from "../shell";
import { type Role, WatchData } from "./data";
import type { Entered, WatchContext } from "./part";
import { WatchPanel } from "./watch-panel";

export interface Shown {
  /** Takes a payload or an update; false where it fits nothing that is here: ask for all. */
  take(bytes: ArrayBuffer): boolean;
  /** Goes to the series of this role that is nearest to a module's, or to the selected one; false where there is none yet. */
  see?(role: Role, path: string | null): boolean;
  /** Selects a module or parameter by its path; false where there is none. */
  choose?(path: string): boolean;
  /** Moves the cursor to a step; -1 follows the newest. */
  goTo?(step: number): void;
  /** Whether no fork runs. */
  settled?(): boolean;
  /** From now on a kernel answers, and this is what was entered before. */
  listen?(control: WatchContext["control"], entered?: Entered): void;
  /** Takes an answer that came after its question was given up. */
  late?(action: string, bytes: ArrayBuffer): void;
}

export function showWatch(host: HTMLElement, bytes: ArrayBuffer, control: WatchContext["control"] = null, told: WatchContext["told"] = null, entered: Entered = {}): Shown {
  const data = new WatchData(bytes);
  let panel: WatchPanel | null = null;
  let context: WatchContext | null = null;
  enclose(host, data.payload.headline.join(" ") || "watch", style + own + parts, (shell) => {
    context = { ...shell, ask: null, control: data.payload.live ? control : null, told, entered };
    panel = new WatchPanel(data, context);
    return [panel.elements, panel];
  });
  return {
    take(more) {
      if (!data.apply(more)) return false;
      panel?.update();
      return true;
    },
    see: (role, path) => panel?.see(role, path) ?? false,
    choose: (path) => panel?.choose(path) ?? false,
    goTo: (step) => panel?.goTo(step),
    settled: () => !data.payload.forks.some(({ running }) => running),
    listen(control, entered = {}) {
      if (context) Object.assign(context, { control, entered });
      panel?.update();
    },
  };
}
