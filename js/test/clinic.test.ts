// @vitest-environment happy-dom
import { beforeEach, describe, expect, it } from "vitest";
import { drawn } from "../src/clinic/blocks";
import { axisOf, runs, short } from "../src/clinic/charts";
import { clinic, place } from "../src/clinic/clinic";
import type { Case } from "../src/clinic/data";
import { atOnce, Ledger, score, shared } from "../src/clinic/progress";

const made = (number: number, first = false): Case => ({
  number,
  name: `net/fault ${number}`,
  kind: "MLP",
  task: "It learns.",
  complaint: "It does not.",
  looks: ["loss", "loop"].map((id) => ({ id, title: id.toUpperCase(), hint: "of it", blocks: [{ kind: "say", text: `what ${id} shows` }] })),
  causes: [
    { says: "One", right: false, why: "One is ruled out." },
    { says: "Two", right: true, why: "Two is shown." },
    { says: "Three", right: false, why: "Three is ruled out." },
  ],
  shown: ["loop"],
  modlab: {
    grade: first ? "names the cause first" : "finds nothing",
    first,
    hinted: !first,
    named: "",
    says: [
      ["The watch", "All is well.", []],
      ["The diagnosis adds", "Worth a look:", ["A unit is dead", "another one is"]],
    ],
  },
});
const CASES = [made(1, true), made(2)];

class Kept implements Storage {
  readonly #values = new Map<string, string>();
  readonly length = 0;
  clear(): void {}
  key(): null {
    return null;
  }
  removeItem(): void {}
  getItem(name: string): string | null {
    return this.#values.get(name) ?? null;
  }
  setItem(name: string, value: string): void {
    this.#values.set(name, value);
  }
}

const press = (words: string): void => [...document.querySelectorAll<HTMLButtonElement>("button")].find((one) => one.textContent?.startsWith(words))?.click();
const text = (selector: string): string => document.querySelector(selector)?.textContent ?? "";

/** To another address of the page. */
function go(hash: string): void {
  history.replaceState(null, "", `${location.pathname}${hash}`);
  window.dispatchEvent(new Event("hashchange"));
}

function open(store: Storage | null = new Kept(), hash = ""): void {
  location.hash = hash;
  document.body.innerHTML = "<main></main>";
  clinic(document.querySelector("main") as HTMLElement, CASES, new Ledger(store));
}

describe("a case", () => {
  beforeEach(() => open());

  it("shows nothing that was not bought", () => {
    expect(text(".room")).not.toContain("what loss shows");
    press("LOSS");
    expect(text(".opened")).toContain("what loss shows");
    expect(text(".room")).toContain("1 look bought");
    expect(document.querySelector("[data-look=loss]")?.getAttribute("aria-pressed")).toBe("true");
  });

  it("counts a look once, and puts the newest on top", () => {
    press("LOSS");
    press("LOOP");
    press("LOSS");
    expect([...document.querySelectorAll(".opened h4")].map((one) => one.textContent)).toEqual(["LOOP", "LOSS"]);
    expect(text(".room")).toContain("2 looks bought");
  });

  it("answers a wrong cause with what rules it out, and goes on", () => {
    press("One");
    expect(text('[data-cause="0"]')).toContain("✕ No. One is ruled out.");
    expect(text("[role=status]")).toBe("No. One is ruled out.");
    expect(document.querySelector<HTMLElement>(".end")?.hidden).toBe(true);
    expect(text("#score")).toContain("2 cases.");
  });

  it.each(["bought nothing", "seen the answer"])("brings the answer to a wrong cause into sight for who has %s", (before) => {
    if (before === "seen the answer") press("Show the answer");
    const seen: [string | null, unknown][] = [];
    Element.prototype.scrollIntoView = function (this: Element, how) {
      seen.push([this.textContent, how]);
    };
    press("One");
    press("One");
    Reflect.deleteProperty(Element.prototype, "scrollIntoView");
    expect(seen).toEqual(Array(2).fill(["One✕ No. One is ruled out.", { block: "nearest" }]));
  });

  it("ends with the right one: evidence, looks, modlab and a line to send", () => {
    press("LOOP");
    press("One");
    press("Two");
    expect(text('[data-cause="1"]')).toContain("Two is shown.");
    expect(text(".end")).toContain("Solved: cause in 1 look, at try 2");
    expect(text(".end")).toContain("The cause: Two.It can be seen in 1 look: LOOP.");
    expect(text(".end")).toContain("names the cause first");
    expect([...document.querySelectorAll("blockquote p")].map((one) => one.textContent)).toEqual(["The watch: All is well.", "The diagnosis adds: Worth a look:"]);
    expect([...document.querySelectorAll("blockquote li")].map((one) => one.textContent)).toEqual(["A unit is dead", "another one is"]);
    expect(text(".end")).not.toContain("net/fault");
    expect(text(".end code")).not.toContain("Two");
    expect(text("#score")).toBe("1 of 2 cases closed. You named 1 of them, 0 at the first try, with 1.0 looks on average; modlab names the cause first in 1 of them.");
    expect(document.activeElement?.className).toBe("end");
  });

  it("tells afterwards why it is none of the others, and looks are free", () => {
    press("Two");
    press("Three");
    press("LOSS");
    expect(text('[data-cause="2"]')).toContain("Three is ruled out.");
    expect(text(".opened")).toContain("what loss shows");
    expect(text(".end")).toContain("cause in 0 looks, at the first try");
  });

  it("shows the answer to who asks, and counts that as no find", () => {
    press("Show the answer");
    expect(text('[data-cause="1"]')).toContain("Two is shown.");
    expect(text(".end")).toContain("The answerThe cause: Two.It can be seen");
    expect(text("[role=status]")).toBe("The answer: Two. Two is shown.");
    expect(document.querySelector(".share")).toBeNull();
    expect(text("#score")).toContain("You named 0 of them");
    expect(document.querySelector("nav a")?.getAttribute("aria-label")).toBe("case 1, answer shown");
  });

  it("goes on by Tab from an opened look to the next one, and back to its own", () => {
    const root = document.body;
    const looks = [...root.querySelectorAll<HTMLElement>("[data-look]")];
    looks[0]?.click();
    const title = root.querySelector<HTMLElement>("[data-opened] h4");
    expect(document.activeElement).toBe(title);
    title?.dispatchEvent(new KeyboardEvent("keydown", { key: "Tab", cancelable: true }));
    expect(document.activeElement).toBe(looks[1]);
    title?.dispatchEvent(new KeyboardEvent("keydown", { key: "Tab", shiftKey: true, cancelable: true }));
    expect(document.activeElement).toBe(looks[0]);
  });

  it("can be begun again, and its first end goes on counting", () => {
    const store = new Kept();
    open(store);
    press("LOSS");
    press("One");
    press("Two");
    const [counts, line] = [text("#score"), text(".end code")];
    for (const _ of [1, 2]) {
      press("Start this case again");
      expect(document.querySelector<HTMLElement>(".end")?.hidden).toBe(true);
      expect(text(".opened")).toBe("");
      expect(document.querySelector("nav a")?.getAttribute("aria-label")).toBe("case 1, solved");
      press("Two");
      expect(text(".end")).toContain("Solved: cause in 0 looks, at the first try");
      expect(text(".end")).toContain("The first time counts: cause in 1 look, at try 2.");
      expect([text("#score"), text(".end code")]).toEqual([counts, line]);
      open(store);
    }
    expect(counts).toContain("0 at the first try, with 1.0 looks on average");
  });

  it("stays one whose answer was shown, however often it is begun again", () => {
    press("Show the answer");
    press("Start this case again");
    press("Two");
    expect(text(".end")).toContain("The first time counts: answer shown.");
    expect(document.querySelector(".share")).toBeNull();
    expect(text("#score")).toContain("You named 0 of them;");
    expect(document.querySelector("nav a")?.getAttribute("aria-label")).toBe("case 1, answer shown");
  });

  it.each(["Start this case again", "another case"])("says nothing of an end any more after %s", (then) => {
    press("Two");
    expect(text("[role=status]")).toContain("Right.");
    if (then === "another case") go("#case-2");
    else press(then);
    expect(text("[role=status]")).toBe("");
  });

  it("has ways to the causes and back, which keep the address", () => {
    open(new Kept(), "#case-2");
    const ways: [string, string][] = [
      [".looking .skip", "Name the cause"],
      [".looking .way a", "Name the cause"],
      [".naming .way a", "Buy a look"],
    ];
    for (const [link, heading] of ways) {
      document.querySelector<HTMLElement>(link)?.click();
      expect([document.activeElement?.textContent, location.hash]).toEqual([heading, "#case-2"]);
    }
    const order = [...document.querySelectorAll(".skip, .look, .way a, .cause")].map((one) => one.className || one.textContent);
    expect(order).toEqual(["skip", "skip", "look", "look", "Name the cause", "Back to the looks", "cause", "cause", "cause"]);
  });
});

describe("the page", () => {
  it("has a way past the cases, which keeps the address", () => {
    open(new Kept(), "#case-2");
    document.querySelector<HTMLElement>(".skip")?.click();
    expect([document.activeElement?.id, location.hash]).toEqual(["case-title", "#case-2"]);
  });

  it("opens the case of its address", () => {
    open(null, "#case-2");
    expect(text("h2")).toContain("Case 2");
    expect(document.querySelector("nav [aria-current]")?.textContent).toBe("2");
    expect(document.activeElement?.id).toBe("case-title");
  });

  it("says that there is no case of its address, and which there are", () => {
    open(null, "#case-99");
    expect(text("h2")).toBe("There is no such case");
    expect(text(".room p")).toBe("The address ends in #case-99, and the cases go from 1 to 2:");
    expect([...document.querySelectorAll(".all a")].map((one) => one.getAttribute("href"))).toEqual(["#case-1", "#case-2"]);
    expect([document.querySelector("nav [aria-current]"), document.activeElement?.id]).toEqual([null, "case-title"]);
    go("#case-2");
    expect(text("h2")).toContain("Case 2");
    go("#nothing");
    expect(text(".room code")).toBe("#nothing");
    go("");
    expect(text("h2")).toContain("Case 1");
  });

  it("remembers what was done, where it may", () => {
    const store = new Kept();
    open(store);
    press("LOSS");
    press("Two");
    open(store);
    expect(text(".opened")).toContain("what loss shows");
    expect(text(".end")).toContain("Solved");
  });

  it.each(["no json", "{}", '[[1]]', '[["1",{"looks":[],"named":[],"shown":false}]]', '[[1,{"looks":[],"named":[],"shown":false,"first":{}}]]', "null"])("begins anew where what was kept is %s", (kept) => {
    const store = new Kept();
    store.setItem("modlab-clinic", kept);
    expect(new Ledger(store).of(1)).toEqual({ looks: [], named: [], shown: false });
  });

  it("does without a store that refuses", () => {
    const store = new Kept();
    store.setItem = () => {
      throw new Error("full");
    };
    open(store);
    press("Two");
    expect(text(".end")).toContain("Solved");
  });

  it("says where it is, but no path of a machine", () => {
    expect(place({ protocol: "file:", origin: "null", pathname: "/home/somebody/clinic.html" } as Location)).toBe("docs/clinic.html");
    expect(place({ protocol: "https:", origin: "https://ada.github.io", pathname: "/modlab/clinic.html" } as Location)).toBe("https://ada.github.io/modlab/clinic.html");
  });
});

describe("what it adds up to", () => {
  it("tells before anything was done what modlab does", () => {
    expect(score(CASES, new Ledger(null))).toBe("2 cases. modlab names the cause first in 1 of them, and tells it as something worth a look in 1 more.");
    expect(score([CASES[0]!], new Ledger(null))).toBe("1 case. modlab names the cause first in 1 of them.");
  });

  it("has a line to send", () => {
    const progress = { looks: ["a", "b", "c"], named: [1], shown: false };
    expect(atOnce(CASES[0]!, progress)).toBe(true);
    expect(shared(CASES[0]!, progress, "https://x/clinic.html")).toBe("modlab clinic, case 1 (MLP): cause in 3 looks, at the first try. https://x/clinic.html#case-1");
  });
});

describe("a chart", () => {
  it("has an axis from nice number to nice number, and by factors where it spans many", () => {
    expect(axisOf([0.2, 1.1]).ticks.map(short)).toEqual(["0", "0.5", "1", "1.5"]);
    expect(axisOf([2.4, 2.5]).ticks.map(short)).toEqual(["2.4", "2.45", "2.5"]);
    expect(axisOf([1e-3, 900]).log).toBe(true);
    expect(axisOf([-5, 900]).log).toBe(false);
    expect(axisOf([3, 3]).ticks.length).toBeGreaterThan(1);
    expect(axisOf([null]).ticks).toEqual([]);
  });

  it("places the ends of a curve inside", () => {
    for (const values of [[0.2, 1.1], [-183, -1], [1e-9, 5], [7, 7]]) {
      const axis = axisOf(values);
      for (const value of values) {
        expect(axis.place(value)).toBeGreaterThanOrEqual(-1e-9);
        expect(axis.place(value)).toBeLessThanOrEqual(1 + 1e-9);
      }
    }
  });

  it("breaks a curve where there is no number, and says so", () => {
    expect(runs([0, 1, 2, 3], [1, null, 2, 3])).toEqual([[[0, 1]], [[2, 2], [3, 3]]]);
    const block = drawn({ kind: "curve", title: "Loss", x: [0, 1, 2], y: [1, 2, null], says: "up, then lost." });
    expect(block.querySelector("svg")?.getAttribute("aria-label")).toBe("Loss: up, then lost.");
    expect(block.querySelector(".lost")?.textContent).toBe("not finite");
  });

  it("sets numbers of a table to the right, and draws a row of them", () => {
    const block = drawn({ kind: "table", title: "T", head: ["name", "norm", "over"], rows: [["l0.weight", "none", [1, null, 3]], ["l1", "0.2", []]] });
    expect([...block.querySelectorAll("thead th")].map((one) => one.className)).toEqual(["", "number", ""]);
    expect(block.querySelector("tbody th")?.textContent).toBe("l0.weight");
    expect(block.querySelector("svg")?.getAttribute("aria-label")).toBe("from 1 to 3");
  });

  it("has a name for each box that scrolls, and a caption for each table", () => {
    const block = drawn({ kind: "table", title: "In numbers", head: ["of", "std"], rows: [["blocks.0.linear1.weight", "1"]] }, "Outputs");
    expect(block.querySelector("caption")?.textContent).toBe("In numbers");
    expect(block.querySelector(".wide")?.getAttribute("aria-label")).toBe("Outputs: In numbers");
    expect([block.querySelector(".wide")?.getAttribute("tabindex"), block.querySelector("tbody th")?.className]).toEqual(["0", "long"]);
    const code = drawn({ kind: "code", text: "Net()" }, "Model");
    expect(["tabindex", "role", "aria-label"].map((one) => code.getAttribute(one))).toEqual(["0", "region", "Model"]);
  });

  it("leaves out a column that has nothing", () => {
    const columns = (rows: (string | number[])[][]): (string | null)[] => [...drawn({ kind: "table", title: "T", head: ["name", "a", "b"], rows }).querySelectorAll("tr > :last-child")].map((one) => one.textContent);
    expect(columns([["x", "1", ""], ["y", "", []]])).toEqual(["a", "1", ""]);
    expect(columns([["", "", ""], ["", "", "all equal"]])).toEqual(["b", "", "all equal"]);
  });

  it("has words for each picture", () => {
    const block = drawn({ kind: "pictures", title: "P", says: "light is more", pictures: [{ label: "3", size: 2, shades: [0, 99, 50, 1], says: "a corner" }] });
    expect(block.querySelector("canvas")?.getAttribute("aria-label")).toBe("a corner");
    expect(block.querySelector("figcaption")?.textContent).toBe("target 3");
  });
});
