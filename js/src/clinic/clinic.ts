/** The whole page: the score, the cases to choose from, and the one that is open. */
import { element, set } from "../elements";
import { CaseView } from "./case";
import type { Case } from "./data";
import { counted, isClosed, isRight, Ledger, score } from "./progress";

/** Builds the page into `main` and follows the address (`#case-12`). */
export function clinic(main: HTMLElement, cases: Case[], ledger: Ledger = new Ledger()): void {
  const line = element("p", { class: "score", id: "score" });
  const status = element("p", { class: "unseen", role: "status" });
  const places = new Map(cases.map((one) => [one.number, element("a", { href: `#case-${one.number}` })]));
  const nav = element("nav", { "aria-label": "cases" }, element("ol", {}, ...[...places.values()].map((link) => element("li", {}, link))));
  const room = element("div", { class: "room" });
  const skip = element("a", { class: "skip" }, "Skip to the case");
  skip.addEventListener("click", (event) => {
    event.preventDefault();    // the address keeps the case
    room.querySelector<HTMLElement>("h2")?.focus();
  });
  main.append(line, skip, nav, room, status);

  const told = (): void => {
    line.textContent = score(cases, ledger);
    for (const one of cases) sign(places.get(one.number)!, one, ledger);
  };
  const surroundings = {
    ledger,
    cases: cases.length,
    place: place(),
    tell: (text: string) => void (status.textContent = text),
    changed: told,
    restart: (number: number) => {
      ledger.restart(number);
      told();
      show(cases.find((one) => one.number === number))?.focus();
    },
  };
  const show = (one: Case | undefined): HTMLElement | null => {
    status.textContent = "";    // what was told of the case before
    const shown = one ? new CaseView(one, surroundings).root : unknown(location.hash, cases);
    room.replaceChildren(shown);
    set(skip, { href: one ? `#case-${one.number}` : location.hash });
    for (const [number, link] of places) set(link, { "aria-current": number === one?.number ? "true" : null });
    return shown.querySelector("h2");
  };
  const asked = (): Case | undefined => (location.hash.length > 1 ? cases.find((one) => `#case-${one.number}` === location.hash) : cases[0]);
  told();
  const title = show(asked());
  if (location.hash.length > 1) title?.focus();
  addEventListener("hashchange", () => show(asked())?.focus());
}

/** Says that the address names no case, and lists those that there are. */
function unknown(hash: string, cases: readonly Case[]): HTMLElement {
  const links = cases.map((one) => element("li", {}, element("a", { href: `#case-${one.number}` }, `Case ${one.number}`), ` · ${one.kind}`));
  return element(
    "article",
    { class: "case", "aria-labelledby": "case-title" },
    element("h2", { id: "case-title", tabindex: -1 }, "There is no such case"),
    element("p", {}, "The address ends in ", element("code", {}, hash), `, and the cases go from 1 to ${cases.length}:`),
    element("ul", { class: "all" }, ...links),
  );
}

/** A case's link: its number, and how far it is, by a sign and in words. */
function sign(link: HTMLElement, one: Case, ledger: Ledger): void {
  const progress = counted(ledger.of(one.number));
  const closed = isClosed(one, progress);
  const solved = isRight(one, progress);
  const begun = progress.looks.length + progress.named.length > 0;
  link.className = solved ? "solved" : closed ? "shown" : begun ? "begun" : "";
  link.replaceChildren(String(one.number), element("span", { "aria-hidden": "true" }, solved ? "✓" : closed ? "○" : begun ? "…" : ""));
  link.setAttribute("aria-label", `case ${one.number}${solved ? ", solved" : closed ? ", answer shown" : begun ? ", begun" : ""}`);
}

/** What a line to send says of where the page is: its address, but no path of somebody's machine. */
export function place(at: Location = location): string {
  return /^https?:$/.test(at.protocol) ? `${at.origin}${at.pathname}` : "docs/clinic.html";
}
