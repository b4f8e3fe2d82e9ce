"""``python -m bench.sick [score|prove|fixes] [--side working] [--each] [--only WORDS]``: who names causes, and what do fixes bring?"""

from __future__ import annotations

import argparse
import os
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

import torch

from bench import report
from bench.sick import case, cases_of, fixes, misses, modlab_tools, proof, score, tools
from bench.sick.cases import SEEDS, SIDES, Case, Side
from bench.sick.tools import Answer, Tool
from bench.sick.training import Training

WAYS: dict[Tool, tuple[str, ...]] = {modlab_tools.modlab_answers: ("watch", "diagnose", "both"), tools.plain_rules: ("plain rules",)}
"""The tools, and the names of their answers."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.sick", description="Ask tools for the causes of sick trainings.")
    parser.add_argument("what", nargs="?", choices=("score", "prove", "fixes"), default="score")
    parser.add_argument("--side", choices=SIDES, help="one half; all if none is named")
    parser.add_argument("--only", default="", help="cases whose name or cause has these words")
    parser.add_argument("--each", action="store_true", help="print what became of each case")
    parser.add_argument("--misses", action="store_true", help="write the misses of the reported half into docs/sick-misses.md")
    parser.add_argument("--seeds", type=int, default=len(SEEDS), choices=range(1, len(SEEDS) + 1), help="how many seeds, of three")
    arguments = parser.parse_args()
    found = [
        one
        for side in ((arguments.side,) if arguments.side else SIDES)
        for one in cases_of(side)
        if arguments.only in one.name or arguments.only in one.cause
    ]
    if not found:
        parser.error(f"--only {arguments.only!r}: no case has these words in its name or its cause; both are in bench/sick")
    print(f"{sum(bool(one.cause) for one in found)} sick, {sum(not one.cause for one in found)} healthy\n")
    with ProcessPoolExecutor(os.cpu_count(), get_context("fork"), initializer=torch.set_num_threads, initargs=(1,)) as pool:
        if arguments.what == "prove":
            objections = [line for lines in pool.map(_objections, *_named(found)) for line in lines]
            print("\n".join(objections) or "Each sick one is sick, each healthy one learns.")
            raise SystemExit(bool(objections))
        if arguments.what == "fixes":
            sick = [one for one in found if one.cause and one.side == "working"]  # fixes are tuned to these, and to no others
            fixes.told([*pool.map(_fixed, *_named(sick))], each=arguments.each)
            return
        for side in SIDES:
            some = [one for one in found if one.side == side]
            if some:
                report.heading(f"The {side} half")
                rows: dict[str, list[score.Result]] = {}
                for answers in pool.map(partial(_asked, SEEDS[: arguments.seeds]), *_named(some)):
                    for name, result in answers.items():
                        rows.setdefault(name, []).append(result)
                _print(some, rows, tell=arguments.each)
                if arguments.misses and side == "reported":
                    text = misses.page("both", arguments.seeds, zip(some, rows["both"], strict=True))
                    misses.PAGE.write_text(text, encoding="utf-8")


def _print(cases: Sequence[Case], rows: dict[str, list[score.Result]], *, tell: bool) -> None:
    shares = {name: score.shares([one.grade for one in results]) for name, results in rows.items()}
    if tell:
        for name, results in rows.items():
            for one, result in zip(cases, results, strict=True):
                print(_told(name, one, result))
    table = [
        (name, *(_share(shares[name], one) for one in (*score.SICK, "false alarm")), str(sum(one.false for one in results)))
        for name, results in rows.items()
    ]
    report.table(("", *score.SICK, "false alarms", "false"), table)


def _told(way: str, case: Case, result: score.Result) -> str:
    cause = f" ({case.cause})" if case.cause else ""
    return f"{way:12} {result.grade:12} {case.name}{cause}: {result.said}"


def _share(shares: dict[score.Grade, float], grade: score.Grade) -> str:
    """A dash where there is no case that could have it."""
    return f"{100 * shares[grade]:.0f} %" if grade in shares else "–"


def _named(cases: Sequence[Case]) -> tuple[list[Side], list[str]]:
    """By side and name, as a process can be told of them."""
    return [one.side for one in cases], [one.name for one in cases]


def _objections(side: Side, name: str) -> list[str]:
    return proof.objections(case(side, name))


def _fixed(side: Side, name: str) -> fixes.Tried:
    return fixes.tried(case(side, name), SEEDS[0])


def _answers(tool: Tool, make: Callable[[], Training]) -> dict[str, Answer]:
    """What a tool answers; an error of its own is told, and counts as silence in each of its ways."""
    try:
        return tool(make)
    except Exception:  # noqa: BLE001 - the other cases still have something to say
        traceback.print_exc()
        return dict.fromkeys(WAYS[tool], Answer())


def _asked(seeds: Sequence[int], side: Side, name: str) -> dict[str, score.Result]:
    """What each tool is worth here: the worst of all seeds."""
    one = case(side, name)
    found: dict[str, list[score.Result]] = {}
    for seed in seeds:
        for tool in WAYS:
            for way, answer in _answers(tool, partial(one.training, seed)).items():
                found.setdefault(way, []).append(score.result(one, answer))
    return {way: score.worst(results) for way, results in found.items()}


if __name__ == "__main__":
    main()
