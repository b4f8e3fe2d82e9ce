/** What the page holds of each case: made by scripts/clinic, and drawn here. */

/** A cell of a table: text, or numbers that are drawn as a small curve. */
export type Cell = string | (number | null)[];

export type Block =
  | { kind: "say"; text: string }
  | { kind: "code"; text: string }
  | { kind: "list"; title: string; items: string[] }
  | { kind: "table"; title: string; head: string[]; rows: Cell[][] }
  | { kind: "curve"; title: string; x: number[]; y: (number | null)[]; says: string }
  | { kind: "pictures"; title: string; pictures: Picture[]; says: string };

export interface Picture {
  label: string;
  size: number;
  shades: number[];
  says: string;
}

export interface Look {
  id: string;
  title: string;
  hint: string;
  blocks: Block[];
}

/** A cause to choose from: of a wrong one `why` rules it out, of the right one it shows it. */
export interface Cause {
  says: string;
  right: boolean;
  why: string;
}

export interface Case {
  number: number;
  name: string;
  kind: string;
  task: string;
  complaint: string;
  looks: Look[];
  causes: Cause[];
  shown: string[];
  /** `first`: it names the cause as what is wrong, before all others; `hinted`: as something worth a look. `says`: who says what, and what follows as a list. */
  modlab: { grade: string; first: boolean; hinted: boolean; named: string; says: [who: string, what: string, parts: string[]][] };
}
