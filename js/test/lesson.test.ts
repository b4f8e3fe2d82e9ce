// @vitest-environment happy-dom
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { Page } from "../src/lessons/page";

type Listener = (content: unknown, buffers: readonly ArrayBuffer[]) => void;
type Asked = Record<string, unknown> & { id: string; action: string };

const bytes = (text: string): ArrayBuffer => new TextEncoder().encode(text).buffer as ArrayBuffer;

/** A kernel that answers what it is told to. */
class Model {
  readonly asked: Asked[] = [];
  #listener: Listener = () => {};
  constructor(readonly answers: Record<string, (asked: Asked) => string | Error>) {}
  get(): string {
    return "01_a_module";
  }
  on(_: string, listener: Listener): void {
    this.#listener = listener;
  }
  off(): void {
    this.#listener = () => {};
  }
  send(content: unknown): void {
    const asked = content as Asked;
    this.asked.push(asked);
    this.answer(asked);
  }
  answer(asked: Asked): void {
    const answer = this.answers[asked.action]?.(asked);
    if (answer === undefined) return;
    if (answer instanceof Error) this.#listener({ id: asked.id, ok: false, error: answer.message }, []);
    else this.#listener({ id: asked.id, ok: true }, [bytes(answer)]);
  }
  clicks(): unknown[] {
    return this.asked.filter(({ action }) => action === "click").map(({ question, answer }) => [question, answer]);
  }
}

const OPTIONS = ["bias first", "weight first", "in no order"];

function card(kind: string, options: readonly string[] = [], said = "", by = "cell", label = "predict"): string {
  const list = options.map((text, index) => `<li data-mark=""><span class="modlab-sign"></span> <code>${"abc"[index]}</code> ${text}</li>`).join("");
  return (
    `<section class="modlab-card" data-label="${label}" data-question="which" data-kind="${kind}" data-said="${said}" data-by="${by}">` +
    `<p class="modlab-said"><strong>Which?</strong></p>${list ? `<ul>${list}</ul>` : ""}${said ? "" : '<p class="modlab-foot">type</p>'}</section>`
  );
}

const cell = (inside: string, lesson = "01_a_module"): string => `<div class="modlab" data-lesson="${lesson}">${inside}</div>`;
const settle = (): Promise<void> => new Promise((done) => setTimeout(done, 40));
const controls = (text: string): HTMLElement[] => [...document.querySelectorAll<HTMLElement>("button")].filter((one) => one.textContent?.includes(text));
const press = (target: Element | null | undefined, key: string): boolean => target?.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true })) ?? false;

describe("a lesson's page", () => {
  let page: Page | null = null;
  const open = (body: string, answers: Model["answers"] = {}): Model => {
    document.body.innerHTML = body;
    const model = new Model(answers);
    page = new Page(model);
    return model;
  };
  beforeEach(() => document.head.replaceChildren());
  afterEach(() => page?.close());

  it("answers a choice by a click, and by the letter as a key", () => {
    const model = open(cell(card("choice", OPTIONS)));
    expect(document.querySelector<HTMLElement>(".modlab-foot")?.hidden).toBe(true);
    controls("weight first")[0]?.click();
    press(controls("bias first")[0], "c");
    expect(model.clicks()).toEqual([["which", "b"], ["which", "c"]]);
  });

  it("goes from option to option by the arrow keys", () => {
    open(cell(card("choice", OPTIONS)));
    const [first, second] = [controls("bias first")[0], controls("weight first")[0]];
    first?.focus();
    press(first, "ArrowDown");
    expect(document.activeElement).toBe(second);
    press(second, "ArrowUp");
    expect(document.activeElement).toBe(first);
  });

  it("collects several options before it answers, none of them too", () => {
    const model = open(cell(card("several", OPTIONS)));
    controls("Answer")[0]?.click();
    for (const text of ["in no order", "bias first", "weight first", "weight first"]) controls(text)[0]?.click();
    expect(controls("bias first")[0]?.getAttribute("aria-pressed")).toBe("true");
    expect(controls("weight first")[0]?.getAttribute("aria-pressed")).toBe("false");
    controls("Answer")[0]?.click();
    expect(model.clicks()).toEqual([["which", []], ["which", ["a", "c"]]]);
  });

  it("chooses several options by their letters, and answers by Enter on one of them", () => {
    const model = open(cell(card("several", OPTIONS)));
    const [first] = controls("bias first");
    for (const key of ["a", "c", "b", "b"]) press(first, key);
    expect(press(first, "Enter")).toBe(false);    // or the button would be pressed
    expect(controls("bias first")[0]?.getAttribute("aria-pressed")).toBe("true");
    expect(model.clicks()).toEqual([["which", ["a", "c"]]]);
  });

  it("moves lines by buttons and arrow keys, and answers their order", () => {
    const model = open(cell(card("order", OPTIONS)));
    const down = document.querySelector<HTMLElement>('[aria-label="move a down"]');
    down?.click();
    expect(document.activeElement).toBe(down);
    expect(document.querySelector("[role=status]")?.textContent).toBe("2 of 3");
    press(down, "ArrowDown");
    press(down, "ArrowDown"); // it is the last one
    controls("Answer")[0]?.click();
    expect(model.clicks()).toEqual([["which", ["b", "c", "a"]]]);
  });

  it("answers yes or no, and what is written into a field", () => {
    const yes = open(cell(card("yesno")));
    controls("no")[0]?.click();
    expect(yes.clicks()).toEqual([["which", "no"]]);
    page?.close();
    const free = open(cell(card("shape")));
    const input = document.querySelector("input");
    press(input, "Enter");
    expect(document.querySelector("[role=alert]")?.textContent).toBe("Write an answer first.");
    if (input) input.value = " (2, 3) ";
    press(input, "Enter");
    expect(free.clicks()).toEqual([["which", "(2, 3)"]]);
  });

  it("shows what the kernel made of a click, at once and once, and keeps the focus there", async () => {
    const shown = cell(card("choice", [], "b", "click"));
    const model = open(`${cell(card("choice", OPTIONS))}${cell(card("choice", OPTIONS), "another")}`, { click: () => JSON.stringify({ cards: [shown], kept: true }) });
    controls("weight first")[0]?.click();
    await settle();
    expect(document.querySelectorAll("[data-said=b]")).toHaveLength(1);
    expect(document.querySelector('[data-lesson="another"] [data-said=""]')).not.toBeNull();
    expect((document.activeElement as HTMLElement).className).toBe("modlab-said");
    controls("Change")[0]?.click();
    expect(model.clicks().at(-1)).toEqual(["which", null]);
  });

  it("brings the answer back by Escape while it is being changed, and leaves the card by another one", async () => {
    const shown = cell(card("choice", [], "b", "click"));
    const cards = [[shown], [cell(card("choice", OPTIONS))]];
    open(`<div class="jp-Cell" tabindex="-1">${cell(card("choice", OPTIONS))}</div>`, { click: () => JSON.stringify({ cards: cards.shift() }) });
    controls("weight first")[0]?.click();
    await settle();
    controls("Change")[0]?.click();
    await settle();
    expect(document.querySelectorAll("[data-said=b]")).toHaveLength(0);
    expect(press(controls("bias first")[0], "Escape")).toBe(false);
    expect(document.querySelectorAll("[data-said=b]")).toHaveLength(1);
    expect((document.activeElement as HTMLElement).className).toBe("modlab-said");
    press(document.activeElement, "Escape");
    expect(document.activeElement?.className).toBe("jp-Cell");
  });

  it("leaves the focus to those who have gone on, when the card is drawn once more", async () => {
    const shown = cell(card("choice", [], "b", "click"));
    open(`${cell(card("choice", OPTIONS))}<div id="next" tabindex="0"></div>`, { click: () => JSON.stringify({ cards: [shown], kept: true }) });
    controls("weight first")[0]?.click();
    await settle();
    const next = document.querySelector<HTMLElement>("#next");
    press(document.activeElement, "Enter");
    next?.focus();
    document.querySelector("[data-said=b]")?.replaceWith(new DOMParser().parseFromString(shown, "text/html").querySelector("section") as Node);
    await settle();
    expect(document.activeElement).toBe(next);
  });

  it("offers no way back from an answer that was typed", () => {
    open(cell(card("choice", [], "b", "cell")));
    expect(document.querySelector("button")).toBeNull();
  });

  it("tells what is wrong with an answer, and that a busy kernel will take it later", async () => {
    open(cell(card("number")), { click: ({ answer }) => (answer === "1" ? new Error("the kernel is busy") : JSON.stringify({ trouble: "write a number" })) });
    const input = document.querySelector("input");
    for (const [text, told] of [["x", "write a number"], ["1", "the kernel is busy"]] as const) {
      if (input) input.value = text;
      press(input, "Enter");
      await settle();
      expect(document.querySelector("[role=alert]")?.textContent).toContain(told);
    }
  });

  it("finds cards that come later", async () => {
    open("");
    document.body.innerHTML = cell(card("yesno"));
    await settle();
    expect(controls("yes")).toHaveLength(1);
  });

  it("draws a still by the front end that it needs, and asks for that once", async () => {
    const drawn: string[] = [];
    (globalThis as Record<string, unknown>).drawnInTest = drawn;
    const code = 'globalThis.modlab ??= {}; globalThis.modlab["9+x"] = { mount: (host, bytes) => globalThis.drawnInTest.push(host.dataset.key + new TextDecoder().decode(bytes)) }';
    const stills = '<div class="modlab" data-key="one"></div><div class="modlab" data-key="two"></div><div class="modlab" data-key="gone"></div>';
    const info = vi.spyOn(console, "info").mockImplementation(() => {});
    const model = open(stills, {
      view: ({ key }) => (key === "gone" ? new Error("run its cell again") : `${JSON.stringify({ front: "9+x", bundle: "x" })}\n payload\nof it`),
      bundle: () => code,
    });
    await settle();
    expect(drawn).toEqual(["one payload\nof it", "two payload\nof it"]);
    expect(model.asked.filter(({ action }) => action === "bundle")).toHaveLength(1);
    expect(info).toHaveBeenCalledWith("modlab: the picture stays,", "run its cell again");
  });

  it("draws a still however long the kernel is at work on the cells below", async () => {
    vi.useFakeTimers();
    const drawn: string[] = [];
    (globalThis as Record<string, unknown>).modlab = { "9+y": { mount: (host: HTMLElement) => drawn.push(host.dataset.key ?? "") } };
    const info = vi.spyOn(console, "info").mockImplementation(() => {});
    info.mockClear();
    const model = open('<div class="modlab" data-key="one"></div>');
    await vi.advanceTimersByTimeAsync(600_000);
    model.answers.view = () => `${JSON.stringify({ front: "9+y", bundle: "y" })}\n payload`;
    for (const asked of model.asked.filter(({ action }) => action === "view")) model.answer(asked);
    await vi.advanceTimersByTimeAsync(1);
    vi.useRealTimers();
    expect(drawn).toEqual(["one"]);
    expect(info).not.toHaveBeenCalled();
  });

  it("gives pictures their words", async () => {
    open('<div class="jp-RenderedImage"><img src="data:image/png;base64,abcPIECEdef"></div><div class="jp-RenderedImage"><img src="data:,x"></div>', {
      words: () => JSON.stringify([["PIECE", "two lines that part"]]),
    });
    await settle();
    expect([...document.querySelectorAll("img")].map((one) => one.alt)).toEqual(["two lines that part", ""]);
  });
});
