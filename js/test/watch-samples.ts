/** Two watches made up: a GPT-like run of 24 modules, and the note's `Net`, which is really trained here. */
import { BINS, type Role } from "../src/watch/data";
import { common, pack, type Sample } from "./samples";

type Arrays = Parameters<typeof pack>[1] & object;
type Typed = Float32Array | Uint32Array | Uint8Array;

export interface Made {
  json: Sample;
  arrays: Arrays;
}

const array = (data: Typed, ...shape: number[]): Arrays[string] => ({
  dtype: data instanceof Float32Array ? "float32" : data instanceof Uint8Array ? "uint8" : "uint32",
  shape: shape.length ? shape : [data.length],
  data,
});

/** The same numbers in each run. */
export function dice(seed: number): { uniform(): number; normal(): number } {
  let state = seed * 2654435761 + 1;
  const uniform = (): number => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
  return { uniform, normal: () => Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform()) };
}

interface Stats {
  mean: number;
  std: number;
  low: number;
  high: number;
  zeros: number;
  bad: number;
  stuck: number;
}

const COLUMNS = ["mean", "std", "low", "high", "zeros", "bad", "stuck"] as const;

/** Of a normal distribution of the given width; some share of it zero. */
function normalBins(std: number, mean: number, top: number, zeros = 0): Uint8Array {
  const cdf = (x: number): number => 1 / (1 + Math.exp(-1.702 * ((x - mean) / (std || 1e-9))));
  const made = new Uint8Array(BINS);
  const edge = (k: number): number => 2 ** ((top - k) / 2);
  for (let k = 0; k < 32; k += 1) {
    const upper = k === 0 ? Number.POSITIVE_INFINITY : edge(k - 1);
    made[64 - k] = Math.round(255 * (1 - zeros) * (cdf(upper) - cdf(edge(k))));
    made[k] = Math.round(255 * (1 - zeros) * (cdf(-edge(k)) - cdf(-upper)));
  }
  made[32] = Math.max(0, 255 - made.reduce((sum, one) => sum + one, 0));
  return made;
}

function binsOf(values: ArrayLike<number>, top: number): Uint8Array {
  const counts = new Float64Array(BINS);
  for (let i = 0; i < values.length; i += 1) {
    const value = values[i] as number;
    const k = Math.max(0, top - Math.floor(2 * Math.log2(Math.abs(value) || 1e-30)));
    const bin = k > 31 ? 32 : value > 0 ? 64 - k : k;
    counts[bin] = (counts[bin] ?? 0) + 1;
  }
  return Uint8Array.from(counts, (count) => Math.round((255 * count) / Math.max(1, values.length)));
}

/** Dense first, then spaced ever wider. */
export function spaced(count: number, end: number): Uint32Array {
  const dense = Math.min(10, count);
  return Uint32Array.from({ length: count }, (_, i) => (i < dense ? i : Math.round(dense + ((end - 1 - dense) * (i - dense + 1)) / (count - dense))));
}

const category = (path: string): string =>
  path.includes("ln") ? "norm" : path.startsWith("wte") ? "embedding" : path.startsWith("drop") ? "dropout" : path.endsWith("attn") || path.endsWith("mlp") ? "own" : "linear";

/** A GPT-like run: deep blocks go silent; with `nan`, one block gives NaN from step 7,000 on. */
export function gpt({ slots = 200, end = 9640, nan = false, live = false, state = "ended", blocks = 7 } = {}): Made {
  const { normal, uniform } = dice(3);
  const modules = ["wte", "drop", ...Array.from({ length: blocks }, (_, i) => ["ln_1", "attn", "mlp"].map((name) => `h.${i}.${name}`)).flat(), "ln_f"];
  const parameters = ["wte.weight", ...Array.from({ length: blocks }, (_, i) => ["attn.weight", "attn.bias", "mlp.weight"].map((name) => `h.${i}.${name}`)).flat(), "ln_f.weight"];
  const series: { path: string; role: Role; depth: number }[] = [
    ...(["activation", "gradient"] as const).flatMap((role) => modules.map((path, i) => ({ path, role, depth: i / modules.length }))),
    ...(["parameter", "parameter gradient", "update"] as const).flatMap((role) => parameters.map((path, i) => ({ path, role, depth: i / parameters.length }))),
  ];
  const first = spaced(slots, end);
  const columns = Object.fromEntries(COLUMNS.map((name) => [name, new Float32Array(slots * series.length)])) as Record<keyof Stats, Float32Array>;
  const every = Math.max(1, Math.floor(slots / 100));
  const binSlots = Math.floor(slots / every);
  const bins = new Uint8Array(binSlots * series.length * BINS);
  const tops = series.map(({ role }) => (role === "activation" ? 6 : role === "gradient" ? -8 : role === "parameter" ? 0 : role === "update" ? -14 : -6));
  for (let slot = 0; slot < slots; slot += 1) {
    const time = (first[slot] as number) / end;
    series.forEach(({ path, role, depth }, row) => {
      const dying = path.startsWith("h.5.") || path.startsWith("h.6.");
      const noise = 1 + 0.08 * normal();
      let std = 1;
      if (role === "activation") std = (path.includes("ln") ? 0.95 : 0.45 + (dying ? 0.5 * Math.exp(-5 * time) - 0.36 : (0.9 - 0.7 * depth) * (0.4 + 0.6 * (1 - Math.exp(-6 * time))))) * noise;
      else if (role === "gradient") std = 10 ** (-3.2 - 2.2 * (1 - depth) - (dying ? 0 : 0.6 * time)) * noise;
      else if (role === "parameter") std = (path.endsWith("bias") ? 0.01 : 0.02) * (1 + 0.9 * time);
      else if (role === "parameter gradient") std = 10 ** (-2.4 - 1.5 * (1 - depth)) * noise * (1 - 0.6 * time);
      else std = 6e-4 * 0.02 * (1.02 - time) * noise * (0.4 + depth);
      const mean = role === "activation" ? 0.04 * Math.sin(9 * depth + 3 * time) + (path.endsWith("mlp") ? 0.12 * time : 0) : 0;
      const broken = nan && role !== "parameter" && (first[slot] as number) >= 7000 && depth > 0.55 && role !== "update";
      const stats: Stats = {
        mean, std, low: mean - std * (3.6 + uniform()), high: mean + std * (3.6 + uniform()), zeros: path.startsWith("drop") ? 0.1 : 0,
        bad: broken ? 6144 : 0, stuck: role === "update" ? Math.min(1, Math.max(0, 0.02 + 0.3 * time * (1 - depth))) : Number.NaN,
      };
      for (const name of COLUMNS) columns[name][slot * series.length + row] = broken && name !== "bad" ? Number.NaN : stats[name];
      if (slot % every === 0 && slot / every < binSlots) bins.set(normalBins(std, mean, tops[row] as number, stats.zeros), ((slot / every) * series.length + row) * BINS);
    });
  }
  const binFirst = first.filter((_, slot) => slot % every === 0).slice(0, binSlots);
  const loss = new Float32Array(slots * 3);
  const rate = new Float32Array(slots * 3);
  for (let slot = 0; slot < slots; slot += 1) {
    const time = (first[slot] as number) / end;
    const value = (2.6 + 8.2 * Math.exp(-14 * time)) * (1 + 0.02 * normal());
    loss.set([value, value * 0.94, value * 1.07], slot * 3);
    const lr = 6e-4 * Math.min(1, time * 20) * (0.55 + 0.45 * Math.cos(Math.PI * time));
    rate.set([lr, lr, lr], slot * 3);
  }
  const names = ["mean", "std", "low", "high", "zeros", "bad", "stuck"] as const;
  const sampled = spaced(Math.round(slots * 1.4), end);
  return {
    json: common("watch", nan ? ["NaN is born in h.4.mlp at step 7,003:", "its input is finite (max 6e4), its output is not. The loss was NaN from then on."] : ["h.5 and h.6 fade:", "their activations fell to a fifth since step 400, so little gradient reaches what lies before. The loss falls."], {
      code: "w = modlab.watch(model, optimizer)", variable: "w", live, state, error: "", steps: end, samples: sampled.length, inputs: end * 16, cost: 0.017, budget: 0.02, optimizer: "AdamW",
      series: series.map(({ path, role }) => ({
        path, role, count: role === "activation" || role === "gradient" ? 8 * 128 * 768 : path.endsWith("bias") ? 768 : 768 * 768, shape: role === "activation" || role === "gradient" ? "8×128×768" : path.endsWith("bias") ? "768" : "768×768",
        category: category(path), note: role === "update" && !path.endsWith("bias") ? "≈ from 4,096 of its numbers" : "",
      })),
      verdict: [
        { name: "data arrives", state: "passed", text: `${(end * 16).toLocaleString("en")} inputs, each batch different` },
        { name: "the loss is sensible", state: "passed", text: "10.81 at first, ln 50257 = 10.82" },
        { name: "every module is called", state: "passed", text: "24 of 24" },
        { name: "every trained parameter gets a gradient", state: "passed", text: "23 of 23" },
        { name: "the optimizer owns it", state: "passed", text: "23 of 23" },
        nan
          ? { name: "it moves", state: "broken", text: "12 of 23: since step 7,003 each gradient is NaN, so AdamW writes NaN into every weight", fix: "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)", path: "h.4.mlp.weight" }
          : { name: "it moves", state: "passed", text: "23 of 23" },
        nan ? { name: "by enough for its dtype", state: "not seen", text: "the weights are NaN" } : { name: "by enough for its dtype", state: "careful", text: "32 % of the elements of wte.weight have a gradient but do not move", advice: "keep float32 weights, or raise lr", path: "wte.weight" },
        { name: "the loss falls", state: nan ? "not seen" : "passed", text: nan ? "it is NaN since step 7,003" : "10.8 → 2.6" },
      ],
      alerts: [
        ...(nan
          ? [{ kind: "nan", path: "h.4.mlp", unit: null, step: 7003, last: 7003, over: false, mark: "broken", text: "its output has 6,144 NaN; its input is finite, at most 61,440: float16 ends at 65,504", fix: "with torch.autocast(\"cuda\", dtype=torch.bfloat16):", steps: 1, inputs: 16, trace: "h.4.mlp gives 6,144 NaN from a finite input" }]
          : [{ kind: "vanishing", path: "h.0.attn", unit: null, step: 3120, last: end - 1, over: false, mark: "careful", text: "gradients fall from 2e-4 in ln_f to 3e-6 in h.0.attn: 60 fold in 21 modules", fix: "", steps: 120, inputs: 1920, trace: "" }]),
        { kind: "saturated", path: "h.6.attn", unit: null, step: 5210, last: 8100, over: true, text: "91 % of the softmax outputs were above 0.99; it is over since step 8,100", fix: "", steps: 60, inputs: 960, trace: "" },
        { kind: "rounding", path: "wte.weight", unit: null, step: 6400, last: end - 1, over: false, mark: "careful", text: "32 % of its elements have a gradient and did not move", fix: "model.float()", steps: 80, inputs: 1280, trace: "" },
      ],
      scalars: [{ name: "loss", count: end, final: "2.61" }, { name: "lr", count: end, final: "6e-05" }],
      units: [], neurons: null, remarks: ["updates of large tensors are estimated from 4,096 of their numbers (≈)"],
    }),
    arrays: {
      first: array(first), last: array(first), ...Object.fromEntries(names.map((name) => [name, array(columns[name], slots, series.length)])),
      "bins first": array(binFirst), "bins last": array(binFirst), bins: array(bins, binSlots, series.length, BINS), top: array(Float32Array.from(tops)),
      sampled: array(sampled), "scalar 0": array(loss, slots, 3), "scalar 0 first": array(first), "scalar 0 last": array(first),
      "scalar 1": array(rate, slots, 3), "scalar 1 first": array(first), "scalar 1 last": array(first),
    },
  };
}

function statistics(values: ArrayLike<number>, more: Partial<Stats> = {}): Stats {
  const all = Array.from(values);
  const mean = all.reduce((sum, one) => sum + one, 0) / all.length;
  const std = Math.sqrt(all.reduce((sum, one) => sum + (one - mean) ** 2, 0) / all.length);
  const zeros = all.filter((one) => one === 0).length / all.length;
  return { mean, std, low: Math.min(...all), high: Math.max(...all), zeros, bad: 0, stuck: Number.NaN, ...more };
}

/** The note's Net, 4 → 3 → 1, trained to give zero; unit 1 is dead from the start, unit 2 starves. */
export function net({ end = 10_000, samples = 143, live = false, state = "ended" } = {}): Made {
  const { normal } = dice(63);
  const w0 = Float64Array.from({ length: 12 }, normal); // input by unit
  const b0 = Float64Array.from([0.3, -9, -0.9]);
  const w1 = Float64Array.from([0.8, 0.4113, 0.95]);
  const b1 = Float64Array.from([0.2]);
  const weights = [w0, b0, w1, b1];
  const momentum = weights.map((one) => new Float64Array(one.length));
  const paths = ["l0.weight", "l0.bias", "l1.weight", "l1.bias"];
  const series: { path: string; role: Role; shape: string; count: number }[] = [
    ...(["activation", "gradient"] as const).flatMap((role) => [{ path: "l0", role, shape: "3", count: 3 }, { path: "l1", role, shape: "1", count: 1 }]),
    ...(["parameter", "parameter gradient", "update"] as const).flatMap((role) =>
      paths.map((path, i) => ({ path, role, shape: ["4×3", "3", "3×1", "1"][i] as string, count: (weights[i] as Float64Array).length }))),
  ];
  const taken = spaced(samples, end);
  const due = new Set(taken);
  const rows: Stats[][] = [];
  const bins: Uint8Array[] = [];
  const tops = series.map(({ role }) => (role === "activation" ? 4 : role === "gradient" ? 0 : role === "parameter" ? 2 : role === "update" ? -18 : 2));
  const [neuronW0, neuronW1, neuronA0, neuronA1, neuronG0, neuronG1]: number[][] = [[], [], [], [], [], []];
  const losses: number[][] = [];
  const windows = 40;
  const fired = new Uint32Array(windows * 3);
  const silent = new Uint32Array(3);
  for (let step = 0; step < end; step += 1) {
    const x = Array.from({ length: 4 }, normal);
    const pre = [0, 1, 2].map((u) => x.reduce((sum, one, i) => sum + one * (w0[i * 3 + u] as number), b0[u] as number));
    const h = pre.map((one) => Math.max(0, one));
    const y = h.reduce((sum, one, u) => sum + one * (w1[u] as number), b1[0] as number);
    const dy = Math.sign(y);
    const dh = pre.map((one, u) => (one > 0 ? dy * (w1[u] as number) : 0));
    const gradients = [x.flatMap((one) => dh.map((d) => one * d)), dh, h.map((one) => one * dy), [dy]];
    h.forEach((one, u) => {
      const at = Math.floor((step / end) * windows) * 3 + u;
      if (one > 0) fired[at] = (fired[at] ?? 0) + 1;
      silent[u] = one > 0 ? 0 : (silent[u] ?? 0) + 1;
    });
    const updates = weights.map((tensor, t) => {
      const velocity = momentum[t] as Float64Array;
      return Array.from(tensor, (value, i) => {
        velocity[i] = 0.9 * (velocity[i] as number) + ((gradients[t]?.[i] as number) + 0.01 * value);
        return -1e-4 * (velocity[i] as number);
      });
    });
    if (due.has(step)) {
      rows.push([
        statistics(pre), statistics([y]), statistics(dh), statistics([dy]), ...weights.map((one) => statistics(one)), ...gradients.map((one) => statistics(one)), ...updates.map((one) => statistics(one, { stuck: 0 })),
      ]);
      bins.push(...[pre, [y], dh, [dy], ...weights, ...gradients, ...updates].map((one, row) => binsOf(one, tops[row] as number)));
      neuronW0?.push(...[0, 1, 2].flatMap((u) => [0, 1, 2, 3].map((i) => w0[i * 3 + u] as number)));
      neuronW1?.push(...w1);
      neuronA0?.push(...h);
      neuronA1?.push(y);
      neuronG0?.push(...dh);
      neuronG1?.push(dy);
    }
    losses.push([Math.abs(y)]);
    weights.forEach((tensor, t) => tensor.forEach((value, i) => (tensor[i] = value + (updates[t]?.[i] as number))));
  }
  const lossSlots = 400;
  const loss = new Float32Array(lossSlots * 3);
  const lossFirst = Uint32Array.from({ length: lossSlots }, (_, i) => Math.floor((i * end) / lossSlots));
  const lossLast = Uint32Array.from({ length: lossSlots }, (_, i) => Math.floor(((i + 1) * end) / lossSlots) - 1);
  for (let slot = 0; slot < lossSlots; slot += 1) {
    const part = losses.slice(lossFirst[slot], (lossLast[slot] as number) + 1).flat();
    loss.set([part.reduce((sum, one) => sum + one, 0) / part.length, Math.min(...part), Math.max(...part)], slot * 3);
  }
  const column = (name: keyof Stats): Float32Array => Float32Array.from(rows.flatMap((row) => row.map((one) => one[name])));
  const packed = new Uint8Array(bins.length * BINS);
  bins.forEach((one, i) => packed.set(one, i * BINS));
  const windowFirst = Uint32Array.from({ length: windows }, (_, i) => Math.floor((i * end) / windows));
  const windowLast = Uint32Array.from({ length: windows }, (_, i) => Math.floor(((i + 1) * end) / windows) - 1);
  const f32 = (values: number[] | undefined): Float32Array => Float32Array.from(values ?? []);
  const inputs = (live ? 9640 : end).toLocaleString("en");
  return {
    json: common("watch", ["Unit 1 of l0 is dead:", `zero for all of ${inputs} inputs seen, so l1.weight[1] moves by weight decay alone. Unit 2 starves. The loss falls.`], {
      code: "w = modlab.watch(net, optimizer)", variable: "w", live, state, error: "", steps: end, samples, inputs: end, cost: 0.017, budget: 0.02, optimizer: "SGD",
      series: series.map((one) => ({ ...one, category: "own", note: "" })),
      verdict: [
        { name: "data arrives", state: "passed", text: `${inputs} inputs` },
        { name: "the loss is sensible", state: "passed", text: "0.91 at first" },
        { name: "every module is called", state: "passed", text: "2 of 2" },
        { name: "every trained parameter gets a gradient", state: "passed", text: "4 of 4" },
        { name: "the optimizer owns it", state: "passed", text: "4 of 4" },
        { name: "it moves", state: "broken", text: "8 of 10 rows: column 1 of l0.weight has had no gradient since step 0", fix: "nn.LeakyReLU()", path: "l0.weight" },
        { name: "by enough for its dtype", state: "passed", text: "no element lost to rounding" },
        { name: "the loss falls", state: "passed", text: "0.91 → 0.02" },
      ],
      alerts: [
        { kind: "dead", path: "l0", unit: 1, step: 1000, last: end - 1, over: false, mark: "broken", text: `zero for all of ${inputs} inputs seen, and so is its gradient`, fix: "nn.LeakyReLU()", steps: 143, inputs: end, trace: "" },
        { kind: "starving", path: "l0", unit: 2, step: 6120, last: end - 1, over: false, mark: "careful", text: "fired on 33 % of the inputs at first, on 2 % of the last 1,000", fix: "", steps: 143, inputs: end, trace: "" },
      ],
      scalars: [{ name: "loss", count: end, final: "0.0204" }],
      units: [{ path: "l0", read: "the input of l1", units: 3 }],
      neurons: { layers: [{ path: "l0", weight: "l0.weight", units: 3, inputs: 4 }, { path: "l1", weight: "l1.weight", units: 1, inputs: 3 }] },
      remarks: [],
    }),
    arrays: {
      first: array(taken), last: array(taken), ...Object.fromEntries(COLUMNS.map((name) => [name, array(column(name), samples, series.length)])),
      "bins first": array(taken), "bins last": array(taken), bins: array(packed, samples, series.length, BINS), top: array(Float32Array.from(tops)), sampled: array(taken),
      "scalar 0": array(loss, lossSlots, 3), "scalar 0 first": array(lossFirst), "scalar 0 last": array(lossLast),
      "units 0 first": array(windowFirst), "units 0 last": array(windowLast), "units 0 inputs": array(new Uint32Array(windows).fill(end / windows)),
      "units 0 fired": array(fired, windows, 3), "units 0 silent": array(silent), "units 0 flat": array(Uint8Array.from([0, 1, 0])),
      "neurons first": array(taken), "neurons last": array(taken),
      "neurons 0 weights": array(f32(neuronW0), samples, 3, 4), "neurons 0 activations": array(f32(neuronA0), samples, 3), "neurons 0 gradients": array(f32(neuronG0), samples, 3),
      "neurons 1 weights": array(f32(neuronW1), samples, 1, 3), "neurons 1 activations": array(f32(neuronA1), samples, 1), "neurons 1 gradients": array(f32(neuronG1), samples, 1),
    },
  };
}

const HISTORY = ["first", "last", ...COLUMNS];

/** The update that turns the state of the first `slots` slots into the whole: the arrays of the history alone are cut. */
export function cut({ json, arrays }: Made, slots: number): Made {
  const made: Arrays = { ...arrays };
  for (const name of HISTORY) {
    const { dtype, shape, data } = arrays[name] as Arrays[string];
    const width = shape[1] ?? 1;
    made[name] = { dtype, shape: [(shape[0] as number) - slots, ...shape.slice(1)], data: (data as Float32Array).slice(slots * width) };
  }
  const from = { history: slots, bins: 0, scalars: (json.scalars as unknown[]).map(() => 0), units: (json.units as unknown[]).map(() => 0), neurons: 0 };
  return { json: { ...json, from }, arrays: made };
}

/** The state when only the first `slots` slots had been seen. */
export function early({ json, arrays }: Made, slots: number): Made {
  const made: Arrays = { ...arrays };
  for (const name of HISTORY) {
    const { dtype, shape, data } = arrays[name] as Arrays[string];
    const width = shape[1] ?? 1;
    made[name] = { dtype, shape: [slots, ...shape.slice(1)], data: (data as Float32Array).slice(0, slots * width) };
  }
  return { json, arrays: made };
}

export function packed({ json, arrays }: Made): ArrayBuffer {
  return pack(json, arrays);
}
