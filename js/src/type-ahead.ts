/** Letters typed in quick succession: the beginning of a name. A letter that is a command too waits whether another follows. */

const PAUSE = 700;
/** Short enough that a browser still lets a command copy that runs after it. */
const WAIT = 300;

interface Rows {
  count(): number;
  /** Where to begin. */
  at(): number;
  /** What the letters may begin. */
  names(index: number): readonly string[];
  go(index: number): void;
}

interface Waiting {
  command: () => unknown;
  timer: ReturnType<typeof setTimeout>;
}

export class TypeAhead {
  readonly #rows: Rows;
  #text = "";
  #last = 0;
  #waiting: Waiting | null = null;

  constructor(rows: Rows) {
    this.#rows = rows;
  }

  /** Takes a key that goes on with what is being typed or may begin a name; `command` is what it does if it does not. */
  takes(key: string, command?: () => unknown): boolean {
    if (MODIFIERS.has(key)) return false;
    if ([...key].length !== 1 || NO_LETTERS.has(key)) {
      this.settle();
      this.#text = "";
      return false;
    }
    if (this.#waiting && command && this.#find(this.#text + key, 0) < 0) this.settle();
    const text = this.#goesOn() ? this.#text + key : key;
    if (text.length === key.length && command) return this.#wait(key, command);
    this.#stop();
    this.#text = text;
    this.#last = Date.now();
    const found = this.#find(text, this.#rows.at() + (text.length === 1 ? 1 : 0));
    if (found >= 0) this.#rows.go(found);
    return true;
  }

  /** Runs the command that waits, before what it is about may change. */
  settle(): void {
    const command = this.#waiting?.command;
    if (!command) return;
    this.#stop();
    this.#text = "";
    command();
  }

  /** The next row from `from` on, going round, with a name that begins so. */
  #find(text: string, from: number): number {
    const count = this.#rows.count();
    const wanted = text.toLowerCase();
    for (let step = 0; step < count; step += 1) {
      const index = (from + step + count) % count;
      if (this.#rows.names(index).some((name) => name.toLowerCase().startsWith(wanted))) return index;
    }
    return -1;
  }

  #goesOn(): boolean {
    return this.#text !== "" && (this.#waiting !== null || Date.now() - this.#last < PAUSE);
  }

  #wait(key: string, command: () => unknown): boolean {
    this.#text = "";
    if (this.#find(key, 0) < 0) return false;
    this.#text = key;
    this.#waiting = { command, timer: setTimeout(() => this.settle(), WAIT) };
    return true;
  }

  #stop(): void {
    if (this.#waiting) clearTimeout(this.#waiting.timer);
    this.#waiting = null;
  }
}

const MODIFIERS = new Set(["Shift", "CapsLock", "AltGraph"]);
const NO_LETTERS = new Set([" ", "/", "*"]);
