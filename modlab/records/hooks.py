"""What a hook book is made of: one record for each hook, in the order in which they run."""

from __future__ import annotations

from modlab import format
from modlab.frozen import frozen

EVERY_MODULE = "(every module)"
EVERY_OPTIMIZER = "(every optimizer)"


def of_wrapper(cls: str) -> str:
    """What stands in the place of a path for the wrapper (of such a class) that is around a model, whose own path is ""."""
    return f"({cls})"


@format.printed
@frozen
class Leftover:
    """Why a hook is left over from an earlier run.

    Attributes:
        by: what ran: "cell" or "file" (its own, again), or "another cell": another text, so that it may be its own, edited.
        name: the name that stands for another function by now; nothing where the hook was registered again.
    """

    by: str
    name: str = ""

    @property
    def text(self) -> str:
        """In words, for the middle of a sentence."""
        if self.name:
            why = "cell, or one like it, has run" if self.by == "another cell" else f"{self.by} has run again"
            return f"{self.name} is a different function now, since its {why}"
        who = "a cell that ran later" if self.by == "another cell" else f"a later run of its {self.by}"
        return f"{who} registered it again"

    @property
    def of_its_cell(self) -> bool:
        """Whether it was its own cell that ran again, as far as that can be told."""
        return self.by == "cell" or (bool(self.name) and self.by == "another cell")


@frozen
class HookRecord:
    """One hook.

    Attributes:
        path: the dotted name of the module or tensor that it is on; "(every module)" or "(every optimizer)" for global ones.
        kind: "forward pre", "forward", "full backward pre", "full backward", "legacy backward", "state_dict pre",
            "state_dict post", "load_state_dict pre", "load_state_dict post"; on tensors "gradient" and "post accumulate grad";
            for all modules also "buffer registration" and its like, for all optimizers "optimizer step pre" and "… post".
        order: when it runs among those of its kind there, from 1; `among` is how many they are.
        function: the qualified name; of a partial that of its function, of a callable object that of its class.
        form: "function", "lambda", "method", "partial", "object" or "builtin".
        where: "net.py:12", "a cell of this notebook, line 3"; nothing where there is no Python code.
        code: its source, as far as it can be read.
        with_kwargs: it gets keyword arguments too.
        always_call: it runs also after an exception.
        prepend: True if it was put before others, False if certainly not, None if that cannot be known.
        with_module: False for a load_state_dict pre-hook of the older form, which does not get the module.
        public: for a state_dict post-hook, whether it came by ``register_state_dict_post_hook``.
        machinery: the utility of torch's that it belongs to ("pruning", "weight norm", "DDP", …), or nothing.
        times: how often the same function is registered in this kind there.
        repeat: an older registration of the same function stands in this kind there; what is older stays when repeats go.
        leftover: why it is a left-over of an earlier run of its cell (or of a file that was loaded again), or None; `left` has it in
            words.
        doubt: why it may be a left-over, or nothing: a cell that ran later is like its own, and its lambda is another.
        silent: why it never runs, or nothing.
        owner: the path of the module that it, or its tensor, belongs to; None for global ones.
        number: the `id` of its handle.
    """

    path: str
    kind: str
    order: int
    among: int
    function: str
    form: str = "function"
    where: str = ""
    code: str = ""
    with_kwargs: bool = False
    always_call: bool = False
    prepend: bool | None = None
    with_module: bool = True
    public: bool = True
    machinery: str = ""
    times: int = 1
    repeat: bool = False
    leftover: Leftover | None = None
    doubt: str = ""
    silent: str = ""
    owner: str | None = None
    number: int = -1

    def __repr__(self) -> str:
        said = [self.machinery, "left over" if self.left else "", f"registered {self.times} times" if self.times > 1 else ""]
        marks = "".join(f", {word}" for word in said if word)
        return format.printable(f"<{self.path or '(root)'}: {self.kind} {self.order} of {self.among}, {self.name}{marks}>")

    @property
    def left(self) -> str:
        """Why it is a left-over of an earlier run, or nothing."""
        return "" if self.leftover is None else self.leftover.text

    @property
    def name(self) -> str:
        """The function as one would say it: ``probe``, ``install.probe``, ``lambda``, ``partial of probe``."""
        short = self.function.replace(".<locals>", "").replace("<lambda>", "lambda")
        return {"partial": f"partial of {short}", "object": f"{short} object"}.get(self.form, short)

    @property
    def is_global(self) -> bool:
        """It is on no module, but on all of them (or on all optimizers)."""
        return self.owner is None


@format.printed
@frozen
class HookPlace:
    """A module (or all of them) that has hooks.

    Attributes:
        path: its first dotted name; "(every module)", "(every optimizer)".
        also: its other names.
        category: as in a tree ("linear", "norm", …).
    """

    path: str
    type: str = ""
    category: str = ""
    also: tuple[str, ...] = ()


@frozen
class HookbookRecord:
    """All hooks of a model, or the global ones alone."""

    title: str  # the model's class; nothing without a model
    rows: tuple[HookRecord, ...]
    places: tuple[HookPlace, ...]
    modules: int = 0
    tensors: int = 0
    remarks: tuple[str, ...] = ()  # what cannot be seen, with the reason
