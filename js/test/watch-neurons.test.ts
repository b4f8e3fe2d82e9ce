// @vitest-environment happy-dom
import { afterEach, describe, expect, it, vi } from "vitest";
import { shownOf } from "../src/watch/firing";
import { pairsAt, pairsIn, rateOf, silentFrom, troublesAt } from "../src/watch/neuron-facts";
import { layoutOf, unitAt, walked, yOf } from "../src/watch/neuron-layout";
import { leastDrawn, MOST_LINES } from "../src/watch/neuron-picture";
import { Neurons } from "../src/watch/neurons";
import { PALETTES } from "../src/palette";
import { inked, made, momentOf, note, pressed, told, type Ink, type Told } from "./watch-made";

afterEach(() => {
  document.body.replaceChildren();
  vi.restoreAllMocks();
});

function shown(data = note(63), step = data.end - 1): Told & { part: Neurons; canvas: HTMLElement; text(selector: string): string[] } {
  const all = told();
  const part = new Neurons(all.context, all.hooks);
  document.body.append(part.element);
  part.draw(momentOf(data, { step }));
  const text = (selector: string): string[] => [...part.element.querySelectorAll(selector)].map((one) => one.textContent ?? "");
  return { ...all, part, canvas: part.element.querySelector("canvas[tabindex]") as HTMLElement, text };
}

describe("what is said of units", () => {
  it("tells dead from starving, with the evidence", () => {
    const found = troublesAt(note(63), 9999);
    expect(found.map(({ kind, layer, unit }) => [kind, layer, unit])).toEqual([["dead", 0, 1], ["starving", 0, 2]]);
    expect(found[0]?.text).toBe("0 for all of 10,000 inputs, its gradient too");
    expect(found[1]?.text).toBe("fires on 2.5 % of the inputs, on 30 % at first");
  });

  it("is of the cursor's time: silent from the first step on is dead then, too; starving begins with its alert", () => {
    expect(troublesAt(note(63), 10).map(({ unit }) => unit)).toEqual([1]);
    expect(troublesAt(note(2), 5999)).toEqual([]);
    expect(troublesAt(note(2), 6000).map(({ kind, unit }) => [kind, unit])).toEqual([["starving", 0]]);
  });

  it("lets go of what is over", () => {
    const data = made({
      steps: 3000, layers: [{ path: "a", weights: [[[1]]], activations: [[0]] }], units: [{ path: "a", width: 1000, fired: [[0], [0], [10]] }],
      alerts: [{ kind: "dead", path: "a", unit: 0, step: 1000, last: 1999, over: true }, { kind: "dead", path: "elsewhere", unit: 0 }, { kind: "dead", path: "a", unit: 7 }, { kind: "nan", path: "a" }],
    });
    expect([500, 1500, 2500].map((step) => troublesAt(data, step).length)).toEqual([0, 1, 0]);
  });

  it("calls a unit silent so far, long before it is dead", () => {
    const units = [{ path: "a", width: 10, fired: [[5, 0], [4, 0], [5, 0], [0, 0]] }];
    const data = made({ steps: 40, layers: [{ path: "a", weights: [[[1], [1]]], activations: [[0, 0]] }], units });
    expect(troublesAt(data, 15)).toEqual([]); // one window of ten inputs is over
    expect(troublesAt(data, 19).map(({ kind, unit, text }) => [kind, unit, text])).toEqual([["silent", 1, "so far: 20 inputs"]]);
    expect(shown(data, 39).text("li")).toEqual(["unit 1 of a is silent so far: 40 inputs"]);
    expect(shown(data, 39).canvas.getAttribute("aria-label")).toContain("unit 1 of a is silent so far: 40 inputs");
  });

  it("gives a unit that has fired ten times as long as that took", () => {
    const fired = [[1], [0], ...Array.from({ length: 10 }, () => [0])];
    const data = made({ steps: 120, layers: [{ path: "a", weights: [[[1]]], activations: [[0]] }], units: [{ path: "a", width: 10, fired }] });
    expect([99, 109].map((step) => troublesAt(data, step).map(({ text }) => text))).toEqual([[], ["for the last 100 inputs"]]);
  });

  it("says what the alert says while that is the newest", () => {
    const alert = { kind: "starving", path: "a", unit: 0, step: 500, rate: { first: 0.4, now: 0.012 } };
    const other = { kind: "dead", path: "a", unit: 1, step: 500, inputs: 1900 };
    const data = made({ steps: 2000, layers: [{ path: "a", weights: [[[1], [1]]], activations: [[0, 0]] }], units: [{ path: "a", width: 500, fired: [[200, 0], [100, 0], [20, 0], [5, 0]] }], alerts: [alert, other] });
    expect(troublesAt(data, 1999).map(({ text }) => text)).toEqual(["fires on 1.2 % of the inputs, on 40 % at first", "0 for all of 1,900 inputs, its gradient too"]);
    expect(troublesAt(data, 700)[0]?.text).toBe("fires on 20 % of the inputs, on 40 % at first");
  });

  it("does not know how often units fire that give NaN, nor that they are silent", () => {
    const units = [{ path: "a", width: 100, fired: [[50, 0], [0, 0]], spoilt: 1 }];
    const data = made({ steps: 200, layers: [{ path: "a", weights: [[[1], [1]]], activations: [[1, 1]] }], units });
    expect([99, 199].map((step) => rateOf(data.units(0), 0, step))).toEqual([{ first: 0.5, now: 0.5 }, { first: 0.5, now: Number.NaN }]);
    expect([99, 199].map((step) => troublesAt(data, step).length)).toEqual([1, 0]);
  });

  it("says that units give no numbers", () => {
    const fires = { units: [{ path: "a", width: 100, fired: [[50, 60], [100, 100]] }] };
    const data = made({ steps: 200, layers: [{ path: "a", weights: [[[1], [1]], [[1], [1]]], activations: [[1, 1], [Number.NaN, Number.NaN]] }], ...fires });
    expect(shown(data, 199).text("li")).toEqual(["2 of 2 units of a give NaN or infinity"]);
    document.body.replaceChildren();
    expect(shown(data, 99).text("li")[0]).toContain("none is dead, none starves");
  });

  it("tells the units that one alert is about from those that are silent so far", () => {
    const alert = { kind: "dead", path: "a", unit: null, units: [0, 1, 2, 3], step: 500, inputs: 700 };
    const fired = Array.from({ length: 100 }, (_, window) => [0, 0, 0, 0, window < 50 ? 5 : 0, 5]);
    const layers = [{ path: "a", weights: [Array.from({ length: 6 }, () => [1])], activations: [[0, 0, 0, 0, 0, 1]] }];
    const data = made({ steps: 1000, layers, units: [{ path: "a", width: 10, fired }], alerts: [alert] });
    expect(shown(data, 999).text("li")).toEqual(["4 of 6 units of a are dead: 0, 1, 2, 3; each is 0 for the last 700 inputs at least", "unit 4 of a is silent for the last 500 inputs"]);
  });

  it("measures rates over a fifth of the inputs at least, as the alerts do", () => {
    expect(rateOf(note(2).units(0), 0, 9999)).toEqual({ first: 0.1565, now: 0.0205 });
    const fine = made({ steps: 100, layers: [{ path: "a", weights: [[[1]]], activations: [[0]] }], units: [{ path: "a", width: 1, fired: Array.from({ length: 100 }, (_, step) => [step % 2]) }] });
    expect(rateOf(fine.units(0), 0, 99)).toEqual({ first: 0.5, now: 0.5 });
    expect(rateOf(made({}).units(0), 0, 0)).toBeNull();
    expect([silentFrom(note(63).units(0), 1), silentFrom(note(63).units(0), 2)]).toEqual([0, Number.POSITIVE_INFINITY]);
  });
});

describe("units that cancel", () => {
  const seen = [[1, 2, -1], [2, 4, -2]];
  const half = [0.5, 0.5];
  const cases: [string, number[][], number[][], number[], number[], number][] = [
    ["parallel, opposite and equal", seen, [[2], [-1]], [0.1, 0.2], half, 1],
    ["parallel, opposite, of very different size", seen, [[0.1], [-1]], [0, 0], half, 0],
    ["parallel, the same sign", seen, [[2], [1]], [0, 0], half, 0],
    ["not quite parallel", [[1, 2, -1], [2, 4, -0.5]], [[2], [-1]], [0, 0], half, 0],
    ["antiparallel", [[1, 2, -1], [-2, -4, 2]], [[2], [1]], [0, 0], half, 0],
    ["with biases that set them apart: a step", seen, [[2], [-1]], [1, -4], half, 0],
    ["with biases that are not known", seen, [[2], [-1]], [Number.NaN, Number.NaN], half, 0],
    ["without biases sent", seen, [[2], [-1]], [], half, 0],
    ["of inputs far from one, where the bias weighs little", seen, [[2], [-1]], [0, 0.3], [0.5, 0.6], 0],
    ["that fire on every input: what they leave is not known", seen, [[2], [-1]], [0, 0], [1, 1], 0],
    ["that never fire", seen, [[2], [-1]], [0, 0], [0, 0], 0],
    ["not counted", seen, [[2], [-1]], [0, 0], [Number.NaN, Number.NaN], 0],
    ["slight beside a third", [...seen, [1, 0, 0]], [[0.02], [-0.01], [9]], [0, 0, 0], [...half, 0.5], 0],
    ["zero weights", [[0, 0, 0], [0, 0, 0]], [[1], [-1]], [0, 0], half, 0],
    ["not a number", [[Number.NaN, 1, 1], [1, 1, 1]], [[1], [-1]], [0, 0], half, 0],
  ];
  it.each(cases)("%s", (_, incoming, outgoing, biases, rates, count) => {
    expect(pairsIn(incoming, outgoing, biases, rates).length).toBe(count);
  });

  it("are found for seed 6 and for no other", () => {
    expect(([0, 2, 63] as const).map((seed) => pairsAt(note(seed), 1).length)).toEqual([0, 0, 0]);
    expect(pairsAt(note(6), 1).map(({ units, layer }) => [units, layer])).toEqual([[[0, 1], 0]]);
    expect(pairsAt(note(6), 1)[0]?.text).toMatch(/^their incoming weights are parallel \(cosine 1\.000\), so both see the same; l1 weighs one against the other, and .* is left$/);
    expect(pairsAt(note(6), -1)).toEqual([]);
  });

  const four = (units: { path: string; width: number; fired: number[][] }[]): ReturnType<typeof made> => made({
    layers: [{ path: "a", weights: [[[1, 1], [1, 1], [2, 2], [1, 1]]], activations: [[1, 1, 1, 1]], biases: [[0, 0, 0, 0]] }, { path: "b", weights: [[[1, -1, -0.5, 1]]], activations: [[0]] }], units,
  });

  it("are one of a pair each", () => {
    const units = pairsAt(four([{ path: "a", width: 1000, fired: [[500, 500, 500, 500]] }]), 0).flatMap((pair) => pair.units);
    expect(units.length).toBe(4);
    expect(new Set(units).size).toBe(4);
  });

  it("are rectified ones: of others nothing is counted, and nothing said", () => {
    expect(pairsAt(four([]), 0)).toEqual([]);
  });
});

describe("where units stand", () => {
  const nets = [[4, 3, 1], [1, 1], [64, 64], [8, 64, 48, 24, 10], [2, 64, 64, 64, 64, 1], [3, 3, 3, 3, 3, 3]];
  it.each(nets.flatMap((counts) => [240, 376, 640, 1000].map((width) => [counts.join("–"), width, counts] as const)))("%s in %i pixels", (_, width, counts) => {
    const layout = layoutOf(counts, width);
    expect(layout.height).toBeLessThan(520);
    layout.columns.forEach((column, index) => {
      expect(column.x - column.radius).toBeGreaterThan(0);
      expect(column.x + column.radius).toBeLessThan(width);
      expect(2 * column.radius).toBeLessThan(column.pitch);
      expect(yOf(column, 0) - column.radius).toBeGreaterThan(0);
      expect(yOf(column, column.count - 1) + column.radius).toBeLessThan(layout.height - 16);
      for (let unit = 0; unit < column.count; unit += 1) {
        expect(unitAt(layout, column.x + 1, yOf(column, unit) + 1)).toEqual([index, unit]);
        for (const key of ["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight", "Home", "End"]) {
          const [to, at] = walked(layout, [index, unit], key) ?? [-1, -1];
          expect(at).toBeGreaterThanOrEqual(0);
          expect(at).toBeLessThan(layout.columns[to]?.count ?? 0);
        }
      }
    });
    expect(unitAt(layout, -50, -50)).toBeNull();
    expect(walked(layout, [0, 0], "x")).toBeNull();
  });

  it("draws no more lines than can be seen", () => {
    const weights = Float32Array.from({ length: 64 * 64 }, (_, index) => Math.sin(index * 12.9898) * 2);
    const least = leastDrawn(weights, 2);
    const drawn = weights.filter((weight) => Math.abs(weight) / 2 >= least).length;
    expect(drawn).toBeLessThanOrEqual(MOST_LINES);
    expect(drawn).toBeGreaterThan(MOST_LINES / 2);
    expect([leastDrawn(weights.subarray(0, 100), 2), leastDrawn(weights, 0)]).toEqual([0, 0]);
  });

  it("lists all firing rates of few units, of many the rarest and the chosen one", () => {
    expect(shownOf([0.5, 0.1], -1)).toEqual([0, 1]);
    const rates = Array.from({ length: 40 }, (_, unit) => (40 - unit) / 100);
    expect(shownOf(rates, -1)).toEqual(Array.from({ length: 16 }, (_, index) => 39 - index));
    expect(shownOf(rates, 3)).toContain(3);
    expect(shownOf(rates, 3).length).toBe(16);
  });
});

describe("the net in words", () => {
  it.each([
    [63, ["unit 1 of l0 is dead: 0 for all of 10,000 inputs, its gradient too", "unit 2 of l0 starves: fires on 2.5 % of the inputs, on 30 % at first"]],
    [2, ["unit 0 of l0 starves: fires on 2.1 % of the inputs, on 16 % at first"]],
    [0, ["unit 2 of l0 fires most rarely of 3 units, on 8.6 % of the inputs: none is dead, none starves"]],
  ] as const)("says what seed %i shows", (seed, facts) => {
    const { text, canvas } = shown(note(seed));
    expect(text("li")).toEqual(facts);
    for (const fact of facts) expect(canvas.getAttribute("aria-label")).toContain(fact);
    expect(canvas.getAttribute("aria-label")).toMatch(/^net of 4 inputs, l0 with 3 units, l1 with 1 unit, at step 9,999; /);
  });

  it("says which two cancel", () => {
    expect(shown(note(6)).text("li")[0]).toMatch(/^units 0 and 1 of l0 cancel: /);
  });

  it("says of a unit what it cancels", () => {
    const { canvas, text } = shown(note(6));
    canvas.focus();
    pressed(canvas, "ArrowUp");
    expect(text(".net-readout")[0]).toMatch(/^l0\[0\], cancels l0\[1\]: activation/);
  });

  it("tells in its legend how weights that are no numbers are drawn", () => {
    const of = (weight: number): string[] => shown(made({ layers: [{ path: "a", weights: [[[weight]]], activations: [[1]] }] })).text(".net-legend span");
    expect(of(Number.NaN)).toContain("NaN, Inf");
    expect(of(1)).not.toContain("NaN, Inf");
  });

  it("says like ones together, with the weakest evidence", () => {
    const units = 8;
    const data = made({
      steps: 4000, layers: [{ path: "a", weights: [Array.from({ length: units }, () => [1])], activations: [Array.from({ length: units }, () => 0)] }],
      units: [{ path: "a", width: 1000, fired: [[0, 0, 0, 0, 5, 9, 9, 9], [0, 0, 0, 0, 0, 9, 9, 9], [0, 0, 0, 0, 0, 9, 9, 9], [0, 0, 0, 0, 0, 9, 9, 9]] }],
      alerts: [0, 1, 2, 3, 4].map((unit) => ({ kind: "dead", path: "a", unit, step: 1000, inputs: unit === 4 ? 3000 : 4000 })),
    });
    expect(shown(data).text("li")).toEqual(["5 of 8 units of a are dead: 0, 1, 2, 3, 4; each is 0 for the last 3,000 inputs at least"]);
  });

  it("leads to the first of like ones, also where others have become so", () => {
    const units = [{ path: "a", width: 1000, fired: [[0, 0, 0, 0, 500], [0, 0, 0, 0, 500], [500, 0, 0, 0, 0], [500, 0, 0, 0, 0]] }];
    const data = made({ steps: 4000, layers: [{ path: "a", weights: [[[1], [1], [1], [1], [1]]], activations: [[0, 0, 0, 0, 0]] }], units });
    const { part, said, text } = shown(data, 1999);
    part.draw(momentOf(data, { step: 3999 }));
    expect(text("li")[0]).toMatch(/^4 of 5 units of a are silent so far: 1, 2, 3, 4;/);
    part.element.querySelector<HTMLElement>("li button")?.click();
    expect(said.at(-1)).toMatch(/^pinned; a\[1\]/);
  });

  it("is not there where there is no picture of units, or none yet", () => {
    expect(shown(made({})).part.element.hidden).toBe(true);
    expect(shown(made({ layers: [{ path: "a", weights: [], activations: [] }], more: { neurons: { layers: [{ path: "a", weight: "a.weight", units: 3, inputs: 2 }] } } })).part.element.hidden).toBe(true);
    expect(shown(note(6)).part.element.hidden).toBe(false);
  });

  it("draws no character that would turn a name about", () => {
    const ink = inked(700);
    shown(made({ layers: [{ path: "a\u202ecba", weights: [[[1]]], activations: [[1]] }] }));
    expect(ink.words()).toContain("a\\u202ecba");
  });

  it("takes a name for what it is", () => {
    const path = "<b>x</b>";
    const { part, text } = shown(made({ layers: [{ path, weights: [[[1]]], activations: [[0]] }], alerts: [{ kind: "dead", path, unit: 0 }] }));
    expect(part.element.querySelector("b")).toBeNull();
    expect(text("li")[0]).toContain(`unit 0 of ${path} is dead`);
  });
});

describe("the keys of the net", () => {
  it("walk from unit to unit, beginning where it matters, and keep their events", () => {
    const { canvas, said, text } = shown();
    expect(pressed(canvas, "ArrowDown")).toEqual({ prevented: true, left: false });
    expect(said.at(-1)).toMatch(/^l0\[1\], dead: activation 0, gradient 0; 0 for all of 10,000 inputs, its gradient too; weights in: .*from x\[0\].*; weights out: 0\.372 to l1\[0\]$/);
    pressed(canvas, "ArrowDown");
    expect(text(".net-readout")[0]).toMatch(/^l0\[2\], starving: activation 0, gradient 0\.01fires on 30 % of the inputs at first, on 2.5 % now/);
    pressed(canvas, "ArrowLeft");
    expect(said.at(-1)).toMatch(/^x\[\d\]: an input; weights out: /);
    expect(pressed(canvas, "q")).toEqual({ prevented: false, left: true });
  });

  it("pin a unit and select its layer, and let it go", () => {
    const { canvas, rows, said, text } = shown();
    pressed(canvas, "ArrowDown");
    pressed(canvas, "Enter");
    expect([rows, said.at(-1)?.startsWith("pinned; l0[1]"), text(".net-readout")[0]?.includes("pinned")]).toEqual([[0], true, true]);
    canvas.dispatchEvent(new MouseEvent("pointermove", { bubbles: true }));
    expect(text(".net-readout")[0]).toContain("l0[1]");
    pressed(canvas, "Escape");
    expect(text(".net-readout")[0]).not.toContain("pinned");
    pressed(canvas, " ");
    pressed(canvas, " ");
    expect(text(".net-readout")[0]).not.toContain("pinned");
  });

  it("are not needed: what is said can be pressed", () => {
    const { part, text, rows } = shown();
    (part.element.querySelector("li.starving button") as HTMLElement).click();
    expect([text(".net-readout")[0]?.startsWith("l0[2]"), rows]).toEqual([true, [0]]);
  });
});

const strokes = (ink: Ink): unknown[] => ink.calls.filter(([name, what]) => name === "set" && what === "strokeStyle").map(([, , colour]) => colour);

/** Whether a circle was drawn in dashes of a colour. */
function dashedIn(ink: Ink, colour: string): boolean {
  let [dashed, round, stroke]: [boolean, boolean, unknown] = [false, false, ""];
  return ink.calls.some(([name, first, second]) => {
    if (name === "setLineDash") dashed = (first as number[]).length > 0;
    else if (name === "set" && first === "strokeStyle") stroke = second;
    else if (name === "beginPath") round = false;
    else if (name === "arc") round = true;
    return name === "stroke" && dashed && round && stroke === colour;
  });
}

describe("the picture", () => {
  it.each([376, 1000])("draws a dead unit as a dashed ring, a starving one with its rate, in %i pixels", (width) => {
    const ink = inked(width);
    shown(note(63));
    expect(dashedIn(ink, PALETTES.light.broken)).toBe(true);
    expect(dashedIn(ink, PALETTES.light.careful)).toBe(false);
    expect(strokes(ink)).toContain(PALETTES.light.careful);
    expect(ink.words()).toContain("dead");
    expect(ink.words()).toContain("starves: 2.5 %");
    expect(ink.words()).toContain("30 % → 2.5 %");
  });

  it("draws no dashes where all is well, and a bracket where two cancel", () => {
    const ink = inked(800);
    shown(note(0));
    expect(ink.of("setLineDash").every(([dash]) => (dash as number[]).length === 0)).toBe(true);
    for (const colour of [PALETTES.light.broken, PALETTES.light.careful]) expect(strokes(ink)).not.toContain(colour);
    expect(ink.words()).not.toContain("cancel");
    shown(note(6));
    expect(ink.words()).toContain("cancel");
  });

  it("can be drawn of anything", () => {
    inked(400);
    const odd = [Number.NaN, Number.POSITIVE_INFINITY, 0, -1e-30];
    const data = made({ layers: [{ path: "a", weights: [odd.map((value) => [value, 1])], activations: [odd], gradients: [odd] }, { path: "b", weights: [[odd]], activations: [[Number.NaN]] }] });
    expect(() => shown(data)).not.toThrow();
  });

  it("is drawn in the scale of its time, before a blow-up too", () => {
    const all = told();
    const part = new Neurons(all.context, all.hooks);
    const data = made({ layers: [{ path: "a", weights: [[[2]], [[1]], [[5000]]], activations: [[1], [1], [1]] }] });
    const at = (step: number): string => {
      part.draw({ ...momentOf(data), step });
      return part.element.querySelector(".net-legend")?.textContent ?? "";
    };
    const { step } = momentOf(data);
    expect(at(step)).toContain("weight ±5,000");
    expect(at(0)).toContain("weight ±2");
    expect(at(step)).toContain("weight ±5,000");
  });

  it("does not rescale when what is largest has gone", () => {
    const all = told();
    const part = new Neurons(all.context, all.hooks);
    const legend = (): string => part.element.querySelector(".net-legend")?.textContent ?? "";
    part.draw(momentOf(made({ layers: [{ path: "a", weights: [[[8]], [[1]]], activations: [[4], [1]] }] })));
    const before = legend();
    part.draw(momentOf(made({ layers: [{ path: "a", weights: [[[1]], [[1]]], activations: [[1], [1]] }] })));
    expect(before).toContain("weight ±8");
    expect(legend()).toBe(before);
  });
});
