/** Tensors along a line, as boxes whose sides grow with the logarithm of their sizes, and words between them. */
import { element, svg, words } from "../elements";
import { markOf, sign } from "./marks";
import type { Cell, Part } from "./sheet";

const HIGHEST = 24;
const FLAT = 5;
const DEEPEST = 7;

/**
 * What goes in gives way to what comes out, from the last arrow on.
 * What a marked line says stands behind its last words; where it has none, its sign stands first.
 * `below`: what it says last stands in a line of its own, and only its sign here.
 */
export function flow({ flow, mark, text }: Cell, below = false): (HTMLElement | string)[] {
  if (!flow.length) return [sign(mark), words(text)].filter((part) => part !== null);
  const saying = mark ? flow.map((part) => typeof part === "string" && /\p{L}/u.test(part)).lastIndexOf(true) : -1;
  const made = flow.flatMap((part, index) => {
    if (typeof part !== "string") return [box(part)];
    const own = markOf(part) || (index === saying ? mark : "");
    if (below && index === flow.length - 1) return [sign(own) ?? ""];
    return [own ? element("span", { class: `saying ${own}` }, sign(own), " ", words(markOf(part) ? part.slice(1).trim() : part)) : words(part, "between")];
  });
  const first = saying < 0 && !flow.some((part) => typeof part === "string" && markOf(part)) ? sign(mark) : null;
  const out = Math.max(0, flow.lastIndexOf("→"));
  const halves = [made.slice(0, out), made.slice(out)].map((half, index) => element("span", { class: index ? "outputs" : "inputs" }, ...half));
  return [first, ...(out ? halves : halves.slice(1))].filter((part) => part !== null);
}

/** About how many pixels it takes, of so many a character in sizes and in what is said. */
export function flowLength({ flow, mark }: Cell, below: boolean, code: number, words: number): number {
  return flow.reduce((sum, part, index) => {
    if (typeof part !== "string") return sum + 16 + measures(sizesOf(part))[0] + measures(sizesOf(part))[2] + code * sizesText(sizesOf(part)).length;
    if (below && index === flow.length - 1) return sum + 17;
    return sum + 5 + (markOf(part) || mark ? words : code) * part.length;
  }, mark ? 17 : 0);
}

/** The same in words. */
export function flowText(flow: readonly Part[]): string {
  return flow.map((part) => (typeof part === "string" ? part : [sizesText(sizesOf(part)), lies(part)].filter(Boolean).join(" "))).join(" ");
}

export function sizesOf(part: Exclude<Part, string>): number[] {
  return part.filter((size) => typeof size === "number");
}

function sizesText(sizes: readonly number[]): string {
  return sizes.join("×") || "scalar";
}

/** What this rank holds of a tensor that lies over several; nothing where it lies on one. */
function hereOf(part: Exclude<Part, string>): readonly number[] | undefined {
  return part.find((one) => typeof one === "object" && one !== null) as readonly number[] | undefined;
}

/** How it lies, and what of it is here: "[16×32 here, columns over tp]". */
function lies(part: Exclude<Part, string>): string {
  const here = hereOf(part);
  return here ? `[${sizesText(here)} here, ${part.find((one) => typeof one === "string") ?? ""}]` : "";
}

function box(part: Exclude<Part, string>): HTMLElement {
  const sizes = sizesOf(part);
  const fits = !part.includes(null);
  const told = [fits ? "" : "does not fit", lies(part)].filter(Boolean).join(" ");
  return element("span", { class: fits ? "sized" : "sized broken", title: told || null }, drawing(sizes, hereOf(part) ?? sizes), sizesText(sizes));
}

export function side(size: number): number {
  return 6 + 2.1 * Math.log2(Math.max(1, size));
}

/** The last size runs right, the one before it down, all others into the depth; what is too high for a row is drawn smaller. */
export function measures(sizes: readonly number[]): [width: number, height: number, depth: number] {
  const [height = 0, width = 1] = sizes.slice(-2).length < 2 ? [0, ...sizes] : sizes.slice(-2);
  const others = sizes.slice(0, -2).reduce((product, size) => product * Math.max(1, size), 1);
  const depth = sizes.length > 2 ? Math.min(DEEPEST, 2 + 0.5 * Math.log2(others)) : 0;
  const [wide, high] = [sizes.length ? side(width) : FLAT, sizes.length < 2 ? FLAT : side(height)];
  const scale = Math.min(1, (HIGHEST - depth) / high);
  return [scale * wide, scale * high, depth];
}

/** The whole as an outline; filled is what is here: a part of its width, or of its height. */
function drawing(sizes: readonly number[], here: readonly number[]): SVGElement {
  const [width, height, depth] = measures(sizes).map((length) => Math.round(2 * length) / 2) as [number, number, number];
  const edges = depth ? `M1 ${1 + depth}l${depth}-${depth}h${width}l-${depth} ${depth}M${1 + width + depth} 1v${height}l-${depth} ${depth}` : "";
  const [wide, high] = [width + depth + 2, height + depth + 2];
  const [right, down] = [-1, -2].map((at) => (here.at(at) ?? 1) / (sizes.at(at) || 1)) as [number, number];
  const box = (class_: string | null, share = 1, of = 1): SVGElement => svg("path", { class: class_, d: `M1 ${1 + depth}h${width * share}v${height * of}h-${width * share}z` });
  return svg(
    "svg",
    { class: "box", width: wide, height: high, viewBox: `0 0 ${wide} ${high}`, "aria-hidden": "true" },
    box(sizes.includes(0) ? "none" : null),
    right < 1 || down < 1 ? box("here", right, down) : null,
    depth ? svg("path", { class: "edges", d: edges }) : null,
  );
}
