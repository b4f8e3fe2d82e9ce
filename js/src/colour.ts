/** Colours as numbers: mixing, contrast (WCAG 2), and the two scales. */

export type Rgb = readonly [number, number, number];

export function rgb(hex: string): Rgb {
  const full = hex.length === 4 ? hex.replace(/[^#]/g, "$&$&") : hex;
  const value = Number.parseInt(full.slice(1), 16);
  return [(value >> 16) & 255, (value >> 8) & 255, value & 255];
}

export function css([red, green, blue]: Rgb): string {
  return `rgb(${Math.round(red)} ${Math.round(green)} ${Math.round(blue)})`;
}

export function mixed(from: Rgb, to: Rgb, share: number): Rgb {
  return [0, 1, 2].map((i) => (from[i] as number) + ((to[i] as number) - (from[i] as number)) * share) as unknown as Rgb;
}

/** Relative luminance. Source: WCAG 2.2. */
export function luminance(colour: Rgb): number {
  const [red, green, blue] = colour.map((value) => {
    const share = value / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  }) as unknown as Rgb;
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

/** From 1 (the same) to 21 (black on white). */
export function contrast(one: Rgb, other: Rgb): number {
  const [dark, light] = [luminance(one), luminance(other)].sort((a, b) => a - b) as [number, number];
  return (light + 0.05) / (dark + 0.05);
}

const INKS: readonly Rgb[] = ["#1b1f24", "#ffffff", "#000000"].map(rgb);

/** The ink that can be read on a ground: black or white reach 4.5 on any. */
export function inkOn(ground: Rgb): Rgb {
  return INKS.find((ink) => contrast(ink, ground) >= 4.5) ?? (INKS[1] as Rgb);
}

/** Negative · zero · positive; `share` from −1 to 1. */
export function signed(share: number, scale: { negative: string; zero: string; positive: string }): Rgb {
  const end = share < 0 ? scale.negative : scale.positive;
  return mixed(rgb(scale.zero), rgb(end), Math.min(1, Math.abs(share)));
}

// Source: Nuñez, Anderton & Renslow (2018), cividis, at ten even steps.
const CIVIDIS = ["#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838"].map(rgb);

/** Magnitude; `share` from 0 to 1. */
export function magnitude(share: number): Rgb {
  const at = Math.min(1, Math.max(0, share)) * (CIVIDIS.length - 1);
  const low = Math.min(CIVIDIS.length - 2, Math.floor(at));
  return mixed(CIVIDIS[low] as Rgb, CIVIDIS[low + 1] as Rgb, at - low);
}
