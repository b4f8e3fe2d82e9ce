// @vitest-environment happy-dom
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { bigNet, bounded, experts, gpt2 } from "./samples";
import { heard } from "./heard";
import { page, type Page } from "./page";

let copied: string[] = [];
beforeEach(() => {
  copied = [];
  Object.defineProperty(navigator, "clipboard", { configurable: true, value: { writeText: async (text: string) => void copied.push(text) } });
});
afterEach(() => document.body.replaceChildren());

const current = (view: Page): string => {
  const id = view.find("[role=tree]").getAttribute("aria-activedescendant");
  return id ? (view.find(`#${id}`).querySelector(".name")?.textContent ?? "") : "";
};
const path = (view: Page): string => view.find(".detail .path").textContent ?? "";

describe("the tree as ARIA wants it", () => {
  it("has one tab stop, and every row its level, place, size and state", () => {
    const view = page(gpt2());
    expect(view.all("[role=tree]").length).toBe(1);
    expect(view.find("[role=tree]").getAttribute("tabindex")).toBe("0");
    expect(view.all("[role=treeitem][tabindex]").length).toBe(0);
    const transformer = view.all("[role=treeitem]")[1]!;
    expect(["level", "posinset", "setsize", "expanded", "selected"].map((name) => transformer.getAttribute(`aria-${name}`))).toEqual(["2", "1", "3", "true", "false"]);
    expect(view.all("[role=treeitem]")[2]?.hasAttribute("aria-expanded")).toBe(false);
    expect(heard(transformer)).toBe("transformer GPT2Model 124.4 M parameters");
    expect(view.find(".view").getAttribute("aria-label")).toContain("GPT2LMHeadModel: 124,439,808");
    expect(view.find(".view").getAttribute("role")).toBe("group");
  });

  it("marks one row as selected, and its element exists", () => {
    const view = page(gpt2());
    view.press("ArrowDown");
    view.press("End");
    view.press("Home");
    view.press("ArrowDown");
    expect(view.all("[aria-selected=true]").length).toBe(1);
    expect(current(view)).toBe("transformer");
  });

  it("lets no key through to the notebook", () => {
    const view = page(gpt2());
    const heard = vi.fn();
    for (const type of ["keydown", "keypress", "keyup"]) document.addEventListener(type, heard);
    for (const key of ["x", "d", "d", "a", "b", "m", "z", "/", "*"]) {
      view.find("[role=tree]").focus();
      for (const type of ["keydown", "keypress", "keyup"]) view.find("[role=tree]").dispatchEvent(new KeyboardEvent(type, { key, bubbles: true, composed: true }));
    }
    expect(heard).not.toHaveBeenCalled();
    for (const focusable of view.all("[tabindex], input, button, summary")) expect(focusable.getAttribute("data-lm-suppress-shortcuts"), focusable.outerHTML).toBe("true");
    expect((view.root.host as HTMLElement).dataset.lmSuppressShortcuts).toBe("true");
    expect(view.host.dataset.lmSuppressShortcuts).toBe("true");
  });
});

describe("the keys of the tree", () => {
  it("walk, open and close", () => {
    const view = page(gpt2());
    for (const [key, name] of [["ArrowDown", "transformer"], ["ArrowDown", "wte"], ["ArrowUp", "transformer"], ["ArrowRight", "wte"], ["ArrowLeft", "transformer"], ["End", "adapters"], ["Home", "(root)"], ["PageDown", "adapters"], ["PageUp", "(root)"]] as const) {
      expect(view.press(key).defaultPrevented).toBe(true);
      expect(current(view), key).toBe(name);
    }
    const rows = view.all("[role=treeitem]").length;
    view.press("ArrowRight");
    view.press("ArrowLeft");
    expect([current(view), view.all("[role=treeitem]").length]).toEqual(["transformer", 4]);
    view.press("ArrowLeft");
    view.press("ArrowLeft");
    expect(view.all("[role=treeitem]").length).toBe(1);
    view.press("Enter");
    expect(view.all("[role=treeitem]").length).toBe(4);
    view.press("ArrowDown");
    view.press("Enter");
    expect(view.all("[role=treeitem]").length).toBe(rows);
    view.press("Home");
    view.press(" ");
    expect(view.find("[role=treeitem]").getAttribute("aria-expanded")).toBe("false");
  });

  it("make only the rows that come: the others stay the same elements and know where they stand", () => {
    const view = page(gpt2());
    const rows = (): HTMLElement[] => view.all("[role=treeitem]");
    view.press("ArrowDown");
    const before = rows();
    const [root, first] = before;
    view.press("ArrowLeft");
    expect(rows().every((row) => before.includes(row))).toBe(true);
    expect([first?.getAttribute("aria-expanded"), first?.querySelector(".chevron")?.textContent]).toEqual(["false", "▸"]);
    const closed = rows();
    view.press("ArrowRight");
    expect(rows().filter((row) => closed.includes(row))).toEqual(closed);
    expect(rows().length).toBe(before.length);
    expect([first?.getAttribute("aria-expanded"), first?.querySelector(".chevron")?.textContent]).toEqual(["true", "▾"]);
    expect(rows()[0]).toBe(root);
    expect(new Set(rows().map(({ id }) => id)).size).toBe(before.length);
    expect(view.all(".selected")).toEqual([first]);
  });

  it("say anew among how many neighbours a row stands when a run beside it is unfolded", () => {
    const view = page(gpt2());
    const run = view.find("[data-action=refold]").closest("[role=treeitem]") as HTMLElement;
    const size = Number(run.getAttribute("aria-setsize"));
    view.find("[data-action=refold]").click();
    const members = view.all("[role=treeitem]").filter((row) => row.getAttribute("aria-level") === run.getAttribute("aria-level") && Number(row.getAttribute("aria-setsize")) > size);
    expect(members.map((row) => Number(row.getAttribute("aria-posinset")))).toEqual(members.map((_, index) => index + 1));
    expect(members.length).toBe(Number(members[0]?.getAttribute("aria-setsize")));
  });

  it("open all neighbours with *", () => {
    const view = page(gpt2());
    for (let step = 0; step < 8; step += 1) view.press("ArrowDown");
    expect(current(view)).toBe("attn");
    view.press("*");
    expect(view.all("[aria-expanded=false]").length).toBe(0);
  });

  it("unfold and fold a run with u", () => {
    const view = page(gpt2());
    for (let step = 0; step < 6; step += 1) view.press("ArrowDown");
    expect([current(view), view.find(".selected .pill").textContent]).toEqual(["0 – 11", "12 equal"]);
    view.press("u");
    expect([current(view), view.all('[aria-level="4"]').length]).toEqual(["0", 12]);
    expect(view.find(".selected").getAttribute("aria-setsize")).toBe("12");
    view.press("End");
    view.press("u");
    view.press("Home");
    for (let step = 0; step < 6; step += 1) view.press("ArrowDown");
    view.press("u");
    expect([current(view), view.all('[aria-level="4"]').length]).toEqual(["0 – 11", 1]);
  });

  it("go to a name by its first letters, c and u too once begun or as capitals", () => {
    vi.useFakeTimers();
    const view = page(gpt2());
    view.press("m");
    expect(current(view)).toBe("mlp");
    vi.advanceTimersByTime(1000);
    view.press("l");
    expect(current(view)).toBe("ln_f");
    view.press("m");
    view.press("_");
    expect(current(view)).toBe("lm_head");
    vi.advanceTimersByTime(1000);
    view.press("a");
    expect(current(view)).toBe("adapters");
    vi.useRealTimers();
  });

  it("take c for the beginning of a name when another letter follows, else for the command", () => {
    vi.useFakeTimers();
    const view = page(gpt2());
    for (let step = 0; step < 8; step += 1) view.press("ArrowDown");
    view.press("*");
    view.press("Home");
    for (const key of ["c", "Shift", "_", "p"]) view.press(key);
    vi.advanceTimersByTime(2000);
    expect([current(view), copied]).toEqual(["c_proj", []]);
    view.press("c");
    vi.advanceTimersByTime(299);
    expect(copied).toEqual([]);
    vi.advanceTimersByTime(1);
    expect([current(view), copied]).toEqual(["c_proj", ['model.get_submodule("transformer.h.0.attn.c_proj")']]);
    view.press("c");
    view.press("ArrowUp");
    expect(copied.length, "another key runs the command first").toBe(2);
    view.press("c");
    view.find("[role=tree]").dispatchEvent(new FocusEvent("blur"));
    expect(copied[2]).toBe('model.get_submodule("transformer.h.0.attn.c_attn")');
    view.press("c");
    view.press("u");
    expect([copied.length, view.all('[aria-level="4"]').length], "no name begins with cu").toEqual([4, 12]);
    vi.useRealTimers();
  });

  it("copy the code of the selected row with c", async () => {
    const view = page(gpt2());
    view.press("c");
    view.press("ArrowDown");
    view.press("c");
    view.press("End");
    view.press("c");
    await vi.waitFor(() => expect(copied).toEqual(["model", 'model.get_submodule("transformer")', "self.adapters = nn.ModuleList(self.adapters)"]));
    await vi.waitFor(() => expect(view.find("[role=status]").textContent).toContain("copied"));
  });

  it("leave keys with modifiers alone", () => {
    const view = page(gpt2());
    expect(view.press("c", { ctrlKey: true }).defaultPrevented).toBe(false);
    expect(copied).toEqual([]);
  });
});

describe("the mouse", () => {
  it("selects, opens, unfolds, follows aliases and copies fixes", async () => {
    const view = page(gpt2());
    view.all(".row")[9]?.click();
    expect(path(view)).toBe("transformer.h.0.ln_2");
    view.all(".row")[10]?.querySelector<HTMLElement>(".chevron")?.click();
    expect(view.all(".row").length).toBe(18);
    view.find("[data-action=refold]").click();
    expect(view.all('[aria-level="4"]').length).toBe(12);
    view.find("[data-action=fold]").click();
    expect(view.all('[aria-level="4"]').length).toBe(1);
    view.find("[data-action=fix]").click();
    await vi.waitFor(() => expect(copied).toEqual(["self.adapters = nn.ModuleList(self.adapters)"]));
    const big = page(bigNet());
    big.find("[data-action=original]").click();
    expect(path(big)).toBe("net.l0");
  });

  it("copies the call that makes this view, and says so", async () => {
    const view = page(gpt2());
    view.find(".head button").click();
    await vi.waitFor(() => expect(copied).toEqual(["modlab.tree(model)"]));
    await vi.waitFor(() => expect(view.find(".head button").textContent).toBe("copied"));
  });
});

describe("searching", () => {
  it("begins with /, lists matches, goes there with Enter, and Esc brings the tree back with them selected", () => {
    const view = page(gpt2());
    view.find("[role=tree]").focus();
    view.press("/");
    expect(view.root.activeElement).toBe(view.find("input"));
    view.search("h.7.attn.c_attn");
    expect(view.all("[role=treeitem]").map((row) => row.querySelector(".name")?.textContent)).toEqual(["(root)", "transformer", "h", "7", "attn", "c_attn"]);
    expect([view.find(".count").textContent, view.find("[role=status]").textContent]).toEqual(["1 of 163 modules", "1 of 163 modules"]);
    view.press("Enter");
    expect([current(view), path(view)]).toEqual(["c_attn", "transformer.h.7.attn.c_attn"]);
    view.press("Escape");
    expect([current(view), path(view), (view.find("input") as HTMLInputElement).value]).toEqual(["c_attn", "transformer.h.7.attn.c_attn", ""]);
    expect(view.all('[aria-level="4"]').map((row) => row.querySelector(".name")?.textContent)).toEqual(["0 – 6", "7", "8 – 11"]);
  });

  it("says when nothing matches, and what may be asked", () => {
    const view = page(gpt2());
    view.search("nowhere");
    expect(view.find(".nothing").hidden).toBe(false);
    expect(view.find(".nothing").textContent).toContain("No module matches");
    view.search("");
    expect(view.find(".nothing").hidden).toBe(true);
  });

  it("has chips that are buttons", () => {
    const view = page(bigNet());
    const chip = view.all(".chip")[2]!;
    chip.click();
    expect([chip.getAttribute("aria-pressed"), view.find(".count").textContent]).toEqual(["true", "1 of 6 paths"]);
    chip.click();
    expect([chip.getAttribute("aria-pressed"), view.all(".row").length]).toEqual(["false", 8]);
  });
});

describe("many rows", () => {
  it("keeps those in sight in the document", () => {
    const view = page(experts());
    view.search("layers");
    view.search("");
    const index = view.all(".row").findIndex((row) => row.querySelector(".name")?.textContent === "0 – 255");
    view.all(".row")[index]?.querySelector<HTMLElement>("[data-action=refold]")?.click();
    expect(view.find(".count").textContent).toContain("rows");
    expect(view.all("[role=treeitem]").length).toBeLessThan(60);
    view.press("End");
    expect(current(view)).not.toBe("");
    expect(view.all("[role=treeitem]").length).toBeLessThan(60);
  });
});

describe("the detail", () => {
  it("tells tensors, class, place and how to get it", () => {
    const view = page(gpt2());
    view.search("transformer.h.0.attn.c_attn");
    view.find(".hit").click();
    const text = view.find(".detail").textContent ?? "";
    for (const part of ["768×2304", "f32", "1.77 M parameters", "1D-convolutional layer", "forward(x)", "transformers/pytorch_utils.py:98", 'model.get_submodule("transformer.h.0.attn.c_attn")', "class Conv1D"]) expect(text).toContain(part);
    const [more, code] = view.all(".detail details") as HTMLDetailsElement[];
    expect([more?.open, more?.textContent, code?.querySelector("summary")?.textContent]).toEqual([false, "moreBasically works like a linear layer but the weights are transposed.", "code"]);
    expect(view.find(".facts th[scope=row]").textContent).toBe("weight");
  });

  it("says how much of the code there is", () => {
    const sample = gpt2();
    const classes = (sample.classes as object[]).map((facts) => ({ ...facts, codeNote: "the first 60 of 418 lines" }));
    const view = page({ ...sample, classes });
    view.search("transformer.h.0.attn.c_attn");
    view.find(".hit").click();
    expect(view.all(".detail summary").map((summary) => summary.textContent)).toEqual(["more", "code: the first 60 of 418 lines"]);
    view.search("ln_f");
    view.find(".hit").click();
    expect(view.find(".detail").textContent).toContain("the first 60 of 418 lines");
  });

  it("gives the reason where there is nothing", () => {
    const view = page(bigNet());
    view.press("End");
    expect(view.find(".detail").textContent).toContain("the module contains itself: this is (root) again");
    view.press("n");
    view.press("o");
    expect(view.find(".detail").textContent).toContain("a name registered for a module that is None");
  });
});

describe("a row in words", () => {
  const said = (view: Page, name: string): string => heard(view.all("[role=treeitem]").find((row) => row.querySelector(".name")?.textContent === name));

  it("says what the column of parameters says", () => {
    const gpt = page(gpt2());
    expect(said(gpt, "lm_head")).toBe("lm_head Linear in_features=768, out_features=50257, bias=False 50257×768 parameters tied to wte");
    expect(said(gpt, "adapters")).toBe("adapters list of 3 Linear not registered in a Python list 6,912 parameters not trained, not moved, not saved. Fix: self.adapters = nn.ModuleList(self.adapters)");
    expect(said(gpt, "drop")).toBe("drop Dropout p=0.1, inplace=False no parameters");
    const big = page(bigNet());
    expect(said(big, "l1")).toContain("6 parameters");
    expect(said(big, "again")).toContain("same as net.l0");
    expect(said(big, "self")).toContain("contains itself: same as (root)");
    expect(said(big, "norm")).toBe("norm reserved (None)");
    expect(said(big, "net")).toBe("net Net at least 10 parameters");
    const lazy = big.all("[role=treeitem]").find((row) => row.querySelector(".parameters")?.textContent === "parameters not yet");
    expect(heard(lazy)).toMatch(/^l1 LazyLinear lazy .* parameters not yet$/);
  });
});

describe("what was left out", () => {
  it("is a note and no module", () => {
    const view = page(bounded());
    const notes = view.all(".row.ghost");
    expect(notes.map(heard)).toEqual([
      "… 2,900 more tensors left out to keep this output small. All of it: tree.widget() # has all", "… 30 more",
      "… 3,000 more children 12,000 parameters left out to keep this output small. All of it: tree.widget() # has all",
    ]);
    expect(notes[2]?.querySelector(".reason")?.textContent).toBe("left out to keep this output small.All of it:tree.widget()  # has all");
    expect(notes[1]?.querySelector(".reason")).toBeNull();
    expect(notes.map((row) => [row.classList.contains("careful"), row.querySelector(".dashed"), /⚠|not trained|hidden|Fix/.test(row.textContent ?? "")])).toEqual(notes.map(() => [false, null, false]));
    view.press("c");
    view.press("End");
    view.press("c");
    expect(copied).toEqual(["model", "tree.widget()  # has all"]);
    view.all(".row")[2]?.click();
    expect(view.find(".detail").textContent).toContain("2,900 more tensors: left out to keep this output small");
  });

  it("is not found", () => {
    const view = page(bounded());
    for (const text of ["hidden", "ghost", "*", "…", "children"]) {
      view.search(text);
      expect([view.find(".count").textContent?.includes("hidden"), view.all(".row.ghost").length], text).toEqual([false, 0]);
    }
  });
});

describe("Escape", () => {
  it("leads out of the view, to what holds it, once no search is to be ended", () => {
    const view = page(gpt2());
    const cell = document.createElement("div");
    cell.tabIndex = 0;
    view.host.replaceWith(cell);
    cell.append(view.host);
    view.find("[role=tree]").focus();
    view.search("c_attn");
    expect(view.press("Escape").defaultPrevented).toBe(true);
    expect(view.all("[role=treeitem]").length).toBeGreaterThan(10);
    expect(document.activeElement).not.toBe(cell);
    view.press("Escape");
    expect(document.activeElement).toBe(cell);
  });

  it("leaves a view that nothing holds, too", () => {
    const view = page(gpt2());
    view.find("[role=tree]").focus();
    view.press("Escape");
    expect(view.root.activeElement).toBeNull();
  });
});
