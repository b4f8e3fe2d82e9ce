import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { complete, decode, type StatePayload, type TreePayload } from "../src/payload";
import { completeSheet } from "../src/sheet/sheet";
import { common, gpt2, pack, stateful } from "./samples";

const FIXTURES = join(import.meta.dirname, "../../tests/fixtures");

describe("decode", () => {
  it("gives back what was packed, numbers on their places", () => {
    const { json, arrays } = stateful();
    const { json: read, numbers } = decode(pack(json, arrays));
    expect(read.view).toBe("state");
    expect(Array.from(numbers("c")).slice(0, 3)).toEqual([1, 2, 4]);
    expect(numbers("g").shape).toEqual([4, 3]);
    expect(numbers("g")[0]).toBeCloseTo(0.92);
    expect(numbers("g")[8]).toBeNaN();
  });

  it.each([0, 1, 2, 3, 4, 5, 6, 7])("finds the numbers behind a JSON of any length (+%i)", (more) => {
    const data = Uint8Array.from([7, 8, 9]);
    const { numbers } = decode(pack({ pad: "é".repeat(more) }, { a: { dtype: "uint8", shape: [3], data } }));
    expect(Array.from(numbers("a"))).toEqual([7, 8, 9]);
  });

  it("says what is wrong with bytes that are cut", () => {
    expect(() => decode(new ArrayBuffer(2))).toThrow("empty");
    expect(() => decode(pack(gpt2()).slice(0, 100))).toThrow("cut off");
  });

  it("gives an empty array for one that is missing", () => {
    const { numbers } = decode(pack({}));
    expect(numbers("nowhere").length).toBe(0);
  });
});

describe("complete", () => {
  it("fills every field that is missing", () => {
    const tree = complete({ view: "tree", subtrees: [{ type: "Net" }], entries: [{}] }) as TreePayload;
    expect(tree.subtrees[0]).toMatchObject({ type: "Net", category: "own", runs: [], ghosts: [], total: 0 });
    expect(tree.entries[0]).toMatchObject({ name: "?", tied: null });
    expect(tree.headline).toEqual(["", ""]);
    const state = complete({ view: "state", signatures: [{ kind: "buffer" }], values: null }) as StatePayload;
    expect(state.signatures[0]).toMatchObject({ kind: "buffer", optimizer: [], saved: true });
    expect(state.values).toEqual({});
  });

  it("takes what is odd for missing", () => {
    expect(complete({ ...common("tree", ["", ""]), subtrees: "many", entries: 3 })).toMatchObject({ subtrees: [], entries: [] });
  });
});

const fixtures = existsSync(FIXTURES) ? readdirSync(FIXTURES).filter((name) => name.endsWith(".bin")) : [];

describe.runIf(fixtures.length)("Python's payloads", () => {
  it.each(fixtures)("%s is read", (name) => {
    const bytes = readFileSync(join(FIXTURES, name));
    const { json, numbers } = decode(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength) as ArrayBuffer);
    for (const [array, { shape }] of Object.entries((json.arrays ?? {}) as Record<string, { shape: number[] }>)) {
      expect(numbers(array).length, array).toBe(shape.reduce((a, b) => a * b, 1));
    }
    if (!("view" in json)) return;
    const payload = json.layout === "sheet" ? completeSheet(json) : complete(json);
    expect(payload.headline[0]).not.toBe("");
    if (!("layout" in payload)) expect(["tree", "state", "measure", "watch"]).toContain(payload.view);
  });
});
