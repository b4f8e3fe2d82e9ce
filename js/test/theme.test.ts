// @vitest-environment happy-dom
import { afterEach, describe, expect, it, vi } from "vitest";
import { contrast, inkOn, magnitude, mixed, rgb, signed } from "../src/colour";
import { PALETTES, type Palette } from "../src/palette";
import { isDark, onThemeChange } from "../src/theme";

const themes = Object.entries(PALETTES);
// JupyterLab's own grounds (--jp-layout-color1) beside ours.
const GROUNDS: Record<string, string[]> = { light: ["#ffffff"], dark: ["#212121"] };
const hex = (colour: readonly number[]): string => `#${colour.map((value) => Math.round(value).toString(16).padStart(2, "0")).join("")}`;

describe.each(themes)("the %s palette", (name, palette: Palette) => {
  const panels = [...(GROUNDS[name] ?? []), palette.panel];
  const plain = [...panels, palette.sunk, ...panels.map((panel) => hex(mixed(rgb(panel), rgb(palette.ink), 0.04)))];
  const grounds = [...plain, palette.selected];

  it.each(["ink", "soft"] as const)("%s can be read on every ground", (ink) => {
    for (const ground of grounds) expect(contrast(rgb(palette[ink]), rgb(ground)), ground).toBeGreaterThanOrEqual(4.5);
  });

  it.each(["quiet", "careful", "broken", "fine", "missing"] as const)("%s can be read on the panel and on what is sunk", (ink) => {
    for (const ground of plain) expect(contrast(rgb(palette[ink]), rgb(ground)), ground).toBeGreaterThanOrEqual(4.5);
  });

  it.each(["ink", "soft", "quiet", "broken", "careful"] as const)("%s can be read on rows that are broken, and selected", (ink) => {
    for (const ground of [...panels.map((panel) => hex(mixed(rgb(panel), rgb(palette.broken), 0.09))), palette.selected]) {
      expect(contrast(rgb(palette[ink]), rgb(ground)), ground).toBeGreaterThanOrEqual(4.5);
    }
  });

  it.each(["faint", "container", "linear", "conv", "norm", "embedding", "own", "negative"] as const)("%s is seen: 3 to 1", (ink) => {
    for (const ground of plain) expect(contrast(rgb(palette[ink]), rgb(ground)), ground).toBeGreaterThanOrEqual(3);
  });

  it("writes numbers legibly on every colour of both scales", () => {
    for (let share = -1; share <= 1; share += 0.01) {
      for (const ground of [signed(share, palette), magnitude(Math.abs(share))]) expect(contrast(inkOn(ground), ground), String(share)).toBeGreaterThanOrEqual(4.5);
    }
    const hatched = mixed(rgb(palette.panel), rgb(palette.missing), 0.18);
    expect(contrast(rgb(palette.missing), hatched)).toBeGreaterThanOrEqual(3);
  });

  it("keeps negative and positive apart by lightness or hue at the ends", () => {
    expect(contrast(signed(-1, palette), signed(0, palette))).toBeGreaterThan(2);
    expect(contrast(signed(1, palette), signed(0, palette))).toBeGreaterThan(2);
  });
});

describe("the page's theme", () => {
  const clear = (): void => {
    for (const place of [document.body, document.documentElement]) for (const { name } of [...place.attributes]) place.removeAttribute(name);
  };
  afterEach(clear);

  it.each([
    ["body", "data-jp-theme-light", "false", true], ["body", "data-jp-theme-light", "true", false], ["body", "class", "vscode-dark x", true], ["html", "data-theme", "dark", true],
    ["html", "data-theme", "light", false], ["html", "class", "dark", true], ["html", "theme", "dark", true], ["body", "class", "darkness", false],
  ])("%s %s=%s", (place, attribute, value, dark) => {
    (place === "body" ? document.body : document.documentElement).setAttribute(attribute, value);
    expect(isDark()).toBe(dark);
  });

  it("is followed until one stops", async () => {
    const changed = vi.fn();
    const stop = onThemeChange(changed);
    document.body.setAttribute("data-jp-theme-light", "false");
    await vi.waitFor(() => expect(changed).toHaveBeenCalled());
    stop();
    const calls = changed.mock.calls.length;
    document.body.setAttribute("data-jp-theme-light", "true");
    await new Promise((done) => setTimeout(done, 20));
    expect(changed.mock.calls.length).toBe(calls);
  });
});
