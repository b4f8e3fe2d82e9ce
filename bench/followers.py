"""What follows a training run: modlab, its rivals as far as they are installed, and hooks that do what others' hooks do.

A follower is a function that attaches itself to a model and its optimizer, and gives what is to be called after each backward pass and at
the end.
"""

from __future__ import annotations

import logging
import os
import random
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from torch import Tensor, nn

from modlab.watching import sample
from modlab.watching.watcher import Watcher

AfterBackward = Callable[[Tensor], None]
Attached = tuple[AfterBackward, Callable[[], None]]

PLAIN, AGAIN = "unwatched", "unwatched, a second copy"
DEFAULT, EVERY, BARE = "modlab.watch", "modlab.watch, every step sampled", "modlab.watch, every step, without units and updates"


def nothing(model: nn.Module, optimizer: Any) -> Attached:
    return lambda loss: None, lambda: None


def default(model: nn.Module, optimizer: Any) -> Attached:
    return _watcher(model, optimizer, 0.02)


def every(model: nn.Module, optimizer: Any) -> Attached:
    return _watcher(model, optimizer, 1.0)


def bare(model: nn.Module, optimizer: Any) -> Attached:
    """In a process of its own: it takes modlab's parts away."""
    sample.Sample._see = lambda *_, **__: None  # type: ignore[method-assign]
    sample.Updates.before = lambda *_: []  # type: ignore[method-assign]
    return _watcher(model, optimizer, 1.0)


def _watcher(model: nn.Module, optimizer: Any, budget: float) -> Attached:
    made = Watcher(model, [optimizer], budget)
    made.open()
    return lambda loss: None, lambda: made.close("ended")


def hooks(model: nn.Module, optimizer: Any) -> Attached:
    handles = [module.register_forward_hook(lambda *_: None) for module in model.modules()]
    return lambda loss: None, lambda: [handle.remove() for handle in handles] and None


def backward_hooks(model: nn.Module, optimizer: Any) -> Attached:
    handles = [module.register_full_backward_hook(lambda *_: None) for module in model.modules()]
    return lambda loss: None, lambda: [handle.remove() for handle in handles] and None


def statistics(model: nn.Module, optimizer: Any) -> Attached:
    """What hooks of courses and of fastai take: mean, std, share near zero and a histogram of each leaf's output, every step."""

    def hook(module: nn.Module, args: Any, output: Any) -> None:
        if isinstance(output, Tensor) and output.is_floating_point():
            t = output.detach()
            kept.append((t.mean().item(), t.std().item(), (t <= 0.05).long().sum().item() / t.numel(), t.float().histc(40, 0, 10)))

    kept: list[Any] = []
    leaves = [module for module in model.modules() if not any(True for _ in module.children())]
    handles = [module.register_forward_hook(hook) for module in leaves]
    return lambda loss: None, lambda: [handle.remove() for handle in handles] and None


def wandb(model: nn.Module, optimizer: Any) -> Attached:
    """Parameters and their gradients in histograms; it sees no activation."""
    return _wandb(model, 1, False)


def wandb_100(model: nn.Module, optimizer: Any) -> Attached:
    return _wandb(model, 100, False)


def wandb_100_loss(model: nn.Module, optimizer: Any) -> Attached:
    return _wandb(model, 100, True)


def _wandb(model: nn.Module, every_step: int, loss_too: bool) -> Attached:
    folder = tempfile.mkdtemp()
    os.environ.update(WANDB_SILENT="true", WANDB_MODE="offline", WANDB_DIR=folder)
    import wandb

    settings = wandb.Settings(console="off", x_disable_stats=True, x_disable_meta=True)
    run = wandb.init(project="bench", dir=folder, mode="offline", settings=settings)
    run.watch(model, log="all", log_freq=every_step)

    def after(loss: Tensor) -> None:
        run.log({"loss": loss.item()} if loss_too else {})

    return after, lambda: None


def tensorboard(model: nn.Module, optimizer: Any) -> Attached:
    from torch.utils.tensorboard import SummaryWriter

    writer: Any = SummaryWriter(tempfile.mkdtemp())  # type: ignore[no-untyped-call]
    steps, outputs = [0], {}

    def remember(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            if isinstance(output, Tensor):
                outputs[name] = output.detach()

        return hook

    for name, module in model.named_modules():
        if not any(True for _ in module.children()):
            module.register_forward_hook(remember(name))

    def after(loss: Tensor) -> None:
        steps[0] += 1
        for name, output in outputs.items():
            writer.add_histogram(f"activation/{name}", output, steps[0])
        for name, parameter in model.named_parameters():
            writer.add_histogram(f"parameter/{name}", parameter, steps[0])
            if parameter.grad is not None:
                writer.add_histogram(f"gradient/{name}", parameter.grad, steps[0])

    return after, writer.flush


def torchexplorer(model: nn.Module, optimizer: Any) -> Attached:
    """All that it logs, with its own server; it lays the graph out anew in each step."""
    import torchexplorer

    folder = tempfile.mkdtemp()
    logging.getLogger("werkzeug").disabled = True
    port = random.randint(20_000, 40_000)
    torchexplorer.watch(model, log_freq=1, backend="standalone", verbose=False, standalone_port=port, standalone_dir=f"{folder}/explorer")
    return lambda loss: None, lambda: None


@dataclass(frozen=True)
class Follower:
    """One row.

    Attributes:
        attach: begins to follow a model.
        package: what has to be installed for it.
        slow: a quick run leaves it out.
    """

    name: str
    attach: Callable[[nn.Module, Any], Attached]
    package: str = "torch"
    slow: bool = False

    @property
    def installed(self) -> bool:
        return find_spec(self.package) is not None


FOLLOWERS = (
    Follower(AGAIN, nothing),
    Follower(DEFAULT, default),
    Follower("wandb.watch, log_freq 100", wandb_100, "wandb"),
    Follower("wandb.watch, log_freq 100, and the loss", wandb_100_loss, "wandb"),
    Follower("forward hooks that do nothing", hooks),
    Follower("full backward hooks that do nothing", backward_hooks),
    Follower(BARE, bare),
    Follower(EVERY, every),
    Follower("statistics of outputs, as fastai takes them, every step", statistics),
    Follower("wandb.watch, every step", wandb, "wandb", slow=True),
    Follower("TensorBoard histograms, every step", tensorboard, "tensorboard", slow=True),
    Follower("torchexplorer.watch, every step", torchexplorer, "torchexplorer", slow=True),
)


def missing() -> list[str]:
    """The names of the packages that are not installed, as pip takes them."""
    return sorted({one.package for one in FOLLOWERS if not one.installed})
