// @vitest-environment happy-dom
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { WidgetModel } from "../src/kernel";
import live from "../src/live";
import { DEAF, SOON } from "../src/watch/controls";
import { FakeTraits } from "./fake-traits";
import { cut, early, gpt, net, packed } from "./watch-samples";

type Message = { id: string; action: string; budget?: number };
type Listener = Parameters<WidgetModel["on"]>[1];

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
  tell(content: object, bytes?: ArrayBuffer): void {
    for (const listener of [...this.listeners]) listener(content, bytes ? [new DataView(bytes)] : []);
  }
}

let model: FakeModel;
let el: HTMLElement;
beforeEach(() => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "requestAnimationFrame", "cancelAnimationFrame"] });
  model = new FakeModel();
  el = document.createElement("div");
  document.body.append(el);
});
afterEach(() => {
  document.body.replaceChildren();
  vi.useRealTimers();
});

const settle = async (): Promise<void> => void (await vi.advanceTimersByTimeAsync(40));
const find = (selector: string): HTMLElement => el.querySelector(".modlab-live")?.shadowRoot?.querySelector(selector) as HTMLElement;
const step = (): number => Number(find("[role=slider]").getAttribute("aria-valuenow"));

const whole = gpt({ slots: 60, live: true, state: "running" });
whole.json.foot = "9,640 steps";
const begun = early(whole, 30);
begun.json = { ...begun.json, steps: 100, scalars: [] };

async function opened(): Promise<() => void> {
  const leave = live.render({ model, el });
  model.tell({ id: model.sent[0]?.id, ok: true }, packed(begun));
  await settle();
  return leave;
}

describe("a watch that runs", () => {
  it("is asked for, drawn, and moves", async () => {
    await opened();
    expect(model.sent).toMatchObject([{ action: "hello" }]);
    const before = step();
    model.tell({ action: "update" }, packed(cut(whole, 30)));
    await settle();
    expect(step()).toBeGreaterThan(before);
    expect(step()).toBe(9639);
    expect(find(".foot bdi").textContent).toContain("9,640 steps");
    expect(model.sent.length).toBe(1);
  });

  it("asks for all when an update does not fit, once, and keeps where one is", async () => {
    await opened();
    find("[role=slider]").dispatchEvent(new KeyboardEvent("keydown", { key: "Home", bubbles: true }));
    await settle();
    model.tell({ action: "update" }, packed(cut(whole, 45)));
    model.tell({ action: "update" }, packed(cut(whole, 46)));
    expect(model.sent.map(({ action }) => action)).toEqual(["hello", "hello"]);
    const slider = find("[role=slider]");
    model.tell({ id: model.sent[1]?.id, ok: true }, packed(whole));
    await settle();
    expect(find("[role=slider]")).toBe(slider);
    expect([step(), find(".foot bdi").textContent?.includes("9,640 steps")]).toEqual([0, true]);
    model.tell({ action: "update" }, packed(cut(whole, 99)));
    expect(model.sent.length).toBe(3);
  });

  it("is drawn from what is sent unasked, where the kernel answers no question", async () => {
    live.render({ model, el });
    model.tell({ action: "update" }, packed(cut(whole, 5)));
    expect(el.textContent).toBe("asking the kernel…");
    model.tell({ action: "update" }, packed(begun));
    await settle();
    expect(find(".watch")).not.toBeNull();
    expect(el.textContent).toBe("");
    await vi.advanceTimersByTimeAsync(10_001);
    expect(el.textContent).toBe("");
  });

  it("hears its controls' answers, with or without a buffer", async () => {
    await opened();
    const pause = find(".control");
    pause.click();
    expect(model.sent[1]).toMatchObject({ action: "pause" });
    model.tell({ id: model.sent[1]?.id, ok: true }, new ArrayBuffer(0));
    await settle();
    expect(pause.textContent).toBe("▶resume");
    pause.click();
    model.tell({ id: model.sent[2]?.id, ok: true });
    await settle();
    expect(pause.textContent).toBe("❚❚pause");
    expect(find(".control-note").hidden).toBe(true);
  });

  it("names ■ where no click arrives", async () => {
    await opened();
    find(".control").click();
    await vi.advanceTimersByTimeAsync(SOON + 10);
    expect(find(".control-note").textContent).toBe(DEAF);
    await vi.advanceTimersByTimeAsync(10_000);
    expect(find(".control-note").textContent).toBe(DEAF);
    model.tell({ action: "update" }, packed({ ...whole, json: { ...whole.json, state: "ended" } }));
    await settle();
    expect(find(".control-note").hidden).toBe(true);
  });

  it("becomes another watch when the whole is of another", async () => {
    await opened();
    model.tell({ action: "update" }, packed(net({ end: 400, samples: 20, live: true })));
    await settle();
    expect(find(".reading").textContent).toMatch(/^l0/);
    expect(find(".neurons").hidden).toBe(false);
  });

  it("says that an update cannot be read, and goes on", async () => {
    const warn = vi.spyOn(console, "warn").mockImplementation(() => {});
    await opened();
    model.tell({ action: "update" }, new ArrayBuffer(2));
    model.tell({ action: "update" });
    model.tell({ action: "update" }, packed(cut(whole, 30)));
    await settle();
    expect(step()).toBe(9639);
    expect(warn).toHaveBeenCalledTimes(1);
    warn.mockRestore();
  });

  it("leaves nothing behind", async () => {
    const leave = await opened();
    model.tell({ action: "update" }, packed(cut(whole, 30)));
    leave();
    expect([model.listeners.size, el.childNodes.length, vi.getTimerCount()]).toEqual([0, 0, 0]);
  });
});

describe("the traits of a watch", () => {
  const named = (): string | null => find("[role=slider]").getAttribute("aria-valuetext");
  const press = async (key: string): Promise<void> => {
    find("[role=slider]").dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
    await settle();
  };
  const paths = [...new Set((begun.json.series as { path: string }[]).map(({ path }) => path))].filter(Boolean);

  it("the step of the cursor is told, once, and -1 while it follows", async () => {
    await opened();
    expect(model.saved).toEqual([]);
    await press("Home");
    expect(model.traits.step).toBe(0);
    await press("End");
    expect(model.traits.step).toBe(step());
    await press("f");
    expect(model.traits.step).toBe(-1);
    expect(model.saved.length).toBe(3);
  });

  it("a step from Python moves the cursor, and one beyond the end is cut", async () => {
    await opened();
    const last = step();
    model.receive("step", 0);
    await settle();
    expect(step()).toBe(0);
    expect(model.saved).toEqual([]);
    model.receive("step", 10 ** 9);
    await settle();
    expect([step(), model.traits.step]).toEqual([last, last]);
    model.receive("step", 0);
    model.receive("step", -1);
    await settle();
    expect(step()).toBe(last);
  });

  it("what is selected is told and taken, and what is not there changes nothing", async () => {
    await opened();
    await press("ArrowDown");
    await press("ArrowDown");
    expect(paths).toContain(model.traits.selected);
    expect(model.saved.length).toBeGreaterThan(0);
    const [path, count] = [paths[4] as string, model.saved.length];
    model.receive("selected", path);
    await settle();
    expect(el.querySelector(".modlab-live")?.shadowRoot?.querySelector(".series")?.textContent).toContain(path);
    const before = find(".series").textContent;
    model.receive("selected", "no.such.module");
    await settle();
    expect(find(".series").textContent).toBe(before);
    expect(model.saved.length).toBe(count);
    expect(named()).toBeTruthy();
  });

  it("what was set before it is drawn holds from the beginning, and nothing listens after it has left", async () => {
    model.traits.step = 0;
    model.traits.selected = paths[4];
    const leave = await opened();
    expect(step()).toBe(0);
    expect(find(".series").textContent).toContain(paths[4]);
    leave();
    expect(model.heard).toBe(0);
  });
});

describe("the sliders of knobs", () => {
  it("get the names that stand beside them, the late ones too", async () => {
    const slider = (name: string): string => `<div class="widget-slider"><label>${name}</label><div role="slider"></div></div>`;
    const box = document.createElement("div");
    box.className = "modlab-steered";
    box.innerHTML = `<div>${slider("lr")}</div>`;
    document.body.append(box);
    box.append(el);
    const names = (): (string | null)[] => [...box.querySelectorAll(".widget-slider [role=slider]")].map((one) => one.getAttribute("aria-label"));
    await opened();
    expect(names()).toEqual(["lr"]);
    box.firstElementChild?.insertAdjacentHTML("beforeend", slider("p"));
    model.tell({ action: "update" }, packed(cut(whole, 30)));
    expect(names()).toEqual(["lr", "p"]);
  });

  it("keep their keys, where the focus can be", async () => {
    const box = document.createElement("div");
    box.className = "modlab-steered";
    box.innerHTML = '<div class="widget-slider"><label>lr</label><div role="slider" tabindex="0"></div><div class="widget-readout" contenteditable="true"></div></div>';
    document.body.append(box);
    box.append(el);
    await opened();
    expect([...box.querySelectorAll("[tabindex], [contenteditable]")].map((one) => one.getAttribute("data-lm-suppress-shortcuts"))).toEqual(["true", "true"]);
  });

  it("say the value that stands beside them, not its exponent", async () => {
    const box = document.createElement("div");
    box.className = "modlab-steered";
    box.innerHTML = '<div class="widget-slider"><label>lr</label><div role="slider" aria-valuetext="-4"></div><div class="widget-readout">0.000100</div></div>';
    document.body.append(box);
    box.append(el);
    await opened();
    const [handle, readout] = [box.querySelector("[role=slider]"), box.querySelector(".widget-readout")] as HTMLElement[];
    expect(handle?.getAttribute("aria-valuetext")).toBe("0.000100");
    handle?.setAttribute("aria-valuetext", "-3");    // as the slider does when it is moved, and then writes the value beside it
    if (readout) readout.textContent = "0.00100";
    await vi.advanceTimersByTimeAsync(20);
    expect(handle?.getAttribute("aria-valuetext")).toBe("0.00100");
  });
});
