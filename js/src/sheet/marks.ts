/** The marks of rows: a sign to see, and a word for who does not see it. */
import { element } from "../elements";
import { SIGNS, type Mark } from "./sheet";

/** Nothing where there is no mark. */
export function sign(mark: Mark): HTMLElement | null {
  return !mark ? null : element("span", { class: `sign ${mark}`, role: "img", "aria-label": mark, title: mark }, SIGNS[mark]);
}

/** The mark whose sign a text begins with. */
export function markOf(text: string): Mark {
  return MARKS.find((mark) => mark && text.startsWith(SIGNS[mark])) ?? "";
}

const MARKS = Object.keys(SIGNS) as Mark[];
