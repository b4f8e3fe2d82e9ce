import { describe, expect, it } from "vitest";
import { Automaton } from "../src/search/automaton";
import { Outline } from "../src/tree/outline";
import { complete, type TreePayload } from "../src/payload";
import { labelOf, pathOf } from "../src/tree/place";
import { parse } from "../src/search/query";
import { search } from "../src/tree/search";
import { bigNet, deep, experts, gpt2, type Sample } from "./samples";

const tree = (sample: Sample): TreePayload => complete(sample) as TreePayload;

function hits(of: TreePayload, text: string, flags: string[] = []): string[] {
  const found = search(of, parse(text, flags));
  const outline = new Outline(of, found.root);
  return outline.rows.filter((row) => row.place.hit).map((row) => (row.place.count > 1 ? `${pathOf(of, row.place)} (${labelOf(of, row.place)})` : pathOf(of, row.place)));
}

describe("a word's automaton", () => {
  it.each([
    ["attn", "h.0.attn.c_attn", true], ["attn", "h.0.mlp", false], ["0.at", "h.0.attn", true], ["ATTN", "h.attn", true],
    ["*.attn", "h.0.attn", true], ["*.attn", "h.0.attn.c", false], ["h.*.c_?ttn", "transformer.h.0.attn.c_attn", true], ["?", "ab", false],
    ["l?yers.*", "layers.7.up", true], ["*", "", true], ["aab", "aaab", true], ["*a*b*", "xxaxxbxx", true], ["é*", "épine", true],
  ])("%s in %s: %s", (pattern, text, expected) => {
    expect(new Automaton(pattern, /[*?]/.test(pattern)).matches(text)).toBe(expected);
  });
});

describe("search", () => {
  const gpt = tree(gpt2());

  it("finds by path, and leaves equal members folded where they match alike", () => {
    expect(hits(gpt, "wte")).toEqual(["transformer.wte"]);
    expect(hits(gpt, "c_attn")).toEqual(["transformer.h.0.attn.c_attn"]);
    expect(search(gpt, parse("c_attn")).modules).toBe(12);
  });

  it("takes one member out of its run when it alone matches", () => {
    expect(hits(gpt, "h.7.attn")).toEqual(["transformer.h.7.attn"]);
    expect(hits(gpt, "h.7 conv1d")).toEqual(["c_attn", "c_proj"].map((name) => `transformer.h.7.attn.${name}`).concat(["c_fc", "c_proj"].map((name) => `transformer.h.7.mlp.${name}`)));
  });

  it("does not repeat what stands below a match", () => {
    expect(hits(gpt, "attn")).toContain("transformer.h.0.attn");
    expect(hits(gpt, "attn")).not.toContain("transformer.h.0.attn.c_proj");
    expect(hits(gpt, "*.attn.*")).toContain("transformer.h.0.attn.c_proj");
  });

  it.each([
    ["gpt2mlp", "transformer.h.0.mlp"], ["3072x768", "transformer.h.0.mlp.c_proj"], ["50257", "transformer.wte lm_head"], ["768×2304", "transformer.h.0.attn.c_attn"], ["tied", "lm_head"], ["hidden", "adapters"], ["p=0.1", "transformer.drop"],
  ])("%s", (text, first) => {
    for (const path of first.split(" ")) expect(hits(gpt, text)).toContain(path);
  });

  it("asks chips for flags alone", () => {
    const big = tree(bigNet());
    expect(hits(big, "", ["eval"])).toEqual(["l1"]);
    expect(hits(big, "", ["frozen"])).toEqual(["l1"]);
    expect(hits(big, "", ["trainable"])).toEqual(["net.l0", "net.l1", "again"]);
    expect(hits(big, "lazy")).toEqual(["net.l1"]);
    expect(hits(big, "hooks")).toEqual(["l1"]);
    expect(hits(big, "reserved")).toContain("net.norm");
  });

  it("counts every member of a large mixture of experts, and answers for one by its own name", () => {
    const moe = tree(experts());
    const found = search(moe, parse("experts.17.up"));
    expect(found.modules).toBe(58);
    expect(hits(moe, "layers.3.mlp.experts.17.up")).toEqual(["layers.3.mlp.experts.17.up"]);
    expect(search(moe, parse("linear")).modules).toBe(58 * (1 + 3 * 256));
    expect(search(moe, parse("5")).modules).toBeGreaterThan(1000);
  });

  it("matches a brute-force search of all paths", () => {
    const small = tree(experts(3, 12));
    const all = paths(small);
    for (const text of ["1", "experts.1", "s.1", "up", "*.1", "experts.*.down", "1.mlp"]) {
      const glob = /[*?]/.test(text);
      const machine = new Automaton(text, glob);
      const expected = all.filter((path) => {
        if (glob) return machine.matches(path);
        const above = path.includes(".") ? path.slice(0, path.lastIndexOf(".")) : "";
        return [...path.matchAll(new RegExp(`(?=${text.replace(".", "\\.")})`, "g"))].some((match) => match.index + text.length > above.length && path.startsWith(text, match.index));
      });
      expect(search(small, parse(text)).modules, text).toBe(expected.length);
    }
  });

  it("says when it does not list all, and lists as many as it says", () => {
    const moe = tree(experts(58, 256));
    const found = search(moe, parse("7"), 5);
    expect(found.capped).toBe(true);
    expect(new Outline(moe, found.root).rows.filter((row) => row.place.hit).length).toBe(5);
  });

  it("goes 10,000 levels down", () => {
    const down = tree(deep());
    const found = search(down, parse("linear"));
    expect(found.modules).toBe(1);
    expect(new Outline(down, found.root).rows.length).toBe(10_000);
  });

  it("finds nothing where nothing is", () => {
    expect(search(gpt, parse("nowhere"))).toMatchObject({ modules: 0, others: 0, capped: false });
    expect(search(tree({ view: "tree" }), parse("x")).modules).toBe(0);
  });
});

function paths(of: TreePayload): string[] {
  const outline = new Outline(of);
  for (let index = 0; index < outline.rows.length; index += 1) {
    const place = outline.rows[index]?.place;
    if (place && place.count > 1) outline.refold(place);
    const now = outline.rows[index]?.place;
    if (now) outline.open(now);
  }
  return outline.rows.map((row) => pathOf(of, row.place)).filter(Boolean);
}
