/** The script at the end of docs/clinic.html. */
import { clinic } from "./clinic";
import type { Case } from "./data";

const main = document.querySelector<HTMLElement>("main");
const cases = document.querySelector("#cases");
if (main && cases) clinic(main, JSON.parse(cases.textContent ?? "[]") as Case[]);
