// @vitest-environment happy-dom
import { afterEach, describe, expect, it, vi } from "vitest";
import { BinAxis, Reach, ZERO } from "../src/watch/bins-axis";
import { BinsMap } from "../src/watch/bins-map";
import { BINS } from "../src/watch/data";
import { inked, made, momentOf, pressed, told, type MadeSeries, type Told } from "./watch-made";

afterEach(() => {
  document.body.replaceChildren();
  vi.restoreAllMocks();
});

type Shares = Readonly<Record<number, number>>;

const bytes = (shares: Shares): Uint8Array => Uint8Array.from({ length: BINS }, (_, bin) => shares[bin] ?? 0);

function reached(...histograms: Shares[]): Reach {
  const reach = new Reach();
  reach.takeAll(histograms.length, (slot) => bytes(histograms[slot] ?? {}));
  return reach;
}

/** The bin that a value belongs to, after the contract. */
function binOf(value: number, top: number): number {
  const away = Math.floor(2 * Math.log2(Math.abs(value)) - top + 31);
  return !(away >= 0) ? ZERO : value < 0 ? 31 - Math.min(31, away) : 33 + Math.min(31, away);
}

describe("the axis of values", () => {
  const both = { 2: 10, 20: 10, 45: 10, 64: 10 };
  const cases: [string, Shares, number][] = [["both signs", both, 0], ["large numbers", both, 30], ["positive ones alone", { 32: 100, 60: 50 }, -8], ["negative ones alone", { 5: 50 }, 3], ["one bin", { 50: 255 }, 0], ["zeros", { 32: 255 }, 0], ["nothing", {}, 0]];

  it.each(cases)("of %s holds each bin that is used, in order", (_, shares, top) => {
    const axis = new BinAxis(reached(shares), top);
    expect([...axis.bins]).toEqual([...axis.bins].sort((a, b) => a - b));
    for (const bin of Object.keys(shares)) expect(axis.bins).toContain(Number(bin));
    expect(axis.bins[axis.zero]).toBe(ZERO);
    expect(axis.length).toBeGreaterThanOrEqual(4);
  });

  it.each(cases)("of %s puts values where their bins are", (_, shares, top) => {
    const axis = new BinAxis(reached(shares), top);
    for (let place = 0; place < axis.length; place += 1) {
      const [low, high] = axis.edges(place);
      expect(low).toBeLessThan(high);
      expect(axis.position(low)).toBeCloseTo(place, 6);
      expect(axis.position(high)).toBeCloseTo(place + 1, 6);
      const middle = Math.sign(low + high) * Math.sqrt(Math.abs(low * high));
      if (place !== axis.zero) expect(binOf(middle, top)).toBe(axis.bins[place]);
      else expect(axis.position(0)).toBeCloseTo(place + 0.5, 6);
      if (place) expect(axis.edges(place - 1)[1]).toBeCloseTo(low, 9);
    }
  });

  it.each(cases)("of %s is labelled with zero and plain numbers on it, apart from each other", (_, shares, top) => {
    const axis = new BinAxis(reached(shares), top);
    const ticks = axis.ticks(3);
    expect(ticks).toContain(0);
    const places = ticks.map((tick) => axis.position(tick));
    for (let index = 1; index < places.length; index += 1) expect((places[index] as number) - (places[index - 1] as number)).toBeGreaterThanOrEqual(3 - 1e-9);
    for (const tick of ticks.filter((one) => one !== 0)) {
      const tens = Math.log10(Math.abs(tick));
      const twos = Math.log2(Math.abs(tick));
      expect(Math.min(Math.abs(tens - Math.round(tens)), Math.abs(twos - Math.round(twos)))).toBeLessThan(1e-9);
    }
  });

  it("says what a bin holds", () => {
    const axis = new BinAxis(reached({ 0: 9, 64: 9, 61: 9 }), 0);
    expect([axis.named(0), axis.named(axis.length - 1), axis.named(axis.length - 3), axis.named(axis.zero)]).toEqual(["below −1", "above 1", "0.5 to 0.71", "within ±0.35"]);
  });

  it("only grows, and one histogram of twenty does not set the colours", () => {
    const reach = reached({ 60: 100, 10: 100 });
    const wide = new BinAxis(reach, 0).length;
    reach.takeAll(1, () => bytes({ 58: 50 }));
    expect([new BinAxis(reach, 0).length, reach.most]).toEqual([wide, 100]);
    const [few, many] = [2, 4].map((bright) => reached(...Array.from({ length: 40 }, (_, slot) => ({ 50: slot < bright ? 255 : 40 }))));
    expect([few?.most, few?.fuller, many?.most, many?.fuller]).toEqual([40, true, 255, false]);
  });
});

function shown(series: Partial<MadeSeries>, row = 0, step = 999): Told & { part: BinsMap; slice: HTMLElement; readout(): string; absent(): string } {
  const all = told();
  const part = new BinsMap(all.context, all.hooks);
  document.body.append(part.element);
  const one = { path: "h.3", count: 100, means: [0.1, 0.1, 0.1, 0.1], ...series };
  part.draw(momentOf(made({ series: [one, { path: "", means: one.means }] }), { row, step }));
  return {
    ...all, part, slice: part.element.querySelector("canvas[tabindex]") as HTMLElement,
    readout: () => part.element.querySelector(".bins-readout")?.textContent ?? "",
    absent: () => (part.element.querySelector(".absent") as HTMLElement).hidden ? "" : (part.element.querySelector(".absent")?.textContent ?? ""),
  };
}

const spread = { 10: 51, 32: 51, 60: 102, 62: 51 };
const four = [spread, spread, { 60: 255 }, spread];

describe("histograms over time", () => {
  it("say the cursor's one, whole and bin by bin", () => {
    const { slice, readout, said } = shown({ bins: four });
    expect(readout()).toBe("activation, steps 750 – 999: 20 % negative, 20 % about zero, 60 % positive");
    expect(slice.getAttribute("aria-label")).toContain(readout());
    expect(pressed(slice, "ArrowUp")).toEqual({ prevented: true, left: false });
    expect(readout()).toMatch(/^activation, steps 750 – 999: 20 % are within ±/);
    pressed(slice, "End");
    expect(readout()).toMatch(/: 20 % are 0\.5 to 0\.71$/);
    pressed(slice, "ArrowDown");
    pressed(slice, "ArrowDown");
    expect(readout()).toMatch(/: 40 % are 0\.25 to 0\.35$/);
    expect(said.at(-1)).toBe(readout());
    pressed(slice, "Home");
    expect(readout()).toContain("20 % are −");
    pressed(slice, "Escape");
    expect(readout()).toContain("60 % positive");
    expect(pressed(slice, "Escape")).toEqual({ prevented: false, left: true });
  });

  it("follow the cursor", () => {
    expect(shown({ bins: four }, 0, 600).readout()).toBe("activation, steps 500 – 749: 0 % negative, 0 % about zero, 100 % positive");
  });

  it("say NaN, and what is not there", () => {
    expect(shown({ bins: [spread, spread, spread, {}], bad: [0, 0, 0, 100] }).readout()).toBe("activation, steps 750 – 999: no finite number");
    expect(shown({ bins: [spread, spread, spread, {}] }).readout()).toMatch(/^activation, steps 500 – 749: /);    // the last one that was taken
    expect(shown({ bins: four }, 1).absent()).toBe("no histogram was taken of this series");
    expect([shown({ bins: four }, -1).part.element.hidden, shown({}).part.element.hidden, shown({ bins: four }).part.element.hidden]).toEqual([true, true, false]);
    expect(shown({ bins: four }).absent()).toBe("");
  });

  it("are drawn on an axis of plain numbers, the cursor's shares beside it; NaN is hatched", () => {
    const ink = inked(700);
    vi.stubGlobal("ImageData", Object);
    shown({ bins: four, top: 0 });
    expect(ink.of("drawImage").length).toBe(4);
    expect(ink.words()).toEqual(expect.arrayContaining(["0.125", "0", "0.5", "40 %"]));
    const before = ink.of("createPattern").length;
    shown({ bins: [spread, spread, spread, {}], bad: [0, 0, 0, 100] });
    expect(ink.of("createPattern").length).toBeGreaterThan(before);
    expect(ink.words()).toContain("no finite number");
  });

  it("end with the last sample of the series", () => {
    const ink = inked(700);
    shown({ bins: [spread, spread, {}, {}] });
    const drawn = ink.of("drawImage");
    const [x, wide] = [drawn.at(-1)?.[5], drawn.at(-1)?.[7]].map(Number) as [number, number];
    const [before] = [drawn.at(-2)?.[5]].map(Number) as [number];
    expect([drawn.length, Math.round(wide)]).toEqual([2, Math.round(x - before)]);    // not to the end of the run
  });

  it("draw what is in sight alone", () => {
    const ink = inked(700);
    const all = told();
    const part = new BinsMap(all.context, all.hooks);
    const data = made({ series: [{ path: "a", means: [1, 1, 1, 1], bins: four }] });
    part.draw(momentOf(data, { from: 500, to: 750, step: 600 }));
    expect(ink.of("drawImage").length).toBe(1);
  });
});
