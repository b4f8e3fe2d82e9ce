import { describe, expect, it } from "vitest";
import { Outline } from "../src/tree/outline";
import { complete, type TreePayload } from "../src/payload";
import { childrenOf, isOpenable, labelOf, lastPathOf, originalOf, pathOf, rootOf, stepsOf, stepsTo } from "../src/tree/place";
import { flagsOf, parametersText, tensorsText } from "../src/tree/row";
import { bigNet, deep, experts, gpt2, subtree, type Sample } from "./samples";

const tree = (sample: Sample): TreePayload => complete(sample) as TreePayload;
const opened = (of: TreePayload, most = 16): Outline => {
  const outline = new Outline(of);
  outline.openFirst(most);
  return outline;
};
const labels = (outline: Outline): string[] => outline.rows.map(({ place }) => `${"  ".repeat(place.depth)}${labelOf(outline.tree, place) || "(root)"}`);

describe("the rows of a tree", () => {
  it("opens as many levels as stay few", () => {
    expect(labels(opened(tree(gpt2())))).toEqual([
      "(root)", "  transformer", "    wte", "    wpe", "    drop", "    h", "      0 – 11", "        ln_1", "        attn", "        ln_2", "        mlp", "    ln_f", "  lm_head", "  adapters",
    ]);
  });

  it("knows each row's place among its neighbours", () => {
    const outline = opened(tree(gpt2()));
    expect(outline.rows.filter((row) => row.place.depth === 1).map((row) => [row.position, row.size])).toEqual([[1, 3], [2, 3], [3, 3]]);
  });

  it("unfolds a run into its members and folds it back, keeping what is open", () => {
    const outline = opened(tree(gpt2()));
    const run = outline.rows[6]?.place;
    expect(lastPathOf(outline.tree, run!)).toBe("transformer.h.11");
    const first = outline.refold(run!);
    expect(pathOf(outline.tree, first!)).toBe("transformer.h.0");
    expect(outline.rows.filter((row) => row.place.depth === 3).length).toBe(12);
    expect(outline.rows.filter((row) => row.place.depth === 4).map((row) => pathOf(outline.tree, row.place))[0]).toBe("transformer.h.0.ln_1");
    const back = outline.refold(outline.rows[10]!.place);
    expect(labelOf(outline.tree, back!)).toBe("0 – 11");
    expect(labels(outline).length).toBe(14);
  });

  it("takes one member out of a run to show it, and keeps the rest folded", () => {
    const outline = opened(tree(gpt2()));
    const place = outline.reveal(stepsTo(outline.tree, "transformer.h.5.attn.c_attn")!);
    expect(pathOf(outline.tree, place!)).toBe("transformer.h.5.attn.c_attn");
    expect(outline.rows.filter((row) => row.place.depth === 3).map((row) => labelOf(outline.tree, row.place))).toEqual(["0 – 4", "5", "6 – 11"]);
    outline.reveal(stepsTo(outline.tree, "transformer.h.6")!);
    expect(outline.rows.filter((row) => row.place.depth === 3).map((row) => labelOf(outline.tree, row.place))).toEqual(["0 – 4", "5", "6 – 11"]);
    const head = outline.reveal(stepsTo(outline.tree, "transformer.h.0.mlp")!);
    expect(outline.indexOf(head!)).toBeGreaterThan(0);
  });

  it("unfolds a very long run into shorter ones first", () => {
    const outline = new Outline(tree({ view: "tree", subtrees: [subtree("Linear"), subtree("Many", { runs: [[{ from: 0, to: 999_999 }, 0, null]] })] }));
    outline.open(outline.root);
    outline.refold(outline.rows[1]!.place);
    expect(outline.rows.length).toBe(1001);
    expect(labelOf(outline.tree, outline.rows[2]!.place)).toBe("1000 – 1999");
    outline.refold(outline.rows[2]!.place);
    expect(outline.rows.length).toBe(2000);
  });

  it("holds thousands of unfolded rows", () => {
    const outline = opened(tree(experts()));
    const run = outline.rows.find((row) => labelOf(outline.tree, row.place) === "0 – 255");
    outline.refold(run!.place);
    expect(outline.rows.length).toBeGreaterThan(256);
  });

  it("opens 10,000 levels", () => {
    const outline = new Outline(tree(deep()));
    for (let place = outline.root; isOpenable(outline.tree, place); place = childrenOf(outline.tree, place)[0]!) outline.open(place);
    expect(outline.rows.length).toBe(10_000);
    expect(stepsTo(outline.tree, pathOf(outline.tree, outline.rows[9_999]!.place))?.length).toBe(9_999);
  });

  it("opens all neighbours", () => {
    const outline = opened(tree(gpt2()));
    outline.openSiblings(outline.rows[8]!.place);
    expect(outline.rows[8]!.place.open && outline.rows[14]!.place.open).toBe(true);
  });

  it("goes back from a place to its steps", () => {
    const outline = opened(tree(gpt2()));
    const steps = stepsTo(outline.tree, "transformer.h.3.mlp")!;
    expect(stepsOf(outline.reveal(steps)!)).toEqual(steps);
    expect(stepsTo(outline.tree, "transformer.h.12")).toBeNull();
    expect(stepsTo(outline.tree, "")).toEqual([]);
  });

  it("survives a tree without a root", () => {
    expect(new Outline(tree({ view: "tree" })).rows.length).toBe(1);
  });
});

describe("what a row says", () => {
  const big = tree(bigNet());
  const outline = opened(big);
  const row = (name: string) => outline.rows.find(({ place }) => pathOf(big, place) === name)!.place;

  it("names aliases, reserved names and modules that contain themselves", () => {
    expect([row("again").kind, originalOf(big, row("again"))]).toEqual(["alias", "net.l0"]);
    expect(row("net.norm").kind).toBe("reserved");
    expect([row("self").kind, originalOf(big, row("self"))]).toEqual(["recursion", ""]);
  });

  it("shows a mode that differs from the root's", () => {
    expect(flagsOf(big, row("l1"))).toContain("eval");
    expect(flagsOf(big, row("net"))).toEqual([]);
  });

  it("says what is not there yet", () => {
    expect(tensorsText(big, row("net.l1"))).toBe("lazy");
    expect(parametersText(big, row("net.l1"))).toBe("not yet");
    expect(parametersText(big, row("net"))).toBe("≥ 10");
  });

  it("says whose tied weights are", () => {
    const gpt = opened(tree(gpt2()));
    expect(parametersText(gpt.tree, gpt.rows[12]!.place)).toBe("⇄ wte");
    expect(parametersText(gpt.tree, rootOf(gpt.tree))).toBe("124.4 M");
  });
});
