/** The hidden widget of a lesson: it finds the lesson's cards and stills on the page, and asks the kernel for what they need. */
import { element } from "../elements";
import { Kernel, type WidgetModel } from "../kernel";
import { answered, focus, type Given, open, say } from "./answering";
import style from "./answering.css";

interface LessonModel extends WidgetModel {
  get(name: "lesson"): string;
  /** JupyterLab's has the notebook to which the kernel belongs. */
  widget_manager?: { context?: { path?: string; localPath?: string; isDisposed?: boolean } };
}

/** What a click changes: the HTML of the cards that show it, or what is wrong with the answer. */
interface Click {
  cards?: readonly string[];
  trouble?: string;
}

type Mount = (host: HTMLElement, bytes: ArrayBuffer) => void;

/** anywidget calls it for each widget as soon as the page hears of it; nothing is displayed. */
export function initialize({ model }: { model: LessonModel }): () => void {
  const page = new Page(model);
  return () => page.close();
}

export class Page {
  readonly #kernel: Kernel;
  readonly #notebook: NonNullable<LessonModel["widget_manager"]>["context"];
  readonly #lesson: string;
  readonly #observer: MutationObserver;
  readonly #style = element("style", {}, style);
  readonly #bundles = new Map<string, Promise<void>>();
  readonly #known = new WeakSet<Element>();
  #waits = false;
  /** The question whose card has the focus again when it is drawn anew. */
  #focused = "";
  /** The cards with an answer that is about to be changed: Escape brings them back. */
  readonly #before = new Map<string, HTMLElement>();
  /** Whoever presses something else has gone on: the focus is theirs. */
  readonly #goneOn = (): void => void (this.#focused = "");

  constructor(model: LessonModel) {
    this.#lesson = model.get("lesson");
    this.#notebook = model.widget_manager?.context;
    this.#kernel = new Kernel(model, (action, bytes) => action === "click" && this.#take(bytes));
    this.#observer = new MutationObserver(() => this.#soon());
    document.head.append(this.#style);
    for (const pressed of ["keydown", "pointerdown"]) document.addEventListener(pressed, this.#goneOn, true);
    this.#observer.observe(document.body, { childList: true, subtree: true });
    this.#kernel.tell("hello").catch(() => {}); // so that a watch knows that somebody looks on
    this.#look();
  }

  close(): void {
    this.#observer.disconnect();
    for (const pressed of ["keydown", "pointerdown"]) document.removeEventListener(pressed, this.#goneOn, true);
    this.#style.remove();
    this.#kernel.close();
  }

  /** Once a frame at most: a page that is drawn changes in a thousand places. */
  #soon(): void {
    if (this.#waits) return;
    this.#waits = true;
    setTimeout(() => {
      this.#waits = false;
      this.#look();
    }, 16);
  }

  #look(): void {
    if (this.#notebook?.isDisposed) return this.close();
    const cards = `[data-lesson="${CSS.escape(this.#lesson)}"] .modlab-card[data-question]`;
    for (const card of this.#fresh(cards)) this.#enliven(card);
    for (const host of this.#fresh(".modlab[data-key]")) void this.#draw(host);
    const pictures = this.#fresh<HTMLImageElement>(".jp-RenderedImage img:not([alt])");
    if (pictures.length) void this.#describe(pictures);
  }

  #fresh<Found extends HTMLElement = HTMLElement>(selector: string): Found[] {
    const found = this.#all<Found>(selector).filter((one) => !this.#known.has(one));
    for (const one of found) this.#known.add(one);
    return found;
  }

  /** What is there in the kernel's own notebook: another one beside it has a page of its own. */
  #all<Found extends HTMLElement>(selector: string): Found[] {
    const path = this.#notebook?.localPath ?? this.#notebook?.path;
    const panels = [...document.querySelectorAll(".jp-NotebookPanel")].filter((panel) => path && pathOf(panel) === path);
    return (panels.length ? panels : [document]).flatMap((panel) => [...panel.querySelectorAll<Found>(selector)]);
  }

  #enliven(card: HTMLElement): void {
    const answer = (given: Given): void => void this.#answer(card, given);
    if (card.dataset.label === "see" || card.querySelector(".modlab-answers")) return;
    if (card.dataset.said) answered(card, answer);
    else open(card, answer);
    card.addEventListener("keydown", (event) => this.#leave(card, event));
    if (card.dataset.question === this.#focused) focus(card);
  }

  /** Escape: back to the answer as it was; else out of the card, to the cell around it, as in every view. */
  #leave(card: HTMLElement, event: KeyboardEvent): void {
    if (event.key !== "Escape" || event.defaultPrevented) return;
    event.preventDefault();
    event.stopPropagation();
    const { question = "", said } = card.dataset;
    const before = said ? undefined : this.#before.get(question);
    this.#before.delete(question);
    if (before) {
      card.replaceWith(before);
      focus(before);
    } else {
      (event.target as HTMLElement).blur();
      card.closest<HTMLElement>(".jp-Cell, [tabindex]")?.focus({ preventScroll: true });
    }
  }

  async #answer(card: HTMLElement, given: Given): Promise<void> {
    const { question = "" } = card.dataset;
    this.#focused = question;
    if (given === null) this.#before.set(question, card);
    else this.#before.delete(question);
    setTimeout(() => (this.#focused = ""), 1000);
    try {
      this.#take(await this.#kernel.ask("click", { question: card.dataset.question, answer: given }), card);
    } catch (error) {
      say(card, `${error instanceof Error ? error.message : String(error)}. Your answer counts as soon as the kernel is free.`);
    }
  }

  /** The saved output is renewed by the kernel; the page does not wait for it. */
  #take(bytes: ArrayBuffer, card?: HTMLElement): void {
    const { cards = [], trouble = "" } = JSON.parse(new TextDecoder().decode(bytes)) as Click;
    if (trouble && card) say(card, trouble);
    for (const html of cards) {
      const made = new DOMParser().parseFromString(html, "text/html");
      for (const fresh of made.querySelectorAll<HTMLElement>(".modlab-card")) this.#replace(fresh);
    }
    this.#look();
  }

  #replace(fresh: HTMLElement): void {
    const { question = "", label = "", said = "" } = fresh.dataset;
    const same = `[data-lesson="${CSS.escape(this.#lesson)}"] .modlab-card[data-question="${CSS.escape(question)}"][data-label="${CSS.escape(label)}"]`;
    for (const old of this.#all(same)) if (old.dataset.said !== said) old.replaceWith(document.importNode(fresh, true));
  }

  async #draw(host: HTMLElement): Promise<void> {
    try {
      const answer = new Uint8Array(await this.#kernel.askPatiently("view", { key: host.dataset.key }));
      const end = answer.indexOf(10);
      const { front, bundle } = JSON.parse(new TextDecoder().decode(answer.subarray(0, end))) as { front: string; bundle: string };
      (await this.#front(front, bundle))(host, answer.slice(end + 1).buffer);
    } catch (error) {
      console.info("modlab: the picture stays,", error instanceof Error ? error.message : error);
    }
  }

  async #front(front: string, bundle: string): Promise<Mount> {
    const offered = (): Mount | undefined => (globalThis as { modlab?: Record<string, { mount: Mount } | undefined> }).modlab?.[front]?.mount;
    if (!offered()) {
      const loading = this.#bundles.get(bundle) ?? this.#kernel.askPatiently("bundle", { name: bundle }).then((code) => void (0, eval)(new TextDecoder().decode(code)));
      this.#bundles.set(bundle, loading);
      await loading;
    }
    const mount = offered();
    if (!mount) throw new Error(`there is no front end ${front}`);
    return mount;
  }

  async #describe(pictures: readonly HTMLImageElement[]): Promise<void> {
    const answer = await this.#kernel.askPatiently("words").catch(() => null);
    const known = answer ? (JSON.parse(new TextDecoder().decode(answer)) as readonly (readonly [string, string])[]) : [];
    for (const picture of pictures) picture.alt = known.find(([piece]) => picture.src.includes(piece))?.[1] ?? "";
  }
}

/** The path of a panel's notebook, which JupyterLab says in the title of its tab: ``Path: course/01_a_module.ipynb``. */
function pathOf(panel: Element): string | undefined {
  const tab = document.querySelector<HTMLElement>(`li[data-id="${CSS.escape(panel.id)}"]`);
  return tab?.title.split("\n").map((line) => line.slice(line.indexOf(": ") + 2))[1];
}
