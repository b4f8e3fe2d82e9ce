/** Units of a small net in words. */
import type { WatchData } from "./data";
import { counted, figure, percent, placeWords } from "./figures";
import { countedIn, rateOf, unitName, type Pair, type Trouble } from "./neuron-facts";
import type { Limits } from "./neuron-picture";
import type { Spot } from "./neuron-layout";

/** Weights that are said one by one; of more, the largest. */
const FEW = 6;

/** All that is known of one unit at a moment: lines for eyes and for ears. */
export function unitWords(data: WatchData, slot: number, step: number, [column, unit]: Spot, troubles: readonly Trouble[], pairs: readonly Pair[]): string[] {
  const layer = column - 1;
  const name = unitName(data, layer, unit);
  const out = outgoing(data, slot, layer, unit);
  if (layer < 0) return [`${name}: an input`, ...out];
  const neurons = data.neurons(layer);
  const trouble = troubles.find((some) => some.layer === layer && some.unit === unit);
  const pair = pairs.find((some) => some.layer === layer && some.units.includes(unit));
  const state = trouble ? `, ${trouble.kind === "silent" ? `silent ${trouble.text}` : trouble.kind}` : pair ? `, cancels ${unitName(data, layer, pair.units[pair.units[0] === unit ? 1 : 0])}` : "";
  const index = countedIn(data, layer);
  const rate = index < 0 ? null : rateOf(data.units(index), unit, step);
  return [
    `${name}${state}: activation ${figure(neurons.activations(slot)[unit] ?? Number.NaN)}, gradient ${figure(neurons.gradients(slot)[unit] ?? Number.NaN)}`,
    ...(trouble?.kind === "dead" ? [trouble.text] : rate ? [`fires on ${percent(rate.first)} of the inputs at first, on ${percent(rate.now)} now`] : []),
    ...incoming(data, slot, layer, unit),
    ...out,
  ];
}

function incoming(data: WatchData, slot: number, layer: number, unit: number): string[] {
  const inputs = data.payload.neurons?.layers[layer]?.inputs ?? 0;
  const weights = data.neurons(layer).weights(slot).subarray(unit * inputs, (unit + 1) * inputs);
  return inputs ? [`weights in: ${listed(weights, (from) => unitName(data, layer - 1, from), "from")}`] : [];
}

function outgoing(data: WatchData, slot: number, layer: number, unit: number): string[] {
  const next = data.payload.neurons?.layers[layer + 1];
  if (!next || unit >= next.inputs) return [];
  const all = data.neurons(layer + 1).weights(slot);
  const weights = Float32Array.from({ length: next.units }, (_, to) => all[to * next.inputs + unit] ?? Number.NaN);
  return [`weights out: ${listed(weights, (to) => unitName(data, layer + 1, to), "to")}`];
}

function listed(weights: ArrayLike<number>, name: (index: number) => string, way: string): string {
  const order = Array.from({ length: weights.length }, (_, index) => index);
  const size = (index: number): number => Math.abs(weights[index] as number) || Number.POSITIVE_INFINITY;
  if (order.length > FEW) order.sort((a, b) => size(b) - size(a));
  const said = order.slice(0, FEW).map((index) => `${figure(weights[index] as number)} ${way} ${name(index)}`);
  return order.length > FEW ? `the largest of ${order.length} are ${said.join(", ")}` : said.join(", ");
}

export interface Fact {
  kind: Trouble["kind"] | "cancel" | "nan" | "fine";
  /** What is pressed to go there; nothing if there is no place. */
  name: string;
  text: string;
  spot: Spot | null;
}

/** Of one layer and kind, so many are said one by one. */
const SINGLE = 3;

/** What stands below the net: each trouble, like ones of a layer together; or that there is none. */
export function factsOf(data: WatchData, slot: number, step: number, troubles: readonly Trouble[], pairs: readonly Pair[]): Fact[] {
  const facts: Fact[] = [];
  (data.payload.neurons?.layers ?? []).forEach((_, layer) => {
    facts.push(...noNumbers(data, slot, layer));
    for (const kind of ["dead", "silent", "starving"] as const) {
      const found = troubles.filter((some) => some.layer === layer && some.kind === kind).sort((a, b) => a.unit - b.unit);
      if (found.length > SINGLE) facts.push(together(data, layer, kind, found));
      else for (const { unit, text } of found) facts.push({ kind, name: unitsOf(data, layer, `unit ${unit}`), text: kind === "silent" ? `is silent ${text}` : `${kind === "dead" ? "is dead" : "starves"}: ${text}`, spot: [layer + 1, unit] });
    }
    for (const { units: [one, other], text } of pairs.filter((some) => some.layer === layer)) {
      facts.push({ kind: "cancel", name: unitsOf(data, layer, `units ${one} and ${other}`), text: `cancel: ${text}`, spot: [layer + 1, one] });
    }
  });
  return facts.length ? facts : fine(data, step);
}

/** A unit that gives NaN is not zero, and so counts as one that fires: it is said before that. */
function noNumbers(data: WatchData, slot: number, layer: number): Fact[] {
  const activations = slot < 0 ? new Float32Array() : data.neurons(layer).activations(slot);
  const units = Array.from(activations.keys()).filter((unit) => !Number.isFinite(activations[unit]));
  const [first] = units;
  if (first === undefined) return [];
  const name = unitsOf(data, layer, units.length > 1 ? `${units.length} of ${activations.length} units` : `unit ${first}`);
  return [{ kind: "nan", name, text: `${units.length > 1 ? "give" : "gives"} NaN or infinity`, spot: [layer + 1, first] }];
}

/** Units in a sentence, as Python's words have them. */
function unitsOf(data: WatchData, layer: number, units: string): string {
  return `${units} of ${placeWords(data.payload.neurons?.layers[layer]?.path ?? "?")}`;
}

function together(data: WatchData, layer: number, kind: Trouble["kind"], found: readonly Trouble[]): Fact {
  const units = found.map(({ unit }) => unit);
  const said = units.length > 12 ? `${units.slice(0, 12).join(", ")}, …` : units.join(", ");
  const silent = Math.min(...found.map((some) => some.silent));
  const evidence = kind !== "starving" && silent ? `; each is 0 for the last ${counted(silent, "input")} at least` : "";
  const of = data.payload.neurons?.layers[layer]?.units ?? 0;
  const verb = { dead: "are dead", silent: "are silent so far", starving: "starve" }[kind];
  return { kind, name: unitsOf(data, layer, `${units.length} of ${of} units`), text: `${verb}: ${said}${evidence}`, spot: [layer + 1, units[0] ?? 0] };
}

function fine(data: WatchData, step: number): Fact[] {
  let least: { layer: number; unit: number; now: number } | null = null;
  let [fires, units] = [0, 0];
  (data.payload.neurons?.layers ?? []).forEach((_, layer) => {
    const index = countedIn(data, layer);
    if (index < 0) return;
    const counts = data.units(index);
    for (let unit = 0; unit < counts.count; unit += 1) {
      const now = rateOf(counts, unit, step)?.now ?? Number.NaN;
      units += 1;
      if (now > 0) fires += 1;
      if (!least || now < least.now) least = { layer, unit, now };
    }
  });
  const rarest = least as { layer: number; unit: number; now: number } | null;
  if (!rarest || Number.isNaN(rarest.now) || fires < units) return [];
  return [{ kind: "fine", name: unitsOf(data, rarest.layer, `unit ${rarest.unit}`), text: `fires most rarely of ${counted(units, "unit")}, on ${percent(rarest.now)} of the inputs: none is dead, none starves`, spot: [rarest.layer + 1, rarest.unit] }];
}

/** What the picture is, for who does not see it. */
export function netWords(data: WatchData, step: number, facts: readonly Fact[]): string {
  const layers = data.payload.neurons?.layers ?? [];
  const built = layers.map(({ path, units }) => `${placeWords(path)} with ${counted(units, "unit")}`).join(", ");
  const said = facts.map(({ name, text }) => `${name} ${text}`).join("; ");
  return `net of ${counted(layers[0]?.inputs ?? 0, "input")}, ${built}, at step ${step.toLocaleString("en")}${said ? `; ${said}` : ""}; arrow keys go from unit to unit`;
}

export function limitWords({ weight, activation, gradient }: Limits): [weight: string, activation: string, gradient: string] {
  return [`weight ±${figure(weight, 2)}`, `activation ±${figure(activation, 2)}`, `gradient ±${figure(gradient, 2)}`];
}
