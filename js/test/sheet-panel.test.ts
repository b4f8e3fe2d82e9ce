// @vitest-environment happy-dom
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { completeSheet } from "../src/sheet/sheet";
import { mount } from "../src/sheet/entry";
import { over, page, type Page } from "./page";
import { checked, common, explained, gpt2, HOSTILE, many, type Sample } from "./samples";

let copied: string[] = [];
beforeEach(() => {
  copied = [];
  Object.defineProperty(navigator, "clipboard", { configurable: true, value: { writeText: async (text: string) => void copied.push(text) } });
});
afterEach(() => {
  vi.restoreAllMocks();
  document.body.replaceChildren();
});

const rows = (view: Page): HTMLElement[] => view.all(".rows [role=row]");
const names = (view: Page): string[] => rows(view).map((row) => row.querySelector(".name")?.textContent ?? "");
const current = (view: Page): string => {
  const id = view.find("[role=treegrid]").getAttribute("aria-activedescendant");
  return id ? (view.find(`#${id}`).querySelector(".name")?.textContent ?? "") : "";
};
const flat = (): Page => page(checked().json, checked().arrays);
const sheet = (more: Sample): Sample => common("trace", ["Some rows.", ""], { layout: "sheet", ...more });

/** The same page, so many pixels wide. */
const wide = (pixels: number, sample: Sample, arrays = {}): Page => {
  vi.spyOn(HTMLElement.prototype, "clientWidth", "get").mockReturnValue(pixels);
  return page(sample, arrays);
};
const heads = (view: Page): (string | null)[] => view.all("[role=columnheader]").map((head) => head.textContent);
const widths = (view: Page): number[] => view.find("[role=treegrid]").style.getPropertyValue("--columns").match(/\d+(?=px|fr)/g)!.map(Number).filter((width) => width > 0);
const told = (view: Page): (string | null)[] => view.all(".detail .pairs > div").map((pair) => pair.textContent);

describe("a sheet as ARIA wants it", () => {
  it("is a treegrid with counted rows and columns, and one tab stop", () => {
    const view = page(explained());
    const grid = view.find("[role=treegrid]");
    expect(["aria-rowcount", "aria-colcount", "aria-label", "tabindex"].map((name) => grid.getAttribute(name))).toEqual(["7", "3", "explain", "0"]);
    expect(view.all("[role=columnheader]").map((head) => [head.textContent, head.getAttribute("aria-colindex")])).toEqual([["module", "1"], ["what flows", "2"], ["time", "3"]]);
    for (const row of view.all("[role=row]")) expect(row.parentElement?.getAttribute("role")).toBe("rowgroup");
    for (const row of rows(view)) expect([...row.children].map((cell) => cell.getAttribute("role"))).toEqual(["gridcell", "gridcell", "gridcell"]);
    expect(view.all(".rows [tabindex]")).toEqual([]);
  });

  it("gives every row its level, place, size and state", () => {
    const view = page(explained());
    const told = rows(view).map((row) => ["rowindex", "level", "posinset", "setsize", "expanded", "selected"].map((name) => row.getAttribute(`aria-${name}`)));
    expect(told).toEqual([
      ["2", "1", "1", "1", "true", "false"], ["3", "2", "1", "2", null, "false"], ["4", "2", "2", "2", "true", "false"],
      ["5", "3", "1", "3", null, "false"], ["6", "3", "2", "3", null, "false"], ["7", "3", "3", "3", null, "true"],
    ]);
  });

  it("says a row in words, its marks too, and shows each mark with a sign that has a name", () => {
    const view = page(explained());
    expect(rows(view)[5]?.getAttribute("aria-label")).toBe("l1, MyLinear, broken, weight 3×1, what flows broken 2 · 3×1 → inner sizes 2 ≠ 3");
    expect(rows(view)[4]?.getAttribute("aria-label")).toBe("F.relu, function, no module: not in the tree, what flows 2 → 2, time 1 ms");
    expect(view.all(".rows .sign").map((sign) => [sign.textContent, sign.getAttribute("role"), sign.getAttribute("aria-label")])).toEqual(Array(3).fill(["✕", "img", "broken"]));
    expect(flat().all(".rows .sign").map((sign) => [sign.textContent, sign.getAttribute("aria-label")])).toEqual([["✓", "fine"], ["⚠", "careful"], ["◌", "absent"]]);
  });

  it("shows the sign at the name where the cell that has it gave way", () => {
    const sample = explained();
    const columns = (sample.columns as object[]).map((column, index) => ({ ...column, yields: 2 - index }));
    expect(wide(200, { ...sample, columns }).all(".module .sign").map((sign) => sign.textContent)).toEqual(["✕", "✕", "✕"]);
    expect(page(sample).all(".module .sign")).toEqual([]);
  });

  it("gives a name in full as its title, for it is cut where it begins", () => {
    const view = page(sheet({ rows: [{ name: "activations.relu" }, { name: "two words" }] }));
    expect(view.all(".rows .name").map((name) => [name.className, name.title, name.textContent])).toEqual([["name ending", "activations.relu", "activations.relu"], ["name worded", "", "two words"]]);
  });

  it("lets no key through to the notebook", () => {
    const view = page(explained());
    const heard = vi.fn();
    for (const type of ["keydown", "keypress", "keyup"]) document.addEventListener(type, heard);
    for (const key of ["x", "d", "c", "/", "*", "ArrowDown", "Escape"]) {
      view.find("[role=treegrid]").focus();
      for (const type of ["keydown", "keypress", "keyup"]) view.find("[role=treegrid]").dispatchEvent(new KeyboardEvent(type, { key, bubbles: true, composed: true }));
    }
    expect(heard).not.toHaveBeenCalled();
    for (const focusable of view.all("[tabindex], input, button")) expect(focusable.getAttribute("data-lm-suppress-shortcuts"), focusable.outerHTML).toBe("true");
  });
});

describe("folding and the keys", () => {
  it("selects the innermost broken row first", () => {
    expect(current(page(explained()))).toBe("l1");
    expect(current(flat())).toBe("data arrives");
    const part = (name: string, depth: number, mark = ""): Sample => ({ name, depth, mark });
    const rest = Array.from({ length: 20 }, (_, index) => part(`m${index}`, 1));
    expect(current(page(sheet({ rows: [part("a", 0), ...rest, part("z", 1, "broken")] }))), "far from the top and nothing leads there").toBe("a");
    expect(current(page(sheet({ rows: [part("a", 0, "broken"), ...rest, part("z", 1, "broken")] })))).toBe("z");
    expect(current(page(sheet({ rows: [part("a", 0), part("b", 0, "broken"), part("c", 0, "broken")] })))).toBe("b");
    expect(current(page(sheet({ rows: [part("checks", 0), part("b", 1), part("c", 1, "broken")] }))), "below a heading").toBe("c");
    expect(current(page(sheet({ rows: [part("a", 0, "broken"), part("checks", 0), part("b", 1, "broken")] }))), "a finding before a check").toBe("a");
  });

  it("walks, opens and closes", () => {
    const view = page(explained());
    for (const [key, name] of [["Home", "(root)"], ["ArrowDown", "l1"], ["ArrowDown", "net"], ["ArrowRight", "l0"], ["ArrowLeft", "net"], ["End", "l1"], ["PageUp", "(root)"], ["PageDown", "l1"], ["ArrowUp", "F.relu"], ["ArrowRight", "F.relu"], ["ArrowLeft", "net"]] as const) {
      expect(view.press(key).defaultPrevented).toBe(true);
      expect(current(view), key).toBe(name);
    }
    view.press("ArrowLeft");
    expect([names(view), rows(view)[2]?.getAttribute("aria-expanded"), view.find("[role=treegrid]").getAttribute("aria-rowcount")]).toEqual([["(root)", "l1", "net"], "false", "4"]);
    expect(view.find(".count").textContent).toBe("6 rows, 3 listed");
    for (const key of ["Enter", " ", " "]) view.press(key);
    expect(names(view).length).toBe(6);
    expect(view.all(".rows [aria-selected=true]").length).toBe(1);
  });

  it("moves the selection out of what is closed", () => {
    const view = page(explained());
    view.all(".rows [role=row]")[2]?.querySelector<HTMLElement>(".chevron")?.click();
    expect([current(view), view.find(".detail .path").textContent]).toEqual(["net", "net"]);
  });

  it("starts with rows folded that are closed, and opens all neighbours with *", () => {
    const part = (name: string, depth: number, closed = false): Sample => ({ name, depth, closed, cells: [] });
    const view = page(sheet({ rows: [part("a", 0, true), part("a0", 1), part("b", 0, true), part("b0", 1, true), part("b00", 2), part("c", 0)] }));
    expect(names(view)).toEqual(["a", "b", "c"]);
    view.press("*");
    expect(names(view)).toEqual(["a", "a0", "b", "b0", "c"]);
  });

  it("takes a depth that jumps for a child", () => {
    const view = page(sheet({ rows: [{ name: "a", depth: 3 }, { name: "b", depth: 7 }, { name: "c", depth: 5 }, { name: "d", depth: -1 }] }));
    expect(rows(view).map((row) => row.getAttribute("aria-level"))).toEqual(["1", "2", "2", "1"]);
  });

  it("opens on a double click, too", () => {
    const view = page(explained());
    rows(view)[2]?.dispatchEvent(new MouseEvent("dblclick", { bubbles: true }));
    expect(names(view).length).toBe(3);
  });

  it("goes to a name or a path by its first letters", () => {
    vi.useFakeTimers();
    const view = page(explained());
    for (const key of "net.l0") view.press(key);
    expect(current(view)).toBe("l0");
    vi.advanceTimersByTime(1000);
    view.press("F");
    expect(current(view)).toBe("F.relu");
    vi.useRealTimers();
  });

  it("copies the code of the detail, else the path, else the name, with c", async () => {
    const view = page(explained());
    view.press("c");
    view.press("ArrowUp");
    view.press("c");
    view.press("ArrowUp");
    view.press("c");
    await vi.waitFor(() => expect(copied).toEqual(["self.l1 = MyLinear(2, 1)", "F.relu", "net.l0"]));
    expect(view.find(".foot").textContent).toContain("c copy");
  });

  it("copies what stands below the table by a key of its own, and by its button", async () => {
    const view = page(sheet({ rows: [{ name: "a" }], columns: [], notes: [{ caption: "Patch", prose: "tried: it runs", code: "-a\n+b\n", key: "p" }, { caption: "Fix", code: "b" }] }));
    view.press("p");
    await vi.waitFor(() => expect(copied).toEqual(["-a\n+b\n"]));
    expect(view.find(".foot").textContent).toContain("p copy patch");
    const button = view.all(".notes button").find((one) => one.textContent === "p copies")!;
    button.click();
    await vi.waitFor(() => expect(copied).toHaveLength(2));
  });

  it("offers no key for what is not there", () => {
    expect(flat().find(".keys").textContent).toBe("↑↓ move/ searchc copyEsc leave");
    expect(page(sheet({ rows: [] })).find(".foot").textContent).toBe("no value read");
  });
});

describe("searching", () => {
  it("brings the box with / where there are few rows, lists matches with what leads there, and goes there", () => {
    const view = page(explained());
    expect(view.find(".search").hidden).toBe(true);
    view.find("[role=treegrid]").focus();
    view.press("/");
    expect([view.find(".search").hidden, view.root.activeElement === view.find("input")]).toEqual([false, true]);
    view.search("no module");
    expect(names(view)).toEqual(["(root)", "net", "F.relu"]);
    expect([view.find(".count").textContent, view.find("[role=status]").textContent]).toEqual(["1 of 6 rows", "1 of 6 rows"]);
    view.press("Enter");
    expect(current(view)).toBe("F.relu");
    view.press("Escape");
    expect([current(view), names(view).length, (view.find("input") as HTMLInputElement).value]).toEqual(["F.relu", 6, ""]);
  });

  it.each([
    ["MYLINEAR", ["(root)", "l1", "net", "l0", "l1"]], ["net.l0", ["(root)", "net", "l0"]], ["stopped inside", ["(root)", "net"]], ["3x1", ["(root)", "net", "l1"]], ["net.l?", ["(root)", "net", "l0", "l1"]], ["2 function", ["(root)", "net", "F.relu"]],
  ])("finds %s in names, kinds, notes, paths, cells and sizes", (text, expected) => {
    const view = page(explained());
    view.search(text);
    expect(names(view)).toEqual(expected);
  });

  it("keeps what is below a match, closed", () => {
    const view = page(explained());
    view.find("[role=treegrid]").focus();
    view.press("/");
    view.search("(root) runtimeerror");
    expect([names(view), view.find(".rows [role=row]").getAttribute("aria-expanded"), view.find(".count").textContent]).toEqual([["(root)"], "false", "1 of 6 rows"]);
    view.press("Enter");
    view.press("ArrowRight");
    expect(names(view)).toEqual(["(root)", "l1", "net"]);
  });

  it("has chips for the marks that there are", () => {
    const view = page(explained());
    expect(view.all(".chip").map((chip) => chip.textContent)).toEqual(["broken"]);
    view.find(".chip").click();
    expect([names(view), view.find(".count").textContent]).toEqual([["(root)", "net", "l1"], "3 of 6 rows"]);
    expect(flat().all(".chip").map((chip) => chip.textContent)).toEqual(["careful"]);
    expect(page(many(20)).all(".chip")).toEqual([]);
  });

  it("says when nothing matches", () => {
    const view = page(explained());
    view.search("nowhere");
    expect([view.find(".nothing").hidden, view.find(".nothing").textContent?.startsWith("No row matches")]).toEqual([false, true]);
    view.search("");
    expect([view.find(".nothing").hidden, names(view).length]).toEqual([true, 6]);
  });
});

describe("cells", () => {
  const cell = (view: Page, row: number, column: number): HTMLElement => rows(view)[row]?.children[column] as HTMLElement;

  it("draws tensors as boxes that grow with the logarithm of their sizes, and writes the sizes", () => {
    const view = page(explained());
    const boxes = [...cell(view, 1, 1).querySelectorAll("svg")].map((box) => Number(box.getAttribute("width")));
    expect(boxes[0]).toBeGreaterThan(boxes[1]!);
    expect(cell(view, 1, 1).textContent).toBe("5→4");
    expect(cell(view, 1, 1).querySelectorAll("svg[aria-hidden=true]").length).toBe(2);
  });

  it("draws what does not fit broken, and says what a marked line says with its sign", () => {
    const view = page(explained());
    const broken = cell(view, 5, 1).querySelectorAll(".sized.broken");
    expect([...broken].map((box) => [box.textContent, box.getAttribute("title")])).toEqual([["3×1", "does not fit"]]);
    expect(cell(view, 5, 1).querySelector(".saying.broken")?.textContent).toBe("✕ inner sizes 2 ≠ 3");
    expect(rows(view).map((row) => row.classList.contains("is-broken"))).toEqual([true, false, true, false, false, true]);
  });

  it("fills of a tensor that lies over several ranks what is here, and says how it lies", () => {
    const flows = [[[16, 64, [16, 32], "columns over tp"], "→", [6, 4, [0, 4], "rows over dp"]], [[16, 64, [16, 64], "replicated over tp"], [2, null, [1], "elements over dp"]]];
    const view = page(sheet({ columns: [{ kind: "flow" }], rows: flows.map((flow) => ({ name: "a", cells: [{ text: "", flow }] })) }));
    const boxes = [...cell(view, 0, 1).querySelectorAll(".sized"), ...cell(view, 1, 1).querySelectorAll(".sized")];
    expect(boxes.map((box) => [box.textContent, box.getAttribute("title")])).toEqual([
      ["16×64", "[16×32 here, columns over tp]"], ["6×4", "[0×4 here, rows over dp]"], ["16×64", "[16×64 here, replicated over tp]"], ["2", "does not fit [1 here, elements over dp]"],
    ]);
    const sides = boxes.map((box) => [...box.querySelectorAll("path")].map((path) => path.getAttribute("d")?.match(/h([\d.]+)v([\d.]+)/)?.slice(1).map(Number) as [number, number]));
    expect(sides.map((paths) => paths.length)).toEqual([2, 2, 1, 2]);
    expect(sides.map(([whole, here]) => whole && here && [here[0] / whole[0], here[1] / whole[1]])).toEqual([[0.5, 1], [1, 0], undefined, [0.5, 1]]);
    expect(cell(view, 0, 1).title).toBe("16×64 [16×32 here, columns over tp] → 6×4 [0×4 here, rows over dp]");
  });

  it("sets what goes in apart from what comes out behind the last arrow, so that the first gives way", () => {
    const flows = [[[2], [3], "→", [4, 1]], ["x", "→", "y", "→", "✕ stopped"], ["→", [4]], ["no arrow", [2]]];
    const view = page(sheet({ columns: [{ kind: "flow" }], rows: flows.map((flow) => ({ name: "a", cells: [{ text: "", flow }] })) }));
    const parts = (row: number): string[] => [...cell(view, row, 1).children].map((part) => `${part.className} ${part.textContent}`);
    expect([0, 1, 2, 3].map(parts)).toEqual([["inputs 23", "outputs →4×1"], ["inputs x→y", "outputs →✕ stopped"], ["outputs →4"], ["outputs no arrow2"]]);
  });

  it("takes a sign that words begin with for their mark, and says it once", () => {
    const view = page(sheet({ columns: [{ kind: "flow" }], rows: [{ name: "a", cells: [{ text: "", flow: [[2], "→", "✕ stopped"] }] }, { name: "b", cells: [{ text: "", flow: [[2], "→", "✕ stopped"], mark: "broken" }] }] }));
    expect([0, 1].map((row) => [cell(view, row, 1).textContent, cell(view, row, 1).querySelectorAll(".saying.broken").length])).toEqual([["2→✕ stopped", 1], ["2→✕ stopped", 1]]);
  });

  it("falls back to words, and draws shares as bars beside or behind them", () => {
    const view = page(explained());
    expect(cell(view, 4, 1).textContent).toBe("2 → 2");
    expect(cell(view, 4, 2).querySelector(".share i")?.className).toBe("function");
    expect(page(sheet({ columns: [{ kind: "code", width: 80 }], rows: [{ cells: [{ text: "8 of 10", share: 0.8 }] }] })).find(".shared").style.getPropertyValue("--share")).toBe("80.00%");
  });

  it("are 30 pixels high where tensors flow, else 25", () => {
    expect(page(explained()).find(".sheet").style.getPropertyValue("--row")).toBe("30px");
    expect(flat().find(".sheet").style.getPropertyValue("--row")).toBe("25px");
  });

  it("give way when there is no room, the last of equals first, and are told in the detail", () => {
    const view = wide(260, checked().json, checked().arrays);
    expect(heads(view)).toEqual(["check", "what", "count"]);
    expect(view.find("[role=treegrid]").getAttribute("aria-colcount")).toBe("5");
    expect(view.all("[role=columnheader]")[2]?.getAttribute("aria-colindex")).toBe("5");
    expect([...view.find(".detail .pairs").children].map((pair) => pair.textContent)).toEqual(["module(root)", "whywhy", "rows8 of 10"]);
  });

  it("share the room by what they need: who needs little gets it, the others share the rest", () => {
    const columns = [{ title: "a", width: 60 }, { title: "b", width: 60 }, { title: "c", width: 60 }];
    const cells = ["x".repeat(4), "x".repeat(60), "x".repeat(60)];
    const [name = 0, few = 0, many = 0, last = 0] = widths(wide(600, sheet({ columns, rows: [{ name: "n", cells }] })));
    expect([few, many - last]).toEqual([32, 0]);
    expect(name).toBeLessThan(60);
    expect(name + few + many + last).toBeGreaterThan(540);
    expect(name + few + many + last).toBeLessThanOrEqual(550);
  });

  it("are not there where no row says anything", () => {
    expect(heads(page(sheet({ columns: [{ title: "time" }, { title: "memory" }], rows: [{ name: "a", cells: ["1 s", ""] }] })))).toEqual(["module", "time"]);
  });

  it("that decide stay, and what is cut of them is whole in the detail", () => {
    const long = "moves running_mean and running_var in both modes";
    const columns = [{ title: "apart", kind: "bar", yields: 0 }, { title: "side", yields: 1 }, { title: "does", width: 130, yields: 0 }];
    const rows = [{ name: "layer", kind: "BatchNorm2d", cells: ["0.5", "0.1 ± 0.2", long], details: [{ prose: "more" }] }];
    const view = wide(370, sheet({ columns, rows }));
    expect(heads(view)).toEqual(["module", "apart", "does"]);
    expect(told(view)).toEqual(["side0.1 ± 0.2", `does${long}`]);
    expect(view.find(".cell-words").title).toBe(long);
    expect(told(wide(1200, sheet({ columns, rows })))).toEqual([]);
  });

  it("that are two sides of one thing come and go together", () => {
    const columns = [{ title: "here", width: 110 }, { title: "there", width: 110 }, { title: "apart", width: 90, yields: 0 }];
    const rows = [{ name: "encoder.layer", cells: ["-0.0091 ± 0.24", "-0.0094 ± 0.25", "0.000123"] }];
    const shown = [550, 450, 400, 350, 300].map((pixels) => heads(wide(pixels, sheet({ columns, rows }))).slice(1));
    expect(new Set(shown.map(String))).toEqual(new Set(["here,there,apart", "apart"]));
  });

  it("are not all gone beside long names, which are cut then", () => {
    const rows = [{ name: "_forward_pre_hooks_with_kwargs", cells: ["a value that is long as well", "x"] }];
    const view = wide(370, sheet({ columns: [{ title: "holds", width: 130 }, { title: "type" }], rows }));
    expect(heads(view)).toEqual(["module", "holds"]);
    const [name = 0, holds = 0] = widths(view);
    expect([name > 200, holds > 100, name + holds <= 341]).toEqual([true, true, true]);
    expect(told(view)).toEqual(["holdsa value that is long as well", "typex"]);
  });

  it("that are good to know give way to the notes of names, those that matter do not", () => {
    const columns = [{ title: "order", width: 50, yields: 1 }, { title: "file", width: 90, yields: 3 }];
    const rows = [{ name: "hook", kind: "forward hook", note: "registered again, 3 times", cells: ["1 of 3", "a_file.py:25"] }];
    expect(heads(wide(600, sheet({ columns, rows })))).toEqual(["module", "order", "file"]);
    expect(heads(wide(330, sheet({ columns, rows })))).toEqual(["module", "order"]);
  });

  it("leave what went wrong a line of its own, where it is long", () => {
    const error = "RuntimeError: mat1 and mat2 shapes cannot be multiplied (5x1 and 4x4)";
    const row = (end: string, mark = "broken"): object => ({ name: "x @ y", mark, cells: [{ flow: [[5, 1, null], [4, 4, null], "→", `✕ ${end}`], mark: "broken" }], details: [{ prose: "why" }] });
    const view = wide(650, sheet({ columns: [{ title: "in → out", kind: "flow", yields: 0 }], rows: [row(error), row("stopped inside"), row(error, "careful")] }));
    expect(rows(view).map((one) => one.querySelector(".below")?.textContent)).toEqual([error, undefined, undefined]);
    expect(rows(view).map((one) => one.style.height)).toEqual(["52px", "", ""]);
    expect(rows(view)[0]?.querySelector(".outputs")?.textContent).toBe("→✕");
    expect(rows(view)[0]?.querySelector(".below")?.getAttribute("role")).toBe("gridcell");
    expect(view.all(".row:first-child .broken.sized").map((box) => box.textContent)).toEqual(["5×1", "4×4"]);
    expect(told(view)).toEqual([`in → out5×1 4×4 → ✕ ${error}`]);
    expect(rows(wide(300, sheet({ columns: [{ title: "", kind: "flow" }], rows: [row(error)] })))[0]?.style.height).toBe("70px");
  });

  it("say what went wrong with one sign, also where it has no letters", () => {
    const row = { name: "loss", symbol: "own", mark: "broken", cells: [{ flow: [[4, 1, null], "→", "✕ 4×1 ≠ 4"], mark: "broken" }] };
    expect(page(sheet({ columns: [{ title: "out", kind: "flow" }], rows: [row] })).all(".sign").map((sign) => sign.parentElement?.textContent)).toEqual(["✕ 4×1 ≠ 4"]);
  });

  it("do not say twice what went wrong, nor what a thing is called", () => {
    const error = "RuntimeError: a sentence that is long";
    const view = page(sheet({ columns: [{ title: "out", kind: "flow" }], rows: [{ name: "Linear", kind: "Linear", symbol: "linear", mark: "broken", note: "weight 4×4", cells: [{ flow: ["→", `✕ ${error}`], mark: "broken" }], details: [{ caption: "raised", prose: error }] }] }));
    expect(told(view)).toEqual([]);
    expect(view.find(".module").textContent).toBe("Linearweight 4×4");
    expect(view.all(".module .sign, .detail p .sign")).toEqual([]);
  });
});

describe("details and notes", () => {
  it("draw a matrix as one, two columns wide too", () => {
    const view = page(sheet({ rows: [{ name: "a", details: [{ caption: "input 2×2", rows: [["0.1", "0.2"], ["0.3", "0.4"]], grid: true }, { rows: [["mode", "training"]] }] }] }));
    expect(view.all(".detail .brackets td").map((cell) => cell.textContent)).toEqual(["0.1", "0.2", "0.3", "0.4"]);
    expect(told(view)).toEqual(["modetraining"]);
  });

  it("set a table row by row where it has no room", () => {
    const details = [{ head: ["name", "shape", "note"], rows: [["weight", "4×4", "requires grad"], ["bias", "4", ""]] }];
    vi.spyOn(Element.prototype, "scrollWidth", "get").mockReturnValue(400);
    const narrow = wide(300, sheet({ rows: [{ name: "a", details }] }));
    expect(narrow.all(".listed.stacked td").map((cell) => [cell.dataset.title, cell.className])).toEqual([["name", ""], ["shape", ""], ["note", ""], ["name", ""], ["shape", ""], ["note", "none"]]);
    expect(wide(500, sheet({ rows: [{ name: "a", details }] })).all(".stacked")).toEqual([]);
  });

  it("do not tell again what a column without room tells by the same name", () => {
    const columns = [{ title: "time" }, { title: "memory", yields: 2 }, { title: "range", yields: 2 }];
    const details = [{ rows: [["memory", "4 B, its own"], null] }, { head: ["range"], rows: [["range"]] }];
    const view = wide(120, sheet({ columns, rows: [{ name: "a", cells: ["1 s", "4 B", "0 … 1"], details }] }));
    expect(heads(view)).toEqual(["module", "time"]);
    expect(told(view)).toEqual(["range0 … 1"]);
    expect(view.find(".detail").textContent).toContain("memory");
  });

  it("break tables between words, values behind dots and slashes, and neither inside a number", () => {
    const view = page(sheet({ rows: [{ name: "a", details: [{ rows: [["at", "lib/net_a.py:25"], ["mean", "0.25"]] }, { head: ["mean ± std"], rows: [["1.3e-08 ± 1"], ["1.3e-08 ± 1 and a word or two more"]] }] }] }));
    expect(view.all(".detail dd").map((value) => value.innerHTML.replace(/<\/?bdi[^>]*>/g, ""))).toEqual(["lib/<wbr>net_<wbr>a.<wbr>py:25", "0.25"]);
    expect(view.all(".detail td.long span").map((word) => word.textContent).slice(0, 3)).toEqual(["1.3e-08", "±", "1"]);
    expect(view.find(".detail td").outerHTML).toContain('data-title="mean ± std"');
    expect(view.find(".detail td").textContent).toBe("1.3e-08 ± 1");
  });

  it("show prose, tables, pairs and code of the selected row", () => {
    const view = page(explained());
    expect([...view.find(".detail").querySelectorAll(".prose")].map((line) => line.textContent)).toEqual(["(2) @ (3×1) has inner sizes 2 and 3.", "They must be equal."]);
    expect(view.all(".detail .facts tr").map((row) => row.textContent)).toEqual(["nameshape", "weight3×1", "bias1"]);
    expect(view.find(".detail .get").textContent).toBe("self.l1 = MyLinear(2, 1) c copies");
    expect(view.find(".detail .caption .sign").getAttribute("aria-label")).toBe("broken");
    rows(view)[1]?.click();
    expect([view.find(".detail .path").textContent, view.find(".detail .pairs").textContent]).toEqual(["l1", "mean0.5std1"]);
    rows(view)[4]?.click();
    expect(view.find(".detail").textContent).toBe("F.relufunction no module: not in the tree");
  });

  it("show the values of several tensors side by side", () => {
    const view = flat();
    rows(view)[1]?.click();
    expect([...view.find(".block .values").children].map((one) => one.querySelector(".caption")?.textContent)).toEqual(["before", "after"]);
    expect(view.all(".matrix td").map((cell) => cell.textContent)).toEqual(["1", "2", "3", "4", "1", "2", "3", "4"]);
  });

  it("are hidden where no row has any", () => {
    const view = page(many(5));
    expect([view.find(".detail").hidden, view.find(".panes").classList.contains("single")]).toEqual([true, true]);
    expect(page(explained()).find(".detail").hidden).toBe(false);
  });

  it("stand below the table where they are about all of it", async () => {
    const view = page(explained());
    expect([...view.find(".notes").children].map((block) => block.textContent)).toEqual(["Fixmake l0 give 3 numbersself.l0 = MyLinear(4, 3) copy", "not seen: what NumPy computed"]);
    view.find(".notes button").click();
    await vi.waitFor(() => expect(copied).toEqual(["self.l0 = MyLinear(4, 3)"]));
  });

  it("stand alone where there are no rows, with the sentence that says so", () => {
    const view = page(sheet({ rows: [], empty: "This model has no hooks.", notes: [{ prose: "none is global either" }] }));
    expect([view.find(".nothing").textContent, view.find(".notes").textContent, view.all("[role=treegrid], .search, .detail")]).toEqual(["This model has no hooks.", "none is global either", []]);
  });
});

describe("one selection for all views of a model", () => {
  it("goes both ways", () => {
    const tree = page(gpt2());
    const view = page({ ...sheet({ rows: [{ name: "a", depth: 0, closed: true }, { name: "ln_f", path: "transformer.ln_f", depth: 1 }, { name: "again", path: "transformer.ln_f", depth: 1 }] }), model: gpt2().model as string });
    tree.search("ln_f");
    tree.find(".hit").click();
    expect([current(view), names(view).length]).toEqual(["ln_f", 3]);
    view.press("ArrowDown");
    view.press("Home");
    tree.press("Escape");
    tree.press("Home");
    expect(tree.find(".detail .path").textContent).toBe("(root)");
    view.press("End");
    expect([tree.find(".detail .path").textContent, current(view)]).toEqual(["transformer.ln_f", "again"]);
  });

  it("ends a search that hides the row, and leaves alone what the sheet does not hold", () => {
    const view = page(explained());
    view.search("F.relu");
    const told = (path: string, model: unknown = explained().model): boolean => document.dispatchEvent(new CustomEvent("modlab:select", { detail: { model, path, source: {} } }));
    told("l1", "another");
    told("nowhere");
    expect(names(view).length).toBe(3);
    told("l1");
    expect([current(view), names(view).length, view.find(".detail .path").textContent]).toEqual(["l1", 6, "l1"]);
  });
});

describe("what came", () => {
  it("is completed where fields are missing or odd", () => {
    const given = completeSheet({ view: "trace", layout: "sheet", rows: [{}, null, { name: 3, depth: "deep", cells: "none", path: 5, details: {} }], columns: [{}, 7], notes: "none" });
    expect(given.rows).toEqual(Array(3).fill({ name: "", depth: 0, cells: [], path: null, kind: "", note: "", symbol: "", mark: "", closed: false, details: [] }));
    expect(given.columns.map(({ title, kind, width, yields }) => [title, kind, width, yields])).toEqual([["module", "name", 170, 0], ["", "words", 80, 1], ["", "words", 80, 1]]);
    expect([given.notes, given.empty, given.headline]).toEqual([[], "", ["", ""]]);
  });

  it("is drawn all the same", () => {
    const view = page({ view: "trace", layout: "sheet", rows: [{}, { details: [{}, null, { rows: [["a"], 3] }, { values: [null, 4, {}] }], cells: [null, { flow: 4, share: "x" }] }], columns: [{ kind: "flow" }, { kind: "bar" }, { kind: "odd" }], notes: [null] });
    expect(rows(view).length).toBe(2);
    rows(view)[1]?.click();
    expect(view.find(".detail").textContent).toContain("no statistics were taken");
  });

  it.each(["sheet", "sheet_hostile", "sheet_empty"])("is what Python sends: %s", (name) => {
    const bytes = readFileSync(join(import.meta.dirname, `../../tests/fixtures/${name}.bin`));
    const host = document.body.appendChild(document.createElement("div"));
    mount(host, bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength) as ArrayBuffer);
    const view = over(host);
    for (const row of rows(view)) row.click();
    expect(view.all("img, script")).toEqual([]);
    expect(view.all(".absent").filter((one) => one.tagName === "P")).toEqual([]);
    if (name === "sheet") {
      expect(names(view)).toEqual(["(root)", "l1", "net", "old"]);
      view.press("*");
      view.search("weight");
      view.press("/");
      view.press("Enter");
      expect(view.all(".matrix").length).toBe(3);
      expect(view.find(".sized.broken").textContent).toBe("3×1");
    }
    if (name === "sheet_empty") expect(view.find(".nothing").textContent).toBe("This model has no hooks.");
    else expect(rows(view).length).toBeGreaterThan(2);
  });

  it("stays text", () => {
    const [first = ""] = HOSTILE;
    const hostile = HOSTILE.map((text) => ({
      path: text, name: text, kind: text, note: text, symbol: text, mark: text, depth: 0, cells: [{ text, flow: [text, [2]], mark: text }, text],
      details: [{ caption: text, prose: text, code: text, mark: text, head: [text], rows: [[text]], values: [] }],
    }));
    const view = page(sheet({ title: first, empty: first, columns: [{ title: first, kind: "flow" }, { title: first, kind: first }], rows: hostile, notes: hostile.flatMap((row) => row.details) }));
    for (const row of rows(view)) row.click();
    for (const tag of ["img", "script", "iframe"]) expect(view.all(tag)).toEqual([]);
    expect((globalThis as { hacked?: number }).hacked).toBeUndefined();
    const text = view.root.textContent ?? "";
    for (const some of HOSTILE.slice(0, 3)) expect(text).toContain(some);
    expect(text).not.toContain("\u202e");
    for (const row of rows(view)) expect(row.outerHTML.length).toBeLessThan(20_000);
  });

  it("stays scrolled as the reader left it when the page puts it away and back", () => {
    const view = page(many(200));
    const grid = view.find("[role=treegrid]");
    grid.scrollTop = 1500;
    grid.dispatchEvent(new Event("scroll"));
    view.host.remove();
    grid.scrollTop = 0;
    document.body.append(view.host);
    expect(grid.scrollTop).toBe(1500);
  });

  it("may be 10,000 rows, of which those in sight are drawn", () => {
    const view = page(many(10_000));
    expect([view.find("[role=treegrid]").getAttribute("aria-rowcount"), rows(view).length < 60]).toEqual(["10001", true]);
    view.press("End");
    expect([current(view), rows(view).length < 60]).toEqual(["m9999", true]);
    view.search("m777");
    expect(view.find(".count").textContent).toBe("11 of 10,000 rows");
  });
});

describe("what there is to know of a row", () => {
  it("stands below few rows, and beside many", () => {
    const of = (rows: number): string => {
      const sample = explained();
      sample.rows = (sample.rows as object[]).slice(0, rows);
      return page(sample).find(".panes").className;
    };
    expect([of(4), of(5)]).toEqual(["panes single few", "panes"]);
  });
});
