// @vitest-environment happy-dom
import { beforeEach, describe, expect, it } from "vitest";
import { settings } from "../src/lessons/settings";

function page(all: [string, string[]][], lines: string[]): HTMLElement {
  const host = document.createElement("div");
  host.className = "modlab modlab-settings";
  host.dataset.settings = JSON.stringify(all);
  host.innerHTML = `<div class="modlab-static">${lines.map((line) => `<details><summary><code>${line}</code></summary><p>${line}!</p></details>`).join("")}</div>`;
  document.body.replaceChildren(host);
  return host;
}

const shown = (host: HTMLElement): string[] =>
  [...host.querySelectorAll("details")].filter((one) => !one.hidden && one.open).map((one) => one.querySelector("summary")?.textContent ?? "");

const SIX: [string, string[]][] = [
  ["a", ["'x'", "'y'", "'z'"]],
  ["b", ["True", "False"]],
];
const LINES = ["f(1, True)", "f(1, False)", "f(2, True)", "f(2, False)", "f(3, True)", "f(3, False)"];

describe("settings", () => {
  beforeEach(() => document.body.replaceChildren());

  it("shows one variant, and its line of code", () => {
    const host = page(SIX, LINES);
    settings(host);
    expect(shown(host)).toEqual(["f(1, True)"]);
    expect(host.querySelector(".modlab-line")?.textContent).toBe("f(1, True)");
  });

  it("goes to the variant of all settings together", () => {
    const host = page(SIX, LINES);
    settings(host);
    const radios = [...host.querySelectorAll<HTMLInputElement>("input[type=radio]")];
    expect(radios).toHaveLength(5);
    radios[2]?.click();
    radios[4]?.click();
    expect(shown(host)).toEqual(["f(3, False)"]);
    expect(host.querySelector(".modlab-line")?.textContent).toBe("f(3, False)");
  });

  it("makes a slider of many values, which says the value", () => {
    const host = page([["width", ["1", "2", "4", "8", "16"]]], ["w1", "w2", "w4", "w8", "w16"]);
    settings(host);
    const range = host.querySelector<HTMLInputElement>("input[type=range]");
    expect(range?.getAttribute("aria-valuetext")).toBe("1");
    range!.value = "3";
    range!.dispatchEvent(new Event("input"));
    expect(range?.getAttribute("aria-valuetext")).toBe("8");
    expect(shown(host)).toEqual(["w8"]);
  });

  it("makes a slider of numbers in an order, however few, and of nothing else", () => {
    const kinds = [["1", "2"], ["0.1", "0.01", "0.001"], ["2", "1", "3"], ["1", "1"], ["True", "False"], ["None", "1"]].map((values) => {
      const host = page([["x", values]], values);
      settings(host);
      return host.querySelectorAll("input[type=range]").length;
    });
    expect(kinds).toEqual([1, 1, 0, 0, 0, 0]);
  });

  it("names each group, and keeps JupyterLab from the keys", () => {
    const host = page(SIX, LINES);
    settings(host);
    expect([...host.querySelectorAll("legend")].map((one) => one.textContent)).toEqual(["a", "b"]);
    expect([...host.querySelectorAll("input")].every((one) => one.dataset.lmSuppressShortcuts === "true")).toBe(true);
  });

  it("leaves a page alone that does not fit, and one that it has done already", () => {
    const wrong = page(SIX, LINES.slice(1));
    settings(wrong);
    expect(wrong.querySelector("form")).toBeNull();
    const host = page(SIX, LINES);
    settings(host);
    settings(host);
    expect(host.querySelectorAll("form")).toHaveLength(1);
  });

  it("counts its own variants, and not what unfolds in their views", () => {
    const host = page([["x", ["1", "2"]]], ["a", "b"]);
    const view = document.createElement("div");
    view.className = "modlab-static";
    view.innerHTML = "<details><summary>l0</summary></details>";
    host.querySelector("details")?.append(view);
    settings(host);
    expect(host.querySelector(".modlab-line")?.textContent).toBe("a");
    expect(view.querySelector("details")?.hidden).toBe(false);
  });

  it("shows a user's text as text", () => {
    const host = page([["x", ["<b>1</b>", "2"]]], ["a", "b"]);
    settings(host);
    expect(host.querySelector("form b")).toBeNull();
  });
});
