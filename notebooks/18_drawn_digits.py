"""18: something to show: a net that reads digits, from the data to the picture of its mistakes."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from modlab.lessons import digits
from modlab.lessons.checking import fail, require_callable, same
from modlab.lessons.content import Content, Mistake, Question, Task, Wrong
from modlab.lessons.kinds import Choice, Number, YesNo

# ---- what the questions are proved with -----------------------------------------------------------


@cache
def pictures(number: int, seed: int) -> tuple[Tensor, Tensor]:
    """As the notebook makes them: one of each digit in turn."""
    numbers = torch.Generator().manual_seed(seed)
    labels = torch.arange(number) % 10
    return torch.stack([digits.written(int(label), numbers) for label in labels]), labels


def reader() -> nn.Sequential:
    """The notebook's net."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.25),
        nn.Linear(256, 10),
    )


def right(net: nn.Module, images: Tensor, labels: Tensor) -> float:
    """The share that it reads correctly."""
    net.eval()
    with torch.no_grad():
        return float((net(images).argmax(1) == labels).float().mean())


@cache
def trained(number: int, epochs: int) -> nn.Sequential:
    """The net after the notebook's training."""
    torch.manual_seed(0)
    net = reader()
    loader = DataLoader(TensorDataset(*pictures(number, 1)), batch_size=64, shuffle=True, generator=torch.Generator().manual_seed(0))
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    for _ in range(epochs):
        net.train()
        for images, labels in loader:
            loss: Any = F.cross_entropy(net(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return net


def _batches() -> int:
    return len(DataLoader(TensorDataset(*pictures(2000, 1)), batch_size=64))


def _first_loss() -> str:
    torch.manual_seed(0)
    images, labels = pictures(1000, 2)
    loss = F.cross_entropy(reader()(images), labels).item()
    return "c" if math.isclose(loss, math.log(10), rel_tol=0.05) else ""


def _same_order() -> bool:
    loader = DataLoader(TensorDataset(torch.arange(100)), batch_size=100, shuffle=True, generator=torch.Generator().manual_seed(0))
    first, second = (next(iter(loader))[0] for _ in range(2))
    return torch.equal(first, second)


def _forty() -> str:
    net = trained(40, 100)
    assert right(net, *pictures(40, 1)) == 1
    share = right(net, *pictures(1000, 2))
    return "a" if share >= 0.9 else "b" if share >= 0.5 else "c"


def _swapped() -> str:
    images, labels = pictures(1000, 2)
    net = trained(2000, 5)
    assert right(net, images, labels) > 0.95
    share = right(net, 1 - images, labels)
    return "a" if share >= 0.9 else "b" if share >= 0.4 else "c" if share < 0.2 else ""


def _twice() -> bool:
    net, x = reader().train(), torch.randn(4, 1, 16, 16)
    return torch.equal(net(x), net(x))


# ---- questions ------------------------------------------------------------------------------------

PREDICTIONS = (
    Question(
        "how many batches",
        "2,000 pictures, in batches of 64. How many batches does the loader give in an epoch?",
        Number(),
        32,
        "31 full ones, and one of the 16 pictures that are left.",
        wrong=(
            Wrong(31, "So it is with `drop_last=True`. As it stands, the rest comes as a small batch."),
            Wrong(31.25, "There are no parts of batches: the rest comes as a small one."),
            Wrong(64, "That is the number of pictures in a batch."),
            Wrong(2000, "That is the number of pictures; the loader puts 64 of them together."),
        ),
        proof=_batches,
    ),
    Question(
        "the same order",
        "The loader shuffles, with a generator of a fixed seed. Is the order of the pictures the same in each epoch?",
        YesNo(),
        False,
        "The generator goes on from where it was. A new run with the same seed gives the same *sequence* of orders.",
        wrong=(Wrong(True, "The seed says where the generator begins, and each epoch takes the next numbers from it."),),
        proof=_same_order,
    ),
    Question(
        "the first loss",
        "The net is untrained, and there are ten digits. What is its cross-entropy, about?",
        Choice("0", "1", "2.3", "10"),
        "c",
        "It gives each digit about a tenth, and -ln(1/10) is 2.30. A first loss far from that means that something is wrong.",
        wrong=(
            Wrong("a", "Zero is for a net that is sure and right, each time."),
            Wrong("b", "The loss is minus the logarithm of what it gives to the right digit: -ln(1/10)."),
            Wrong("d", "Ten is what it would be for a net that gives the right digit 1 in 22,000."),
        ),
        proof=_first_loss,
    ),
    Question(
        "white on black",
        "The trained net reads more than 95 of 100 new pictures. Now black and white are swapped in them. How many does it read?",
        Choice("more than 90 of 100: the shapes are the same", "about half", "fewer than 20"),
        "c",
        "It has learned where ink is, not shapes as you see them. It has never seen a white line on black.",
        wrong=(
            Wrong("a", "You see the same shapes. The net multiplies pixels by weights, and all pixels are different."),
            Wrong("b", "Not even that. Nothing in the training said that a white line on black means the same."),
        ),
        proof=_swapped,
    ),
    Question(
        "forty pictures",
        "The same net, trained on only 40 pictures, until it reads all 40. How many of 100 new pictures does it read?",
        Choice("more than 90", "50 to 90", "about 10, as by guessing"),
        "b",
        "It has learned something of digits, and much of these 40 pictures. Only pictures that it has not seen tell the two apart.",
        wrong=(
            Wrong("a", "All 40 are right, but 4 examples of a digit do not show how differently it can be written."),
            Wrong("c", "It has not only learned them by heart: new digits are similar to those it knows."),
        ),
        proof=_forty,
    ),
)

RECALLS = (
    Question(
        "two batches",
        "In a batch of 64 pictures 32 are right, in one of 16 all are. Which share of all the pictures is right?",
        Number(),
        0.6,
        "48 of 80. The mean of the two shares, 0.75, lets the small batch count as much as the large one.",
        wrong=(Wrong(0.75, "That is the mean of the two shares. The batches differ in size: count pictures, 48 of 80."),),
        proof=lambda: (32 + 16) / (64 + 16),
    ),
    Question(
        "the best epoch",
        "You keep the weights of the epoch with the best validation accuracy. Is that accuracy a fair promise for new pictures?",
        Choice("yes: the net was not trained on them", "no: it is a little too good", "no: it is a little too bad"),
        "b",
        "You chose the luckiest of several. For a promise, take pictures that were used for nothing else: a test set.",
        wrong=(
            Wrong("a", "The net was not trained on them, but you chose the epoch by them, and part of that was luck."),
            Wrong("c", "Luck helps the epoch that you chose, because it was the best of several."),
        ),
    ),
    Question(
        "the same picture twice",
        "From lesson 06: the net, with its dropout, is in training mode and gets the same picture twice. Are the two outputs equal?",
        YesNo(),
        False,
        "In training mode dropout leaves out other activations in each call. `net.eval()` comes before you measure.",
        wrong=(Wrong(True, "Dropout draws anew in each call, until `net.eval()`.", belief=19),),
        proof=_twice,
    ),
)

# ---- task: a dataset -------------------------------------------------------------------------------


def _expected(seed: int, number: int) -> Tensor:
    return digits.written(number % 10, torch.Generator().manual_seed(seed + number))


def _dataset(answer: Any, number: int, seed: int) -> Any:
    require_callable(answer, "Drawn")
    made = answer(number, seed)
    if not isinstance(made, Dataset):
        fail("It should derive from `torch.utils.data.Dataset`.", expected="a Dataset", got=f"a {type(made).__name__}")
    return made


def _item(made: Any, number: int) -> tuple[Any, Any]:
    found = made[number]
    if not isinstance(found, tuple) or len(found) != 2:
        fail("An item should be a picture and its digit.", expected="(picture, digit)", got=found)
    return found


def _long(answer: Any) -> None:
    """its length is the number of pictures"""
    made = _dataset(answer, 30, 5)
    if not hasattr(made, "__len__"):
        fail(mistake="no length", expected="len(dataset) is 30", got="no __len__")
    if len(made) != 30:
        fail("Its length should be the number of pictures.", expected=30, got=len(made))


def _items(answer: Any) -> None:
    """item 7 is a seven, as the function draws it"""
    made = _dataset(answer, 30, 5)
    for number in (0, 1, 2, 17, 29):  # in order, as a mistake with a common generator may draw them
        picture, digit = _item(made, number)
        if digit != number % 10:
            fail(f"Item {number} has another digit.", expected=number % 10, got=digit)
        if not isinstance(picture, Tensor) or not same(picture, _expected(5, number)):
            ahead = torch.Generator().manual_seed(5)
            common = (
                isinstance(picture, Tensor) and number < 2 and same(picture, [digits.written(one % 10, ahead) for one in range(2)][number])
            )
            twice = isinstance(picture, Tensor) and same(picture, digits.written(number % 10, torch.Generator().manual_seed(5)))
            name = "one generator for all" if common and number else "one seed for all" if twice else ""
            says = f"Item {number} is another picture."
            fail(says, mistake=name, expected=_expected(5, number).flatten()[:3], got=picture)


def _again(answer: Any) -> None:
    """and the same one, whenever it is asked for"""
    made = _dataset(answer, 30, 5)
    first = _item(made, 12)[0]
    _item(made, 3)
    if not same(_item(made, 12)[0], first):
        fail(mistake="one generator for all", expected="the same picture", got="a different one")


def _ends(answer: Any) -> None:
    """behind the last item there is none"""
    made = _dataset(answer, 30, 5)
    try:
        made[30]
    except IndexError:
        return
    fail(mistake="no end", expected="IndexError", got="a picture")


def _drawn(init: str, get: str, length: str = "return self.number") -> str:
    body = f"    def __len__(self):\n        {length}\n\n" if length else ""
    return f"""
class Drawn(Dataset):
    def __init__(self, number, seed):
        self.number, self.seed = number, seed
{init}
{body}    def __getitem__(self, i):
{get}
"""


_END = "        if i >= self.number:\n            raise IndexError(i)\n"
_GIVE = "        return digits.written(i % 10, numbers), i % 10"
_OWN = "        numbers = torch.Generator().manual_seed(self.seed + i)\n"

DRAWN = Task(
    "Drawn",
    "Write the dataset `Drawn(number, seed)`: item `i` is a picture of the digit `i % 10`, drawn when asked for, and that digit.",
    starter="""
class Drawn(Dataset):
    ...
""",
    reference=_drawn("", _END + _OWN + _GIVE),
    given="from torch.utils.data import Dataset\nfrom modlab.lessons import digits",
    probes=(_long, _again, _items, _ends),
    mistakes=(
        Mistake(
            "one generator for all",
            _drawn("        self.numbers = torch.Generator().manual_seed(seed)\n", _END + _GIVE.replace("numbers", "self.numbers")),
            "With a common generator a picture hangs on what was asked before it. "
            "In each epoch, and in each worker of a loader, item 12 would be another one.",
        ),
        Mistake(
            "one seed for all",
            _drawn("", _END + _OWN.replace("self.seed + i", "self.seed") + _GIVE),
            "Each picture has the same seed, so all sevens are the same seven. Let the seed depend on the item: `seed + i`.",
        ),
        Mistake(
            "no length",
            _drawn("", _END + _OWN + _GIVE, length=""),
            "A loader that shuffles asks for the length: write `__len__`.",
        ),
        Mistake(
            "no end",
            _drawn("", _OWN + _GIVE),
            "`for picture, digit in dataset:` asks for items until an `IndexError` comes. Without one it never ends.",
        ),
    ),
    hints=(
        "Two methods: `__len__(self)` and `__getitem__(self, i)`.",
        "In `__getitem__`, make `numbers = torch.Generator().manual_seed(self.seed + i)`, and then `digits.written(i % 10, numbers)`.",
        "Raise an `IndexError` where `i` is not below the number of pictures.",
    ),
    minutes=5,
    matters="A dataset that draws on demand needs no memory, and one whose items never change can be debugged.",
)

# ---- task: accuracy --------------------------------------------------------------------------------


def _uneven() -> tuple[nn.Module, list[tuple[Tensor, Tensor]]]:
    """A net that reads an input as its largest entry, and batches of different sizes: 2 of 8 are right, and 2 of 2."""
    labels = torch.arange(10) % 3
    shown = labels.clone()
    shown[:6] = (labels[:6] + 1) % 3
    x = F.one_hot(shown, 3).float()
    return nn.Sequential(nn.Identity()), [(x[:8], labels[:8]), (x[8:], labels[8:])]


def _measured(answer: Any, net: nn.Module, loader: Any) -> float:
    require_callable(answer, "accuracy")
    found = answer(net, loader)
    if found is None:
        fail("It returns nothing: give the share.", expected="a number from 0 to 1", got="None")
    if isinstance(found, Tensor):
        found = found.item()
    return float(found)


def _all(answer: Any) -> None:
    """each picture counts the same"""
    net, loader = _uneven()
    found = _measured(answer, net, loader)
    if not math.isclose(found, 0.4, abs_tol=1e-6):
        known = {0.625: "a mean of means", 0.25: "the first batch only", 1.0: "the last batch only", 40.0: "per cent", 4.0: "a count"}
        name = next((name for value, name in known.items() if math.isclose(found, value, abs_tol=1e-6)), "")
        says = "2 of 8 are right in the first batch, and 2 of 2 in the second."
        fail(says, mistake=name if name in {one.name for one in ACCURACY.mistakes} else "", expected=0.4, got=round(found, 4))


class _Modal(nn.Module):
    """Right in evaluation mode only; it notes whether gradients are on."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))
        self.graph = False

    def forward(self, x: Tensor) -> Tensor:
        """(n, classes) → (n, classes)."""
        out = x * self.weight
        self.graph |= out.requires_grad
        return -out if self.training else out


def _mode(answer: Any) -> None:
    """in evaluation mode"""
    labels = torch.arange(10) % 3
    if _measured(answer, _Modal().train(), [(F.one_hot(labels, 3).float(), labels)]) != 1:
        fail(mistake="in training mode", expected=1.0, got=0.0)


def _back(answer: Any) -> None:
    """and the net is afterwards in the mode in which it came"""
    labels = torch.arange(10) % 3
    for training in (True, False):
        net = _Modal().train(training)
        _measured(answer, net, [(F.one_hot(labels, 3).float(), labels)])
        if net.training is not training:
            fail(mistake="left in another mode", expected=f"training is {training}", got=f"training is {net.training}")


def _light(answer: Any) -> None:
    """without a graph for gradients"""
    net, labels = _Modal(), torch.arange(10) % 3
    _measured(answer, net, [(F.one_hot(labels, 3).float(), labels)])
    if net.graph:
        fail(mistake="gradients on", expected="no graph", got="a graph for each batch")


def _accuracy(*lines: str) -> str:
    body = "\n".join(f"    {line}" for line in lines)
    return f"""
def accuracy(net, loader):
{body}
"""


_BEGIN = ("training = net.training", "net.eval()")
_COUNT = (
    "right = total = 0",
    "with torch.no_grad():",
    "    for images, labels in loader:",
    "        right += (net(images).argmax(1) == labels).sum().item()",
    "        total += len(labels)",
)
_END_OF = ("net.train(training)", "return right / total")

ACCURACY = Task(
    "accuracy",
    "Write `accuracy(net, loader)`: the share of all the loader's pictures that the net reads correctly.",
    starter=_accuracy("..."),
    reference=_accuracy(*_BEGIN, *_COUNT, *_END_OF),
    probes=(_all, _mode, _back, _light),
    mistakes=(
        Mistake(
            "a mean of means",
            _accuracy(
                *_BEGIN,
                "with torch.no_grad():",
                "    shares = [(net(images).argmax(1) == labels).float().mean().item() for images, labels in loader]",
                "net.train(training)",
                "return sum(shares) / len(shares)",
            ),
            "The last batch is smaller, and counts as much as a full one in a mean of means. Add up the right ones, and divide at the end.",
        ),
        Mistake(
            "the first batch only",
            _accuracy(
                *_BEGIN,
                "images, labels = next(iter(loader))",
                "with torch.no_grad():",
                "    share = (net(images).argmax(1) == labels).float().mean().item()",
                "net.train(training)",
                "return share",
            ),
            "That is one batch. The loader has more: go through all of them.",
        ),
        Mistake(
            "in training mode",
            _accuracy(*_COUNT, "return right / total"),
            "The net is measured as it comes, in training mode: dropout leaves activations out. `net.eval()` comes first.",
            belief=19,
        ),
        Mistake(
            "left in another mode",
            _accuracy("net.eval()", *_COUNT, "return right / total"),
            "The net stays in evaluation mode, and the next epoch would train without dropout. Put the mode back.",
        ),
        Mistake(
            "gradients on",
            _accuracy(*_BEGIN, _COUNT[0], *(line.removeprefix("    ") for line in _COUNT[2:]), *_END_OF),
            "Each batch makes a graph for gradients that nobody wants, and that takes memory. `eval()` does not stop that: `no_grad` does.",
            belief=18,
        ),
    ),
    hints=(
        "Count two things over all batches: right ones and all. Divide at the end.",
        "Keep `net.training`, call `net.eval()`, and in the end `net.train(training)`.",
        "`with torch.no_grad():` around the loop.",
    ),
    minutes=5,
    matters="Five lines that stand in every training, and each of the five mistakes has cost somebody a result.",
)

LESSON = Content(
    name="18_drawn_digits",
    title="Something to show: a net that reads digits",
    goal="take a training from the data to a result: dataset, loader, validation, and a picture of the mistakes",
    minutes=25,
    after=("05_training_loop", "06_modes"),
    predictions=PREDICTIONS,
    recalls=RECALLS,
    tasks=(DRAWN, ACCURACY),
)
