"""What the clinic says against a wrong cause, checked by what the looks of the same case show."""

import math
import re
from collections.abc import Callable
from typing import Any

import pytest

from scripts.clinic import page

KEPT = page.kept()
N = r"(-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?)"
SIZE = rf"{N} (% of|times) its size"
NAME = r"([\w.]+)"

Check = Callable[..., bool]
CHECKS: dict[str, Check] = {}


def value(text: str) -> float:
    """``×3.81``, ``80 %`` and ``11,400`` as numbers: 3.81, 0.8 and 11400."""
    number = float(text.strip("×% ").replace(",", ""))
    return number / 100 if text.endswith("%") else number


def same(one: str | float, other: str | float) -> bool:
    """Nearly: one may have fewer digits."""
    first, second = (value(part) if isinstance(part, str) else part for part in (one, other))
    return first == pytest.approx(second, rel=0.02, abs=1e-12)


class Seen:
    """What the looks of one case show."""

    def __init__(self, kept: dict[str, Any]) -> None:
        self.looks = {look["id"]: look["blocks"] for look in kept["looks"]}

    def rows(self, look: str, title: str = "") -> list[dict[str, Any]]:
        return [
            dict(zip(block["head"], row, strict=True))
            for block in self.looks[look]
            if block["kind"] == "table" and block["title"].startswith(title)
            for row in block["rows"]
        ]

    def column(self, look: str, head: str) -> dict[str, str]:
        """By the first cell of each row; without what is empty."""
        return {next(iter(row.values())): row[head] for row in self.rows(look) if row.get(head)}

    def text(self, look: str) -> str:
        return " ".join(block.get("text") or block.get("says") or "" for block in self.looks[look])

    @property
    def loss(self) -> list[float | None]:
        return next(block["y"] for block in self.looks["loss"] if block["kind"] == "curve")

    def calls(self, name: str) -> int:
        return int(self.column("loop", "times").get(name, "0").replace(",", ""))

    @property
    def is_whole(self) -> bool:
        """Whether all parameters are listed, and not the weights alone."""
        return "are listed" not in self.text("steps")

    @property
    def kinds(self) -> list[str]:
        return [row["kind"] for row in self.rows("layers")]

    @property
    def outputs(self) -> dict[str, str]:
        """In the last step."""
        return self.rows("outputs", "In numbers")[1]


def check(pattern: str) -> Callable[[Check], Check]:
    def add(one: Check) -> Check:
        CHECKS[pattern] = one
        return one

    return add


def moves(seen: Seen, number: str, unit: str, name: str = "") -> bool:
    every = seen.column("steps", "in all")
    size = value(f"{number} %" if unit == "% of" else number)
    return any(same(one, size) for key, one in every.items() if one != "began at 0" and name in ("", key))


def first_norms(seen: Seen) -> dict[str, str]:
    return seen.column("gradients", "step 0")


def is_first(seen: Seen, norm: str, best: Callable[[list[float]], float]) -> bool:
    """Whether a norm is the least or greatest of the first step; where biases are not listed it may be one of theirs."""
    found = best([value(one) for one in first_norms(seen).values() if one not in ("none", "NaN")])
    return same(found, norm) or (not seen.is_whole and best([found, value(norm)]) == value(norm))


# ---- the loop and the optimizer

check(rf"zero_grad\(\) is called {N} times, as often as backward\(\): no gradients add up\.")(
    lambda seen, count: seen.calls("optimizer.zero_grad()") == seen.calls("backward()") == value(count)
)
check(
    r"When the optimizer steps, the gradients are still there: none of its tensors has a gradient of zero then; "
    rf"the least norm in the first step is {N}\."
)(lambda seen, least: not {"0", "none"} & {*(found := seen.column("gradients", "step 0, at step()")).values()} and least in found.values())
check(rf"(optimizer\.step|backward)\(\) is called {N} times in {N} steps of the loop\.")(
    lambda seen, name, count, steps: seen.calls(f"{name}()") == value(count) and len(seen.loss) == value(steps)
)
check(rf"Nothing puts the weights back: at the end a weight lies {SIZE} away from where it began\.")(moves)
check(rf"The model is in training mode in all of its {N} calls\.")(
    lambda seen, count: f"in training mode in {count} calls and in evaluation mode in 0." in seen.text("loop")
)
check(r"Nothing in the loop clips a gradient\.")(lambda seen: not seen.calls("clip_grad_norm_(…)"))
check(rf"The gradients are those of this loss: a short way against them should lower it by {N}, and lowers it by {N}\.")(
    lambda seen, promised, found: f"the loss of that batch by {promised}; it lowers it by {found}." in seen.text("gradients")
)


@check(
    rf"The loss never rises far above its first value \({N} at most, {N} at first\), and in a typical step the weight that changes most "
    rf"changes by {SIZE}\."
)
def _(seen: Seen, most: str, first: str, number: str, unit: str) -> bool:
    steps = [value(one) for row in seen.rows("steps") for head, one in row.items() if head.startswith("step ") and one != "began at 0"]
    loss = [one for one in seen.loss if one is not None]
    return same(max(loss), most) and same(loss[0], first) and unit == "% of" and value(number) / 100 <= max(steps)


check(r"Nothing moves at all, no weight and no bias\. A learning rate that is too low moves them a little in each step\.")(
    lambda seen: seen.is_whole and {*seen.column("steps", "in all").values()} <= {"0", "began at 0"}
)
check(rf"The weights go far: one ends {SIZE} away from where it began\.")(moves)


@check(
    rf"What gets a gradient goes far: {NAME} ends {SIZE} away from where it began\. "
    rf"The gradients of {N} of {N} tensors are 0, and no learning rate moves those\."
)
def _(seen: Seen, name: str, number: str, unit: str, still: str, every: str) -> bool:
    zero = [row for row in seen.rows("gradients") if {one for head, one in row.items() if head.startswith("step ")} <= {"0", "none"}]
    assert {row["parameter"] for row in zero} == {key for key, one in seen.column("steps", "in all").items() if one == "0"}
    return moves(seen, number, unit, name) and len(zero) == value(still) and len(seen.rows("gradients")) == value(every)


check(rf"The learning rate is {N} from the first step to the last\.")(
    lambda seen, rate: f"The learning rate is {rate} from the first step" in seen.text("optimizer")
)
check(rf"(?:Adam's first beta|The momentum) is {N}, the usual value\.")(
    lambda seen, found: all(re.match(rf"(betas \()?{re.escape(found)}\b", row["momentum or betas"]) for row in seen.rows("optimizer"))
)
check(r"The weight decay is 0\.")(lambda seen: {*seen.column("optimizer", "weight decay").values()} == {"0"})
check(rf"The optimizer holds all {N} tensors of this model, and no other\.")(
    lambda seen, count: (
        [row["tensors"] for row in seen.rows("optimizer")] == [f"{count} ({count} of the model's {count})"]
        and {*seen.column("steps", "in an optimizer").values()} == {"yes"}
    )
)
check(r"There is one optimizer, (\w+), and it makes each step\.")(
    lambda seen, name: {row["optimizer"] for row in seen.rows("optimizer")} == {name} and seen.calls("optimizer.step()") == len(seen.loss)
)

# ---- the graph and the layers


@check(rf"The gradient reaches each of the {N} parameters; the smallest norm in the first step is {N} \({NAME}\)\.")
def _(seen: Seen, count: str, least: str, name: str) -> bool:
    norms = first_norms(seen)
    assert f"{count} parameters with" in seen.text("model") and norms.get(name, least) == least
    return not {"0", "none"} & {*norms.values()} and is_first(seen, least, min)


check(rf"All {N} parameters have requires_grad=True\.")(
    lambda seen, count: f"{count} parameters with" in seen.text("model") and {*seen.column("steps", "requires_grad").values()} == {"yes"}
)
check(rf"Each of the {N} layers that run is registered in the model\.")(
    lambda seen, count: len(rows := seen.rows("layers")) == value(count) and not any("in no list" in row["layer"] for row in rows)
)
check(rf"Each registered layer is called in every step \({N} of \1\)\.")(
    lambda seen, count: (
        len([row for row in seen.rows("layers") if "in no list" not in row["layer"]]) == value(count)
        and "never called" not in str(seen.rows("layers"))
    )
)
check(rf"The gradient does not vanish on its way: its norm in the first step is {N} at {NAME} and {N} at {NAME}\.")(
    lambda seen, one, first, other, last: first_norms(seen)[first] == one and first_norms(seen)[last] == other
)
check(r"There is no ReLU among the layers, so no unit can be dead\.")(lambda seen: not any("ReLU" in one for one in seen.kinds))


def zero_units(seen: Seen) -> list[float]:
    return [value(one) for cell in seen.column("layers", "units zero for a whole batch").values() for one in cell.split(" → ")]


check(rf"In no ReLU are most units zero for the whole batch: the greatest share, in the first step or in the last, is {N} %\.")(
    lambda seen, share: same(max(zero_units(seen)), value(share) / 100) and value(share) < 50
)
check(r"In the first step and in the last, each unit of each ReLU gives something other than zero for some sample of the batch\.")(
    lambda seen: {*zero_units(seen)} == {0.0}
)
check(r"Between the layers there is ([\w ]+)\.")(
    lambda seen, names: all(any(kind.startswith(name) for kind in seen.kinds) for name in names.split(" and "))
)
check(rf"The narrowest layer before the last one has {N} units\.")(
    lambda seen, units: min(int(cell.partition("×")[0]) for cell in weight_shapes(seen)[:-1]) == value(units)
)


def weight_shapes(seen: Seen) -> list[str]:
    return [cell for cell in seen.column("weights", "shape").values() if "×" in cell]


check(r"Nothing is dropped: there is no dropout in the model\.")(lambda seen: "Dropout" not in seen.text("model"))
check(r"Nothing is dropped: each Dropout has p = 0\.")(
    lambda seen: {kind for kind in seen.kinds if "Dropout" in kind} == {"Dropout(p=0.0)"}
)
check(r"There is no BatchNorm in the model\.")(lambda seen: "BatchNorm" not in seen.text("model"))
check(rf"BatchNorm gets batches of {N}, and the loss of the last batch is {N} in training mode and {N} in evaluation mode\.")(
    lambda seen, size, train, evaluate: (
        f"its loss is {train} in training mode and {evaluate} in evaluation mode." in seen.text("fresh")
        and f"Inputs: {size}×" in seen.text("batch")
    )
)

# ---- the loss and the outputs

check(r"Output and target have the same shape, ([\d×]+)\.")(
    lambda seen, size: f"the output has the shape {size} and the target {size}." in seen.text("outputs")
)
check(rf"The loss falls from {N} to {N} and is never below zero\. Turned around, it would be\.")(
    lambda seen, first, last: same(seen.loss[0], first) and same(seen.loss[-1], last) and min(seen.loss) >= 0
)
check(rf"The first loss is {N}, and some gradient in that step has a norm of {N}\.")(
    lambda seen, loss, norm: same(seen.loss[0], loss) and is_first(seen, norm, max)
)
check(rf"The last layer is a (\w+), with no activation behind it; in the last step its outputs reach from {N} to {N}\.")(
    lambda seen, kind, low, high: seen.kinds[-1].startswith(kind) and (seen.outputs["least"], seen.outputs["greatest"]) == (low, high)
)
check(
    rf"The last {N} losses have a mean of {N}, where the best answer that looks at no input gets {N}: inputs and targets belong together\."
)(
    lambda seen, many, mean, guess: (
        same(sum(seen.loss[-int(many) :]) / int(many), mean)
        and re.search(rf"looks at no input has a [\w -]+ of {re.escape(guess)} on", seen.text("loss"))
        and value(mean) < value(guess)
    )
)
check(
    rf"The training loss does not get far: its first {N} values have a mean of {N}, and its last \1 of {N}\. "
    r"An input that gives the answer away is found out soon\."
)(
    lambda seen, many, first, last: (
        same(sum(seen.loss[: int(many)]) / int(many), first) and same(sum(seen.loss[-int(many) :]) / int(many), last)
    )
)
check(r"All weights and outputs are float32\.")(lambda seen: {*seen.column("weights", "dtype").values()} == {"float32"})

# ---- the data


def shown_targets(seen: Seen) -> set[str]:
    return {row["target"] for row in seen.rows("batch", "The first samples")}


check(rf"The first batch has {N} different targets\.")(lambda seen, count: 1 < len(shown_targets(seen)) <= value(count))
check(rf"Of the {N} samples in the last batch, (\w+) stood in the first one\.")(
    lambda seen, size, known: f"Of the {size} samples of the last batch, {known} stood in batch 0." in seen.text("batch")
)


def class_rows(seen: Seen) -> list[list[int]]:
    return [[int(cell) for head, cell in row.items() if head != "batch"] for row in seen.rows("batch", "How often each class")]


check(rf"Classes are mixed: each batch holds all {N}\.")(
    lambda seen, classes: all(len(row) == value(classes) and min(row) > 0 for row in class_rows(seen))
)


@check(rf"The classes are about equally frequent: between {N} % and {N} % of all targets each\.")
def _(seen: Seen, low: str, high: str) -> bool:
    """Shares of all batches: those of the few that are shown may lie some points beside them."""
    rows = class_rows(seen)
    shares = [100 * sum(column) / sum(map(sum, rows)) for column in zip(*rows, strict=True)]
    return value(low) - 12 < min(shares) and max(shares) < value(high) + 12 and value(low) <= 100 / len(shares) <= value(high) + 1


@check(rf"The inputs have a usual scale: in the first batch a mean of {N} and a standard deviation of {N}\.")
def _(seen: Seen, mean: str, deviation: str) -> bool:
    rows = [row for row in seen.rows("batch", "Batch 0 in numbers") if row["of"].startswith(("inputs", "feature"))]
    means, squares = [value(row["mean"]) for row in rows], [value(row["std"]) ** 2 + value(row["mean"]) ** 2 for row in rows]
    found = sum(means) / len(rows)
    spread = math.sqrt(sum(squares) / len(rows) - found**2)
    return found == pytest.approx(value(mean), abs=2e-3) and same(spread, deviation)


check(rf"The samples differ: the first batch has {N} different ones among {N}\.")(
    lambda seen, some, every: re.search(rf"Inputs: {every}×|and {every}×", seen.text("batch")) and 1 < value(some) <= value(every)
)


@check(rf"The targets have a usual scale: in all batches together they lie between {N} and {N}, with a standard deviation of {N}\.")
def _(seen: Seen, low: str, high: str, deviation: str) -> bool:
    row = next(row for row in seen.rows("batch", "Batch 0 in numbers") if row["of"] == "targets")
    inside = value(low) <= value(row["least"]) + 0.01 and value(row["greatest"]) <= value(high) + 0.01
    return inside and 0.7 < value(row["std"]) / value(deviation) < 1.4


check(rf"All numbers in all {N} batches are finite\.")(
    lambda seen, count: f"All numbers of all {count} batches are finite." in seen.text("batch")
)
check(rf"The first batch has {N} different tokens\.")(
    lambda seen, count: f"inputs ({count} different tokens)" in seen.column("batch", "mean")
)
check(r"The targets are the inputs moved by one: the first target is the second token\.")(
    lambda seen: all(row["tokens"].split()[1:] == row["target"].split()[:-1] for row in seen.rows("batch", "The first samples"))
)

# ---- the weights and sequences


def begins(seen: Seen, name: str, deviation: str) -> bool:
    return seen.column("weights", "at the start")[name].endswith(f"± {deviation}")


check(
    r"The units begin different from each other: in no layer are two rows of the weight equal from the start "
    rf"\({NAME} has a standard deviation of {N}\)\."
)(lambda seen, name, deviation: begins(seen, name, deviation) and not seen.column("weights", "rows at the start"))
check(rf"The weights begin at a usual size: {NAME} has a standard deviation of {N}\.")(begins)
check(rf"The weights begin at their usual size: {NAME} has a standard deviation of {N} for {N} inputs?, where 1/√inputs is {N}\.")(
    lambda seen, name, deviation, inputs, usual: (
        begins(seen, name, deviation)
        and math.prod(map(int, seen.column("weights", "shape")[name].split("×")[1:])) == value(inputs)
        and same(1 / math.sqrt(value(inputs)), usual)
    )
)
check(r"No position sees a later one: when the last token changes, the outputs of all earlier positions stay the same\.")(
    lambda seen: {*[*seen.column("change", "greatest change").values()][:-1]} == {"0"}
)
check(r"The model adds an embedding of the positions \(places\), and it is called in each step\.")(
    lambda seen: (
        seen.column("layers", "kind")["places"].startswith("Embedding(")
        and seen.column("layers", "mean ± std, last step")["places"] != "never called"
    )
)
check(r"The recurrent layer has batch_first=True, and the batch comes first: ([\d×]+)\.")(
    lambda seen, size: "batch_first=True" in seen.text("model") and f"Inputs: {size}," in seen.text("batch")
)


WRONG = [(kept, cause) for kept in KEPT for cause in kept["causes"] if not cause["right"]]


@pytest.mark.parametrize(("kept", "cause"), WRONG, ids=[f"{kept['number']}: {cause['says'][:40]}" for kept, cause in WRONG])
def test_what_rules_a_cause_out_is_what_the_looks_show(kept: dict[str, Any], cause: dict[str, Any]) -> None:
    found = [(one, match) for pattern, one in CHECKS.items() if (match := re.fullmatch(pattern, cause["why"]))]
    assert len(found) == 1, f"no check knows this sentence, or two do: {cause['why']}"
    [(one, match)] = found
    assert one(Seen(kept), *match.groups()), cause["why"]


def test_each_check_has_a_sentence() -> None:
    assert not [pattern for pattern in CHECKS if not any(re.fullmatch(pattern, cause["why"]) for _, cause in WRONG)]
