"""Checkpoints, files and state_dicts: keys, shapes, and what ``torch.load`` refuses."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from torch import Tensor

from modlab import format
from modlab.errors import nearest
from modlab.explaining import code_fixes, parametrizations, suspects
from modlab.explaining.calls import join
from modlab.explaining.failure import Cause, Failure, Rule, shape_of, shown, tuple_of
from modlab.explaining.frames import Frame
from modlab.explaining.rules import weight_files
from modlab.inspection import stores
from modlab.records.explanation import Fix

_WRAPPERS = {
    "module.": "DataParallel or DistributedDataParallel",
    "_orig_mod.": "torch.compile",
    "model.": "a class around the model",
    "net.": "a class around the model",
}
_NESTED = ("state_dict", "model_state_dict", "model", "net", "network", "weights", "params")
LISTED = 8
_COUNTER = "num_batches_tracked"  # of a BatchNorm: torch forgives that it is missing, and does not say so
_READ = re.compile(r"\b(?:load|load_file|load_state_dict_from_url|read\w*)\(")
_WRITTEN = 70  # characters of an expression that is written again
_LITTLE = 4  # strict=False is no way out where less than one tensor of so many would be loaded


def _keys(text: str, label: str) -> list[str]:
    found = re.search(rf"{label} key\(s\) in state_dict: (.*?)\.\s*(?:\n|$)", text, re.DOTALL)
    return re.findall(r'"([^"]*)"', found[1]) if found else []


def _state_dict(failure: Failure, match: re.Match[str]) -> Cause:
    missing, unexpected = _keys(failure.message, "Missing"), _keys(failure.message, "Unexpected")
    sizes = re.findall(
        r"size mismatch for ([^:]+): copying a param with shape torch\.Size\(\[([\d, ]*)\]\) from checkpoint, the shape in current model "
        r"is torch\.Size\(\[([\d, ]*)\]\)",
        failure.message,
    )
    odd = re.findall(r'While copying the parameter named "([^"]+)", (.*?)(?:\n|$)', failure.message)
    model = match[1]
    given = failure.local("state_dict")
    loading = _loading(failure)
    what = loading.what
    if sizes and not missing and not unexpected:
        return _sizes(failure, loading, model, sizes)
    if odd and not missing and not unexpected and not sizes:
        if all("mixed torch.Tensor and DTensor" in why for _, why in odd):
            return _spread(loading, [name for name, _ in odd])
        return Cause(
            f"{odd[0][0]} cannot be copied from the {what} into {model}.",
            f"{odd[0][1][:1].upper()}{odd[0][1][1:200]}.",
            "",
            tuple((key, why[:120]) for key, why in odd[:LISTED]),
        )
    facts = [
        (f"missing from the {what}: {len(missing):,}", _some(missing)),
        (f"unknown to the model: {len(unexpected):,}", _some(unexpected)),
    ]
    facts += [(f"shape of {key}", f"{what} ({old}), model ({new})") for key, old, new in sizes[:LISTED]]
    changed = parametrizations.found(missing, unexpected) if not sizes else None
    if changed is not None and parametrizations.is_default(*changed[1:3], given):
        return _changed(loading, model, changed, facts)
    unlike = parametrizations.found(unexpected, missing) if not sizes else None
    if unlike is not None:
        return _unchanged(model, what, unlike, facts)
    prefix = _prefix(missing, unexpected)
    if prefix is not None and not sizes:
        wrapper = _WRAPPERS.get(prefix[1], "a class around the model")
        if prefix[0] == "model" and not _wraps(failure.module, prefix[1]):
            wrapper = "a class around the model"
        more = f"in the {what if prefix[0] == 'file' else 'model'}: {wrapper} added it"
        return Cause(
            f"Only the prefix {prefix[1]!r} differs, {more}.",
            f"{'The name fits' if len(missing) == 1 else f'All {max(len(missing), len(unexpected)):,} names fit'} "
            f"{'without' if prefix[0] == 'file' else 'with'} it.",
            "",
            tuple(fact for fact in facts if fact[1]),
            (_renaming(loading, prefix),),
        )
    nested = next((key for key in _NESTED if key in unexpected and _is_mapping(given, key)), None)
    if nested is None and type(given) is dict:
        nested = next((key for key in unexpected if _is_mapping(given, key)), None)
    if nested is not None:
        return Cause(
            f"What was given is a whole checkpoint: the weights are under its key {nested!r}.",
            f"{model} has none of {_some(unexpected)}.",
            "",
            tuple(fact for fact in facts if fact[1]),
            (loading.fix("", f"{loading.state}[{nested!r}]"),),
        )
    path = parametrizations.part(failure.module, given) if failure.module is not None and unexpected else ""
    if path:
        place = "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in path.split("."))
        return Cause(
            f"The {what} belongs to a part of the model: all its {len(given):,} names fit {path}.",
            f"{model} has more than that.",
            "",
            tuple(fact for fact in facts if fact[1]),
            (Fix("Load it into that part:", f"{loading.made}{loading.model}{place}.load_state_dict({loading.state})"),),
        )
    return _names(failure, loading, model, missing, unexpected, sizes, facts)


def _changed(loading: _Loading, model: str, changed: tuple[str, list[str], tuple[str, ...], str], facts: list[tuple[str, str]]) -> Cause:
    """The file's model was pruned, or its weights are normalised, and this one is as it was made."""
    word, names, patterns, utility = changed
    last = names[0].rpartition(".")[2]
    became = " and ".join(pattern.format(last) for pattern in patterns)
    if utility:
        code = f"{loading.made}{parametrizations.applied(loading.model, names, utility)}{loading.model}.load_state_dict({loading.state})"
        fix = Fix("Do the same to this model first, then load:", code)
    else:
        code = f"{loading.made}{parametrizations.merged(loading.state)}{loading.model}.load_state_dict(state)"
        fix = Fix("Load the weights together with their masks:", code)
    return Cause(
        f"The {loading.what} is from a {word} model, but {model} is not {word}.",
        f"{names[0]} is stored as {became}.",
        "",
        tuple(fact for fact in facts if fact[1]),
        (fix,),
    )


def _unchanged(model: str, what: str, unlike: tuple[str, list[str], tuple[str, ...], str], facts: list[tuple[str, str]]) -> Cause:
    """The other way round."""
    word, names, patterns, utility = unlike
    what_then = utility.rpartition(".")[2] or "pruning"
    return Cause(
        f"{model} is {word}, but the {what} is from a model that is not.",
        f"It has {names[0]}, and the model has {patterns[0].format(names[0].rpartition('.')[2])} in its place.",
        "",
        tuple(fact for fact in facts if fact[1]),
        (Fix(f"Load it into the fresh model, and apply {what_then} afterwards."),),
    )


def _spread(loading: _Loading, names: list[str]) -> Cause:
    """Whole tensors, and a model that is spread over processes."""
    code = (
        "from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict\n"
        f"{loading.made}set_model_state_dict({loading.model}, {loading.state}, options=StateDictOptions(full_state_dict=True))"
    )
    return Cause(
        f"{names[0]} is spread over processes, but the {loading.what} holds it whole.",
        "load_state_dict can copy a DTensor only from a DTensor.",
        "",
        (("DTensor in the model", _some(names)),),
        (Fix("Let torch take each process's part of it; all processes call this:", code),),
    )


class _Loading(NamedTuple):
    """How a state_dict was loaded, as it is written.

    Attributes:
        model: what the user calls the model.
        state: what the user calls the state_dict.
        made: the line that gives it this name, where the user has none for it.
        what: whether it came from a file, as far as the code shows it: "file" or "state_dict".
    """

    model: str
    state: str
    made: str
    what: str

    def fix(self, prose: str, given: str, before: str = "") -> Fix:
        """The same call with something else."""
        return Fix(prose, f"{self.made}{before}{self.model}.load_state_dict({given})")


def _loading(failure: Failure) -> _Loading:
    frame, model = failure.user, code_fixes.name_of_root(failure)
    call = frame.expression() if frame is not None else None
    if frame is None or not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.func.attr != "load_state_dict":
        return _Loading(model, "state", "", "state_dict")
    node = call.args[0] if call.args else next((k.value for k in call.keywords if k.arg == "state_dict"), None)
    if isinstance(call.func.value, (ast.Name, ast.Attribute, ast.Subscript)):
        model = ast.unparse(call.func.value)
    if node is None:
        return _Loading(model, "state", "", "state_dict")
    written = ast.unparse(node)
    base: ast.expr = node
    while isinstance(base, (ast.Attribute, ast.Subscript)):  # checkpoint["model"]
        base = base.value
    what = "file" if _READ.search(written) or (isinstance(base, ast.Name) and _is_read(frame, base.id)) else "state_dict"
    if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)) and len(written) <= _WRITTEN:
        return _Loading(model, written, "", what)
    return _Loading(model, "state", f"state = {written}\n" if len(written) <= _WRITTEN else "", what)


def _is_read(frame: Frame, name: str) -> bool:
    """Whether a name was last assigned from something that reads a file."""
    lines = [line for number, line in frame.lines() if number <= frame.line]
    found = [match[1] for line in lines for match in re.finditer(rf"(?:^|[;\s]){re.escape(name)}\s*=(?!=)\s*([^;]*)", line)]
    return bool(found) and _READ.search(found[-1]) is not None


def _wraps(module: Any, prefix: str) -> bool:
    """Whether a model is a wrapper that is known for this prefix."""
    known = {"module.": ("DataParallel", "DistributedDataParallel"), "_orig_mod.": ("OptimizedModule",)}
    return type(module).__name__ in known.get(prefix, ())


def _renamed(failure: Failure, missing: list[str], unexpected: list[str]) -> list[tuple[str, str]]:
    """The model's names with the nearest of the file's that has the same shape, if that gives each one another."""
    given, module = failure.local("state_dict"), failure.module
    if not missing or len(missing) > LISTED or len(unexpected) < len(missing) or module is None or not issubclass(type(given), dict):
        return []
    own = {join(path, key): shape_of(tensor) for path, inner in suspects.walk(module) for key, tensor in stores.named_tensors(inner)}
    pairs: list[tuple[str, str]] = []
    for key in missing:
        fitting = [old for old in unexpected if shape_of(dict.get(given, old)) == own.get(key) is not None]
        left = [old for old in fitting if old not in {old for _, old in pairs}]
        pairs.append((key, next(iter(nearest(key, left, 1) or left), "")))
    if not all(old for _, old in pairs):
        return []
    return pairs + [(_counter(new), _counter(old)) for new, old in pairs if old.endswith("running_mean") and _counter(old) in unexpected]


def _counter(key: str) -> str:
    """The name of the count beside a running mean."""
    return key.removesuffix("running_mean") + _COUNTER


def _loadable(failure: Failure, missing: list[str], sizes: list[Any]) -> tuple[int, int]:
    """How many of the model's tensors have a name and a shape that fit, and how many there are; 0 and 0 where that is not known."""
    given, module = failure.local("state_dict"), failure.module
    if module is None or not issubclass(type(given), dict):
        return 0, 0
    own = {join(path, key) for path, inner in suspects.walk(module) for key, _ in stores.named_tensors(inner)}
    bad = {*missing, *(size[0] for size in sizes)}
    fits = sum(key in own and key not in bad and not key.endswith(_COUNTER) for key in dict.keys(given) if type(key) is str)
    return fits, fits + len(bad)


def _names(
    failure: Failure,
    loading: _Loading,
    model: str,
    missing: list[str],
    unexpected: list[str],
    sizes: list[Any],
    facts: list[tuple[str, str]],
) -> Cause:
    what, pairs = loading.what, _renamed(failure, missing, unexpected)
    words = []
    if missing:
        words.append(
            f"{missing[0]} is not in the {what}" if len(missing) == 1 else f"{len(missing):,} of the model's names are not in the {what}"
        )
    if unexpected:
        words.append(
            f"{unexpected[0]} is not in the model" if len(unexpected) == 1 else f"{len(unexpected):,} of the {what}'s are not in the model"
        )
    if sizes:
        words.append(f"{format.plural(len(sizes), 'shape differs', 'shapes differ')}")
    fixes = []
    part = _part(missing, unexpected)
    if part and not sizes:
        chosen = f"{{k.removeprefix({part!r}): v for k, v in {loading.state}.items() if k.startswith({part!r})}}"
        fixes.append(loading.fix(f"All that are missing stand in the {what} under {part!r}:", chosen))
    elif pairs and unexpected:
        renamed = ", ".join(f"{old!r}: {new!r}" for new, old in pairs)
        chosen = f"{{names.get(k, k): v for k, v in {loading.state}.items()}}"
        fixes.append(loading.fix("If they are the same under different names:", chosen, f"names = {{{renamed}}}\n"))
    fits, all_ = _loadable(failure, missing, sizes)
    more = "With strict=True, the default, every name must fit."
    if fits * _LITTLE < all_:
        more = f"{'None' if not fits else f'Only {fits:,}'} of the model's {all_:,} tensors would be loaded with strict=False."
        if not fixes:
            seen = f"print(list({loading.state})[:3])\nprint(list({loading.model}.state_dict())[:3])"
            fixes.append(Fix("It seems to be from a different model. Names of both:", f"{loading.made}{seen}"))
    elif not sizes:
        loose = f"{loading.made}print({loading.model}.load_state_dict({loading.state}, strict=False))"
        fixes.append(Fix(f"To load what fits{f' ({fits:,} of {all_:,} tensors)' if all_ else ''} and list what did not:", loose))
    else:
        fixes.append(_fitting(failure, loading, "To load what fits in name and shape and list what did not:"))
    return Cause(
        f"{model} and the {what} differ: {' and '.join(words)}.",
        more,
        "",
        (*(fact for fact in facts if fact[1]), *((f"nearest to {new}", old) for new, old in ([] if part else pairs[:4]))),
        tuple(fixes),
    )


def _part(missing: list[str], unexpected: list[str]) -> str:
    """The prefix under which all that is missing stands, among other things."""
    for key in unexpected if missing else ():
        prefix = key.removesuffix(missing[0])
        if prefix != key and prefix.endswith(".") and {prefix + name for name in missing} <= set(unexpected):
            return prefix
    return ""


def _fitting(failure: Failure, loading: _Loading, prose: str) -> Fix:
    """The fix that leaves out what has a different shape."""
    given = failure.local("state_dict")
    tensors = all(issubclass(type(one), Tensor) for one in dict.values(given)) if issubclass(type(given), dict) else False
    own = f"own = {loading.model}.state_dict()\nfitting = "
    fits = "v.shape == own[k].shape" if tensors else "getattr(v, 'shape', 0) == getattr(own[k], 'shape', 0)"  # extra states are anything
    chosen = f"{{k: v for k, v in {loading.state}.items() if k in own and {fits}}}\n"
    return Fix(prose, f"{loading.made}{own}{chosen}print({loading.model}.load_state_dict(fitting, strict=False))")


def _sizes(failure: Failure, loading: _Loading, model: str, sizes: list[tuple[str, str, str]]) -> Cause:
    key, old, new = sizes[0]
    before, after = tuple_of(old), tuple_of(new)
    more = f", and {len(sizes) - 1:,} more {'differs' if len(sizes) == 2 else 'differ'}" if len(sizes) > 1 else ""
    return Cause(
        f"{key} is {before} in the {loading.what} and {after} in {model}{more}.",
        "The names fit, the sizes do not; strict=False does not forgive that.",
        f"{shown(before)} ≠ {shown(after)}",
        tuple((k, f"{loading.what} ({o}), model ({n})") for k, o, n in sizes[:LISTED]),
        (_fitting(failure, loading, "Build the model with the sizes it was saved with; otherwise leave those tensors out:"),),
    )


def _prefix(missing: list[str], unexpected: list[str]) -> tuple[str, str] | None:
    """The prefix that one side has, and which side ("file" or "model"), if that is all the difference."""
    counters = [key for key in unexpected if key.endswith(_COUNTER)]
    missing, unexpected = ([key for key in keys if not key.endswith(_COUNTER)] for keys in (missing, unexpected))
    if not missing or len(missing) != len(unexpected):
        return None
    for side, longer, shorter in (("file", unexpected, missing), ("model", missing, unexpected)):
        if longer[0].endswith(shorter[0]) and len(longer[0]) > len(shorter[0]):
            prefix = longer[0][: len(longer[0]) - len(shorter[0])]
            whole = side == "model" or all(key.startswith(prefix) for key in counters)
            if prefix.endswith(".") and whole and {prefix + key for key in shorter} == set(longer):
                return side, prefix
    return None


def _renaming(loading: _Loading, prefix: tuple[str, str]) -> Fix:
    side, text = prefix
    new = f"k.removeprefix({text!r})" if side == "file" else f"{text!r} + k"
    return loading.fix(f"{'Remove it' if side == 'file' else 'Add it'}:", f"{{{new}: v for k, v in {loading.state}.items()}}")


def _is_mapping(given: Any, key: str) -> bool:
    value = dict.get(given, key) if issubclass(type(given), dict) else None
    return issubclass(type(value), dict) and (not value or any(issubclass(type(part), Tensor) for part in dict.values(value)))


def _some(keys: Iterable[str]) -> str:
    listed = list(keys)
    return ", ".join(listed[:4]) + (f", … ({len(listed):,})" if len(listed) > 4 else "")


def _not_a_dict(failure: Failure, match: re.Match[str]) -> Cause:
    kind = match[1].rpartition(".")[2]
    given = failure.local("state_dict")
    name, call = code_fixes.name_of_root(failure), failure.call_expression()
    other = ast.unparse(call.args[0]) if call is not None and call.args and isinstance(call.args[0], (ast.Name, ast.Attribute)) else "other"
    fix = (
        Fix("Its weights are its state_dict:", f"{name}.load_state_dict({other}.state_dict())")
        if stores.is_module(given)
        else Fix("Read the file first:", f"{name}.load_state_dict(torch.load(path))")
    )
    return Cause(
        f"load_state_dict got {format.article(kind)}, but needs a state_dict: names and tensors.",
        "",
        "",
        (("given", kind), ("expected", "dict")),
        (fix,),
    )


def _refused(failure: Failure, match: re.Match[str]) -> Cause:
    kind = re.search(r"Unsupported (?:global|class|operand)[^:\n]*:? ?(?:GLOBAL )?([\w.]+)", failure.message)
    allowed = re.search(r"GLOBAL ([\w.<>]+) was not an allowed global", failure.message)
    what = allowed or kind
    if allowed is None and (kind is None or kind[1].isdigit() or not kind[1]):
        return weight_files.of_no_checkpoint(failure)
    cls = what[1] if what else "a class"
    short = cls.rpartition(".")[2]
    path = weight_files.written(weight_files.path_of(failure))
    own = cls.startswith("__main__.") or not cls.startswith(("torch.", "numpy.", "collections.", "builtins."))
    fixes = [
        Fix(
            "If you made the file yourself or trust whoever did: reading it this way may run code stored in it.",
            f"torch.load({path}, weights_only=False)",
        )
    ]
    if cls.startswith("numpy."):
        fixes.insert(
            0,
            Fix(
                "Save plain numbers and tensors (float(x), torch.as_tensor(x)); then no trust is needed:",
                "torch.save({'loss': float(loss), ...}, path)",
            ),
        )
    else:
        if what:
            fixes.append(Fix("Or allow only this class:", f"with torch.serialization.safe_globals([{short}]):\n    torch.load({path})"))
        fixes.insert(
            0,
            Fix(
                "Better: save the weights without the class, and rebuild the model:",
                "torch.save(model.state_dict(), path)\nmodel.load_state_dict(torch.load(path))",
            ),
        )
    return Cause(
        f"The file holds more than weights: {cls}{', one of your classes' if own and what else ''}.",
        "torch.load reads with weights_only=True, which runs no code stored in a file.",
        "",
        (("refused", cls),),
        tuple(fixes),
        ("To see what is in the file without running it: modlab.state(path).",),
    )


def _no_folder(failure: Failure, match: re.Match[str]) -> Cause:
    return Cause(
        f"The folder {match[1].rpartition('/')[2]!r} does not exist, and torch.save does not create it.",
        "",
        "",
        (),
        (Fix("Make it first:", "os.makedirs(os.path.dirname(path), exist_ok=True)"),),
    )


def _groups(failure: Failure, match: re.Match[str]) -> Cause:
    return Cause(
        "The optimizer's state is for other parameters: its groups differ from those of this optimizer.",
        "The number and order of the parameters must be unchanged.",
        "",
        (),
        (Fix("Build the model and optimizer exactly as they were when it was saved; state is matched by position, not by name."),),
    )


_R = (RuntimeError,)
RULES = (
    Rule("state_dict", _R, r"Error\(s\) in loading state_dict for ([^:\n]+):", _state_dict),
    Rule("state_dict", (TypeError,), r"Expected state_dict to be dict-like, got <class '([^']+)'>", _not_a_dict),
    Rule("weights_only", (Exception,), r"Weights only load failed", _refused),
    Rule("file", _R, r"Parent directory (.+?) does not exist", _no_folder),
    Rule(
        "state_dict",
        (ValueError,),
        r"loaded state dict (?:contains a parameter group that doesn't match|has a different number of parameter groups)",
        _groups,
    ),
)
