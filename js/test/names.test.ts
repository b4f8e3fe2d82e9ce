import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { cut, follow, indexOfName, label, legible, legibleLines, nameAt, quoted, sizeOf } from "../src/names";
import { VERSION } from "../src/version";

it("reads lists and ranges of names alike", () => {
  const range = { from: 3, to: 60 };
  expect([sizeOf(range), nameAt(range, 0), nameAt(range, 57), label(range, 0, 58)]).toEqual([58, "3", "60", "3 – 60"]);
  expect([indexOfName(range, "3"), indexOfName(range, "03"), indexOfName(range, "61"), indexOfName(range, "x")]).toEqual([0, -1, -1, -1]);
  expect([sizeOf(["q", "k"]), nameAt(["q", "k"], 1), indexOfName(["q", "k"], "k"), label(["q", "k"], 1, 1)]).toEqual([2, "k", 1, "k"]);
});

it.each([
  [[1, "net.l0"], "again", "net.l0"],
  [[2, "c"], "a.b.weight", "a.c"],
  [[0, "x.y"], "a.b.c", "x.y"],
  [[1, ""], "a.self", "a"],
  [[3, "wte.weight"], "h.0.weight", "wte.weight"],
] as const)("follows the link %j from %s to %s", (link, place, target) => {
  expect(follow(link, place)).toBe(target);
});

it("makes unseen characters visible and keeps letters of every script", () => {
  expect(legible("a\u202eb\u0000\nשלום")).toBe("a\\u202eb\\x00\\nשלום");
  expect(legibleLines("a\n\tb\u202e")).toBe("a\n\tb\\u202e");
});

it("writes strings as Python does", () => {
  expect(quoted('a"b\\c')).toBe('"a\\"b\\\\c"');
  expect(quoted("\u202e")).toBe('"\\u202e"');
});

it("cuts what is too long for a row, and says so", () => {
  expect(cut("x".repeat(1_000_000))).toMatch(/^x{300}… \(1,000,000 characters\)$/);
});

it("has Python's version", () => {
  const python = readFileSync(join(import.meta.dirname, "../../modlab/version.py"), "utf8");
  expect(/__version__ = "(.*)"/.exec(python)?.[1]).toBe(VERSION);
});
