// @vitest-environment happy-dom
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { element } from "../src/elements";
import { DEAF, SOON } from "../src/watch/controls";
import { mount } from "../src/watch/entry";
import type { WatchContext } from "../src/watch/part";
import { refill } from "../src/watch/refill";
import { showWatch, type Shown } from "../src/watch/show";
import { VERSION } from "../src/version";
import { heard } from "./heard";
import { HOSTILE } from "./samples";
import { cut, early, gpt, net, packed, type Made } from "./watch-samples";

interface View {
  root: ShadowRoot;
  shown: Shown | null;
  find(selector: string): HTMLElement;
  all(selector: string): HTMLElement[];
  press(key: string, more?: KeyboardEventInit): KeyboardEvent;
  /** After the next picture of the screen. */
  settle(): Promise<void>;
}

function viewOf(host: HTMLElement, shown: Shown | null = null): View {
  const root = host.shadowRoot as ShadowRoot;
  const all = (selector: string): HTMLElement[] => [...root.querySelectorAll<HTMLElement>(selector)];
  const find = (selector: string): HTMLElement => {
    const [first] = all(selector);
    if (!first) throw new Error(`nothing is called ${selector}`);
    return first;
  };
  return {
    root, shown, find, all,
    press(key, more = {}) {
      const event = new KeyboardEvent("keydown", { key, bubbles: true, composed: true, cancelable: true, ...more });
      find("[role=slider]").dispatchEvent(event);
      return event;
    },
    settle: async () => void (await vi.advanceTimersByTimeAsync(40)),
  };
}

function atRest(made: Made): View {
  const host = document.createElement("div");
  host.innerHTML = '<div class="modlab-static">the static picture</div>';
  document.body.append(host);
  mount(host, packed(made));
  return viewOf(host.querySelector(".modlab-live") as HTMLElement);
}

function live(made: Made, control: WatchContext["control"] = () => Promise.resolve()): View {
  const host = document.createElement("div");
  document.body.append(host);
  return viewOf(host, showWatch(host, packed(made), control));
}

const FOCUSABLE = "[tabindex], input, select, button, summary";
const step = (view: View): number => Number(view.find("[role=slider]").getAttribute("aria-valuenow"));
const reading = (view: View): string => view.find(".reading").textContent ?? "";
const said = (view: View): string => view.find("[aria-live=polite]").textContent ?? "";

beforeEach(() => void vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "requestAnimationFrame", "cancelAnimationFrame"] }));
afterEach(() => {
  document.body.replaceChildren();
  vi.useRealTimers();
  vi.restoreAllMocks();
});

const small = (more: Parameters<typeof net>[0] = {}): Made => net({ end: 2000, samples: 40, ...more });

describe("the view at rest", () => {
  it("is offered under the version, apart from the other views", () => {
    const offered = (globalThis as unknown as { modlab: Record<string, { mount: unknown }> }).modlab;
    expect(offered[`${VERSION}+watch`]?.mount).toBe(mount);
    expect(offered[VERSION]).toBeUndefined();
  });

  it("says the conclusion first, and the state of the watch in the foot", () => {
    const made = small();
    made.json.foot = "2,000 steps · 40 samples · cost 1.7 % of the loop (budget 2 %)";
    const view = atRest(made);
    expect(view.find(".headline b").textContent).toBe("Unit 1 of l0 is dead:");
    expect(view.find(".foot bdi").textContent).toBe("2,000 steps · 40 samples · cost 1.7\u00a0% of the loop (budget 2\u00a0%)");
    expect(view.find(".controls").hidden).toBe(true);
    expect(view.find(".copy").title).toContain("modlab.watch");
  });

  it("shows the checks, and the first broken check apart from all others", () => {
    const made = small();
    (made.json.verdict as { state: string }[])[7]!.state = "broken";
    const view = atRest(made);
    const checks = view.all(".check");
    expect(checks.map((check) => check.querySelector(".sign")?.getAttribute("aria-label"))).toEqual(["passed", "passed", "passed", "passed", "passed", "broken", "passed", "broken"]);
    expect(checks.map((check) => check.classList.contains("first"))).toEqual([false, false, false, false, false, true, false, false]);
    expect(view.find(".check.first b").textContent).toBe("it moves");
    expect(view.find(".check.first .evidence").textContent).toContain("column 1 of l0.weight");
  });

  it("shows the first cause apart, and no broken check, where the headline is about that", () => {
    const made = small();
    const verdict = made.json.verdict as Record<string, unknown>[];
    for (const text of ["gradients add up", "units are dead"]) verdict.push({ ...verdict[5], name: "the cause", cause: true, kind: text, text });
    const view = atRest(made);
    expect(view.all(".check.first").map((check) => check.textContent)).toEqual([expect.stringContaining("the cause: gradients add up")]);
  });

  it("copies code that mends, and only says advice", async () => {
    const wrote = vi.spyOn(navigator.clipboard, "writeText").mockResolvedValue();
    const view = atRest(small());
    view.find(".check.first button.fix").click();
    await view.settle();
    expect(wrote).toHaveBeenCalledWith("nn.LeakyReLU()");
    expect(said(view)).toBe("copied: nn.LeakyReLU()");
    wrote.mockRestore();
    const advice = atRest(gpt({ slots: 20 }));
    expect(advice.find(".check.careful .fix").tagName).toBe("DIV");
    expect(advice.find(".check.careful .fix").textContent).toBe("Fix: keep float32 weights, or raise lr");
  });

  it("copies the code alone, and says the advice beside it", async () => {
    const wrote = vi.spyOn(navigator.clipboard, "writeText").mockResolvedValue();
    const made = small();
    for (const check of made.json.verdict as Record<string, unknown>[]) check.advice = "after the change";
    const view = atRest(made);
    expect(view.find(".check.first").textContent).toContain("after the change");
    view.find(".check.first button.fix").click();
    await view.settle();
    expect(wrote).toHaveBeenCalledWith("nn.LeakyReLU()");
    wrote.mockRestore();
  });

  it("has the loss at the top of the plots, and the axis of steps right below", () => {
    const [first, second] = atRest(small()).find(".plots").children;
    expect([first?.classList.contains("scalars"), second?.getAttribute("role")]).toEqual([true, "slider"]);
  });

  it("goes to what a check or an alert is about", async () => {
    const view = atRest(gpt({ slots: 60 }));
    view.find(".check.careful .check-name").click();
    await view.settle();
    expect(reading(view)).toContain("wte.weight");
    const [first, , over] = view.all(".alert");
    first?.click();
    await view.settle();
    expect(step(view)).toBe(3120);
    expect(reading(view)).toContain("h.0.attn");
    expect((view.find("select[aria-label='what is measured']") as HTMLSelectElement).value).toBe("gradient");
    expect(view.all(".alert")[0]?.getAttribute("aria-expanded")).toBe("true");
    expect(heard(over)).toBe("saturated , over h.6.attn step 5,210");
    expect(said(view)).toBe("");
  });

  it("opens an alert: what it rests on, the run that was repeated, the fix", async () => {
    const view = atRest(gpt({ slots: 60, nan: true }));
    expect(view.find(".alert b").textContent).toBe("NaN");
    view.find(".alert").click();
    const text = view.find(".alerts [data-key]").textContent;
    expect(text).toContain("based on 1 sample, 16 inputs");
    expect(text).toContain("run again: h.4.mlp gives 6,144 NaN from a finite input");
    await view.settle();
    expect(reading(view)).toMatch(/^h\.4\.mlp/);
  });

  it("begins with what an alert that holds is about", () => {
    expect(reading(atRest(gpt({ slots: 60, nan: true })))).toMatch(/^h\.4\.mlp {2}6,144 NaN or Inf/);
    expect(reading(atRest(small()))).toMatch(/^l0 {2}std/);
  });

  it("keeps strings of users text", () => {
    const made = small();
    const hostile = HOSTILE.slice(0, 5).join(" ");
    made.json.headline = [hostile, hostile];
    for (const key of ["verdict", "alerts", "series", "scalars", "remarks"]) {
      made.json[key] = (made.json[key] as object[]).map((one) => ({ ...one, path: hostile, text: hostile, name: hostile, fix: hostile, advice: hostile, trace: hostile, note: hostile, shape: hostile, kind: hostile }));
    }
    made.json.remarks = [hostile];
    made.json.error = hostile;
    (made.json.alerts as { text: string }[])[0]!.text = HOSTILE.join(" ");
    const view = atRest(made);
    expect(view.all("script, img, iframe, [onerror], [onload]")).toEqual([]);
    expect(view.find(".alerts [data-key]").textContent).toContain("1,000,1");
  });

  it("says why there is nothing to see", () => {
    const made: Made = { json: { view: "watch", headline: ["No step yet:", "the loop has not begun."], live: true, state: "waiting" }, arrays: {} };
    const view = live(made);
    expect(view.find(".depth .absent").textContent).toContain("no sample yet");
    expect(view.find(".depth .absent").hidden).toBe(false);
    expect(view.press("ArrowRight").defaultPrevented).toBe(true);
  });
});

describe("keys", () => {
  it("go through time from sample to sample", async () => {
    const made = small();
    const sampled = [...(made.arrays.sampled?.data as Uint32Array)];
    const view = atRest(made);
    expect(step(view)).toBe(1999);
    const after = async (key: string, more: KeyboardEventInit = {}): Promise<number> => {
      view.press(key, more);
      await view.settle();
      return step(view);
    };
    expect(await after("Home")).toBe(0);
    expect(await after("ArrowRight")).toBe(sampled[1]);
    expect(await after("ArrowRight", { shiftKey: true })).toBe(sampled[11]);
    expect(await after("PageDown")).toBe(sampled[1]);
    expect(await after("PageUp")).toBe(sampled[11]);
    expect(await after("ArrowLeft")).toBe(sampled[10]);
    expect(await after("End")).toBe(1999);
    expect(await after("ArrowRight")).toBe(1999);
    expect(await after("ArrowLeft")).toBe(sampled.at(-2));
    expect(view.find("[role=slider]").getAttribute("aria-valuetext")).toContain("of 2,000 steps");
  });

  it("go back to the sample that holds the cursor first", async () => {
    const view = atRest(small());
    const sampled = [...(small().arrays.sampled?.data as Uint32Array)];
    view.find(".alert").click();
    await view.settle();
    expect(sampled).not.toContain(1000);
    view.press("ArrowLeft");
    await view.settle();
    expect(step(view)).toBe(sampled.filter((one) => one < 1000).at(-1));
  });

  it("go along depth, and stay in the role", async () => {
    const view = atRest(gpt({ slots: 30 }));
    expect(reading(view)).toMatch(/^h\.0\.attn/);
    view.press("ArrowDown");
    await view.settle();
    expect(reading(view)).toMatch(/^h\.0\.mlp/);
    for (let i = 0; i < 9; i += 1) view.press("ArrowUp", { shiftKey: true });
    await view.settle();
    expect(reading(view)).toMatch(/^wte/);
  });

  it("that are not ours, or belong to a choice, are left alone", () => {
    const view = live(small({ live: true, state: "running" }));
    for (const key of ["x", "d", "Tab", "Enter", "a"]) expect(view.press(key).defaultPrevented).toBe(false);
    expect(view.press("f", { ctrlKey: true }).defaultPrevented).toBe(false);
    const event = new KeyboardEvent("keydown", { key: "ArrowDown", bubbles: true, cancelable: true });
    view.find("select").dispatchEvent(event);
    expect(event.defaultPrevented).toBe(false);
  });

  it("do not reach the notebook", () => {
    const view = atRest(small());
    const heard = vi.fn();
    document.addEventListener("keydown", heard);
    view.press("x");
    document.removeEventListener("keydown", heard);
    expect(heard).not.toHaveBeenCalled();
    for (const focusable of [...view.all(FOCUSABLE), ...live(small()).all(FOCUSABLE)]) expect(focusable.getAttribute("data-lm-suppress-shortcuts"), focusable.outerHTML).toBe("true");
  });
});

describe("a choice", () => {
  it("of what is measured keeps the module, or takes a parameter of it", async () => {
    const view = atRest(gpt({ slots: 30 }));
    const roles = view.find("select[aria-label='what is measured']") as HTMLSelectElement;
    expect([...roles.options].map((option) => option.value)).toEqual(["activation", "gradient", "parameter", "parameter gradient", "update"]);
    roles.value = "update";
    roles.dispatchEvent(new Event("change"));
    await view.settle();
    expect(reading(view)).toMatch(/^h\.0\.attn\.weight/);
    const statistics = [...(view.find("select[aria-label=statistic]") as HTMLSelectElement).options].map((option) => option.value);
    expect(statistics).toEqual(["std", "mean", "min", "max", "L2 norm", "zeros", "NaN, Inf", "stuck", "update ratio"]);
  });

  it("of the statistic changes the number and the legend", async () => {
    const view = atRest(gpt({ slots: 30 }));
    const choice = view.find("select[aria-label=statistic]") as HTMLSelectElement;
    expect(view.find(".depth .legend").getAttribute("aria-label")).toContain("logarithmic");
    choice.value = "zeros";
    choice.dispatchEvent(new Event("change"));
    expect(reading(view)).toContain("zeros 0 %");
    expect(view.find(".depth .legend").getAttribute("aria-label")).toBe("colours from 0 % to 10 %");
  });
});

describe("while it runs", () => {
  const running = (): Made => gpt({ slots: 80, live: true, state: "running" });

  it("does not follow where nobody tells how the training goes on", () => {
    expect(live({ ...running(), json: { ...running().json, live: false } }).find(".key[aria-pressed]").hidden).toBe(true);
  });

  it("follows the newest step until one goes back, and again when asked", async () => {
    const whole = running();
    const first = early(whole, 40);
    const end = (first.arrays.last?.data as Uint32Array).at(-1) as number;
    const short = { ...first, json: { ...first.json, steps: end + 1, scalars: [] } };
    const view = live(short);
    expect(step(view)).toBe(end);
    expect(view.find(".key[aria-pressed]").textContent).toBe("f following");
    view.press("ArrowLeft");
    await view.settle();
    const before = step(view);
    expect(view.shown?.take(packed(cut(whole, 40)))).toBe(true);
    await view.settle();
    expect([step(view), view.find(".key[aria-pressed]").textContent]).toEqual([before, "f follow"]);
    view.press("f");
    await view.settle();
    expect(step(view)).toBe(9639);
  });

  it("says new alerts aloud, and nothing else", async () => {
    const whole = running();
    const first = early(whole, 40);
    const view = live({ ...first, json: { ...first.json, alerts: (whole.json.alerts as object[]).slice(0, 1) } });
    expect(said(view)).toBe("");
    view.press("ArrowLeft");
    view.press("ArrowDown");
    await view.settle();
    expect(said(view)).toBe("");
    view.shown?.take(packed(cut(whole, 40)));
    await view.settle();
    expect(said(view)).toMatch(/^saturated: h\.6\.attn, step 5210\. .*rounding: wte\.weight, step 6400\./);
  });

  it("draws once for many updates", async () => {
    const whole = running();
    const view = live(early(whole, 40));
    const slider = view.find("[role=slider]");
    const drawn = vi.spyOn(slider, "setAttribute");
    for (let i = 0; i < 8; i += 1) view.shown?.take(packed(cut(whole, 39)));
    expect(drawn).not.toHaveBeenCalled();
    await view.settle();
    expect(drawn.mock.calls.filter(([name]) => name === "aria-valuenow").length).toBe(1);
  });

  it("keeps the selected series when others come before it", async () => {
    const [few, many] = [gpt({ slots: 20, live: true, state: "running", blocks: 7 }), gpt({ slots: 30, live: true, state: "running", blocks: 9 })];
    const view = live(few);
    const roles = view.find("select[aria-label='what is measured']") as HTMLSelectElement;
    roles.value = "update";
    roles.dispatchEvent(new Event("change"));
    await view.settle();
    const before = reading(view).split("  ")[0];
    view.shown?.take(packed(many));
    await view.settle();
    expect([before, reading(view).split("  ")[0], roles.value]).toEqual(["h.0.attn.weight", "h.0.attn.weight", "update"]);
  });

  it("keeps the key on an alert while the list grows", async () => {
    const whole = running();
    const first = early(whole, 40);
    const view = live({ ...first, json: { ...first.json, alerts: (whole.json.alerts as object[]).slice(0, 1) } });
    view.find(".alert").focus();
    view.shown?.take(packed(cut(whole, 40)));
    await view.settle();
    expect(view.all(".alert").length).toBe(3);
    expect(view.root.activeElement).toBe(view.find(".alert"));
  });

  it("shows that it has ended, without controls", async () => {
    const whole = running();
    const view = live(whole);
    expect(view.find(".controls").hidden).toBe(false);
    view.shown?.take(packed({ ...whole, json: { ...whole.json, state: "failed", error: "RuntimeError in the loop", foot: "9,640 steps" } }));
    await view.settle();
    expect(view.find(".controls").hidden).toBe(true);
    expect(view.find(".failure").textContent).toBe("✕ RuntimeError in the loop");
    expect(view.find(".foot bdi").textContent).toBe("9,640 steps");
  });
});

describe("controls", () => {
  it("pause, resume, step, stop and set the budget", async () => {
    const told: unknown[] = [];
    const view = live(small({ live: true, state: "running" }), (action, more) => {
      told.push([action, more]);
      return Promise.resolve();
    });
    const [pause, one, stop] = view.all(".control");
    pause?.click();
    await view.settle();
    expect(pause?.textContent).toBe("▶resume");
    view.press("p");
    await view.settle();
    expect(pause?.textContent).toBe("❚❚pause");
    view.press(".");
    await view.settle();
    expect(pause?.textContent).toBe("▶resume");
    one?.click();
    stop?.click();
    const budget = view.find(".controls select") as HTMLSelectElement;
    expect(budget.value).toBe("0.02");
    budget.value = "0.05";
    budget.dispatchEvent(new Event("change"));
    await view.settle();
    const steps = 2000;    // what was seen when one clicked: by it the kernel knows a click that comes late
    expect(told).toEqual([...["pause", "resume", "step", "step", "stop"].map((action) => [action, { steps }]), ["budget", { budget: 0.05, steps }]]);
    expect(view.find(".control-note").hidden).toBe(true);
  });

  it("say after half a second that no click arrives, and take it back when one did", async () => {
    let answer: () => void = () => {};
    const view = live(small({ live: true, state: "running" }), () => new Promise<void>((resolve) => (answer = resolve)));
    view.find(".control").click();
    await vi.advanceTimersByTimeAsync(SOON - 50);
    expect([view.find(".control-note").hidden, view.find(".control").hasAttribute("aria-busy")]).toEqual([true, true]);
    await vi.advanceTimersByTimeAsync(60);
    expect([view.find(".control-note").hidden, view.find(".control-note").textContent]).toEqual([false, DEAF]);
    expect(view.find(".control").textContent).toBe("❚❚pause");
    answer();
    await view.settle();
    expect([view.find(".control-note").hidden, view.find(".control").textContent, view.find(".control").hasAttribute("aria-busy")]).toEqual([true, "▶resume", false]);
  });

  it("say what the kernel refused", async () => {
    const view = live(small({ live: true, state: "running" }), () => Promise.reject(new Error("the watch has ended")));
    view.find(".control").click();
    await view.settle();
    expect(view.find(".control-note").textContent).toBe("the watch has ended");
    expect(view.find(".control").textContent).toBe("❚❚pause");
  });

  it("do not steal keys where there are none", () => {
    expect(atRest(small()).press("p").defaultPrevented).toBe(false);
  });
});

describe("leaving the page", () => {
  it("leaves nothing behind", async () => {
    const view = live(small({ live: true, state: "running" }));
    const remove = vi.spyOn(document, "removeEventListener");
    document.body.replaceChildren();
    expect(remove.mock.calls.some(([name]) => name === "modlab:select")).toBe(true);
    await view.settle();
    expect(vi.getTimerCount()).toBe(0);
    remove.mockRestore();
  });
});

describe("numbers of the step that is pointed at", () => {
  function pointed(): { view: View; at(share: number): Promise<void>; figures(): string } {
    vi.spyOn(HTMLElement.prototype, "getBoundingClientRect").mockReturnValue({ left: 0, top: 0, width: 700, height: 60 } as DOMRect);
    const view = atRest(net({ end: 2000, samples: 60 }));
    const canvas = view.find(".series canvas");
    const at = async (share: number): Promise<void> => {
      canvas.dispatchEvent(new PointerEvent(share < 0 ? "pointerleave" : "pointermove", { clientX: 136 + share * 552, bubbles: true }));
      await view.settle();
    };
    return { view, at, figures: () => view.find(".scalar .figures").textContent ?? "" };
  }

  it("stand beside every curve, and are the cursor's again when the pointer leaves", async () => {
    const { view, at, figures } = pointed();
    const before = figures();
    await at(0.01);
    expect(figures()).not.toBe(before);
    expect(view.find(".series canvas").getAttribute("aria-label")).toContain(" at step 20:");
    expect(step(view)).toBe(1999);
    await at(-1);
    expect(figures()).toBe(before);
  });

  it("give way to keys", async () => {
    const { view, at } = pointed();
    await at(0.01);
    view.press("Home");
    await view.settle();
    expect(view.find(".series canvas").getAttribute("aria-label")).toContain(" at step 0:");
  });

  it("are said by the cursor itself", () => {
    const { view } = pointed();
    expect(view.find("[role=slider]").getAttribute("aria-valuetext")).toMatch(/^step 1,999 of 2,000 steps.*; l0 {2}/);
  });
});

describe("many logged scalars", () => {
  function many(): View {
    const made = net({ end: 2000, samples: 60 });
    const names = ["loss", ...Array.from({ length: 9 }, (_, index) => `metric/${index}`)];
    made.json.scalars = names.map((name) => ({ name, count: 2000, final: "1" }));
    return atRest(made);
  }
  const drawn = (view: View): (string | undefined)[] => view.all(".scalar").filter((one) => !one.hidden).map((one) => one.querySelector(".of")?.textContent ?? "");

  it("are all within reach: six are drawn, the others when they are chosen", async () => {
    const view = many();
    expect(drawn(view)).toEqual(["loss", "metric/0", "metric/1", "metric/2", "metric/3", "metric/4"]);
    const chips = view.all(".scalars .chip");
    expect(chips.map((chip) => chip.textContent)).toEqual(["loss", ...Array.from({ length: 9 }, (_, index) => `metric/${index}`)]);
    chips[9]?.click();
    chips[1]?.click();
    expect(drawn(view)).toEqual(["loss", "metric/1", "metric/2", "metric/3", "metric/4", "metric/8"]);
    expect([chips[9], chips[1]].map((chip) => chip?.getAttribute("aria-pressed"))).toEqual(["true", "false"]);
    view.press("Home");
    await view.settle();
    expect(drawn(view)[5]).toBe("metric/8");
  });

  it("are walked by arrows, of which the cursor knows nothing; Tab reaches one", () => {
    const view = many();
    const chips = view.all(".scalars .chip");
    chips[0]?.focus();
    const key = (name: string): void => void view.root.activeElement?.dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true, composed: true, cancelable: true }));
    key("ArrowRight");
    expect(view.root.activeElement).toBe(chips[1]);
    key("End");
    expect(view.root.activeElement).toBe(chips[9]);
    key("ArrowRight");
    expect(view.root.activeElement).toBe(chips[0]);
    expect(chips.map((chip) => chip.tabIndex)).toEqual([0, ...Array.from({ length: 9 }, () => -1)]);
    expect(step(view)).toBe(1999);
  });

  it("need no choice while they are few", () => {
    expect(atRest(net({})).find(".scalars .chips").hidden).toBe(true);
  });
});

describe("paths", () => {
  it("are shown as they are, numbers first and last", () => {
    const made = net({ end: 2000, samples: 60 });
    made.json.series = (made.json.series as { path: string }[]).map((one) => ({ ...one, path: one.path.replace("l0", "0") }));
    const { find } = atRest(made);
    expect(find(".series .of").textContent).toBe("0");
    expect(find(".ratio .of").textContent).toBe("0.weight");
    expect(find(".ratio .of bdi").className).toBe("");    // `ending` would turn it about
  });
});

describe("tones", () => {
  it("end when the view leaves the page, and those of another view do not", () => {
    vi.stubGlobal("AudioContext", class {
      currentTime = 0;
      createOscillator = (): unknown => ({ connect: () => {}, frequency: { setValueAtTime: () => {} }, start: () => {}, stop: (at?: number) => void (at === undefined && (stopped += 1)) });
      createGain = (): unknown => ({ connect: () => {}, gain: { setValueAtTime: () => {}, setTargetAtTime: () => {} } });
    });
    let stopped = 0;
    const [plays, silent] = [atRest(small()), atRest(small())];
    plays.press("s");
    silent.root.host.remove();
    expect(stopped).toBe(0);
    plays.root.host.remove();
    expect(stopped).toBe(1);
    vi.unstubAllGlobals();
  });
});

describe("lists that change ten times a second", () => {
  it("keep what is pressed: the same buttons, with new words", async () => {
    const made = small();
    const view = live({ ...made, json: { ...made.json, state: "running", live: true } });
    const buttons = [".check button", ".alerts button", ".net-facts button"].map((one) => view.find(one));
    buttons[1]?.focus();
    const text = view.find(".check.first .evidence").textContent;
    const next = JSON.parse(JSON.stringify(made.json)) as Made["json"];
    for (const check of next.verdict as { text: string }[]) check.text += " and more";
    for (const alert of next.alerts as { text: string; inputs: number }[]) Object.assign(alert, { text: `${alert.text} and more`, inputs: alert.inputs + 1 });
    view.shown?.take(packed({ ...made, json: next }));
    await view.settle();
    expect(view.find(".check.first .evidence").textContent).toBe(`${text} and more`);
    expect(view.find(".alerts .evidence").textContent).toContain("and more");
    for (const [at, one] of [".check button", ".alerts button", ".net-facts button"].entries()) expect(view.find(one)).toBe(buttons[at]);
    expect(view.root.activeElement).toBe(buttons[1]);
    buttons[1]?.click();
    expect(buttons[1]?.getAttribute("aria-expanded")).toBe("true");
    expect(view.find(".alerts li:has([aria-expanded=true])").textContent).toContain("based on");
    expect(view.root.activeElement).toBe(buttons[1]);
  });

  it("match what has one key by its order, and take away what is left", () => {
    const list = document.createElement("ol");
    const put = (...texts: string[]): Element[] => {
      refill(list, texts.map((text) => element("li", { "data-key": text[0] }, text)));
      return [...list.children];
    };
    const first = put("a1", "b1", "a2", "a3");
    const second = put("a4", "b2", "a5");
    expect(second).toEqual(first.slice(0, 3));
    expect(second.map((one) => one.textContent)).toEqual(["a4", "b2", "a5"]);
    expect(put("c", "a6").map((one) => one.textContent)).toEqual(["c", "a6"]);
    expect(put()).toEqual([]);
  });

  it("do not move what stands behind one that is taken away", () => {
    const list = document.body.appendChild(element("ol"));
    const put = (...keys: string[]): void => refill(list, keys.map((key) => element("li", { "data-key": key, tabindex: 0 }, key)));
    put("a", "b");
    const moved = vi.spyOn(list, "insertBefore");
    put("b");
    expect(moved).not.toHaveBeenCalled();
    expect(list.textContent).toBe("b");
  });

  it("tell causes of one place apart, however often they come and in which order", async () => {
    const made = small();
    const cause = (kind: string): object => ({ name: "the cause", kind, path: "", state: "broken", text: kind, fix: kind });
    const told = (...kinds: string[]): Made => ({ ...made, json: { ...made.json, live: true, state: "running", verdict: kinds.map(cause) } });
    const view = live(told("the rate", "the target"));
    const fixes = view.all(".check .fix");
    fixes[1]?.focus();
    for (const kinds of [["the rate", "the target"], ["a mask", "the rate", "the target"], ["the rate", "the target", "a mask"], ["the target"]]) {
      view.shown?.take(packed(told(...kinds)));
      await view.settle();
      expect(view.all(".check .evidence").map((one) => one.textContent)).toEqual(kinds.map((kind) => `: ${kind}`));
    }
    expect(view.find(".check .fix")).toBe(fixes[1]);
    expect(view.root.activeElement).toBe(fixes[1]);
  });

  it("tell alerts of paths apart that end alike", () => {
    const made = small();
    const [alert] = made.json.alerts as object[];
    made.json.alerts = ["one", "other"].map((begin) => ({ ...alert, path: `${begin}${".layer".repeat(30)}` }));
    const view = atRest(made);
    view.find(".alert").click();
    expect(view.all(".alert").map((one) => one.getAttribute("aria-expanded"))).toEqual(["true", "false"]);
  });
});
