// @vitest-environment happy-dom
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { WidgetModel } from "../src/kernel";
import live from "../src/live";
import { FakeTraits } from "./fake-traits";
import { over, type Page } from "./page";
import { gpt2, pack, stateful } from "./samples";

type Message = { id: string; action: string; path?: string };
type Listener = Parameters<WidgetModel["on"]>[1];

/** A widget model without a kernel: what is sent is kept, answers are made by hand. */
class FakeModel extends FakeTraits implements WidgetModel {
  sent: Message[] = [];
  readonly listeners = new Set<Listener>();
  send(content: unknown): void {
    this.sent.push(content as Message);
  }
  override on(event: string, listener: (...given: never[]) => void): void {
    if (event === "msg:custom") this.listeners.add(listener as Listener);
    else super.on(event, listener);
  }
  override off(event: string, listener: (...given: never[]) => void): void {
    if (!this.listeners.delete(listener as Listener)) super.off(event, listener);
  }
  answer(content: object, bytes?: ArrayBuffer): void {
    const padded = bytes && new Uint8Array(bytes.byteLength + 3);
    padded?.set(new Uint8Array(bytes as ArrayBuffer), 3);
    for (const listener of [...this.listeners]) listener(content, padded ? [new DataView(padded.buffer, 3)] : []);
  }
}

const { render } = live;
let model: FakeModel;
let el: HTMLElement;
beforeEach(() => {
  vi.useFakeTimers();
  model = new FakeModel();
  el = document.createElement("div");
  document.body.append(el);
});
afterEach(() => {
  vi.useRealTimers();
  document.body.replaceChildren();
});

const settle = (): Promise<unknown> => vi.advanceTimersByTimeAsync(1);

async function opened(): Promise<Page> {
  render({ model, el });
  const { json, arrays } = stateful();
  model.answer({ id: model.sent[0]?.id, ok: true }, pack({ ...json, live: true, values: {} }, arrays));
  await settle();
  return over(el);
}

describe("the widget", () => {
  it("asks, says so, and draws the answer", async () => {
    render({ model, el });
    expect(model.sent).toMatchObject([{ action: "hello" }]);
    expect(el.textContent).toBe("asking the kernel…");
    model.answer({ id: "someone else's", ok: true }, pack(gpt2()));
    await settle();
    expect(el.textContent).toBe("asking the kernel…");
    model.answer({ id: model.sent[0]?.id, ok: true }, pack(gpt2()));
    await settle();
    expect(el.textContent).toBe("");
    expect(over(el).all("[role=treeitem]").length).toBe(14);
  });

  it("shows an error as a sentence, and asks again", async () => {
    render({ model, el });
    model.answer({ id: model.sent[0]?.id, ok: false, error: "the model is gone" });
    await settle();
    expect(el.textContent).toContain("the model is gone");
    expect(el.querySelector("button")?.getAttribute("data-lm-suppress-shortcuts")).toBe("true");
    el.querySelector("button")?.click();
    expect(model.sent.length).toBe(2);
    expect(el.textContent).toBe("asking the kernel…");
  });

  it("says honestly that nobody answers, and takes an answer that comes late", async () => {
    render({ model, el });
    await vi.advanceTimersByTimeAsync(10_001);
    expect(el.textContent).toContain("the kernel is busy or has stopped");
    model.answer({ id: model.sent[0]?.id, ok: true }, pack(gpt2()));
    expect(over(el).all("[role=treeitem]").length).toBe(14);
    expect(el.textContent).toBe("");
  });

  it("says when the answer is none", async () => {
    render({ model, el });
    model.answer({ id: model.sent[0]?.id, ok: true });
    await settle();
    expect(el.textContent).toContain("holds nothing");
    el.querySelector("button")?.click();
    model.answer({ id: model.sent[1]?.id, ok: true }, new ArrayBuffer(2));
    await settle();
    expect(el.textContent).toContain("could not be drawn");
  });

  it("leaves nothing behind", async () => {
    const leave = render({ model, el });
    expect(model.listeners.size).toBe(1);
    leave();
    expect([model.listeners.size, el.childNodes.length, vi.getTimerCount()]).toEqual([0, 0, 0]);
  });

  it("keeps two views of one widget apart", async () => {
    const second = document.createElement("div");
    render({ model, el });
    render({ model, el: second });
    model.answer({ id: model.sent[1]?.id, ok: true }, pack(gpt2()));
    await settle();
    expect(el.textContent).toBe("asking the kernel…");
    expect(over(second).all("[role=treeitem]").length).toBe(14);
  });
});

describe("values from the kernel", () => {
  it("are asked for by path and shown", async () => {
    const view = await opened();
    expect(model.sent[1]).toMatchObject({ action: "values", path: "param1" });
    expect(view.find(".values").textContent).toContain("asking the kernel…");
    const { json, arrays } = stateful();
    model.answer({ id: model.sent[1]?.id, ok: true }, pack({ values: (json.values as Record<string, unknown>).param1 }, arrays));
    await settle();
    expect(view.all(".matrix td").length).toBe(12);
  });

  it("are a sentence when the kernel cannot give them, or is silent", async () => {
    const view = await opened();
    model.answer({ id: model.sent[1]?.id, ok: false, error: "param1 is on the meta device: it has no values" });
    await settle();
    expect(view.find(".values").textContent).toContain("meta device");
    view.press("ArrowDown");
    await vi.advanceTimersByTimeAsync(10_001);
    expect(view.find(".values").textContent).toContain("busy or has stopped");
  });

  it("do not overtake each other", async () => {
    const view = await opened();
    view.press("ArrowDown");
    const { json, arrays } = stateful();
    model.answer({ id: model.sent[1]?.id, ok: true }, pack({ values: (json.values as Record<string, unknown>).param1 }, arrays));
    await settle();
    expect(view.find(".values").dataset.path).toBe("param2");
    expect(view.find(".values").textContent).toContain("asking");
  });

  it("can be asked for in the tree", async () => {
    render({ model, el });
    model.answer({ id: model.sent[0]?.id, ok: true }, pack({ ...gpt2(), live: true }));
    await settle();
    const view = over(el);
    view.press("w");
    view.find(".facts .link").click();
    expect(model.sent[1]).toMatchObject({ action: "values", path: "transformer.wte.weight" });
  });
});

describe("the trait selected", () => {
  it("goes both ways, and is shared with the other views of the model", async () => {
    const other = new FakeModel();
    const place = document.createElement("div");
    document.body.append(place);
    const leave = render({ model, el });
    render({ model: other, el: place });
    for (const one of [model, other]) one.answer({ id: one.sent[0]?.id, ok: true }, pack(gpt2()));
    await settle();
    expect(model.saved).toEqual([]);
    const rows = over(el).all("[role=treeitem]") as HTMLElement[];
    rows[2]?.click();
    await settle();
    const chosen = String(model.traits.selected);
    expect(chosen).not.toBe("");
    expect(other.traits.selected).toBe(chosen);
    model.receive("selected", "transformer.wte");
    await settle();
    expect(over(el).all("[role=treeitem][aria-selected=true]").map((row) => row.textContent).join()).toContain("wte");
    expect(over(place).all("[role=treeitem][aria-selected=true]").map((row) => row.textContent).join()).toContain("wte");
    leave();
    other.receive("selected", chosen);
    expect(model.traits.selected).toBe("transformer.wte");
  });
});
