/** Payloads as Python makes them (tests/fixtures holds real ones), small enough to be read. */
import type { Entry, Run, Signature, StateNode, Subtree } from "../src/payload";

export interface Sample {
  [field: string]: unknown;
}

/** JSON and arrays → the byte string of schema 1; the mirror of `decode`. */
export function pack(json: Sample, arrays: Record<string, { dtype: string; shape: number[]; data: ArrayBufferView }> = {}): ArrayBuffer {
  const places: Sample = {};
  let offset = 0;
  for (const [name, { dtype, shape, data }] of Object.entries(arrays)) {
    places[name] = { dtype, shape, offset };
    offset += Math.ceil(data.byteLength / 8) * 8;
  }
  const text = new TextEncoder().encode(JSON.stringify({ ...json, arrays: places }));
  const start = Math.ceil((4 + text.length) / 8) * 8;
  const bytes = new Uint8Array(start + offset);
  new DataView(bytes.buffer).setUint32(0, text.length, true);
  bytes.set(text, 4);
  for (const [name, { data }] of Object.entries(arrays)) {
    const at = start + (places[name] as { offset: number }).offset;
    bytes.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), at);
  }
  return bytes.buffer;
}

export function common(view: string, headline: [string, string], more: Sample = {}): Sample {
  return {
    schema: 1, version: "0.1.0", view, headline, model: "9f3c2a11", variable: "model", code: `modlab.${view}(model)`, foot: "no value read", live: false, ...more,
  };
}

export function entry(name: string, shape: number[] | null, more: Partial<Entry> = {}): Entry {
  const count = shape ? shape.reduce((a, b) => a * b, 1) : 0;
  return {
    name, kind: "parameter", shape, shapeText: shape ? shape.join("×") || "scalar" : "", dtype: "f32", device: "cpu", count, countText: String(count),
    bytesText: `${4 * count} B`, trainable: true, persistent: true, tied: null, note: "", here: "", placement: "", sharding: [], ...more,
  };
}

export function subtree(type: string, more: Partial<Subtree> = {}): Subtree {
  const total = more.total ?? 0;
  const text = total.toLocaleString("en");
  return {
    type, category: "own", extra: "", class: -1, training: true, flags: [], tensors: [], runs: [], ghosts: [], own: 0, total, trainable: total,
    buffers: 0, bytes: 4 * total, totalText: text, ownText: "0", bytesText: `${4 * total} B`, dtypes: ["float32"], devices: ["cpu"], lazy: 0, modules: 1, unit: null, ...more,
  };
}

const named = (...names: string[]): string[] => names;
const run = (names: Run[0], index: number, link: Run[2] = null): Run => [names, index, link];

/** GPT2LMHeadModel as in the look: twelve equal blocks, a tied head, a list that hides three modules. */
export function gpt2(): Sample {
  const entries = [
    entry("weight", [50257, 768]), entry("weight", [1024, 768]), entry("weight", [768]), entry("bias", [768]),
    entry("weight", [768, 2304]), entry("bias", [2304]), entry("weight", [768, 768]), entry("weight", [768, 3072]), entry("bias", [3072]),
    entry("weight", [3072, 768]), entry("weight", [50257, 768], { tied: [2, "transformer.wte.weight"] }),
    entry("bias", [1, 1, 1024, 1024], { kind: "buffer", persistent: false, trainable: false }),
  ];
  const subtrees = [
    subtree("Embedding", { category: "embedding", extra: "50257, 768", tensors: [0], total: 38597376, own: 38597376, totalText: "38.6 M", ownText: "38.6 M" }),
    subtree("Embedding", { category: "embedding", extra: "1024, 768", tensors: [1], total: 786432, own: 786432, totalText: "786 k" }),
    subtree("Dropout", { category: "dropout", extra: "p=0.1, inplace=False", totalText: "0" }),
    subtree("LayerNorm", { category: "norm", extra: "(768,), eps=1e-05, elementwise_affine=True", tensors: [2, 3], total: 1536, own: 1536, class: 1 }),
    subtree("Conv1D", { category: "linear", extra: "nf=2304, nx=768", tensors: [4, 5], total: 1771776, own: 1771776, totalText: "1.77 M", ownText: "1.77 M", class: 0, bytesText: "7.1 MB" }),
    subtree("Conv1D", { category: "linear", extra: "nf=768, nx=768", tensors: [6, 3], total: 590592, own: 590592, totalText: "591 k", class: 0 }),
    subtree("GPT2Attention", { tensors: [11], runs: [run(named("c_attn"), 4), run(named("c_proj"), 5), run(named("attn_dropout"), 2), run(named("resid_dropout"), 2)], total: 2362368, totalText: "2.36 M", bytesText: "9.4 MB", class: 2 }),
    subtree("Conv1D", { category: "linear", extra: "nf=3072, nx=768", tensors: [7, 8], total: 2362368, own: 2362368, totalText: "2.36 M", class: 0 }),
    subtree("Conv1D", { category: "linear", extra: "nf=768, nx=3072", tensors: [9, 3], total: 2360064, own: 2360064, totalText: "2.36 M", class: 0 }),
    subtree("NewGELUActivation", { category: "activation" }),
    subtree("GPT2MLP", { runs: [run(named("c_fc"), 7), run(named("c_proj"), 8), run(named("act"), 9), run(named("dropout"), 2)], total: 4722432, totalText: "4.72 M" }),
    subtree("GPT2Block", { runs: [run(named("ln_1"), 3), run(named("attn"), 6), run(named("ln_2"), 3), run(named("mlp"), 10)], total: 7087872, totalText: "7.09 M", bytesText: "28.4 MB" }),
    subtree("ModuleList", { category: "container", runs: [run({ from: 0, to: 11 }, 11)], total: 85054464, totalText: "85.1 M" }),
    subtree("GPT2Model", { runs: [run(named("wte"), 0), run(named("wpe"), 1), run(named("drop"), 2), run(named("h"), 12), run(named("ln_f"), 3)], total: 124439808, totalText: "124.4 M" }),
    subtree("Linear", { category: "linear", extra: "in_features=768, out_features=50257, bias=False", tensors: [10], total: 38597376, own: 38597376, totalText: "38.6 M" }),
    subtree("GPT2LMHeadModel", {
      runs: [run(named("transformer"), 13), run(named("lm_head"), 14)], total: 124439808, totalText: "124.4 M", bytesText: "498 MB", class: 2,
      ghosts: [{ name: "adapters", what: "list of 3 Linear", where: "in a Python list", reason: "not trained, not moved, not saved", fix: "self.adapters = nn.ModuleList(self.adapters)", advice: "", parameters: 6912, parametersText: "6,912", harmless: false }],
    }),
  ];
  const classes = [
    { name: "Conv1D", where: "transformers/pytorch_utils.py:98", signature: "forward(x)", doc: "1D-convolutional layer as defined by Radford et al. for OpenAI GPT (and also used in GPT-2).\n\nBasically works like a linear layer but the weights are transposed.", code: "class Conv1D(nn.Module):\n    def forward(self, x):\n        size_out = x.size()[:-1] + (self.nf,)\n        x = torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight)\n        return x.view(size_out)\n", codeNote: "" },
    { name: "LayerNorm", where: "torch/nn/modules/normalization.py:107", signature: "forward(input: Tensor) -> Tensor", doc: "Applies Layer Normalization over a mini-batch of inputs.", code: "", codeNote: "the code is not at hand" },
    { name: "GPT2", where: "transformers/models/gpt2/modeling_gpt2.py:1", signature: "forward(input_ids=None, past_key_values=None, …)", doc: "The GPT2 Model transformer with a language modeling head on top.", code: "", codeNote: "" },
  ];
  return common("tree", ["GPT2LMHeadModel: 124,439,808 parameters in 163 modules;", "one weight is tied (lm_head = transformer.wte), 3 modules are hidden in a list."], {
    modules: 163, places: 163, subtrees, entries, classes, foot: "made in 1.4 ms",
  });
}

/** A net of which an output holds only the beginning. */
export function bounded(): Sample {
  const note = (what: string, parameters = 0): Subtree["ghosts"][number] => ({
    name: "…", what, where: "", reason: "left out to keep this output small", fix: "tree.widget()  # has all", advice: "", parameters, parametersText: parameters.toLocaleString("en"), harmless: true,
  });
  const subtrees = [
    subtree("Linear", { category: "linear", tensors: [0], total: 4, own: 4 }),
    subtree("Wide", { tensors: [0], ghosts: [note("2,900 more tensors"), { ...note("30 more"), reason: "", fix: "" }], total: 4, own: 4 }),
    subtree("Net", { runs: [run(named("layer"), 0), run(named("wide"), 1)], ghosts: [note("3,000 more children", 12000)], total: 12008 }),
  ];
  return common("tree", ["Net: 12,008 parameters", ""], { modules: 3003, places: 3003, subtrees, entries: [entry("weight", [2, 2])], classes: [] });
}

/** BigNet of the note with one of everything: alias, reserved, recursion, frozen, eval, lazy, hooks. */
export function bigNet(): Sample {
  const entries = [
    entry("weight", [2, 4]), entry("bias", [2]), entry("weight", null, { note: "lazy: no shape until the first forward pass" }),
    entry("bias", null, { kind: "reserved", trainable: false, note: "reserved for a parameter" }), entry("weight", [3, 2], { trainable: false }),
  ];
  const subtrees = [
    subtree("MyLinear", { category: "own", tensors: [0, 1], total: 10, own: 10, trainable: 10 }),
    subtree("LazyLinear", { category: "linear", extra: "in_features=0, out_features=3, bias=False", tensors: [2, 3], lazy: 1, flags: ["lazy"] }),
    subtree("MyLinear", { tensors: [4], total: 6, own: 6, trainable: 0, training: false, flags: ["frozen", "2 hooks"] }),
    subtree("Net", { runs: [run(named("l0"), 0), run(named("l1"), 1), run(named("norm"), -1)], total: 10, lazy: 1 }),
    subtree("BigNet", { runs: [run(named("l1"), 2), run(named("net"), 3), run(named("again"), 0, [1, "net.l0"]), run(named("self"), -1, [1, ""])], total: 16, trainable: 10, lazy: 1, flags: ["partly frozen"] }),
  ];
  return common("tree", ["BigNet: 16 parameters so far in 5 modules,", "2 tensors have no shape yet."], { modules: 5, places: 6, subtrees, entries, classes: [], variable: "net" });
}

/** A mixture of experts: 58 equal layers of 256 experts, and a few layers before. */
export function experts(layers = 58, each = 256): Sample {
  const entries = [entry("weight", [2048, 7168]), entry("weight", [7168, 2048])];
  const subtrees = [
    subtree("Linear", { category: "linear", extra: "in_features=7168, out_features=2048, bias=False", tensors: [0], total: 14680064, own: 14680064, totalText: "14.7 M" }),
    subtree("Linear", { category: "linear", extra: "in_features=2048, out_features=7168, bias=False", tensors: [1], total: 14680064, own: 14680064, totalText: "14.7 M" }),
    subtree("Expert", { runs: [run(named("gate", "up"), 0), run(named("down"), 1)], total: 44040192, totalText: "44 M" }),
    subtree("ModuleList", { category: "container", runs: [run({ from: 0, to: each - 1 }, 2)], total: 44040192 * each, totalText: "11.3 G" }),
    subtree("MoE", { runs: [run(named("router"), 0), run(named("experts"), 3)], total: 44040192 * each, totalText: "11.3 G" }),
    subtree("DecoderLayer", { runs: [run(named("mlp"), 4)], total: 44040192 * each, totalText: "11.3 G" }),
    subtree("ModuleList", { category: "container", runs: [run({ from: 0, to: layers - 1 }, 5)], total: 44040192 * each * layers, totalText: "654 G" }),
    subtree("DeepSeek", { runs: [run(named("layers"), 6)], total: 44040192 * each * layers, totalText: "654 G", flags: ["meta"] }),
  ];
  const places = 2 + layers * (4 + 4 * each);
  return common("tree", ["DeepSeek: 654 G parameters", `in ${places.toLocaleString("en")} modules.`], { modules: places, places, subtrees, entries, classes: [] });
}

/** One module inside the other. */
export function deep(levels = 10_000): Sample {
  const entries = [entry("weight", [2, 2])];
  const subtrees = [subtree("Linear", { category: "linear", tensors: [0], total: 4, own: 4 })];
  for (let level = 1; level < levels; level += 1) subtrees.push(subtree("Sequential", { category: "container", runs: [run(named("0"), level - 1)], total: 4 }));
  return common("tree", ["Sequential: 4 parameters", "10,000 levels deep."], { modules: levels, places: levels, subtrees, entries, classes: [] });
}

/** As before Python gave the word `trained`, unless it is in `more`. */
export function signature(kind: string, shape: number[] | null, more: Partial<Signature> = {}): Omit<Signature, "trained"> & Partial<Signature> {
  const count = shape ? shape.reduce((a, b) => a * b, 1) : 0;
  return {
    kind, shape, shapeText: shape ? shape.join("×") || "scalar" : "", dtype: shape ? "f32" : "", device: shape ? "cpu" : "", count, countText: String(count), bytes: 4 * count,
    bytesText: shape ? `${4 * count} B` : "", trainable: kind === "parameter", persistent: true, saved: kind !== "attribute" && kind !== "reserved", grad: kind === "parameter" ? "none" : "",
    tied: null, note: "", mark: "", optimizer: [], here: "", placement: "", sharding: [], ...more,
  };
}

/** The note's StatefulModule under an optimizer that misses a parameter. */
export function stateful(): { json: Sample; arrays: Parameters<typeof pack>[1] } {
  const adam = { label: "AdamW #0", lr: "0.001", decay: "0.01", state: ["exp_avg 4×3", "exp_avg_sq 4×3", "step"] };
  const signatures = [
    signature("parameter", [4, 3], { optimizer: [adam], grad: "present" }),
    signature("parameter", [4], { mark: "in no group", grad: "zero" }),
    signature("reserved", null, { note: "reserved for a parameter" }),
    signature("buffer", [3, 3]),
    signature("buffer", [5], { persistent: false, saved: false }),
    signature("parameter", [4, 3], { tied: [2, "param1"], optimizer: [adam], trainable: false }),
    signature("attribute", [2], { note: "a plain tensor attribute: not moved, not saved" }),
  ];
  const nodes: StateNode[] = [
    { type: "Linear", slots: [["weight", 0], ["bias", 1]], runs: [] },
    { type: "StatefulModule", slots: [["param1", 0], ["param2", 1], ["param3", 2], ["buffer1", 3], ["buffer2", 4], ["again", 5], ["loose", 6]], runs: [[["submodule"], 0], [{ from: 0, to: 2 }, 0]] },
  ];
  const data = Float32Array.from([0.92, -0.08, 0.69, 0.45, 0.43, -0.6, 0.05, -0.86, Number.NaN, -0.31, Number.POSITIVE_INFINITY, 0]);
  const counts = Uint32Array.from([1, 2, 4, 9, 20, 34, 50, 61, 50, 33, 21, 9, 3, 2, 1, 1]);
  const big = Float32Array.from({ length: 64 * 96 }, (_, i) => (i === 777 ? Number.NaN : Math.sin(i / 7) * Math.cos(i / 500)));
  const stats = [["mean", "0.0001"], ["std", "0.0200"], ["min", "−0.9"], ["max", "0.92"], ["zeros", "1"], ["NaN", "1"], ["Inf", "1"]];
  const values = {
    param1: {
      title: "param1", stats, nan: 1, inf: 1, note: "", bars: { counts: "c", lo: "−0.9", hi: "0.92", low: -0.9, high: 0.92, note: "" },
      grid: { array: "g", slice: "[0:4, 0:3]", whole: true, texts: Array.from(data, (value) => (Number.isNaN(value) ? "NaN" : Number.isFinite(value) ? value.toFixed(2) : "Inf")), limit: 0.92, signed: true, shapeText: "4×3" },
    },
    buffer1: {
      title: "buffer1", stats: stats.slice(0, 4), nan: 1, inf: 0, note: "", bars: { counts: "c", lo: "−1", hi: "1", low: -1, high: 1, note: "of 4,096 sampled values" },
      grid: { array: "h", slice: "[0:64, 0:96]", whole: false, texts: null, limit: 1, signed: true, shapeText: "768×2304" },
    },
  };
  const json = common("state", ["StatefulModule holds 18 tensors: 4 are not in the state_dict,", "4 parameters are in no group of the optimizer."], {
    nodes, signatures, optimizer: true, orphans: ["exp_avg of a tensor 3×3"], remarks: ["net: a state_dict hook"], summary: { rows: 15, saved: 12, text: "" }, values, valuesNote: "asked for: state[path] or .widget()",
  });
  return {
    json,
    arrays: {
      g: { dtype: "float32", shape: [4, 3], data },
      c: { dtype: "uint32", shape: [16], data: counts },
      h: { dtype: "float32", shape: [64, 96], data: big },
    },
  };
}

/** Names and texts that try to be more than text. */
export const HOSTILE = ['<img src=x onerror="globalThis.hacked=1">', "</script><script>globalThis.hacked=1</script>", "$x^2$", "‮evil", "`\"'\\", "x".repeat(1_000_000)];

export function hostile(): Sample {
  const [image, script, tex, right, quotes, long] = HOSTILE as [string, string, string, string, string, string];
  const entries = [entry(image, [2], { note: script, dtype: tex, device: right })];
  const subtrees = [
    subtree(image, { extra: script, tensors: [0], class: 0, flags: [tex], total: 2, own: 2 }),
    subtree(script, { extra: long, runs: [run([image, script, tex], 0), run([right], 0), run([quotes], 0), run([long], -1)], total: 10, class: 0, ghosts: [{ name: image, what: script, where: image, reason: tex, fix: image, advice: "", parameters: 0, parametersText: "", harmless: false }] }),
  ];
  const classes = [{ name: image, where: image, signature: script, doc: image, code: script + long, codeNote: "" }];
  return common("tree", [image, script], { modules: 6, places: 6, subtrees, entries, classes, variable: "model", foot: image, code: script });
}

/** A net of the note that stopped in `net.l1`, as the look shows it; `more` rows stand behind. */
export function explained(more: Sample[] = []): Sample {
  const row = (path: string, name: string, kind: string, depth: number, flow: unknown[], share: number, rest: Sample = {}): Sample => ({
    path, name, kind, depth, symbol: "own", cells: [{ text: "", flow, ...(rest.mark ? { mark: rest.mark } : {}) }, { text: "", share }], ...rest,
  });
  return common("explain", ["net.l1 got 2 numbers and has weights for 3.", "BigNet stopped in its 5th event."], {
    layout: "sheet", title: "module", empty: "",
    columns: [{ title: "what flows", kind: "flow", width: 170, grows: 3, yields: 1 }, { title: "time", kind: "bar", width: 90, grows: 0, yields: 3 }],
    rows: [
      row("", "(root)", "BigNet", 0, [[5], "→", "RuntimeError in net.l1"], 0.6, { mark: "broken" }),
      row("l1", "l1", "MyLinear", 1, [[5], "→", [4]], 0.2, { symbol: "linear", details: [{ caption: "output", rows: [["mean", "0.5"], ["std", "1"]] }] }),
      row("net", "net", "Net", 1, [[4], "→", "stopped inside"], 0.35, { mark: "broken" }),
      row("net.l0", "l0", "MyLinear", 2, [[4], "→", [2]], 0.14, { symbol: "linear" }),
      { name: "F.relu", kind: "function", depth: 2, symbol: "function", note: "no module: not in the tree", cells: ["2 → 2", { text: "1 ms", share: 0.02 }] },
      row("net.l1", "l1", "MyLinear", 2, [[2], "·", [3, 1, null], "→", "inner sizes 2 ≠ 3"], 0.08, {
        symbol: "linear", mark: "broken", note: "weight 3×1",
        details: [
          { caption: "why", mark: "broken", prose: "(2) @ (3×1) has inner sizes 2 and 3.\nThey must be equal." },
          { caption: "tensors", head: ["name", "shape"], rows: [["weight", "3×1"], ["bias", "1"]] },
          { caption: "put right", code: "self.l1 = MyLinear(2, 1)" },
        ],
      }),
      ...more,
    ],
    notes: [{ caption: "Fix", prose: "make l0 give 3 numbers", code: "self.l0 = MyLinear(4, 3)" }, { prose: "not seen: what NumPy computed" }],
  });
}

/** Checks without depth, with marks, a table of values beside each other and columns that give way. */
export function checked(): { json: Sample; arrays: Parameters<typeof pack>[1] } {
  const values = (title: string): Sample => ({
    title, stats: [["mean", "1"]], nan: 0, inf: 0, note: "", bars: null, grid: { array: "g", slice: "[0:2, 0:2]", whole: true, texts: ["1", "2", "3", "4"], limit: 4, signed: true, shapeText: "2×2" },
  });
  const check = (name: string, mark: string, path: string, rest: Sample = {}): Sample => ({ name, mark, depth: 0, path, cells: ["seen", "why", { text: "8 of 10", share: 0.8 }, "12"], ...rest });
  const json = common("diagnose", ["Unit 1 of l0 is dead:", "zero for all inputs."], {
    layout: "sheet", title: "check", empty: "",
    columns: [{ title: "what", kind: "words", width: 300, grows: 1, yields: 1 }, { title: "why", kind: "words", width: 300, yields: 4 }, { title: "rows", kind: "code", width: 300, yields: 4 }, { title: "count", kind: "number", width: 80, yields: 0 }],
    rows: [
      check("data arrives", "fine", ""),
      check("it moves", "careful", "l0", { details: [{ caption: "", values: [values("before"), values("after")] }] }),
      check("the loss falls", "absent", "l1", { note: "no loss was given" }),
    ],
    notes: [],
  });
  return { json, arrays: { g: { dtype: "float32", shape: [2, 2], data: Float32Array.from([1, 2, 3, 4]) } } };
}

/** So many rows, ten below each of them. */
export function many(rows: number): Sample {
  const made = Array.from({ length: rows }, (_, index) => ({ path: `m${index}`, name: `m${index}`, kind: "Linear", depth: index % 11 ? 1 : 0, symbol: "linear", cells: [`${index}`] }));
  return common("trace", ["Many rows.", ""], { layout: "sheet", columns: [{ title: "number", kind: "number" }], rows: made });
}
