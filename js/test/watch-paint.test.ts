// @vitest-environment happy-dom
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { magnitude } from "../src/colour";
import { PALETTES } from "../src/palette";
import type { Scale } from "../src/watch/figures";
import { mount } from "../src/watch/entry";
import { WatchData, type Reading } from "../src/watch/data";
import type { Moment } from "../src/watch/part";
import { plotOf, xOf } from "../src/watch/time-axis";
import { placed, Trace } from "../src/watch/trace";
import { gpt, packed, type Made } from "./watch-samples";

type Call = [name: string, ...args: unknown[]];

/** A pen that writes down what it is told. */
class Recorder {
  readonly calls: Call[] = [];
  image: { data: Uint8ClampedArray; width: number; height: number } | null = null;
}

const WIDE = 700;
const pens = new Map<HTMLCanvasElement, Recorder>();

function penOf(canvas: HTMLCanvasElement): unknown {
  const recorder = pens.get(canvas) ?? new Recorder();
  pens.set(canvas, recorder);
  return new Proxy({} as Record<string, unknown>, {
    get: (target, name: string) => {
      if (name === "canvas") return canvas;
      if (name === "measureText") return (text: string) => ({ width: text.length * 6.3 });
      if (name === "createPattern") return () => ({ pattern: true, setTransform() {} });
      if (name === "createImageData") return (width: number, height: number) => ({ width, height, data: new Uint8ClampedArray(width * height * 4) });
      if (name === "putImageData") return (image: Recorder["image"]) => void (recorder.image = image);
      if (name in target) return target[name];
      return (...args: unknown[]) => void recorder.calls.push([name, ...args, ...(name.startsWith("fill") ? [target.fillStyle] : name === "stroke" ? [target.strokeStyle] : [])]);
    },
    set: (target, name: string, value) => {
      target[name] = value;
      return true;
    },
  });
}

beforeEach(() => {
  pens.clear();
  vi.spyOn(HTMLCanvasElement.prototype, "getContext").mockImplementation(function (this: HTMLCanvasElement) {
    return penOf(this) as never;
  } as never);
  vi.spyOn(HTMLElement.prototype, "clientWidth", "get").mockReturnValue(WIDE);
  vi.stubGlobal("DOMMatrix", class { scale(): this { return this; } });
  vi.stubGlobal("devicePixelRatio", 1);
});
afterEach(() => {
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
  document.body.replaceChildren();
});

function drawn(made: Made): (selector: string) => Recorder {
  const host = document.createElement("div");
  document.body.append(host);
  mount(host, packed(made));
  const root = host.querySelector(".modlab-live")?.shadowRoot as ShadowRoot;
  return (selector) => {
    const canvas = root.querySelector<HTMLCanvasElement>(selector);
    return (canvas && pens.get(canvas)) ?? new Recorder();
  };
}

const calls = (recorder: Recorder, name: string): Call[] => recorder.calls.filter(([one]) => one === name);

describe("depth × time", () => {
  it("has a pixel for each row and column, in the colour of the slot that holds it", () => {
    const made = gpt({ slots: 50 });
    made.json.alerts = [];
    const map = drawn(made)(".over-time");
    const [tile] = calls(map, "drawImage").map(([, image]) => pens.get(image as HTMLCanvasElement)?.image);
    expect([tile?.width, tile?.height]).toEqual([plotOf(WIDE).width, 24]);
    const data = new WatchData(packed(made));
    const wide = tile?.width ?? 0;
    // The legend of these ends at 2: the greatest is below it.
    const column = 300;
    const slot = data.slotOf(((column + 0.5) / wide) * data.end);
    for (const row of [0, 5, 23]) {
      const expected = magnitude(Math.round((data.value("std", slot, row) / 2) * 255) / 255).map(Math.round);
      expect([...(tile?.data.slice((row * wide + column) * 4, (row * wide + column) * 4 + 4) ?? [])]).toEqual([...expected, 255]);
    }
  });

  it("leaves what was not sampled without a colour", () => {
    const made = gpt({ slots: 50 });
    made.json.alerts = [];
    (made.arrays.std?.data as Float32Array).fill(Number.NaN, 0, 25 * (made.json.series as unknown[]).length);
    const map = drawn(made)(".over-time");
    const [tile] = calls(map, "drawImage").map(([, image]) => pens.get(image as HTMLCanvasElement)?.image);
    expect([tile?.data[3], tile?.data[((tile.width - 1) * 4) + 3]]).toEqual([0, 255]);
  });

  it("has no colour behind the last sample of a row", () => {
    const made = gpt({ slots: 50 });
    made.json.alerts = [];
    const series = (made.json.series as unknown[]).length;
    (made.arrays.std?.data as Float32Array).fill(Number.NaN, 30 * series);
    const map = drawn(made)(".over-time");
    const [tile] = calls(map, "drawImage").map(([, image]) => pens.get(image as HTMLCanvasElement)?.image);
    const data = new WatchData(packed(made));
    const end = Math.round((((data.last[29] as number) + 1) / data.end) * (tile?.width ?? 0));
    expect([end - 2, end + 2].map((column) => tile?.data[column * 4 + 3])).toEqual([255, 0]);
  });

  it("hatches what is not a number, and nothing else", () => {
    const made = gpt({ slots: 50, nan: true });
    const map = drawn(made)(".over-time");
    const hatched = calls(map, "fillRect").filter((call) => typeof call.at(-1) === "object");
    const data = new WatchData(packed(made));
    const bad = Array.from({ length: 50 * 24 }, (_, i) => data.value("bad", Math.floor(i / 24), i % 24)).filter((one) => one > 0);
    expect(hatched.length).toBe(bad.length);
    const from = Math.min(...hatched.map(([, x]) => x as number));
    const first = data.first.find((step) => step >= 7000) as number;
    expect(from).toBeCloseTo(plotOf(WIDE).left + (first / data.end) * plotOf(WIDE).width, 0);
    expect(calls(drawn(gpt({ slots: 50 }))(".over-time"), "fillRect").filter((call) => typeof call.at(-1) === "object")).toEqual([]);
  });

  it("has a bar for each row at the cursor", () => {
    const made = gpt({ slots: 50 });
    const now = drawn(made)(".now");
    expect(calls(now, "fillRect").length).toBe(24);
    expect(calls(now, "fillText").length).toBe(24);
  });
});

describe("the pointer", () => {
  const WAIT = 40;
  const point = (canvas: HTMLElement, name: string, x: number, y: number, more: object = {}): void => {
    vi.spyOn(canvas, "getBoundingClientRect").mockReturnValue({ left: 0, top: 0, width: WIDE, height: 24 * 13 } as DOMRect);
    canvas.dispatchEvent(new PointerEvent(name, { clientX: x, clientY: y, button: 0, buttons: 1, bubbles: true, ...more }));
  };
  const settled = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, WAIT));
  const opened = (): { canvas: HTMLElement; step(): number; reading(): string; range(): string[] } => {
    drawn(gpt({ slots: 50 }));
    const root = document.querySelector(".modlab-live")?.shadowRoot as ShadowRoot;
    return {
      canvas: root.querySelector(".over-time") as HTMLElement,
      step: () => Number(root.querySelector("[role=slider]")?.getAttribute("aria-valuenow")),
      reading: () => root.querySelector(".reading")?.textContent ?? "",
      range: () => calls(pens.get(root.querySelector(".axis-track canvas") as HTMLCanvasElement) as Recorder, "fillText").map(([, text]) => String(text)),
    };
  };
  const { left, width } = plotOf(WIDE);

  it("chooses a row and a step, and scrubs", async () => {
    const { canvas, step, reading } = opened();
    point(canvas, "pointerdown", left + width / 2, 5.5 * 13);
    await settled();
    expect(step()).toBe(4820);
    expect(reading()).toMatch(/^h\.1\.ln_1/);
    point(canvas, "pointermove", left + width + 500, 5.5 * 13);
    await settled();
    expect(step()).toBe(9639);
  });

  it("chooses a row alone at its name", async () => {
    const { canvas, step, reading } = opened();
    point(canvas, "pointerdown", left - 40, 13 * 23.5);
    point(canvas, "pointermove", left - 42, 13 * 23.5);
    await settled();
    expect([step(), reading().split("  ")[0]]).toEqual([9639, "ln_f"]);
  });

  it("reads the number under it, and gives way to the cursor", async () => {
    const { canvas, reading } = opened();
    point(canvas, "pointermove", left, 1, { buttons: 0 });
    await settled();
    expect(reading()).toMatch(/^wte {2}std .* {2}step 0 /);
    point(canvas, "pointerleave", 0, 0, { buttons: 0 });
    await settled();
    expect(reading()).toMatch(/^h\.0\.attn .* {2}step 9,639/);
  });

  it("zooms to what is swept with shift, and shows all when pressed twice", async () => {
    const { canvas, step, range } = opened();
    point(canvas, "pointerdown", left + width * 0.25, 5, { shiftKey: true });
    point(canvas, "pointerup", left + width * 0.5, 5, { shiftKey: true });
    await settled();
    expect(step()).toBe(9639);
    expect(range()).toContain("3,000");
    canvas.dispatchEvent(new MouseEvent("dblclick"));
    await settled();
    expect(range().slice(-6)).toContain("8,000");
  });
});

describe("one cursor", () => {
  it("stands at the same place in every plot over time", () => {
    const find = drawn(gpt({ slots: 50 }));
    const at = (recorder: Recorder): unknown => {
      const inked = recorder.calls.map(([name, colour]) => name === "stroke" && colour === PALETTES.light.ink).lastIndexOf(true);
      return calls({ ...recorder, calls: recorder.calls.slice(0, inked) }, "moveTo").at(-1)?.[1];
    };
    const places = [".over-time", ".axis-track canvas", ".scalar canvas", ".series canvas", ".ratio canvas", ".moved canvas", ".bins canvas"].map((one) => at(find(one)));
    expect(new Set(places).size).toBe(1);
    expect(Number.isFinite(places[0] as number)).toBe(true);
  });

  it("is accompanied by a mark for each alert", () => {
    const axis = drawn(gpt({ slots: 50 }))(".axis-track canvas");
    expect(calls(axis, "fill").length).toBe(3);
    expect(calls(axis, "fillText").map(([, text]) => text)).toContain("step 9,639");
  });
});

describe("a curve", () => {
  const moment = (to: number): Moment => ({ data: { end: to } as WatchData, step: 0, seen: 0, row: 0, following: false, from: 0, to });
  const plot = plotOf(WIDE);
  const reading = (values: number[]): Reading => {
    const first = values.map((_, i) => i);
    return { first, last: first, mid: (i) => values[i] as number, low: (i) => (values[i] as number) - 1, high: (i) => (values[i] as number) + 1 };
  };
  const whole: Scale = { kind: "linear", low: -1000, high: 1000, share: (value) => value, ticks: () => [] };
  const trace = new Trace();
  const draw = (values: number[]): Call[] => {
    trace.gather(reading(values), moment(values.length), plot);
    const canvas = document.createElement("canvas");
    const pen = canvas.getContext("2d") as CanvasRenderingContext2D;
    trace.line(pen, (value) => value);
    trace.band(pen, "low", "high", (value) => value);
    return pens.get(canvas)?.calls ?? [];
  };

  it("has a gap where there is no number", () => {
    const made = draw([1, 2, Number.NaN, 4, 5, 6]);
    expect(made.filter(([name]) => name === "moveTo").length).toBe(2);
    expect(made.filter(([name]) => name === "arc").length).toBe(5); // so few are dots as well
    expect(made.filter(([name]) => name === "fill").length).toBe(2 + 5);
    expect(draw([Number.NaN, Number.NaN]).filter(([name]) => name === "lineTo")).toEqual([]);
  });

  it("has a dot where a number stands alone, however many there are", () => {
    const made = draw(Array.from({ length: 400 }, (_, i) => (i % 3 && i < 390 ? Number.NaN : i)));
    expect(made.filter(([name]) => name === "arc").length).toBe(130);
    expect(draw(Array.from({ length: 400 }, (_, i) => i)).filter(([name]) => name === "arc")).toEqual([]);
  });

  it("has no more points than pixels, and keeps the extremes", () => {
    const values = Array.from({ length: 50_000 }, (_, i) => Math.sin(i / 900));
    values[31_234] = 77;
    values[12_345] = -55;
    const made = draw(values);
    expect(trace.count).toBeLessThan(plot.width * 1.4);
    const heights = made.filter(([name]) => name === "lineTo").map(([, , y]) => y as number);
    expect([Math.max(...heights), Math.min(...heights)]).toEqual([78, -56]);
    for (const many of [500, 900, 1300, 4000]) {
      const places = draw(Array.from({ length: many }, (_, i) => i)).filter(([name]) => name === "lineTo").map(([, x]) => x as number);
      expect(Math.max(...places)).toBeGreaterThan(plot.left + plot.width - 2);
    }
  });

  it("stays where it is when the end of the axis does", () => {
    expect(xOf(moment(100), 50, plot)).toBe(xOf({ ...moment(100), step: 9 }, 50, plot));
    expect(placed(whole, 0, 10)(Number.NaN)).toBeNaN();
  });
});
