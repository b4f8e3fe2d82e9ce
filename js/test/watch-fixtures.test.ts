// @vitest-environment happy-dom
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach, describe, expect, it } from "vitest";
import { BINS, COLUMNS, ROLES, WatchData } from "../src/watch/data";
import { showWatch } from "../src/watch/show";

const FIXTURES = join(dirname(fileURLToPath(import.meta.url)), "..", "..", "tests", "fixtures");
const names = existsSync(FIXTURES) ? readdirSync(FIXTURES).filter((name) => /^watch.*\.bin$/.test(name)) : [];
const bytesOf = (name: string): ArrayBuffer => {
  const bytes = readFileSync(join(FIXTURES, name));
  return bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength) as ArrayBuffer;
};

afterEach(() => document.body.replaceChildren());

describe.runIf(names.length)("Python's watches", () => {
  it.each(names.filter((name) => name !== "watch_update.bin"))("%s is read and drawn", (name) => {
    const data = new WatchData(bytesOf(name));
    const { payload, slots } = data;
    const width = payload.series.length;
    expect(payload.series.every(({ role }) => ROLES.includes(role))).toBe(true);
    for (const column of COLUMNS) expect(data.column(column).length, column).toBe(slots * width);
    expect(data.last.length).toBe(slots);
    if (data.binSlots) expect(data.bins(data.binSlots - 1, width - 1).length).toBe(BINS);
    payload.scalars.forEach((_, i) => expect(data.scalar(i).last.length).toBe(data.scalar(i).first.length));
    payload.units.forEach((_, i) => expect(data.units(i).fired.length).toBe(data.units(i).first.length * data.units(i).count));
    payload.neurons?.layers.forEach(({ units, inputs }, i) => expect(data.neurons(i).weights(data.neuronSlots - 1).length).toBe(units * inputs));
    const host = document.createElement("div");
    document.body.append(host);
    showWatch(host, bytesOf(name));
    expect(host.shadowRoot?.querySelector(".headline")?.textContent?.length).toBeGreaterThan(3);
    expect(host.shadowRoot?.querySelectorAll(".check").length).toBe(payload.verdict.length);
    expect([...(host.shadowRoot?.querySelectorAll("script, img, iframe") ?? [])]).toEqual([]);
  });

  it.runIf(names.includes("watch_update.bin"))("an update follows on what was there", () => {
    const data = new WatchData(bytesOf("watch_part.bin"));
    const before = data.end;
    expect(data.apply(bytesOf("watch_update.bin"))).toBe(true);
    expect(data.end).toBeGreaterThan(before);
    for (const column of COLUMNS) expect(data.column(column).length, column).toBe(data.slots * data.payload.series.length);
    expect([...data.first].every((step, slot, all) => slot === 0 || step > (all[slot - 1] as number))).toBe(true);
    data.payload.scalars.forEach((_, i) => expect(Array.from(data.scalar(i).first).every((step, slot, all) => slot === 0 || step > (all[slot - 1] as number))).toBe(true));
    expect(() => new WatchData(bytesOf("watch_update.bin"))).toThrow("only a part");
  });
});
