// @vitest-environment happy-dom
import { afterEach, describe, expect, it, vi } from "vitest";
import { flowRows, flowWords, sizeAt, Spans } from "../src/watch/flow-rows";
import { GradientFlow } from "../src/watch/gradient-flow";
import type { WatchData } from "../src/watch/data";
import { inked, made, momentOf, pressed, told, type MadeSeries, type Told } from "./watch-made";

afterEach(() => {
  document.body.replaceChildren();
  vi.restoreAllMocks();
});

const nan = Number.NaN;

/** A chain in which the gradient shrinks tenfold a layer on its way back. */
function chain(depth: number, last: Partial<MadeSeries> = {}): WatchData {
  const paths = ["", ...Array.from({ length: depth }, (_, layer) => `h.${layer}`)];
  const activations: MadeSeries[] = paths.map((path) => ({ path, count: 4, means: [1, 2] }));
  const gradients: MadeSeries[] = paths.map((path, layer) => ({ path, role: "gradient", count: 4, means: [0, 1].map((slot) => (slot + 1) * 10 ** (layer - depth)) }));
  return made({ series: [...activations, ...gradients.slice(0, -1), { ...(gradients.at(-1) as MadeSeries), ...last }] });
}

describe("what flows along depth", () => {
  it("is of modules, in the order of their calls; only what has nothing below it is compared", () => {
    expect(flowRows(chain(2))).toEqual([
      { path: "", series: [0, 3], leaf: false }, { path: "h.0", series: [1, 4], leaf: true }, { path: "h.1", series: [2, 5], leaf: true },
    ]);
    expect(flowRows(made({ series: [{ path: "h", means: [1] }, { path: "h.0.attn", role: "gradient", means: [1] }, { path: "h2", means: [1] }, { path: "h.0.attn.weight", role: "parameter", means: [1] }] })).map(({ path, leaf }) => [path, leaf])).toEqual([["h", false], ["h.0.attn", true], ["h2", true]]);
  });

  it("is measured as L2 or as root mean square, at the last sample", () => {
    const data = made({ series: [{ path: "a", count: 100, means: [3, nan, nan] }, { path: "b", means: [nan, nan, nan] }, { path: "c", means: [1, nan, nan], bad: [0, 5, 0] }] });
    expect([sizeAt(data, 999, 0, "L2"), sizeAt(data, 999, 0, "rms"), sizeAt(data, 999, 1, "L2"), sizeAt(data, 999, 2, "L2"), sizeAt(data, 0, 2, "rms"), sizeAt(data, 999, -1, "L2")]).toEqual([30, 3, "none", "bad", 1, "none"]);
  });

  it("says by how much it falls, and where a number is missing", () => {
    const data = chain(4);
    expect(flowWords(data, flowRows(data), 999, "rms")).toEqual(["activation: 2 at h.0, 2 at h.3", "gradient: 0.002 at h.0, 2 at h.3: falls 1,000-fold on its way back"]);
    expect(flowWords(chain(4, { bad: [0, 1] }), flowRows(data), 999, "rms")[1]).toBe("gradient: NaN or Inf at h.3");
    const all = made({ series: (["activation", "gradient"] as const).flatMap((role) => ["a", "b"].map((path) => ({ path, role, means: [nan], bad: [1] }))) });
    expect(flowWords(all, flowRows(all), 0, "rms")).toEqual(["activation: NaN or Inf at a", "gradient: NaN or Inf at b"]);
    const zero = chain(4, { means: [0, 0] });
    expect(flowWords(zero, flowRows(zero), 999, "rms")[1]).toBe("gradient: 0.002 at h.0, 0 at h.3; zero in 1 of 4 (25 %)");
    const one = made({ series: [{ path: "", means: [2] }] });
    expect(flowWords(one, flowRows(one), 0, "rms")).toEqual(["activation: 2 at (root)", "gradient: not sampled"]);
  });

  it("keeps its axis when extremes are gone", () => {
    const spans = new Spans();
    const before = made({ series: [{ path: "a", means: [1e-4, 1, 0, nan] }] });
    const after = made({ series: [{ path: "a", means: [0.5] }] });
    spans.take(before, flowRows(before));
    expect(spans.decades(before, flowRows(before), 0, "rms")).toEqual([-4, 0]);
    spans.take(after, flowRows(after));
    expect(spans.decades(after, flowRows(after), 0, "rms")).toEqual([-4, 0]);
    expect(spans.decades(after, flowRows(after), 1, "rms")).toEqual([-1, 0]);
    expect(spans.of(after, 0, "L2")?.[1]).toBeCloseTo(2, 6);
  });
});

function shown(data: WatchData, row = -1): Told & { part: GradientFlow; canvas: HTMLElement; text(selector: string): string } {
  const all = told();
  const part = new GradientFlow(all.context, all.hooks);
  document.body.append(part.element);
  part.draw(momentOf(data, { row }));
  return { ...all, part, canvas: part.element.querySelector("canvas") as HTMLElement, text: (selector) => part.element.querySelector(selector)?.textContent ?? "" };
}

describe("the picture of it", () => {
  it("is walked by keys, and selects the side that one asks for", () => {
    const { canvas, rows, said, text } = shown(chain(3));
    expect(pressed(canvas, "ArrowDown")).toEqual({ prevented: true, left: false });
    expect(said.at(-1)).toBe("(root): activation 2, gradient 0.002 (rms)");
    pressed(canvas, "End");
    expect(text(".flow-words")).toContain("h.2: activation 2, gradient 2 (rms)");
    for (const key of ["Enter", "ArrowLeft", "ArrowRight", " "]) pressed(canvas, key);
    expect(rows).toEqual([7, 3, 7, 7]);
    expect(said.at(-1)).toBe("selected: gradient of h.2");
    pressed(canvas, "Home");
    pressed(canvas, "ArrowUp");
    pressed(canvas, "Enter");
    expect(rows.at(-1)).toBe(4);
    expect(pressed(canvas, "s")).toEqual({ prevented: false, left: true });
  });

  it("begins at the selected series, and changes its measure", () => {
    const { canvas, part, said, text } = shown(chain(3), 2);
    expect(text(".flow-words")).toMatch(/^h\.1: /);
    const [rms, l2] = [...part.element.querySelectorAll<HTMLElement>(".chip")];
    expect([rms?.getAttribute("aria-pressed"), l2?.getAttribute("aria-pressed")]).toEqual(["true", "false"]);
    l2?.click();
    expect([rms?.getAttribute("aria-pressed"), l2?.getAttribute("aria-pressed")]).toEqual(["false", "true"]);
    pressed(canvas, "ArrowDown");
    expect(said.at(-1)).toBe("h.2: activation 4, gradient 4 (L2)");
  });

  it("says where it is of this rank's part alone", () => {
    const series: MadeSeries[] = [{ path: "a", means: [1] }];
    const caption = (part: boolean): string | undefined => shown(made({ series, more: { part } })).part.element.querySelector(".caption")?.textContent ?? undefined;
    expect([caption(false), caption(true)]).toEqual(["flow along depth", "flow along depth, of this rank's part"]);
  });

  it("selects what is there where a module has no gradient", () => {
    const { canvas, rows } = shown(made({ series: [{ path: "a", means: [1] }] }));
    pressed(canvas, "Home");
    pressed(canvas, "Enter");
    expect(rows).toEqual([0]);
  });

  it("is not there before there is something to see", () => {
    expect(shown(made({})).part.element.hidden).toBe(true);
    expect(shown(made({ series: [{ path: "a", means: [] }] })).part.element.hidden).toBe(true);
    expect(shown(chain(2)).part.element.hidden).toBe(false);
  });

  it("draws no character that would turn a name about", () => {
    const ink = inked(600);
    shown(made({ series: [{ path: "a\u202ecba", means: [1] }] }));
    expect(ink.words()).toContain("a\\u202ecba");
  });

  it("names modules, writes NaN and zero, and marks what vanishes", () => {
    const ink = inked(600);
    shown(chain(3, { bad: [1, 1] }));
    expect(ink.words()).toEqual(expect.arrayContaining(["(root)", "h.0", "h.2", "NaN", "activation", "gradient"]));
    shown(made({ series: [{ path: "a", means: [0] }, { path: "b", means: [nan] }], alerts: [{ kind: "vanishing", path: "a", step: 0 }] }));
    expect(ink.words()).toEqual(expect.arrayContaining(["✕ a", "0", "·", "b"]));
  });

  it("draws of very many modules those in sight", () => {
    const ink = inked(300);
    const { part } = shown(chain(3000));
    expect(ink.words().filter((word) => word.startsWith("h.")).length).toBeLessThan(40);
    const scroller = part.element.querySelector(".flow-scroller") as HTMLElement;
    const data = chain(3000);
    part.draw(momentOf(data, { row: 2900 }));
    expect(scroller.scrollTop).toBeGreaterThan(2870 * 17);
    expect(ink.words()).toContain("h.2899");
    scroller.scrollTop = 0;
    part.draw(momentOf(data, { row: 2900 }));
    expect(scroller.scrollTop).toBe(0);
    expect((part.element.querySelector(".flow-room") as HTMLElement).style.height).toBe(`${30 + 3001 * 17}px`);
  });
});
