/** Commands by their keys. */
import type { TypeAhead } from "./type-ahead";

/** One that gives false has had nothing to do: the key goes on. */
export type Commands = Record<string, () => void | false>;

/** Lets the keys that `target` hears run commands ("Ctrl+Home" for one with Ctrl), and its letters find names. */
export function onKeys(target: HTMLElement, typed: TypeAhead, commands: Commands): void {
  target.addEventListener("keydown", (event) => {
    const run = commands[event.ctrlKey ? `Ctrl+${event.key}` : event.key];
    if (event.altKey || event.metaKey || (event.ctrlKey && !run)) return;
    if (event.ctrlKey || !typed.takes(event.key, run)) {
      if (!run || run() === false) return;
    }
    event.preventDefault();
  });
  target.addEventListener("blur", () => typed.settle());
}
