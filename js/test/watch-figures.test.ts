import { describe, expect, it } from "vitest";
import type { WatchData } from "../src/watch/data";
import { figure, linear, logarithmic, percent, placeWords, scaleFor, signedLog } from "../src/watch/figures";
import type { Moment } from "../src/watch/part";
import { plotOf, roomFor, stepAt, ticksOf, xOf, zoomed } from "../src/watch/time-axis";

describe("figures", () => {
  it.each([
    [0, "0"], [1, "1"], [0.01234, "0.0123"], [-4.5678, "−4.57"], [12345.6, "12,300"], [1.2e-7, "1.2e-7"], [-3e-6, "−3e-6"], [1e5, "1e5"], [2.5e8, "2.5e8"], [1e-10, "1e-10"],
    [Number.NaN, "NaN"], [Number.NEGATIVE_INFINITY, "−Inf"], [999.96, "1,000"],
  ])("%d is %s", (value, text) => expect(figure(value)).toBe(text));

  it.each([[0, "0 %"], [0.0002, "< 0.1 %"], [0.0523, "5.2 %"], [0.5, "50 %"], [0.9999, "> 99.9 %"], [1, "100 %"], [Number.NaN, "–"]])("%d is %s", (share, text) => expect(percent(share)).toBe(text));
});

it.each([["l0", "l0"], ["1", "layer 1"], ["0.2", "layer 0.2"], ["0.weight", "0.weight"], ["", "(root)"]])("%s is %s in a sentence, as in Python's", (path, words) => expect(placeWords(path)).toBe(words));

describe("scales", () => {
  it("have round ends and ticks inside of them", () => {
    const scale = linear(0.3, 10.8);
    expect([scale.low, scale.high]).toEqual([0, 15]);
    expect(scale.ticks(4)).toEqual([0, 5, 10, 15]);
    expect([scale.share(0), scale.share(15)]).toEqual([0, 1]);
  });

  it("stay where they are while values stay inside of the round ends", () => {
    expect([linear(0, 10.1).high, linear(0, 14.9).high]).toEqual([15, 15]);
  });

  it("are logarithmic over decades, and put what is not above zero at the bottom", () => {
    const scale = scaleFor(0, 10, 0.001, 0);
    expect(scale.kind).toBe("log");
    expect([scale.share(0.001), scale.share(0.1), scale.share(10), scale.share(0), scale.share(-1)]).toEqual([0, 0.5, 1, 0, 0]);
    expect(logarithmic(1e-8, 1).ticks(3).every((tick) => tick >= 1e-9 && tick <= 1)).toBe(true);
  });

  it("of signed values with far extremes show the common ones too", () => {
    const scale = scaleFor(-1e5, 2e5, 0, 1);
    expect(scale.kind).toBe("signed log");
    expect(Math.abs(scale.share(3) - scale.share(0))).toBeGreaterThan(0.05);
    expect([scale.share(-1e5), scale.share(2e5)]).toEqual([0, 1]);
    expect(signedLog(-100, 100, 1).ticks()).toEqual([-100, -10, -1, 0, 1, 10, 100]);
  });

  it("of one value, of none, and of infinities are scales", () => {
    for (const scale of [linear(3, 3), scaleFor(0, 0, 0, 0), scaleFor(Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, 0, 0)]) {
      expect(scale.share((scale.low + scale.high) / 2)).toBeCloseTo(0.5);
      expect(scale.ticks().every(Number.isFinite)).toBe(true);
    }
  });
});

describe("the axis of steps", () => {
  const moment = (from: number, to: number, end = to): Moment => ({ data: { end } as WatchData, step: 0, seen: 0, row: 0, following: false, from, to });

  it("goes there and back", () => {
    const plot = plotOf(700);
    for (const step of [0, 1, 4999, 9999]) expect(stepAt(moment(0, 10_000), xOf(moment(0, 10_000), step + 0.5, plot), plot)).toBe(step);
    expect([stepAt(moment(0, 100), -50, plot), stepAt(moment(0, 100, 40), 9999, plot)]).toEqual([0, 39]);
  });

  it("grows by about a quarter, and seldom", () => {
    const ends = new Set(Array.from({ length: 100_000 }, (_, steps) => roomFor(steps)));
    expect(ends.size).toBeLessThan(45);
    for (let steps = 1; steps < 100_000; steps += 77) {
      expect(roomFor(steps)).toBeGreaterThanOrEqual(steps);
      expect(roomFor(steps)).toBeLessThanOrEqual(Math.max(20, steps * 1.34));
    }
  });

  it("zooms about a step, which keeps its place", () => {
    const [from, to] = zoomed(moment(0, 1000), 0.5, 400);
    expect([from, to]).toEqual([200, 700]);
    expect(zoomed(moment(0, 10), 0.01, 5)[1] - zoomed(moment(0, 10), 0.01, 5)[0]).toBe(8);
  });

  it("has round ticks with room between them", () => {
    const plot = plotOf(700);
    const ticks = ticksOf(moment(0, 9640), plot);
    expect(ticks).toEqual([0, 2000, 4000, 6000, 8000]);
    expect(ticksOf(moment(3, 9), plot).every(Number.isInteger)).toBe(true);
  });
});
