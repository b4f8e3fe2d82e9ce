/** Letters typed in quick succession: the beginning of a name. A letter that is a command too waits whether another follows. */

const PAUSE = 700;
/** Short enough that a browser still lets a command copy that runs after it. */
const WAIT = 300;

interface Rows {
  /** Whether a name among the rows begins so. */
  begins(text: string): boolean;
  go(text: string): void;
}

interface Waiting {
  command: () => void;
  timer: ReturnType<typeof setTimeout>;
}

export class TypeAhead {
  private text = "";
  private last = 0;
  private waiting: Waiting | null = null;

  constructor(private readonly rows: Rows) {}

  /** Takes a key that goes on with what is being typed or may begin a name; `command` is what it does if it does not. */
  takes(key: string, command?: () => void): boolean {
    if (MODIFIERS.has(key)) return false;
    if ([...key].length !== 1 || NO_LETTERS.has(key)) {
      this.settle();
      this.text = "";
      return false;
    }
    if (this.waiting && command && !this.rows.begins(this.text + key)) this.settle();
    const text = this.goesOn() ? this.text + key : key;
    if (text.length === key.length && command) return this.wait(key, command);
    this.stop();
    this.text = text;
    this.last = Date.now();
    this.rows.go(text);
    return true;
  }

  /** Runs the command that waits, before what it is about may change. */
  settle(): void {
    const command = this.waiting?.command;
    if (!command) return;
    this.stop();
    this.text = "";
    command();
  }

  private goesOn(): boolean {
    return this.text !== "" && (this.waiting !== null || Date.now() - this.last < PAUSE);
  }

  private wait(key: string, command: () => void): boolean {
    this.text = "";
    if (!this.rows.begins(key)) return false;
    this.text = key;
    this.waiting = { command, timer: setTimeout(() => this.settle(), WAIT) };
    return true;
  }

  private stop(): void {
    if (this.waiting) clearTimeout(this.waiting.timer);
    this.waiting = null;
  }
}

const MODIFIERS = new Set(["Shift", "CapsLock", "AltGraph"]);
const NO_LETTERS = new Set([" ", "/", "*"]);
