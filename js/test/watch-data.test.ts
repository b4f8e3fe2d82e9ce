import { describe, expect, it } from "vitest";
import { BINS, COLUMNS, completeWatch, slotAt, WatchData } from "../src/watch/data";
import { cut, early, gpt, net, packed } from "./watch-samples";

/** All that can be read of a watch. */
function dump(data: WatchData): unknown {
  return {
    first: [...data.first], last: [...data.last], columns: COLUMNS.map((name) => [...data.column(name)]), binsFirst: [...data.binsFirst],
    bins: [...data.bins(data.binSlots - 1, 3)], sampled: Array.from(data.sampled), scalars: data.payload.scalars.map((_, i) => Array.from(data.scalar(i).first, (_step, slot) => [data.scalar(i).mid(slot), data.scalar(i).high?.(slot)])),
    units: data.payload.units.map((_, i) => [...data.units(i).fired, ...data.units(i).silent]), weights: data.neuronSlots ? [...data.neurons(0).weights(data.neuronSlots - 1)] : [],
  };
}

describe("a payload", () => {
  it("is read whole", () => {
    const made = net({ end: 2000, samples: 60 });
    const data = new WatchData(packed(made));
    expect([data.slots, data.binSlots, data.neuronSlots, data.end]).toEqual([60, 60, 60, 2000]);
    expect(data.payload.series[data.row("l0.weight", "update")]).toMatchObject({ path: "l0.weight", role: "update", shape: "4×3", count: 12 });
    expect(data.row("l0.weight", "activation")).toBe(-1);
    const row = data.row("l1", "activation");
    const values = made.arrays.mean?.data as Float32Array;
    expect(data.value("mean", 7, row)).toBe(values[7 * data.payload.series.length + row]);
    expect(data.bins(5, row).length).toBe(BINS);
    expect([data.neurons(0).weights(3).length, data.neurons(1).activations(3).length]).toEqual([12, 1]);
    expect([...data.units(0).flat]).toEqual([0, 1, 0]);
    expect(data.units(0).fired.length).toBe(40 * 3);
  });

  it("may have the bytes of its numbers apart, as small outputs at rest have", () => {
    const made = net({ end: 2000, samples: 60 });
    const whole = new WatchData(packed(made));
    const series = whole.payload.series.length;
    const arrays = Object.fromEntries(Object.entries(made.arrays).map(([name, array]) => {
      if (!(COLUMNS as readonly string[]).includes(name)) return [name, array];
      const bytes = new Uint8Array((array.data as Float32Array).slice().buffer);
      const data = new Uint8Array(bytes.length);
      for (let byte = 0; byte < 4; byte += 1) for (let row = 0; row < series; row += 1) for (let slot = 0; slot < 60; slot += 1) data[(byte * series + row) * 60 + slot] = bytes[4 * (slot * series + row) + byte] as number;
      return [`${name} planes`, { dtype: "uint8", shape: [4, series, 60], data }];
    }));
    expect(dump(new WatchData(packed({ json: made.json, arrays })))).toEqual(dump(whole));
  });

  it("of which little is there is empty and not undefined", () => {
    const payload = completeWatch({ series: [{ path: "a" }, null, 3], alerts: [{ kind: "dead", unit: 4 }], neurons: "odd", scalars: {}, steps: "many" });
    expect(payload.series.map((one) => one.role)).toEqual(["activation", "activation", "activation"]);
    expect(payload.alerts[0]).toMatchObject({ kind: "dead", unit: 4, text: "", step: 0 });
    expect([payload.neurons, payload.scalars, payload.steps, payload.state]).toEqual([null, [], 0, "ended"]);
    const data = new WatchData(packed({ json: { view: "watch" }, arrays: {} }));
    expect([data.slots, data.end, data.slotOf(3), data.top(0)]).toEqual([0, 0, -1, 0]);
    expect(data.value("mean", 0, 0)).toBeNaN();
  });

  it("puts what was found at the very end at the last step", () => {
    const made = net({ end: 500, samples: 30 });
    (made.json.alerts as { step: number }[])[1]!.step = 500;
    expect(new WatchData(packed(made)).payload.alerts.map(({ step }) => step)).toEqual([499, 499]);
  });

  it("gives norms and ratios as they are defined", () => {
    const data = new WatchData(packed(net({ end: 500, samples: 30 })));
    const [weight, update] = [data.row("l1.weight", "parameter"), data.row("l1.weight", "update")];
    const norm = (row: number): number => Math.sqrt((data.value("mean", 9, row) ** 2 + data.value("std", 9, row) ** 2) * 3);
    expect(data.norm(9, weight)).toBeCloseTo(norm(weight), 6);
    expect(data.ratio(9, weight)).toBeCloseTo(norm(update) / norm(weight), 6);
    expect(data.ratio(9, data.row("l1", "activation"))).toBeNaN();
  });

  it("finds the slot of a step", () => {
    const first = Uint32Array.from([4, 10, 20]);
    expect([0, 4, 9, 10, 19, 20, 99].map((step) => slotAt(first, step))).toEqual([0, 0, 0, 1, 1, 2, 2]);
    expect(slotAt([], 3)).toBe(-1);
  });
});

describe("an update", () => {
  it.each([["appended", 120], ["overlapping", 97], ["from the start", 0]])("%s gives the whole", (_, from) => {
    const whole = gpt({ slots: 160 });
    const data = new WatchData(packed(early(whole, 120)));
    expect(data.slots).toBe(120);
    expect(data.apply(packed(cut(whole, from)))).toBe(true);
    expect(dump(data)).toEqual(dump(new WatchData(packed(whole))));
  });

  it("shortens the history where slots were merged", () => {
    const [long, short] = [gpt({ slots: 160 }), gpt({ slots: 90 })];
    const data = new WatchData(packed(long));
    expect(data.apply(packed(cut(short, 50)))).toBe(true);
    expect(data.slots).toBe(90);
    expect(data.first.length).toBe(90);
    const [row, column] = [5, short.arrays.std?.data as Float32Array];
    expect(data.value("std", 80, row)).toBe(column[80 * data.payload.series.length + row]);
    expect(data.value("std", 95, row)).toBeNaN();
  });

  it("that leaves a gap, or has other series, is refused and changes nothing", () => {
    const whole = gpt({ slots: 160 });
    const data = new WatchData(packed(early(whole, 60)));
    const before = dump(data);
    expect(data.apply(packed(cut(whole, 90)))).toBe(false);
    expect(data.apply(packed(cut(net({ end: 300, samples: 20 }), 5)))).toBe(false);
    expect(dump(data)).toEqual(before);
    expect(data.payload.series.length).toBe(whole.json.series && (whole.json.series as unknown[]).length);
    expect(() => new WatchData(packed(cut(whole, 0)))).toThrow("only a part");
  });

  it("can bring other series when it is full", () => {
    const data = new WatchData(packed(gpt({ slots: 30 })));
    const other = net({ end: 300, samples: 20 });
    const before = data.revision;
    expect(data.apply(packed(other))).toBe(true);
    expect(dump(data)).toEqual(dump(new WatchData(packed(other))));
    expect(data.revision).toBeGreaterThan(before);
  });

  it("may bring the net, where the first payload had none yet", () => {
    const whole = net({ end: 300, samples: 20 });
    const arrays = Object.fromEntries(Object.entries(whole.arrays).filter(([name]) => !name.startsWith("neurons")));
    const data = new WatchData(packed({ json: { ...whole.json, neurons: null }, arrays }));
    expect(data.apply(packed(cut(whole, 0)))).toBe(true);
    expect(dump(data)).toEqual(dump(new WatchData(packed(whole))));
    expect(data.neurons(1).activations(19).length).toBe(1);
  });

  it("keeps the fields that it does not name", () => {
    const whole = gpt({ slots: 40 });
    const data = new WatchData(packed(whole));
    const { arrays } = cut(whole, 40);
    expect(data.apply(packed({ json: { from: { history: 40, bins: 0, scalars: [0, 0], units: [], neurons: 0 }, steps: 10_000 }, arrays }))).toBe(true);
    expect([data.payload.steps, data.payload.optimizer, data.payload.alerts.length, data.slots]).toEqual([10_000, "AdamW", 3, 40]);
  });
});
