// @vitest-environment happy-dom
import { beforeEach, describe, expect, it, vi } from "vitest";
import { remember, wake } from "../src/watch/behind";
import { WatchData } from "../src/watch/data";
import { ForkPart } from "../src/watch/fork";
import type { Moment, WatchContext } from "../src/watch/part";
import { showWatch } from "../src/watch/show";
import { Kernel, type WidgetModel } from "../src/kernel";
import { common, pack, type Sample } from "./samples";

const KEPT = { steps: [0, 64, 1200], until: [2000, 2000, 2000], rates: [0.1, 0.01, null], groups: 1, settings: [{ name: "2.p", kind: "Dropout", values: [0.1, 0.2, 0.3] }] };
const ENDED = { began: 64, at: 64, end: 68, until: 68, running: false, changed: "with lr = 0.5", headline: ["The fork does better:", "after 4 steps."], notes: ["Its loss first differs at step 65."] };

function bytes(more: Sample = {}, curves = 0): ArrayBuffer {
  const arrays: Record<string, { dtype: "float32"; shape: number[]; data: Float32Array }> = {};
  for (let index = 0; index < curves; index += 1) {
    for (const name of ["original", "fork"]) arrays[`fork ${index} ${name}`] = { dtype: "float32", shape: [4, 3], data: Float32Array.from([4, 3, 2, name === "fork" ? Number.NaN : 1].flatMap((one) => [one, one - 1, one + 1])) };
  }
  return pack(common("watch", ["Nothing is wrong.", ""], { state: "ended", steps: 2000, samples: 0, kept: KEPT, forks: [], refused: "", ...more }), arrays);
}

let said: string[];
let asked: [string, Record<string, unknown> | undefined][];
let answer: Promise<unknown>;
let part: ForkPart;
let data: WatchData;

function context(control: boolean): WatchContext {
  const ask = (action: string, more?: Record<string, unknown>): Promise<unknown> => (asked.push([action, more]), answer);
  return { root: document as unknown as ShadowRoot, ask: null, announce: (text) => said.push(text), isDark: () => false, control: control ? ask : null };
}
const moment = (): Moment => ({ data, step: 70, seen: 66, row: -1, following: false, from: 0, to: 2000 });
const find = <T extends HTMLElement>(selector: string): T => part.element.querySelector(selector) as T;
const take = (more: Sample, curves = 0): void => void (data.apply(bytes(more, curves)), part.draw(moment()));
const settle = (): Promise<void> => new Promise((done) => setTimeout(done));

function opened(control = true, more: Sample = {}, curves = 0): void {
  data = new WatchData(bytes(more, curves));
  part = new ForkPart(context(control), { onStep() {}, onHover() {}, onSelect() {}, onZoom() {} });
  document.body.replaceChildren(part.element);
  part.draw(moment());
}

function write(selector: string, text: string): void {
  find<HTMLInputElement>(selector).value = text;
  find(selector).dispatchEvent(new Event("input"));
}

const RATE = ".fork-form > .field:nth-child(2) input";
const VALUE = ".fork-form > .field:nth-child(3) input";

beforeEach(() => {
  [said, asked, answer] = [[], [], Promise.resolve()];
});

describe("what can be asked", () => {
  it("begins at the last kept step, goes back, and fills in what held there", () => {
    opened();
    const slider = find<HTMLInputElement>("[type=range]");
    expect([slider.max, slider.value, slider.getAttribute("aria-valuetext"), find<HTMLInputElement>(RATE).value]).toEqual(["2", "2", "step 1,200", ""]);
    slider.value = "1";
    slider.dispatchEvent(new Event("input"));
    expect([slider.getAttribute("aria-valuetext"), find<HTMLInputElement>(RATE).value]).toEqual(["step 64", "0.01"]);
    expect(find(VALUE).closest("[hidden]")).not.toBeNull();
  });

  it("keeps the step that was chosen, and says so where it could not be kept", () => {
    opened();
    find<HTMLInputElement>("[type=range]").value = "1";
    find("[type=range]").dispatchEvent(new Event("input"));
    take({ kept: { ...KEPT, steps: [0, 60, 128], rates: [0.1, 0.3, 0.4] } });
    expect([find("[type=range]").getAttribute("aria-valuetext"), find<HTMLInputElement>(RATE).value]).toEqual(["step 60", "0.3"]);
    expect(find("[role=alert]").textContent).toBe("Step 64 is no longer kept: the fork begins at step 60.");
    expect(asked).toEqual([["pin", { at: 64 }], ["pin", { at: 60 }]]);
    find("[type=range]").dispatchEvent(new Event("input"));
    expect(find<HTMLElement>("[role=alert]").hidden).toBe(true);
  });

  it.each([
    ["the rate that holds is no change", "", "", { at: 1200, lr: null, setting: "", value: null }],
    ["another rate", "1e-3", "", { at: 1200, lr: 0.001, setting: "", value: null }],
    ["a comma is a point", "0,5", "", { at: 1200, lr: 0.5, setting: "", value: null }],
    ["a setting", "", "0.6", { at: 1200, lr: null, setting: "2.p", value: 0.6 }],
    ["the value that holds is no change", "", "0.3", { at: 1200, lr: null, setting: "", value: null }],
  ])("%s", async (_, rate, value, more) => {
    opened();
    if (rate) write(RATE, rate);
    if (value) {
      find<HTMLSelectElement>("select").value = "2.p";
      find("select").dispatchEvent(new Event("change"));
      expect(find<HTMLInputElement>(VALUE).value).toBe("0.3");
      write(VALUE, value);
    }
    find(".go").click();
    await settle();
    expect(asked).toEqual([["fork", more]]);
  });

  it.each([["abc", "must be a number"], ["-1", "must not be negative"], ["1e999", "must be a number"], ["0x10", "must be a number"]])("answers %s by a sentence", (text, sentence) => {
    opened();
    write(RATE, text);
    find(RATE).dispatchEvent(new KeyboardEvent("keydown", { key: "Enter" }));
    expect(asked).toEqual([]);
    expect(find("[role=alert]").textContent).toBe(`The learning rate ${sentence}${sentence.endsWith("number") ? ", such as 0.001." : "."}`);
    expect(find(RATE).getAttribute("aria-invalid")).toBe("true");
    expect(find(RATE).getAttribute("aria-describedby")).toBe(find("[role=alert]").id);
    write(RATE, "0.1");
    expect(find(RATE).hasAttribute("aria-invalid")).toBe(false);
  });

  it("says why the kernel refuses, and what went wrong later", async () => {
    opened();
    answer = Promise.reject(new Error("Nothing is kept there."));
    find(".go").click();
    await settle();
    expect([find("[role=alert]").textContent, find(".go").textContent]).toEqual(["Nothing is kept there.", "Fork"]);
    answer = Promise.resolve();
    find(".go").click();
    await settle();
    take({ refused: "No step could be run again.\nThe loop is torn." });
    expect(find("[role=alert]").innerHTML).toMatch(/again\.<\/bdi><br><bdi[^>]*>The loop is torn\.<\/bdi>$/);
  });

  it("is cancelled by the same button, and what came of it is read out", async () => {
    opened();
    find(".go").click();
    await settle();
    take({ forks: [{ ...ENDED, running: true }] }, 1);
    expect(find(".go").textContent).toBe("Cancel");
    write(RATE, "0.5");
    find(RATE).dispatchEvent(new KeyboardEvent("keydown", { key: "Enter" }));    // of a field it is no answer to "Cancel"
    expect(asked.map(([action]) => action)).toEqual(["fork"]);
    expect(find("[role=alert]").textContent).toBe("A fork runs already.");
    find(".go").click();
    await settle();
    expect(asked.map(([action]) => action)).toEqual(["fork", "cancel"]);
    expect(said).toEqual([]);
    take({ forks: [ENDED] }, 1);
    expect([said, find(".go").textContent]).toEqual([["The fork does better: after 4 steps."], "Fork"]);
  });
});

describe("what came of it", () => {
  it("has both losses at the step that is seen, and names them", () => {
    opened(true, { forks: [ENDED] }, 1);
    expect(find(".figures").textContent).toBe("original2fork2at step66");
    expect(find("canvas").getAttribute("aria-label")).toContain("the loss as it was and in the fork, with lr = 0.5, steps 64 to 67");
    take({ forks: [{ ...ENDED, end: 72, until: 72 }] }, 1);
    expect(find(".figures").textContent).toBe("original3fork3mean of steps66 – 67");    // four numbers for eight steps
    expect(find(".outcome").textContent).toBe("The fork does better: after 4 steps.");
    expect(find(".fork-more").textContent).toBe("Its loss first differs at step 65.");
  });

  it("is there without a kernel, and nothing that could be asked; without forks nothing is", () => {
    opened(false, { forks: [ENDED] }, 1);
    expect([part.element.hidden, find(".fork-form").hidden, find(".outcome").textContent]).toEqual([false, true, "The fork does better: after 4 steps."]);
    opened(false);
    expect(part.element.hidden).toBe(true);
  });

  it("shows the curves of the one that is pressed", () => {
    opened(true, { forks: [ENDED, { ...ENDED, headline: ["The fork does worse:", "x"], changed: "", began: 0 }] }, 2);
    const pressed = (): string[] => [...part.element.querySelectorAll("[aria-pressed]")].map((one) => one.getAttribute("aria-pressed") as string);
    expect([pressed(), find("canvas").ariaLabel ?? find("canvas").getAttribute("aria-label")]).toEqual([["true", "false"], expect.stringContaining("unchanged")]);
    const other = part.element.querySelectorAll("[aria-pressed]")[1] as HTMLElement;
    other.focus();
    other.click();
    expect(document.activeElement).toBe(other);    // it stays: a picture at rest that loses its focus is made anew, and has forgotten the choice
    expect([pressed(), find("canvas").getAttribute("aria-label")]).toEqual([["false", "true"], expect.stringContaining("with lr = 0.5")]);
  });
});

describe("a picture at rest where a live view was", () => {
  const heard = new Set<(content: unknown, buffers: readonly ArrayBuffer[]) => void>();
  const sent: { id: string; action: string }[] = [];
  const model: WidgetModel = { send: (content) => void sent.push(content as (typeof sent)[0]), on: (_, one) => void heard.add(one), off: (_, one) => void heard.delete(one) };
  const tell = (content: object, more?: ArrayBuffer): void => [...heard].forEach((one) => one(content, more ? [more] : []));
  let host: HTMLElement;

  beforeEach(() => {
    [heard, sent].forEach((one) => (Array.isArray(one) ? (one.length = 0) : one.clear()));
    document.body.innerHTML = '<div class="area"><div class="jp-OutputArea-child"><div class="live"></div></div></div>';
    remember(document.querySelector(".live") as Element, (unasked) => new Kernel(model, () => {}, unasked));
    (document.querySelector(".area") as Element).innerHTML = '<div class="jp-OutputArea-child"><div class="rest"></div></div>';
    host = document.querySelector(".rest") as HTMLElement;
  });
  const inside = (selector: string): HTMLElement => host.shadowRoot?.querySelector(selector) as HTMLElement;
  const frame = (): Promise<void> => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));

  it("asks the widget that was there, and is saved anew once nobody works in it", async () => {
    const rest = bytes({ kept: null });
    wake(host, rest, showWatch(host, rest));
    expect(sent.map(({ action }) => action)).toEqual(["hello"]);
    tell({ id: sent[0]?.id, ok: true }, bytes());
    await frame();
    expect(inside(".fork").hidden).toBe(false);
    inside(".go").click();
    expect(sent[1]).toMatchObject({ action: "fork", at: 1200 });
    tell({ id: sent[1]?.id, ok: true });
    tell({ action: "update" }, bytes({ forks: [{ ...ENDED, running: true }] }, 1));
    expect(sent.length).toBe(2);
    host.tabIndex = 0;
    host.focus();
    tell({ action: "update" }, bytes({ forks: [ENDED] }, 1));
    vi.spyOn(host, "matches").mockReturnValueOnce(true);    // the focus goes because of a press in the picture
    host.blur();
    expect(sent.length).toBe(2);
    host.dispatchEvent(new Event("pointerleave"));
    expect(sent[2]?.action).toBe("leave");
  });

  it.each([["had the focus", "focusin", "axis-track"], ["had it no more", "focusin focusout", undefined]])("has the focus where the widget %s when it was taken away", (_, told, expected) => {
    document.body.innerHTML = '<div class="area"><div class="jp-OutputArea-child"><div class="live"></div></div></div>';
    const live = document.querySelector(".live") as HTMLElement;
    remember(live, (unasked) => new Kernel(model, () => {}, unasked));
    const now = Date.now();
    for (const type of told.split(" ")) live.dispatchEvent(new Event(type));
    (document.querySelector(".area") as Element).innerHTML = '<div class="jp-OutputArea-child"><div class="rest"></div></div>';
    host = document.querySelector(".rest") as HTMLElement;
    const rest = bytes({ kept: null });
    const clock = vi.spyOn(Date, "now").mockReturnValue(now + 5000);
    wake(host, rest, showWatch(host, rest));
    clock.mockRestore();
    expect(host.shadowRoot?.activeElement?.className).toBe(expected);
  });

  it("has what was entered while it ran, and in each picture after it", async () => {
    const entered = {};
    const way = Object.assign((unasked: (more: ArrayBuffer) => void) => new Kernel(model, () => {}, unasked), { entered });
    document.body.innerHTML = '<div class="area"><div class="jp-OutputArea-child"><div class="live"></div></div></div>';
    host = document.querySelector(".live") as HTMLElement;
    remember(host, way);
    showWatch(host, bytes({ live: true, state: "running" }), () => answer, null, entered);
    const enter = (selector: string, text: string, event: string): void => {
      (inside(selector) as HTMLInputElement).value = text;
      inside(selector).dispatchEvent(new Event(event));
    };
    enter("[type=range]", "0", "input");
    enter(RATE, "0.5", "input");
    enter(".fork select", "2.p", "change");
    enter(VALUE, "0.7", "input");
    const form = (): (string | null)[] => [inside("[type=range]").getAttribute("aria-valuetext"), ...[RATE, ".fork select", VALUE].map((one) => (inside(one) as HTMLInputElement).value)];
    const at = (given: string[]): Promise<void> => {
      (document.querySelector(".area") as Element).innerHTML = '<div class="jp-OutputArea-child"><div class="rest"></div></div>';
      host = document.querySelector(".rest") as HTMLElement;
      const rest = bytes({ kept: null });
      wake(host, rest, showWatch(host, rest));
      tell({ id: sent.at(-1)?.id, ok: true }, bytes());
      return frame().then(() => expect(form()).toEqual(given));
    };
    await at(["step 0", "0.5", "2.p", "0.7"]);
    enter(RATE, "", "input");
    inside(RATE).dispatchEvent(new Event("change"));
    enter("[type=range]", "1", "input");
    await at(["step 64", "0.01", "2.p", "0.7"]);    // what was taken back follows the run
    enter(".fork select", "", "change");
    await at(["step 64", "0.01", "", ""]);
  });

  it("stays what it is where the widget shows something else, or is gone", async () => {
    const rest = bytes({ kept: null });
    wake(host, rest, showWatch(host, rest));
    tell({ id: sent[0]?.id, ok: true }, bytes({ steps: 3 }));
    await frame();
    expect([inside(".fork").hidden, heard.size]).toEqual([true, 0]);
    wake(host, rest, showWatch(host, rest));
    tell({ id: sent[1]?.id, ok: false, error: "gone" });
    await frame();
    expect([inside(".fork").hidden, heard.size]).toEqual([true, 0]);
  });
});
vi.setConfig({ testTimeout: 35_000 });
