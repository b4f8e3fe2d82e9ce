// @vitest-environment happy-dom
import { afterEach, describe, expect, it, vi } from "vitest";
import { mount } from "../src/still";
import { VERSION } from "../src/version";
import { over, page } from "./page";
import { gpt2, HOSTILE, hostile, pack } from "./samples";

afterEach(() => document.body.replaceChildren());

describe("mounting", () => {
  it("is offered under the version", () => {
    expect((globalThis as unknown as { modlab: Record<string, { mount: unknown }> }).modlab[VERSION]?.mount).toBe(mount);
  });

  it("hides the static picture, and shows it again when drawing fails", () => {
    const { host } = page(gpt2());
    const still = host.querySelector<HTMLElement>(".modlab-static")!;
    expect(still.style.display).toBe("none");
    const warn = vi.spyOn(console, "warn").mockImplementation(() => {});
    mount(host, new ArrayBuffer(1));
    expect([still.style.display, still.hidden, host.querySelector(".modlab-live"), warn.mock.calls.length]).toEqual(["", false, null, 1]);
    warn.mockRestore();
  });

  it("replaces what an earlier mount drew", () => {
    const { host } = page(gpt2());
    mount(host, pack(gpt2()));
    expect(host.querySelectorAll(".modlab-live").length).toBe(1);
    expect(over(host).all(".view").length).toBe(1);
  });

  it("keeps MathJax away", () => {
    expect(page(gpt2()).host.querySelector(".modlab-live.mathjax_ignore.tex2jax_ignore")).not.toBeNull();
  });

  it("observes the page while it is in the document alone", () => {
    const [observe, ignore] = [vi.spyOn(document, "addEventListener"), vi.spyOn(document, "removeEventListener")];
    const disconnect = vi.spyOn(MutationObserver.prototype, "disconnect");
    const { host } = page(gpt2());
    const count = (spy: { mock: { calls: unknown[][] } }): number => spy.mock.calls.filter(([name]) => name === "modlab:select").length;
    expect([count(observe), count(ignore)]).toEqual([1, 0]);
    host.remove();
    expect([count(observe), count(ignore)]).toEqual([1, 1]);
    expect(disconnect).toHaveBeenCalled();
    document.body.append(host);
    expect([count(observe), count(ignore)]).toEqual([2, 1]);
    mount(host, pack(gpt2()));
    expect([count(observe), count(ignore)]).toEqual([3, 2]);
    vi.restoreAllMocks();
  });

  it("follows the theme of the page", async () => {
    const view = page(gpt2());
    expect(view.find(".view").dataset.theme).toBe("light");
    document.body.setAttribute("data-jp-theme-light", "false");
    await vi.waitFor(() => expect(view.find(".view").dataset.theme).toBe("dark"));
    document.body.removeAttribute("data-jp-theme-light");
  });
});

describe("hostile names and texts", () => {
  it("stay text", () => {
    const view = page(hostile());
    for (const row of view.all(".row")) row.click();
    view.press("Home");
    for (const tag of ["img", "script"]) expect(view.all(tag)).toEqual([]);
    expect((globalThis as { hacked?: number }).hacked).toBeUndefined();
    const text = view.root.textContent ?? "";
    for (const some of HOSTILE.slice(0, 3)) expect(text).toContain(some);
    expect(text).toContain("\\u202eevil");
    expect(text).not.toContain("\u202e");
  });

  it("cannot make a row of a megabyte", () => {
    const view = page(hostile());
    for (const row of view.all(".row")) expect(row.outerHTML.length).toBeLessThan(10_000);
  });

  it("are isolated in direction", () => {
    const view = page(hostile());
    for (const name of view.all(".name, .type, .extra")) expect(name.closest("bdi") ?? name.querySelector("bdi") ?? name.textContent === "reserved (None)").toBeTruthy();
  });
});
