/** A look's blocks as elements. */
import { element } from "../elements";
import { curve, picture, spark } from "./charts";
import type { Block, Cell } from "./data";

/** One block of a look, by whose name its tables are told apart. */
export function drawn(block: Block, look = ""): HTMLElement {
  switch (block.kind) {
    case "say":
      return element("p", {}, block.text);
    case "code":
      return element("pre", { tabindex: 0, role: "region", "aria-label": look || "code" }, block.text);
    case "list":
      return titled(block.title, element("ol", { class: "calls" }, ...block.items.map((item) => element("li", {}, element("code", {}, item)))));
    case "curve":
      return titled(block.title, curve(block.title, block.x, block.y, block.says), element("p", { class: "says" }, block.says));
    case "pictures":
      return titled(block.title, element("div", { class: "pictures" }, ...block.pictures.map(picture)), element("p", { class: "says" }, block.says));
    case "table":
      return element("div", { class: "block" }, table(look, block.title, ...filled(block)));
  }
}

function titled(title: string, ...parts: HTMLElement[]): HTMLElement {
  return element("div", { class: "block" }, element("p", { class: "title" }, title), ...parts);
}

/** Without the columns that have nothing in any row. */
function filled({ head, rows }: Extract<Block, { kind: "table" }>): [head: string[], rows: Cell[][]] {
  const kept = head.map((_, column) => !column || rows.some((row) => row[column]?.length));
  const of = <T>(row: T[]): T[] => row.filter((_, column) => kept[column]);
  return [of(head), rows.map(of)];
}

/** In a box that scrolls sideways where it must; its caption stays in sight then. */
function table(look: string, title: string, head: string[], rows: Cell[][]): HTMLElement {
  const numeric = head.map((_, column) => rows.length > 0 && rows.every((row) => isNumber(row[column])));
  const cell = (value: Cell | undefined, column: number): HTMLElement => {
    if (Array.isArray(value)) return element("td", {}, spark(value));
    const kind = numeric[column] ? "number" : null;
    if (column) return element("td", { class: kind }, value ?? "");
    const name = value ?? "";
    return element("th", { scope: "row", class: name.length > LONG ? "long" : kind }, ...apart(name));
  };
  const heads = head.map((name, column) => element("th", { scope: "col", class: `${numeric[column] ? "number" : ""}${name.includes(" ") ? " words" : ""}`.trim() || null }, name));
  const body = rows.map((row) => element("tr", {}, ...row.map(cell)));
  const caption = element("caption", {}, element("span", { class: "title" }, title));
  const made = element("table", {}, caption, element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...body));
  return element("div", { class: "wide", tabindex: 0, role: "region", "aria-label": look ? `${look}: ${title}` : title }, made);
}

/** A name of more letters may take several lines. */
const LONG = 16;

/** A dotted name that may break behind a dot or an underscore. */
function apart(name: string): Node[] {
  return name.split(/(?<=[._])/).flatMap((part, index) => [...(index ? [document.createElement("wbr")] : []), document.createTextNode(part)]);
}

const NUMBER = /^(×?-?[\d,.]+(e[+-]?\d+)?( %)?|<0\.1 %|>99\.9 %|none|NaN|-?Inf|began at 0|)$/;

function isNumber(value: Cell | undefined): boolean {
  return typeof value === "string" && NUMBER.test(value);
}
