// @vitest-environment happy-dom
import { beforeEach, describe, expect, it } from "vitest";
import { meant, tour, type TourQuestion } from "../src/lessons/tour";

const card = (label: string, question: string, kind: string, said = "", strong = "How many?"): string =>
  `<section class="modlab-card" data-label="${label}" data-question="${question}" data-kind="${kind}" data-said="${said}"><p class="modlab-said"><strong>${strong}</strong></p></section>`;

const numbers = (question: string): TourQuestion => ({
  form: "a number",
  answers: ["5", "4", "\u2047"].map((one) => [one, card("predict", question, "number", one, `You say ${one}.`), card("see", question, "number", one, `You answered ${one}.`)]),
});
const QUESTIONS = { one: numbers("one"), two: numbers("two"), last: { ...numbers("last"), answers: [["yes", "", card("recall", "last", "yesno", "yes", "Correct.")]] } as TourQuestion };

function page(): HTMLElement {
  document.body.innerHTML = `<main><h2>First</h2><p id="before">Two questions.</p>
    <div class="output">${card("predict", "one", "number")}</div><pre class="code">predict</pre><div class="output">${card("predict", "two", "number")}</div>
    <pre class="code" id="code">see</pre><div class="output" id="result">${card("see", "one", "number", "", "The answer is 5.")}${card("see", "two", "number", "", "The answer is 5.")}</div><p id="after">So it is.</p>
    <h2>Second</h2><p id="next">Free.</p><div class="output" id="recall">${card("recall", "last", "yesno")}</div></main>`;
  return document.querySelector("main") as HTMLElement;
}

const hidden = (): string[] => [...document.querySelectorAll<HTMLElement>("main > [hidden]")].map((one) => one.id);
function say(question: string, text: string): void {
  const input = document.querySelector<HTMLInputElement>(`[data-question=${question}] input`) as HTMLInputElement;
  input.value = text;
  input.parentElement?.querySelector("button")?.click();
}
const press = (words: string): void => [...document.querySelectorAll("button")].find((one) => one.textContent === words)?.click();

describe("the tour's page", () => {
  beforeEach(() => tour(page(), QUESTIONS));

  it("hides what comes of a question, up to the next heading, and not its code", () => {
    expect(hidden()).toEqual(["result", "after"]);
  });

  it("shows it when all questions before it are answered, with what was said", () => {
    say("one", "4");
    expect(hidden()).toEqual(["result", "after"]);
    expect(document.activeElement?.textContent).toBe("You say 4.");
    say("two", "1,234");
    expect(hidden()).toEqual([]);
    expect([...document.querySelectorAll("#result .modlab-card")].map((one) => one.textContent?.trim())).toEqual(["You answered 4.", "You answered 1,234."]);
    expect(document.activeElement?.textContent).toBe("You answered 4.");
    expect(document.body.textContent).not.toContain("show it now");
  });

  it("asks again for what is not a number", () => {
    say("one", "<b>five</b>");
    expect(document.querySelector("[data-question=one] .modlab-trouble")?.textContent).toBe("That is not a valid answer: write a number.");
    expect(hidden()).toHaveLength(2);
  });

  it("shows it unanswered to who wants that, here or everywhere", () => {
    press("show it now");
    expect(hidden()).toEqual([]);
    expect(document.querySelector("#result")?.textContent).toContain("The answer is 5.");
    tour(page(), QUESTIONS);
    press("Show everything");
    expect(hidden()).toEqual([]);
    expect(document.body.textContent).not.toContain("Show everything");
  });

  it("settles a question at the end at once", () => {
    press("yes");
    expect(document.querySelector("#recall")?.textContent?.trim()).toBe("Correct.");
  });

  it("leaves a page without questions as it is", () => {
    tour(page(), {});
    expect(hidden()).toEqual([]);
  });
});

describe("what an answer means", () => {
  it("reads numbers as numbers", () => {
    expect(meant(QUESTIONS.one, true, " 5.0 ")?.[0]).toBe("5");
    expect(meant(QUESTIONS.one, true, "12,345")?.[2]).toContain("You answered 12,345.");
    expect(meant(QUESTIONS.one, true, "many")).toBeNull();
  });
});
