// @vitest-environment happy-dom
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { page, type Page } from "./page";
import { common, gpt2, pack, signature, stateful } from "./samples";
import { mount } from "../src/still";

let copied: string[] = [];
beforeEach(() => {
  copied = [];
  Object.defineProperty(navigator, "clipboard", { configurable: true, value: { writeText: async (text: string) => void copied.push(text) } });
});
afterEach(() => document.body.replaceChildren());

const state = (): Page => page(stateful().json, stateful().arrays);
const current = (view: Page): string => view.find(`#${view.find("[role=grid]").getAttribute("aria-activedescendant")}`).textContent ?? "";
const names = (view: Page): string[] => view.all(".rows .row").map((row) => row.firstElementChild?.textContent ?? "");

describe("the state as ARIA wants it", () => {
  it("is a grid with counted rows and columns", () => {
    const view = state();
    const grid = view.find("[role=grid]");
    expect([grid.getAttribute("aria-rowcount"), grid.getAttribute("aria-colcount"), grid.getAttribute("tabindex")]).toEqual(["17", "14", "0"]);
    expect(view.find("[role=columnheader]").getAttribute("aria-sort")).toBe("none");
    expect(view.all("[role=row]").map((row) => row.getAttribute("aria-rowindex")).slice(0, 3)).toEqual(["1", "2", "3"]);
    for (const row of view.all("[role=row]")) expect(["rowgroup"]).toContain(row.parentElement?.getAttribute("role"));
    expect(view.find("[aria-colspan]").textContent).toBe("not in the state_dict");
    for (const focusable of view.all("[tabindex], input, select, button")) expect(focusable.getAttribute("data-lm-suppress-shortcuts"), focusable.outerHTML).toBe("true");
  });
});

describe("the keys of the grid", () => {
  it("move by cell and by row", () => {
    const view = state();
    expect(current(view)).toBe("param1");
    for (const [key, text] of [["ArrowDown", "param2"], ["ArrowRight", "parameter"], ["ArrowLeft", "param2"], ["End", ""], ["Home", "param2"], ["ArrowUp", "param1"], ["PageDown", "loose"], ["PageUp", "param1"]] as const) {
      expect(view.press(key).defaultPrevented).toBe(true);
      if (text) expect(current(view), key).toBe(text);
    }
    view.press("End", { ctrlKey: true });
    expect(view.find(".selected").firstElementChild?.textContent).toBe("loose");
    view.press("Home", { ctrlKey: true });
    expect(current(view)).toBe("tensor");
  });

  it("sort from the head, and back", () => {
    const view = state();
    view.press("ArrowUp");
    view.press("Enter");
    expect([view.find("[role=columnheader]").getAttribute("aria-sort"), names(view)[0]]).toEqual(["ascending", "0.bias"]);
    view.press(" ");
    expect([view.find("[role=columnheader]").getAttribute("aria-sort"), names(view)[0]]).toEqual(["descending", "submodule.weight"]);
    view.press("Enter");
    expect([view.find("[role=columnheader]").getAttribute("aria-sort"), names(view)[0]]).toEqual(["none", "param1"]);
    expect(view.find("[role=status]").textContent).toBe("in the order of the state_dict");
  });

  it("group, filter and copy", async () => {
    const view = state();
    view.press("g");
    expect(view.all(".row.group").length).toBe(5);
    expect(names(view).slice(0, 2)).toEqual(["(root) StatefulModule 7 tensors", "param1"]);
    view.press("g");
    view.press("/");
    expect(view.root.activeElement).toBe(view.find("input"));
    view.search("bias 2");
    expect([names(view), view.find(".count").textContent]).toEqual([["2.bias"], "1 of 15 rows"]);
    expect([view.all(".selected").length, view.find(".detail .path").textContent]).toEqual([0, "param1"]);
    view.press("Enter");
    view.press("c");
    await vi.waitFor(() => expect(copied).toEqual(['model.get_parameter("2.bias")']));
    view.press("Escape");
    expect(names(view).length).toBe(16);
    view.search("nowhere");
    expect(view.find(".detail").textContent).toBe("no tensor matches");
  });

  it("type a name", () => {
    const view = state();
    view.press("b");
    expect(current(view)).toBe("buffer1");
    view.press("u");
    expect(current(view)).toBe("buffer1");
  });
});

describe("letters that are commands too", () => {
  const nodes = [{ type: "Linear", slots: [["weight", 0]], runs: [] }, { type: "Net", slots: [["w", 0]], runs: [[["conv1", "gate"], 0]] }];
  const net = (): Page => page(common("state", ["", ""], { nodes, signatures: [signature("parameter", [1])] }));

  it("begin a name when another letter follows", () => {
    vi.useFakeTimers();
    const view = net();
    for (const key of "conv1") view.press(key);
    vi.advanceTimersByTime(2000);
    expect([current(view), copied]).toEqual(["conv1.weight", []]);
    for (const key of "ga") view.press(key);
    vi.advanceTimersByTime(2000);
    expect([current(view), view.all(".row.group").length]).toEqual(["gate.weight", 0]);
    vi.useRealTimers();
  });

  it("are commands when none does", () => {
    vi.useFakeTimers();
    const view = net();
    view.press("g");
    view.press("c");
    expect(view.all(".row.group").length).toBe(3);
    vi.advanceTimersByTime(300);
    expect(copied).toEqual(['model.get_parameter("w")']);
    vi.useRealTimers();
  });
});

describe("the selected tensor", () => {
  it("says of a buffer that is not in the state_dict why", () => {
    const view = state();
    const row = view.all('[role="row"]').find((one) => one.textContent?.startsWith("buffer2"));
    row?.click();
    expect(view.find(".detail").textContent).toContain("notenot persistent");
  });

  it("is told in full, with its values", () => {
    const view = state();
    const text = view.find(".detail").textContent ?? "";
    for (const part of ["gradientpresent", "lr0.001", "exp_avg 4×3", "mean0.0001", "all of it, 4×3", 'model.get_parameter("param1")']) expect(text).toContain(part);
    expect(view.all(".matrix td").map((cell) => cell.textContent)).toEqual(["0.92", "-0.08", "0.69", "0.45", "0.43", "-0.60", "0.05", "-0.86", "NaN", "-0.31", "Inf", "0.00"]);
    expect(view.all(".matrix td.nan").length).toBe(2);
    expect(view.all(".wrong").map((pair) => pair.textContent)).toEqual(["NaN1", "Inf1"]);
    expect(view.find(".bars").getAttribute("aria-label")).toBe("histogram of 301 values from −0.9 to 0.92; most, 61, lie between -0.1 and 0.01");
    expect(view.find(".zero").textContent).toBe("0");
  });

  it("has one bar in the middle where all values are the same, and says it", () => {
    const { json, arrays } = stateful();
    const values = json.values as Record<string, { bars: object }>;
    Object.assign(values.param1?.bars ?? {}, { lo: "all 0", hi: "", low: -0.5, high: 0.5 });
    const view = page(json, arrays);
    expect(view.find(".axis").textContent).toBe("all 0");
    expect(view.find(".bars").getAttribute("aria-label")).toBe("histogram of 301 values: all 0");
  });

  it("gives the reason where the values are not here", () => {
    const view = state();
    view.press("ArrowDown");
    expect(view.find(".values").textContent).toContain("asked for: state[path] or .widget()");
    view.search("param3");
    view.press("Enter");
    expect(view.find(".values").textContent).toContain("a reserved name");
  });

  it("reads a heat map by keys", () => {
    const view = state();
    view.press("ArrowDown");
    view.press("ArrowDown");
    const canvas = view.find("canvas");
    const press = (key: string): boolean => canvas.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
    press("ArrowRight");
    press("ArrowRight");
    expect(view.find(".readout").textContent).toMatch(/^\[0, 1\] {2}0\.142/);
    expect(view.find("[role=status]").textContent).toBe(view.find(".readout").textContent);
    canvas.getBoundingClientRect = () => ({ left: 0, top: 0, width: 96, height: 64 }) as DOMRect;
    canvas.dispatchEvent(Object.assign(new Event("pointermove"), { clientX: 5, clientY: 7 }));
    expect(view.find(".readout").textContent).toMatch(/^\[7, 5\]/);
    expect(view.find("[role=status]").textContent, "the pointer is not spoken").toMatch(/^\[0, 1\]/);
    expect(view.all(".heatmap [aria-live], .heatmap output").length).toBe(0);
    expect([canvas.getAttribute("role"), canvas.getAttribute("aria-roledescription")]).toEqual(["application", "heat map"]);
    expect(canvas.getAttribute("aria-label")).toContain("64 by 96 numbers, [0:64, 0:96] of 768×2304");
  });

  it("says what the optimizer holds and the model has no longer", () => {
    expect(state().find(".orphans").textContent).toContain("the optimizer holds 1 tensor that the model no longer has");
    expect(state().find(".orphans + .orphans").textContent).toBe("⚠ net: a state_dict hook");
  });

  it("is not blank for a model without tensors", () => {
    const view = page(common("state", ["Identity holds nothing", ""], { nodes: [{ type: "Identity", slots: [], runs: [] }], signatures: [] }));
    expect(view.find(".detail").textContent).toContain("no parameters, no buffers");
  });
});

describe("views of one model", () => {
  it("share the selection, and no other view follows", () => {
    const json = { ...stateful().json, signatures: [signature("parameter", [1])], nodes: [{ type: "Conv1D", slots: [["weight", 0]], runs: [] }, { type: "T", slots: [], runs: [[["wte"], 0], [["c_attn"], 0]] }, { type: "G", slots: [["p", 0]], runs: [[["transformer"], 1]] }] };
    const [tree, table, other] = [page(gpt2()), page(json), page({ ...gpt2(), model: "another" })];
    const heard = vi.fn();
    document.addEventListener("modlab:select", heard);
    table.press("ArrowDown");
    expect(tree.find(".detail .path").textContent).toBe("transformer.wte");
    expect(other.find(".detail .path").textContent).toBe("(root)");
    expect(heard).toHaveBeenCalledTimes(1);
    tree.press("Home");
    expect(table.find(".selected").textContent).toContain("p");
    tree.press("ArrowDown");
    expect(table.find(".selected").textContent).toContain("transformer.wte.weight");
    expect(heard).toHaveBeenCalledTimes(3);
    expect(heard.mock.calls[2]?.[0].detail).toMatchObject({ model: "9f3c2a11", path: "transformer" });
    document.removeEventListener("modlab:select", heard);
  });
});

describe("measure", () => {
  it("shows the values alone", () => {
    const { json, arrays } = stateful();
    const values = (json.values as Record<string, unknown>).param1;
    const view = page(common("measure", ["NaN in 1 of 12", ""], { values: { "": values } }), arrays);
    expect(view.all(".matrix td").length).toBe(12);
    expect(page(common("measure", ["x", ""])).find(".absent").textContent).toContain("no values");
  });
});

it("draws what any payload lacks as a sentence", () => {
  for (const [json, text] of [[{ view: "tree" }, "no tree"], [{ view: "state" }, "no parameters"], [{ view: "dance" }, "“dance”"], [{}, "no view called"]] as const) {
    const host = document.createElement("div");
    document.body.append(host);
    mount(host, pack(json));
    expect(host.querySelector(".modlab-live")?.shadowRoot?.textContent).toContain(text);
  }
});
