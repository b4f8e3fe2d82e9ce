/** The two palettes (shared/look/LOOK.md) as CSS variables. `--jp-*` goes first where JupyterLab has such. */

const LIGHT = {
  ink: "#1b1f24", soft: "#57606a", quiet: "#5f6872", faint: "#858d97", line: "#e3e6ea", sunk: "#f6f7f9", panel: "#ffffff",
  selected: "#e8f0fa", negative: "#2f6fbf", zero: "#f3f3f1", positive: "#d9822b", missing: "#c2188f",
  fine: "#1a7f64", careful: "#945800", broken: "#c43d1b",
  container: "#858d97", linear: "#2f6fbf", conv: "#7b4fb5", norm: "#1a7f64", activation: "#d9822b", dropout: "#a69100", embedding: "#c2188f",
  own: "#1b1f24",
};

const DARK: Palette = {
  ink: "#e6e9ed", soft: "#a7b0ba", quiet: "#9aa4af", faint: "#7f8994", line: "#333a42", sunk: "#1d2126", panel: "#16191d",
  selected: "#1b2d43", negative: "#6ea8e8", zero: "#262a2f", positive: "#f0a35a", missing: "#f06bc8",
  fine: "#4cc2a0", careful: "#e0a84a", broken: "#f2795a",
  container: "#7f8994", linear: "#6ea8e8", conv: "#b394e6", norm: "#4cc2a0", activation: "#f0a35a", dropout: "#d6c34a", embedding: "#f06bc8",
  own: "#e6e9ed",
};

export type Palette = typeof LIGHT;
export const PALETTES: { light: Palette; dark: Palette } = { light: LIGHT, dark: DARK };

const FROM_JUPYTER: Partial<Record<keyof Palette, string>> = { panel: "--jp-layout-color1" };

export function variables(palette: Palette): string {
  return Object.entries(palette)
    .map(([name, colour]) => {
      const jupyter = FROM_JUPYTER[name as keyof Palette];
      return `--${name}:${jupyter ? `var(${jupyter},${colour})` : colour}`;
    })
    .join(";");
}
