/** Questions to the kernel over a widget's messages, and their answers. An error is an answer. */

export interface WidgetModel {
  send(content: unknown): void;
  on(event: "msg:custom", listener: Listener): void;
  off(event: "msg:custom", listener: Listener): void;
}

type Listener = (content: unknown, buffers: readonly (DataView | ArrayBuffer)[]) => void;

interface Answer {
  id?: string;
  action?: string;
  ok?: boolean;
  error?: string;
}

interface Waiting {
  resolve(bytes: ArrayBuffer): void;
  reject(error: Error): void;
  timer?: ReturnType<typeof setTimeout>;
}

export const PATIENCE = 10_000;
const NOTHING = "the kernel's answer holds nothing";
export const SILENT = "the kernel is busy or has stopped: it has not answered for 10 seconds";

export class Kernel {
  readonly #model: WidgetModel;
  readonly #late: (action: string, bytes: ArrayBuffer) => void;
  readonly #unasked: (bytes: ArrayBuffer) => void;
  readonly #waiting = new Map<string, Waiting>();
  // Several views of one widget hear the same messages: each question has a name of its own.
  readonly #name = Math.random().toString(36).slice(2);
  #count = 0;
  readonly #listener: Listener = (content, buffers) => this.#hear(content as Answer, buffers);

  /** `late` gets an answer that came after its question was given up, `unasked` what the kernel sends on its own. */
  constructor(model: WidgetModel, late: (action: string, bytes: ArrayBuffer) => void = () => {}, unasked: (bytes: ArrayBuffer) => void = () => {}) {
    this.#model = model;
    this.#late = late;
    this.#unasked = unasked;
    model.on("msg:custom", this.#listener);
  }

  ask(action: string, more: Record<string, unknown> = {}): Promise<ArrayBuffer> {
    return this.#send(action, more, PATIENCE);
  }

  /** The same where nobody sits before an empty place meanwhile: the answer may come minutes later, once all cells have run. */
  askPatiently(action: string, more: Record<string, unknown> = {}): Promise<ArrayBuffer> {
    return this.#send(action, more);
  }

  /** The same where the answer is that it is done. */
  async tell(action: string, more: Record<string, unknown> = {}): Promise<void> {
    await this.ask(action, more).catch((error: Error) => {
      if (error.message !== NOTHING) throw error;
    });
  }

  close(): void {
    this.#model.off("msg:custom", this.#listener);
    for (const { timer } of this.#waiting.values()) clearTimeout(timer);
    this.#waiting.clear();
  }

  #send(action: string, more: Record<string, unknown>, patience?: number): Promise<ArrayBuffer> {
    this.#count += 1;
    const id = `${this.#name}-${this.#count} ${action}`;
    return new Promise((resolve, reject) => {
      const waiting: Waiting = { resolve, reject };
      const giveUp = (): void => {
        this.#waiting.delete(id);
        reject(new Error(SILENT));
      };
      if (patience) waiting.timer = setTimeout(giveUp, patience);
      this.#waiting.set(id, waiting);
      this.#model.send({ id, action, ...more });
    });
  }

  #hear(answer: Answer, buffers: readonly (DataView | ArrayBuffer)[]): void {
    const { id } = answer ?? {};
    if (answer?.action === "update" && buffers?.[0]) this.#unasked(bytesOf(buffers[0]));
    if (typeof id !== "string" || !id.startsWith(`${this.#name}-`)) return;
    const waiting = this.#waiting.get(id);
    this.#waiting.delete(id);
    if (waiting) clearTimeout(waiting.timer);
    const [first] = buffers ?? [];
    if (!answer.ok) waiting?.reject(new Error(answer.error || "the kernel gave no reason"));
    else if (!first) waiting?.reject(new Error(NOTHING));
    else if (waiting) waiting.resolve(bytesOf(first));
    else this.#late(id.slice(id.indexOf(" ") + 1), bytesOf(first));
  }
}

/** The bytes alone: a DataView may look into a larger buffer. */
function bytesOf(buffer: DataView | ArrayBuffer): ArrayBuffer {
  if (buffer instanceof ArrayBuffer) return buffer;
  return buffer.buffer.slice(buffer.byteOffset, buffer.byteOffset + buffer.byteLength) as ArrayBuffer;
}
