import { describe, expect, it } from "vitest";
import { columnsOf, fitting, template } from "../src/columns";
import { complete, type Signature, type StatePayload } from "../src/payload";
import { parse } from "../src/search/query";
import { StateTable, textOf, type Item } from "../src/state/table";
import { common, signature, stateful } from "./samples";

const table = new StateTable(complete(stateful().json) as StatePayload);
const shown = (items: Item[]): string[] => items.map((item) => (item.kind === "tensor" ? table.path(item.row) : item.kind === "divider" ? "—" : `[${table.ownerPath(item.owner)}] ${item.count}`));
const ORDER = ["param1", "param2", "buffer1", "again", "submodule.weight", "submodule.bias", "0.weight", "0.bias", "1.weight", "1.bias", "2.weight", "2.bias", "—", "param3", "buffer2", "loose"];

describe("the state table", () => {
  it("keeps the order of the state_dict, then what is not in it", () => {
    expect(shown(table.items([], null, false))).toEqual(ORDER);
  });

  it("sorts within both parts, and back", () => {
    const sorted = shown(table.items([], { column: "tensor", down: true }, false));
    expect(sorted.slice(0, 2)).toEqual(["submodule.weight", "submodule.bias"]);
    expect(sorted.indexOf("—")).toBe(12);
    expect(shown(table.items([], { column: "bytes", down: false }, false))[0]).toBe("param2");
    expect(shown(table.items([], { column: "lr", down: false }, false))[0]).toBe("param1");
    expect(shown(table.items([], null, false))).toEqual(ORDER);
  });

  it.each([
    ["weight", ["submodule.weight", "0.weight", "1.weight", "2.weight"]], ["4x3 submodule", ["submodule.weight"]], ["4 tied", ["again"]], ["buffer", ["buffer1", "—", "buffer2"]],
    ["*.bias", ["submodule.bias", "0.bias", "1.bias", "2.bias"]], ["frozen", ["again"]], ["unsaved", ["—", "param3", "buffer2", "loose"]], ["group bias 2", ["2.bias"]], ["linear 5", []],
  ])("filters by %s", (text, expected) => {
    expect(shown(table.items(parse(text), null, false))).toEqual(expected);
  });

  it("groups by module", () => {
    const items = shown(table.items([], null, true));
    expect(items[0]).toBe("[] 7");
    expect(items).toContain("[submodule] 2");
    expect(items).not.toContain("—");
  });

  it("says each cell in words", () => {
    const [first, second, , , , , , , , , , , third] = table.rows;
    const said = (row: typeof first, column: string): string => textOf(table, row!, column);
    expect([said(first, "saved"), said(first, "trained"), said(first, "gradient"), said(first, "group")]).toEqual(["✓ yes", "yes", "present", "AdamW #0"]);
    expect(said(second, "group")).toBe("⚠ in no group");
    expect([said(third, "shape"), said(third, "saved"), said(third, "trained")]).toEqual(["None", "– no", "–"]);
    expect(said(table.rows[3], "note")).toBe("⇄ param1");
  });

  it("says whether it is trained in the word that Python gives, and chips agree", () => {
    const words = ["yes", "frozen", "no", ""];
    const signatures = [...words.map((trained) => signature("parameter", [1], { trained })), signature("parameter", [1], { trainable: false }), signature("buffer", [1])];
    const given = new StateTable(complete({ ...common("state", ["", ""]), signatures, nodes: [{ type: "A", slots: signatures.map((_, index) => [`t${index}`, index]), runs: [] }] }) as StatePayload);
    const told = (items: Item[]): string[] => items.map((item) => (item.kind === "tensor" ? item.row.name : ""));
    expect(given.rows.map((row) => textOf(given, row, "trained"))).toEqual(["yes", "frozen", "no", "–", "frozen", "–"]);
    expect(told(given.items(parse("", ["trainable"]), null, false))).toEqual(["t0"]);
    expect(told(given.items(parse("", ["frozen"]), null, false))).toEqual(["t1", "t4"]);
  });

  it("stops at 200,000 rows and says so", () => {
    const many = new StateTable(complete({ ...common("state", ["", ""]), signatures: [signature("parameter", [1])], nodes: [{ type: "A", slots: [["w", 0]], runs: [] }, { type: "B", slots: [], runs: [[{ from: 0, to: 300_000 }, 0]] }] }) as StatePayload);
    expect([many.rows.length, many.capped]).toEqual([200_000, true]);
  });

  it("walks 10,000 levels", () => {
    const nodes = [{ type: "A", slots: [["w", 0]], runs: [] }, ...Array.from({ length: 9_999 }, (_, index) => ({ type: "B", slots: [], runs: [[["0"], index]] }))];
    const down = new StateTable(complete({ ...common("state", ["", ""]), signatures: [signature("parameter", [1])], nodes }) as StatePayload);
    expect(down.items(parse("0.w"), null, false).length).toBe(1);
  });
});

describe("columns", () => {
  it("give way in their order and leave the name", () => {
    const all = columnsOf(true, true, () => true);
    const keys = (width: number): string => fitting(all, width).map(({ key }) => key).join(" ");
    expect(keys(2000)).toBe("tensor kind shape dtype device bytes saved trained gradient group lr decay state note");
    expect(keys(376)).toBe("tensor shape note");
    const here = columnsOf(true, true, (key) => key !== "device" && key !== "dtype");
    expect([376, 375].map((width) => fitting(here, width).map(({ key }) => key).join(" "))).toEqual(["tensor shape note", "tensor shape bytes"]);
    expect(keys(50)).toBe("tensor");
  });

  it("give way later where tensors differ than where all say the same", () => {
    const given = (...more: Partial<Signature>[]): StateTable => {
      const signatures = more.map((some, index) => signature("parameter", [index + 1], some));
      return new StateTable(complete({ ...common("state", ["", ""]), signatures, nodes: [{ type: "A", slots: more.map((_, index) => [`t${index}`, index]), runs: [] }] }) as StatePayload);
    };
    const keys = (table: StateTable, width: number): string => fitting(columnsOf(false, false, (key) => table.differs(key)), width).map(({ key }) => key).join(" ");
    const [alike, mixed, scattered] = [given({}, {}), given({}, { dtype: "f64" }), given({}, { device: "meta" }, { kind: "reserved", dtype: "", device: "" })];
    expect([alike, mixed, scattered].map((table) => ["dtype", "device", "kind", "saved"].filter((key) => table.differs(key)).join())).toEqual(["", "dtype", "device,kind"]);
    expect([alike, mixed, scattered].map((table) => keys(table, 450))).toEqual(["tensor kind shape bytes", "tensor shape dtype bytes", "tensor shape device bytes"]);
    expect([alike, mixed, scattered].map((table) => keys(table, 400))).toEqual(["tensor shape bytes", "tensor shape dtype", "tensor shape device"]);
  });

  it("are as wide as the longest thing in them where they do not grow, up to a limit", () => {
    const signatures = [signature("parameter", [1], { bytesText: "256 B here of 512 B", here: "8×8", placement: "rows over dp" }), signature("parameter", [2], { bytesText: "8 B", placement: "x".repeat(99) })];
    const given = new StateTable(complete({ ...common("state", ["", ""]), signatures, nodes: [{ type: "A", slots: [["a", 0], ["b", 1]], runs: [] }] }) as StatePayload);
    const widths = Object.fromEntries(columnsOf(false, false, () => true, true, (key) => given.longest(key)).map(({ key, width }) => [key, width]));
    expect([widths.bytes, widths.here, widths.placement, widths.tensor]).toEqual([19 * 7.3, 70, 190, 160]);
  });

  it("leave the one that yields last beside the names, cut, as long as there are 64 pixels for it", () => {
    const columns = [["name", 220, 0, 3], ["status", 120, 1], ["shape", 90, 3], ["max abs", 80, 1]].map(([key, width, yields, grows = 0]) => ({ key: `${key}`, title: "", width: Number(width), yields: Number(yields), grows: Number(grows) }));
    const keys = (width: number): string => fitting(columns, width).map(({ key }) => key).join();
    expect([1000, 350, 250, 160, 150].map(keys)).toEqual(["name,status,shape,max abs", "name,status", "name,status", "name,status", "name"]);
    expect(template(fitting(columns, 250))).toBe("minmax(min(220px,45%),3fr) minmax(64px,120px)");
  });
});
