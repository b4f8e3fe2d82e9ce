/** The script at the end of docs/tour.html. */
import { tour, type TourQuestion } from "./tour";

const main = document.querySelector<HTMLElement>("main");
const questions = document.querySelector("#questions");
if (main && questions) tour(main, JSON.parse(questions.textContent ?? "{}") as Record<string, TourQuestion>);
