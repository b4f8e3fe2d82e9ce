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
  const skip = element("a", { class: "skip", href: "#case-title" }, "Skip to the case");
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
    if (!one) return null;
    const view = new CaseView(one, surroundings);
    room.replaceChildren(view.root);
    for (const [number, link] of places) set(link, { "aria-current": number === one.number ? "true" : null });
    return view.title;
  };
  const asked = (): Case | undefined => cases.find((one) => `#case-${one.number}` === location.hash);
  told();
  const title = show(asked() ?? cases[0]);
  if (asked()) title?.focus();
  addEventListener("hashchange", () => show(asked())?.focus());
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
