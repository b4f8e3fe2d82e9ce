// @vitest-environment happy-dom
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { mount as mountSheet } from "../src/sheet/entry";
import { mount as mountStill } from "../src/still";
import { VERSION } from "../src/version";
import { mount as mountWatch } from "../src/watch/entry";
import { over, type Page } from "./page";
import { bigNet, explained, pack, stateful } from "./samples";
import { net, packed } from "./watch-samples";

const MODEL = "9f3c2a11";

function host(mount: (host: HTMLElement, bytes: ArrayBuffer) => void, bytes: ArrayBuffer): Page {
  const made = document.createElement("div");
  made.className = "modlab";
  made.innerHTML = '<div class="modlab-static">the static picture</div>';
  document.body.append(made);
  mount(made, bytes);
  return over(made);
}

function three(): [tree: Page, sheet: Page, watch: Page] {
  const seen = net({ end: 200, samples: 20 });
  return [host(mountStill, pack(bigNet())), host(mountSheet, pack(explained())), host(mountWatch, packed({ ...seen, json: { ...seen.json, model: MODEL } }))];
}

const named = (view: Page, name: string): HTMLElement => view.all(".row").find((row) => row.querySelector(".name")?.textContent === name) as HTMLElement;

beforeEach(() => void vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "requestAnimationFrame", "cancelAnimationFrame"] }));
afterEach(() => {
  document.body.replaceChildren();
  vi.useRealTimers();
});

describe("a tree, a sheet and a watch on one page", () => {
  it("are drawn by front ends of their own, which the page knows by different names", () => {
    const known = (globalThis as unknown as { modlab: Record<string, { mount: unknown }> }).modlab;
    expect([known[VERSION]?.mount, known[`${VERSION}+sheet`]?.mount, known[`${VERSION}+watch`]?.mount]).toEqual([mountStill, mountSheet, mountWatch]);
    for (const view of three()) {
      expect(view.root.textContent).not.toContain("has no view");
      expect(view.host.querySelector<HTMLElement>(".modlab-static")?.hidden).toBe(true);
    }
  });

  it("share one selection", async () => {
    const [tree, sheet, watch] = three();
    const reading = async (): Promise<string> => {
      await vi.advanceTimersByTimeAsync(50);
      return watch.find(".reading").textContent ?? "";
    };
    named(sheet, "l1").click();
    expect(tree.find(".selected .name").textContent).toBe("l1");
    expect(await reading()).toContain("l1");
    const before = await reading();
    named(tree, "net").click();
    expect(sheet.find(".selected .name").textContent).toBe("net");
    expect(await reading()).toBe(before);
  });

  it("keep their keys, each its own", () => {
    const [tree, sheet] = three();
    const heard = vi.fn();
    document.addEventListener("keydown", heard);
    const at = (view: Page): string | null => view.find(".selected").getAttribute("aria-level");
    tree.press("Home");
    const before = at(sheet);
    tree.press("ArrowDown");
    tree.press("x");
    expect([at(tree), at(sheet) === before]).toEqual(["2", false]); // the selection goes along, the key does not
    expect(heard).not.toHaveBeenCalled();
    document.removeEventListener("keydown", heard);
  });

  it("say that a view is none of theirs", () => {
    for (const [mount, bytes] of [[mountSheet, pack(bigNet())], [mountStill, pack(explained())], [mountSheet, pack(stateful().json)]] as const) {
      expect(host(mount, bytes).find("p.absent").textContent).toContain("this page has no view called");
    }
  });
});
