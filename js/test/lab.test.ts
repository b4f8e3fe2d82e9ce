// @vitest-environment happy-dom
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { WidgetModel } from "../src/kernel";
import live from "../src/live";
import { FakeTraits } from "./fake-traits";
import { bigNet, common, explained, pack, signature, type Sample } from "./samples";
import { cut, early, gpt, packed } from "./watch-samples";

type Message = { id: string; action: string; anew?: boolean };
type Listener = Parameters<WidgetModel["on"]>[1];

/** A kernel whose answers stand in `panels`; what is not there is not answered. */
class FakeModel extends FakeTraits implements WidgetModel {
  sent: Message[] = [];
  panels: Record<string, ArrayBuffer | string> = {};
  readonly listeners = new Set<Listener>();
  send(content: unknown): void {
    const message = content as Message;
    this.sent.push(message);
    const answer = this.panels[message.action];
    if (answer !== undefined) this.answer(message, answer);
  }
  override on(event: string, listener: (...given: never[]) => void): void {
    if (event === "msg:custom") this.listeners.add(listener as Listener);
    else super.on(event, listener);
  }
  override off(event: string, listener: (...given: never[]) => void): void {
    if (!this.listeners.delete(listener as Listener)) super.off(event, listener);
  }
  answer({ id }: Message, answer: ArrayBuffer | string): void {
    const ok = typeof answer !== "string";
    this.tell(ok ? { id, ok } : { id, ok, error: answer }, ok ? answer : undefined);
  }
  tell(content: object, bytes?: ArrayBuffer): void {
    for (const listener of [...this.listeners]) listener(content, bytes ? [new DataView(bytes)] : []);
  }
  /** What was asked for, but for the values of tensors. */
  get asked(): string[] {
    return this.sent.map(({ action }) => action).filter((action) => action !== "values");
  }
}

const TABS = ["State", "Activations", "Gradients", "Trace", "Hooks", "Modes", "Findings", "Source"].map((title) => [title.toLowerCase(), title]);
const face = (more: Sample = {}): ArrayBuffer => pack(common("lab", ["BigNet: 16 parameters;", "all trainable."], { live: true, tabs: TABS, stale: [], foot: "", code: "modlab.lab(model)", ...more }));
const update = (more: Sample): void => model.tell({ action: "update" }, face(more));

function stateOf(headline = "BigNet: 3 entries"): ArrayBuffer {
  const nodes = [
    { type: "MyLinear", slots: [["weight", 0]], runs: [] },
    { type: "Net", slots: [], runs: [[["l0"], 0], [["l1"], 0]] },
    { type: "BigNet", slots: [], runs: [[["l1"], 0], [["net"], 1]] },
  ];
  return pack(common("state", [headline, ""], { live: true, nodes, signatures: [signature("parameter", [2, 4])], optimizer: false, orphans: [], remarks: [], summary: { rows: 3, saved: 3, text: "" }, values: {}, valuesNote: "" }));
}

let model: FakeModel;
let el: HTMLElement;
beforeEach(() => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "requestAnimationFrame", "cancelAnimationFrame"] });
  model = new FakeModel();
  model.panels = {
    hello: face(), "panel tree": pack({ ...bigNet(), live: true }), "panel state": stateOf(), "panel trace": pack(explained()), "panel hooks": "the model is gone",
  };
  el = document.createElement("div");
  document.body.append(el);
});
afterEach(() => {
  document.body.replaceChildren();
  vi.useRealTimers();
});

const settle = async (): Promise<void> => void (await vi.advanceTimersByTimeAsync(40));
const root = (): ShadowRoot => el.querySelector(".modlab-live")?.shadowRoot as ShadowRoot;
const find = (selector: string): HTMLElement => root().querySelector(selector) as HTMLElement;
/** In the view inside of a part. */
const inside = (part: string, selector: string): HTMLElement => [...root().querySelectorAll(`${part} div`)].map((one) => one.shadowRoot?.querySelector(selector)).find(Boolean) as HTMLElement;
const tab = (title: string): HTMLButtonElement => [...root().querySelectorAll<HTMLButtonElement>("[role=tab]")].find((one) => one.querySelector("span")?.textContent === title) as HTMLButtonElement;
const told = (): string => (find(".tabpanel .told").hidden ? "" : (find(".tabpanel .told").textContent ?? ""));
const dots = (): string[] => [...root().querySelectorAll("[role=tab]")].filter((one) => one.querySelector("i")).map((one) => (one as HTMLElement).dataset.name as string);

async function opened(): Promise<() => void> {
  const leave = live.render({ model, el });
  await settle();
  return leave;
}

async function open(title: string): Promise<void> {
  tab(title).click();
  await settle();
}

async function selectInTree(path: string): Promise<void> {
  const rows = [...(inside(".modules", "[role=tree]").querySelectorAll<HTMLElement>("[role=treeitem]"))];
  rows.find((row) => row.querySelector(".name")?.textContent === path)?.click();
  await settle();
}

function press(target: HTMLElement, key: string): KeyboardEvent {
  const event = new KeyboardEvent("keydown", { key, bubbles: true, composed: true, cancelable: true });
  target.dispatchEvent(event);
  return event;
}

describe("a lab", () => {
  it("asks for its tree and the first panel alone", async () => {
    await opened();
    expect(model.asked).toEqual(["hello", "panel tree", "panel state"]);
    expect(find(".headline").textContent).toBe("BigNet: 16 parameters; all trainable.");
    expect(inside(".modules", "[role=tree]").querySelectorAll("[role=treeitem]").length).toBeGreaterThan(4);
    expect(inside(".tabpanel", "[role=grid]")).toBeTruthy();
    await open("Trace");
    expect(model.asked.slice(3)).toEqual(["panel trace"]);
    expect(inside(".tabpanel", ".headline").textContent).toContain("net.l1 got 2 numbers");
  });

  it("has tabs that arrows walk and that open when they are pressed", async () => {
    await opened();
    const state = (): (string | null)[] => [...root().querySelectorAll("[role=tab]")].map((one) => one.getAttribute("aria-selected"));
    expect(state()).toEqual(["true", ...Array(7).fill("false")]);
    tab("State").focus();
    const outside = vi.fn();
    document.addEventListener("keydown", outside);
    expect(press(tab("State"), "ArrowRight").defaultPrevented).toBe(true);
    expect(root().activeElement).toBe(tab("Activations"));
    press(tab("Activations"), "End");
    expect(root().activeElement).toBe(tab("Source"));
    press(tab("Source"), "ArrowRight");
    expect(root().activeElement).toBe(tab("State"));
    press(tab("State"), "ArrowLeft");
    press(tab("Source"), "Home");
    expect(root().activeElement).toBe(tab("State"));
    for (const key of ["x", "d", "a", "Enter"]) press(tab("State"), key);
    document.removeEventListener("keydown", outside);
    expect(outside).not.toHaveBeenCalled();
    expect([state()[0], model.asked.length]).toEqual(["true", 3]);
    await open("Trace");
    expect([tab("Trace").tabIndex, tab("State").tabIndex]).toEqual([0, -1]);
    for (const focusable of root().querySelectorAll("[tabindex], input, select, button")) expect(focusable.getAttribute("data-lm-suppress-shortcuts"), focusable.outerHTML).toBe("true");
    expect(find("[role=tabpanel]").getAttribute("aria-labelledby")).toBe(tab("Trace").id);
  });

  it("shows an error as an answer, and asks again", async () => {
    await opened();
    await open("Hooks");
    expect(told()).toContain("the model is gone");
    model.panels["panel hooks"] = pack(explained());
    find(".tabpanel .told button").click();
    await settle();
    expect(told()).toBe("");
    expect(inside(".tabpanel", "[role=treegrid]")).toBeTruthy();
  });

  it("takes away what an error has made untrue, and keeps it while the kernel is busy", async () => {
    await opened();
    const grid = inside(".tabpanel", "[role=grid]");
    delete model.panels["panel state"];
    await open("State");
    await vi.advanceTimersByTimeAsync(10_001);
    expect(told()).toContain("busy or has stopped");
    expect(inside(".tabpanel", "[role=grid]")).toBe(grid);
    model.answer(model.sent.filter(({ action }) => action === "panel state").at(-1) as Message, stateOf("late"));
    await settle();
    expect(told()).toBe("");
    expect(inside(".tabpanel", ".headline").textContent).toBe("late");
    model.panels["panel state"] = "the model is gone";
    await open("State");
    expect(told()).toContain("the model is gone");
    expect(inside(".tabpanel", "[role=grid]")).toBeFalsy();
  });

  it("asks anew when a tab is opened, and draws anew what has changed alone", async () => {
    await opened();
    const grid = inside(".tabpanel", "[role=grid]");
    await open("Trace");
    await open("State");
    expect(model.asked.filter((one) => one === "panel state").length).toBe(2);
    expect(inside(".tabpanel", "[role=grid]")).toBe(grid);
    model.panels["panel state"] = stateOf("BigNet: changed");
    await open("State");
    expect(inside(".tabpanel", ".headline").textContent).toBe("BigNet: changed");
  });

  it("reads the tree and the open panel again when asked to", async () => {
    await opened();
    [...root().querySelectorAll("button")].find((one) => one.textContent === "read again")?.click();
    await settle();
    expect(model.sent.filter(({ anew }) => anew)).toMatchObject([{ action: "panel tree", anew: true }, { action: "panel state", anew: true }]);
  });

  it("has one selection in all panels, those opened later too", async () => {
    await opened();
    await selectInTree("l0");
    expect(inside(".tabpanel", ".row.selected").textContent).toContain("net.l0.weight");
    await open("Trace");
    expect(inside(".tabpanel", ".row.selected .name").textContent).toBe("l0");
    inside(".tabpanel", "[role=treegrid]").querySelectorAll<HTMLElement>(".row")[1]?.click();
    await settle();
    expect(inside(".modules", ".row.selected .name").textContent).toBe("l1");
    await open("Source");
    expect(inside(".tabpanel", ".detail .path").textContent).toBe("l1");
    await selectInTree("net");
    expect(inside(".tabpanel", ".detail .path").textContent).toBe("net");
    await open("State");
    expect(inside(".tabpanel", ".row.selected").textContent).toContain("net.l0.weight");
  });

  it("marks what is new, and reads again what is open", async () => {
    await opened();
    await open("Trace");
    model.panels["panel trace"] = pack({ ...explained(), headline: ["another run", ""] });
    update({ stale: ["tree", "activations", "trace", "modes"], foot: "keeps a copy" });
    await settle();
    expect(model.asked.slice(4)).toEqual(["panel tree", "panel trace"]);
    expect(inside(".tabpanel", ".headline").textContent).toBe("another run");
    expect(find(".foot > bdi").textContent).toBe("keeps a copy");
    expect(dots()).toEqual(["activations", "modes"]);
    await open("Modes");
    expect(dots()).toEqual(["activations"]);
  });

  it("folds its tree away where it is narrow", async () => {
    await opened();
    const fold = find(".unfold");
    fold.click();
    expect(fold.getAttribute("aria-expanded")).toBe("false");
    fold.click();
    expect(fold.getAttribute("aria-expanded")).toBe("true");
  });

  it("leaves nothing behind", async () => {
    const leave = await opened();
    leave();
    expect([model.listeners.size, el.childNodes.length, vi.getTimerCount()]).toEqual([0, 0, 0]);
  });
});

describe("a lab beside a watch", () => {
  const whole = gpt({ slots: 60, live: true, state: "running" });
  const begun = early({ ...whole, json: { ...whole.json, steps: 100, scalars: [] } }, 30);
  const slider = (): HTMLElement => inside(".tabpanel", "[role=slider]");
  const chosen = (): string => (inside(".tabpanel", "select[aria-label='what is measured']") as HTMLSelectElement).value;

  it("shows what is pushed, without asking a kernel that is busy", async () => {
    await opened();
    model.tell({ action: "update" }, packed(begun));
    await settle();
    expect(dots()).toEqual(["activations", "gradients"]);
    const asked = model.sent.length;
    await open("Gradients");
    expect(chosen()).toBe("gradient");
    await open("Activations");
    expect(chosen()).toBe("activation");
    const before = Number(slider().getAttribute("aria-valuenow"));
    model.tell({ action: "update" }, packed(cut(whole, 30)));
    await settle();
    expect(Number(slider().getAttribute("aria-valuenow"))).toBeGreaterThan(before);
    expect([model.sent.length, dots()]).toEqual([asked, []]);
  });

  it("asks for all where a push does not fit", async () => {
    await opened();
    model.tell({ action: "update" }, packed(cut(whole, 45)));
    await settle();
    expect(model.asked.slice(3)).toEqual(["hello", "panel tree", "panel state"]);
  });

  it("gives the tab back when the watch is over", async () => {
    await opened();
    await open("Activations");
    model.tell({ action: "update" }, packed(begun));
    await settle();
    expect(slider()).toBeTruthy();
    const ended = { ...whole, json: { ...whole.json, live: false, state: "ended" } };
    model.tell({ action: "update" }, packed(ended));
    await settle();
    expect(slider()).toBeTruthy();
    model.panels["panel activations"] = packed(ended);
    await open("Activations");
    expect([Boolean(slider()), told()]).toEqual([true, ""]);
    model.panels["panel activations"] = pack(explained());
    update({ stale: ["activations"] });
    await settle();
    expect(slider()).toBeFalsy();
    expect(inside(".tabpanel", "[role=treegrid]")).toBeTruthy();
  });
});
