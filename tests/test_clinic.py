"""The clinic's page: of these cases, whole in itself, and true to the trainings that it shows."""

import html
import json
import re
import warnings

import pytest
import torch

from bench.sick import case
from bench.sick.causes import CAUSES
from scripts.clinic import evidence, looks, page
from scripts.clinic.cases import CASES, NETS, OFFERED
from scripts.clinic.facts import Facts, between
from scripts.clinic.recording import Recording, _shared_rows, record, recorded

TEXT = page.PAGE.read_text(encoding="utf-8")
KEPT = page.kept()


def test_the_page_is_of_these_cases():
    assert f'<meta name="modlab-clinic" content="{page.fingerprint()}">' in TEXT, "a case has changed since: run `make pages`"
    assert page.written(KEPT) == TEXT, "the frame or the script has changed since: run `python -m scripts.clinic --front`"
    assert [one["name"] for one in KEPT] == [*CASES]


def test_it_is_small_and_fetches_nothing():
    assert len(TEXT.encode()) <= page.MOST_BYTES
    assert not re.search(r"url\(|@import|connect-src|https?://(?!www\.w3\.org/2000/svg)", TEXT.partition('id="cases"')[0])
    assert "default-src 'none'" in TEXT and "<link" not in TEXT and " src=" not in TEXT


def test_there_are_thirty_of_all_families_and_groups():
    asked = [case("working", name) for name in CASES]
    assert len(asked) == 30
    assert {one.family for one in asked} == {"mlp", "cnn", "recurrent", "transformer", "generative", "embedding"}
    assert {CAUSES[one.cause].group for one in asked} == {one.group for one in CAUSES.values()}
    assert len({one.cause for one in asked}) == 30


@pytest.mark.parametrize("kept", KEPT, ids=[str(one["number"]) for one in KEPT])
def test_each_case_has_one_right_cause_and_an_answer_to_each_wrong_one(kept):
    asked = case("working", kept["name"])
    right = [one["says"] for one in kept["causes"] if one["right"]]
    assert right == [page.capital(CAUSES[asked.cause].says)], "its words have changed since: run `make pages`"
    assert len(kept["causes"]) == OFFERED + 1 == len({one["says"] for one in kept["causes"]})
    assert {one["says"] for one in kept["causes"]} <= {page.capital(one.says) for one in CAUSES.values()}
    assert all(one["why"].endswith(".") and not re.search(r"\bnan\b|\binf\b|None", one["why"]) for one in kept["causes"])
    assert kept["shown"] and {*kept["shown"]} <= {one["id"] for one in kept["looks"]} == {*looks.LOOKS}
    assert kept["modlab"]["grade"] in page.GRADES.values()


def test_no_name_gives_the_cause_away_before_it_is_named():
    for kept in KEPT:
        assert kept["name"].partition("/")[2] not in json.dumps([kept["task"], kept["complaint"], kept["looks"]])


def test_nothing_in_it_is_of_the_machine_that_made_it():
    assert not re.search(r"/tmp/|/home/|/work/|/root/|site-packages/|\b0x[0-9a-f]{8,}", html.unescape(TEXT))


def of(name: str, steps: int | None = None) -> tuple[Recording, list[torch.Tensor]]:
    """A recording, and the parameters that the training ends with."""
    training = case("working", name).training(0)
    training.steps = steps or training.steps
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = recorded(training)
    return found, [one.detach() for one in training.model.parameters()]


@pytest.mark.parametrize(
    "name",
    ["dot/clipped to a thousandth", "counting/hooks replace gradients", "bars/label in a corner", "chances/divergence weighs too much"],
)
def test_a_recording_leaves_the_training_as_it_is(name):
    alone = case("working", name).training(0)
    alone.steps = 8
    alone.run()
    for one, other in zip(of(name, 8)[1], alone.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_recording_has_what_the_loop_calls():
    found, _ = of("ratings/zero grad after backward", 6)
    assert [one.partition(" from")[0].partition(" =")[0] for one in found.diary] == [
        "model(…), in training mode",
        "loss",
        "backward()",
        "optimizer.zero_grad()",
        "optimizer.step()",
    ]
    assert found.counts["optimizer.step"] == 6
    assert all(one.after_backward[0] and not one.at_step[0] for one in found.parameters)


def test_a_gradient_that_lies_is_found_out():
    promised, lowered = of("counting/hooks replace gradients", 1)[0].promised
    assert promised < 0 and abs(lowered) < 0.1 * abs(promised)
    promised, lowered = of("counting/no causal mask", 1)[0].promised
    assert lowered == pytest.approx(promised, rel=0.1)


@pytest.mark.parametrize(("name", "leaks"), [("counting/no causal mask", True), ("counting/rate halved every third batch", False)])
def test_who_sees_the_future_is_found_out(name, leaks):
    *earlier, last = of(name, 1)[0].changed
    assert last > 0 and (max(earlier) > 0) is leaks


@pytest.mark.parametrize("name", ["ratings/zero grad after backward", "inside/cross entropy of one logit"])
def test_the_page_says_what_the_training_shows(name):
    """All of them are made anew by `make pages`; these two take a second."""
    asked = case("working", name)
    kept = next(one for one in KEPT if one["name"] == name)
    found, twin = record(asked, 0)
    made = page.of_facts(asked, Facts(found, twin, NETS[name.partition("/")[0]].quality), kept["number"])
    assert words(made["causes"]) == words(kept["causes"])
    assert [
        one["blocks"] == other["blocks"] or words(one["blocks"]) == words(other["blocks"])
        for one, other in zip(made["looks"], kept["looks"], strict=True)
    ]


def words(thing: object) -> str:
    """Without numbers, whose last digits differ from machine to machine."""
    return re.sub(r"-?\d[\d.,e+-]*", "#", json.dumps(thing))


@pytest.mark.parametrize("name", ["ratings/zero grad after backward", "inside/cross entropy of one logit", "recall/only the head is given"])
def test_a_cause_that_is_right_is_not_ruled_out(name):
    assert evidence.RULED_OUT[case("working", name).cause](Facts(of(name, 3)[0], 0.0, "error")) is None


@pytest.mark.parametrize(
    ("diagnosis", "more"),
    [
        ("1 finding: the rate is 0.5: too high. With the batch: 11 passed, 1 not run.", []),
        ("1 finding: the rate is 0.5: too high.", []),
        (
            "3 findings: the rate is 0.5: too high; l0 (Linear) is frozen; and 1 more.",
            [("The diagnosis adds", "l0 (Linear) is frozen; and 1 more.")],
        ),
        ("2 findings: the rate is 0.5: too high; units are dead. With the batch: 6 not run.", [("The diagnosis adds", "units are dead.")]),
        ("1 finding and 2 failed checks: the rate is 0.5: too high; a; b.", [("The diagnosis adds", "a; b.")]),
        ("1 check failed: units are dead. With the batch: 6 passed.", [("The diagnosis", "units are dead.")]),
        ("2 findings: the rate is 0.5; units are dead.", [("The diagnosis", "the rate is 0.5; units are dead.")]),
        ("Nothing certain found in Net. 15 kinds checked.", [("The diagnosis", "Nothing certain found in Net. 15 kinds checked.")]),
    ],
)
def test_what_modlab_says_stands_once_and_whole(diagnosis, more):
    for watch in ("The rate is 0.5: too high.", "The rate is 0.5: too high. The loss goes up."):
        assert page.said_once(watch, diagnosis) == [("The watch", watch), *more]


@pytest.mark.parametrize("kept", KEPT, ids=[str(one["number"]) for one in KEPT])
def test_what_the_page_quotes_of_modlab_is_whole_and_says_nothing_twice(kept):
    labels, texts, parts = zip(*kept["modlab"]["says"], strict=True)
    assert labels in [("The watch",), ("The watch", "The diagnosis"), ("The watch", "The diagnosis adds")]
    assert all(re.search(r"\w.*\w\W*[.:]$", text) and "…" not in text for text in texts)
    assert all(text.endswith("Worth a look:") is bool(some) for text, some in zip(texts, parts, strict=True))
    sentence = texts[0].partition(". ")[0].removesuffix(".")
    assert not any(sentence[1:] in text for text in texts[1:])


@pytest.mark.parametrize("kept", KEPT, ids=[str(one["number"]) for one in KEPT])
def test_a_cause_counts_as_named_only_where_something_is_told_as_wrong(kept):
    says, known = kept["modlab"], {grade: key for key, grade in page.GRADES.items()}
    calm = all(page.CALM.match(text) for _, text, _ in says["says"])
    grade = known[says["grade"]]
    assert (says["first"], says["hinted"]) == (grade == "first", grade == "hinted")
    assert not (calm and grade in ("first", "in three", "wrong")) and not (says["hinted"] and says["named"])


@pytest.mark.parametrize("kept", KEPT, ids=[str(one["number"]) for one in KEPT])
def test_what_the_page_quotes_of_modlab_needs_no_code_of_the_benchmark(kept):
    assert not re.search(r"bench/|\.py:|\w #0|findings? below", json.dumps(kept["modlab"]))


def test_a_headline_is_told_to_strangers():
    said = "The output contains NaN: l0 makes the first at bench/sick/working/nets.py:369; and 1 more. 2 more findings below. It falls."
    assert page.for_strangers(said, 1) == "The output contains NaN: l0 makes the first; and 1 more. It falls."
    assert page.for_strangers("l0 is frozen and in Adam #0.", 1) == "l0 is frozen and in Adam."
    assert page.for_strangers("l0 is in Adam #0.", 2) == "l0 is in Adam #0."


def test_what_is_worth_a_look_is_a_list():
    checked = "15 kinds of mistakes checked in 2 modules."
    said = "Nothing certain found in Net; worth a look: a has p = 0; and 5 more places like it; b is frozen; and 2 more."
    assert page.parted(f"{said} {checked}") == (
        f"Nothing certain found in Net. {checked} Worth a look:",
        ["a has p = 0; and 5 more places like it", "b is frozen; and 2 more"],
    )
    assert page.parted("One thing; another.") == ("One thing; another.", [])


def test_a_guess_is_priced_as_the_loss_prices_it():
    """A cross-entropy of targets that are no class numbers has no squared error to compare with."""
    for name, guess in [("inside/cross entropy of one logit", False), ("marked/target without its last dimension", True)]:
        found = Facts(of(name, 3)[0], 0.0, "error")
        assert found.has_guess is guess
        assert any("looks at no input" in block.get("text", "") for block in looks.of(found)[0]["blocks"]) is guess
    for kept in KEPT:
        [loss] = [look for look in kept["looks"] if look["id"] == "loss"]
        assert "squared error" not in json.dumps(loss) or "squared error" in kept["complaint"]


def test_a_rate_that_is_too_low_is_ruled_out_by_what_moves():
    """Where no weight moves and a bias does, it is not said that nothing moves."""
    why = evidence.RULED_OUT["rate too low"](Facts(of("wave/biases far below zero", 30)[0], 0.0, "error"))
    assert why and why.startswith("What gets a gradient goes far: 4.bias ends ") and "5 of 6 tensors are 0" in why
    still = evidence.RULED_OUT["rate too low"](Facts(of("basket/accumulates for ever", 3)[0], 0.0, "error"))
    assert still and still.startswith("Nothing moves at all")


def test_no_number_has_more_digits_than_are_read():
    for kept in KEPT:
        said = json.dumps([kept["causes"], [block for look in kept["looks"] for block in look["blocks"] if block["kind"] == "say"]])
        assert not re.search(r"\d\.0*[1-9]\d{4,}", said)


def test_a_loss_of_positives_only_has_no_guess_to_compare_with():
    name = next(one["name"] for one in KEPT if one["number"] == 29)
    found = Facts(of(name, 3)[0], 0.0, "error")
    assert not found.has_guess and evidence.RULED_OUT["targets shuffled"](found) is None


@pytest.mark.parametrize("kept", KEPT, ids=[str(one["number"]) for one in KEPT])
def test_what_is_said_of_the_loss_stands_in_its_curve(kept):
    """A value is the first one, the last one, the least or the greatest; a mean says of how many."""
    curve = next(block["y"] for look in kept["looks"] for block in look["blocks"] if block["kind"] == "curve")
    finite = [one for one in curve if one is not None]
    known = [curve[0], curve[-1], min(finite), max(finite)]
    number = r"(-?\d[\d,]*(?:\.\d+)?(?:e[+-]\d+)?)"
    for why in (one["why"] for one in kept["causes"]):
        said = re.findall(rf"loss (?:is|falls|goes|stays|jumps)(?: down| up)?(?: from {number})?(?: (?:to|at))? {number}", why)
        said += re.findall(rf"{number} at most, {number} at first", why)
        for one in (float(text.strip(",")) for pair in said for text in pair if text):
            assert any(one == pytest.approx(other, rel=6e-3) for other in known), why
        for where, many, mean in re.findall(rf"\b(first|last) (\d+)(?: losses| values)?(?: have a mean)? of {number}", why):
            some = finite[: int(many)] if where == "first" else finite[-int(many) :]
            assert float(mean) == pytest.approx(sum(some) / len(some), rel=6e-3), why


def test_a_sample_is_all_that_a_model_gets_of_it():
    users, items, others = torch.arange(4), torch.tensor([1, 2, 3, 4]), torch.tensor([1, 2, 9, 9])
    assert _shared_rows((users, items), (users, others)) == 2 and _shared_rows(users, users) == 4


def test_one_number_is_said_once():
    assert (between(1, 3), between(364_900, 365_100)) == ("between 1 and 3", "at 365,000")
    assert not any(re.search(r"between (\S+) and \1\b", json.dumps(one)) for one in KEPT)
