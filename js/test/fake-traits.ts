/** The traits of a widget without a kernel: what the page saved is kept, and `receive` sets one as the kernel does. */
import type { TraitModel } from "../src/traits";

export class FakeTraits implements TraitModel {
  readonly traits: Record<string, unknown> = { selected: "", step: -1, headline: "" };
  saved: Record<string, unknown>[] = [];
  readonly #heard = new Map<string, Set<() => void>>();
  get(name: string): unknown {
    return this.traits[name];
  }
  set(name: string, value: unknown): void {
    if (this.traits[name] === value) return;
    this.traits[name] = value;
    for (const listener of [...(this.#heard.get(`change:${name}`) ?? [])]) listener();
  }
  save_changes(): void {
    this.saved.push({ ...this.traits });
  }
  receive(name: string, value: unknown): void {
    this.set(name, value);
  }
  on(event: string, listener: (...given: never[]) => void): void {
    this.#heard.set(event, (this.#heard.get(event) ?? new Set()).add(listener as () => void));
  }
  off(event: string, listener: (...given: never[]) => void): void {
    this.#heard.get(event)?.delete(listener as () => void);
  }
  /** How many listeners are left. */
  get heard(): number {
    return [...this.#heard.values()].reduce((sum, some) => sum + some.size, 0);
  }
}
