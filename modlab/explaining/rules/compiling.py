"""torch.compile: code that it cannot follow, a backend that is not there or fails, too many shapes."""

from __future__ import annotations

import ast
import re
from difflib import SequenceMatcher
from typing import NamedTuple

from modlab.explaining import frames, written
from modlab.explaining.failure import Cause, Failure, Rule, own_words
from modlab.records.explanation import Fix

_USERS = re.compile(r'from user code:\s*\n((?:[ \t]*File "[^\n]+\n(?:[ \t]+(?!File ")[^\n]*\n?)*)+)')
_LEVEL = re.compile(r'File "(?P<file>[^\n"]+)", line (?P<line>\d+), in (?P<function>[^\n]+)\n\s*(?P<source>[^\n]*)')
_NEAR = 0.6


class CodePlace(NamedTuple):
    """A line that torch.compile was looking at, as its message tells."""

    where: str
    source: str


def place(message: str) -> CodePlace | None:
    """The innermost line of the user's own code in the message; else the innermost one."""
    found = _USERS.search(message)
    levels = list(_LEVEL.finditer(found[1])) if found is not None else []
    own = [one for one in levels if (whose := frames.whose(one["file"])).is_users and not whose.is_installed]
    if not levels:
        return None
    last = (own or levels)[-1]
    return CodePlace(frames.place(last["file"], int(last["line"])), last["source"].strip())


def _looked_at(failure: Failure, said: str, more: str, stop: str, facts: tuple[tuple[str, str], ...], fixes: tuple[Fix, ...]) -> Cause:
    """The cause at a line that torch.compile was looking at, which stands in the message alone."""
    at = place(failure.message)
    if at is not None:
        failure.place = at.where, at.source
    return Cause(said, more, stop, facts, fixes, ("torch.compile was analyzing the code: the modules inside were not called yet.",))


def _unsupported(failure: Failure, match: re.Match[str]) -> Cause | None:
    """A graph break where none may be: ``fullgraph=True``, or strict export."""
    kind = match["kind"].strip()
    if "recompile limit" in kind:
        return _too_often(failure, match)
    explained = " ".join(match["explained"].split())
    explained = own_words(failure.error, explained.partition(" Hint:")[0].partition(" Developer debug context")[0])
    hints = [" ".join(one.split()) for one in re.findall(r"\n  Hint: (.*?)(?=\n  Hint:|\n\n|\Z)", failure.message, re.DOTALL)]
    hints = [hint for hint in hints if not re.search(r"report an issue|file an issue|PyTorch developer|fundamental|pybind", hint)]
    fixes = [*_taken_out(kind, failure), *(Fix(hint if hint.endswith(".") else f"{hint}.") for hint in hints[:1])]
    code = _whole_graph(failure)
    if code or _is_whole(failure):
        fixes.append(
            Fix(
                "Without fullgraph=True the graph is broken there, and the rest is compiled:", code or "torch.compile(..., fullgraph=False)"
            )
        )
    return _looked_at(
        failure, f"torch.compile cannot take this into one graph: {kind[0].lower()}{kind[1:]}.", explained, "graph break", (), tuple(fixes)
    )


def _taken_out(kind: str, failure: Failure) -> list[Fix]:
    at = place(failure.message)
    if kind == "Data-dependent branching" and at is not None:
        return [Fix("If both branches give tensors of the same shape, compute both and choose: torch.where(condition, one, other).")]
    return []


def _is_whole(failure: Failure) -> bool:
    return not any("_export" in frame.code.co_filename for frame in failure.frames)


def _whole_graph(failure: Failure) -> str:
    """The user's call of torch.compile without fullgraph=True, where it stands above the line that failed."""
    frame = failure.own
    found = [one for one in written.calls(frame, "compile") if written.word(one.call, "fullgraph") is not None] if frame is not None else []
    if len(found) != 1:
        return ""
    one = found[0]
    new = written.with_word(one.call, "fullgraph", None)
    if isinstance(one.statement, (ast.FunctionDef, ast.ClassDef)):
        return f"@{ast.unparse(ast.fix_missing_locations(new))}"
    return one.rewritten(new)


def _backend_failed(failure: Failure, match: re.Match[str]) -> Cause:
    words = " ".join(match[2].split("\n\n")[0].split())
    return Cause(
        f"The backend {match[1]!r} of torch.compile failed: {words}",
        "The model itself was not run.",
        "",
        (("backend", match[1]),),
        (Fix("To see whether the model is at fault, leave the backend out:", _with_backend(failure, "eager")),),
    )


def _with_backend(failure: Failure, name: str) -> str:
    frame = failure.own
    frame = frame if frame is not None and written.calls(frame, "compile") else None
    outer = [one for one in failure.frames if one.is_users and not one.is_installed]
    frame = frame or next((one for one in reversed(outer) if written.calls(one, "compile")), None)
    found = written.calls(frame, "compile") if frame is not None else []
    if len(found) != 1:
        return f"torch.compile(..., backend={name!r})"
    new = written.with_word(written.with_word(found[0].call, "mode", None), "backend", ast.Constant(name))
    if isinstance(found[0].statement, (ast.FunctionDef, ast.ClassDef)):
        return f"@{ast.unparse(ast.fix_missing_locations(new))}"
    return found[0].rewritten(new)


def _no_compiler(failure: Failure, _: re.Match[str]) -> Cause:
    return Cause(
        "torch.compile found no C++ compiler, which its backend 'inductor' needs on the CPU.",
        "It writes code that must be compiled.",
        "",
        (("backend", "inductor"),),
        (Fix("Install one (g++ or clang), or use a backend that does not need one:", _with_backend(failure, "aot_eager")),),
    )


def _no_backend(failure: Failure, match: re.Match[str]) -> Cause:
    known = ("inductor", "eager", "aot_eager", "cudagraphs", "openxla", "tvm", "onnxrt")
    ratio, near = max((SequenceMatcher(None, match[1], one).ratio(), one) for one in known)
    return Cause(
        f"torch.compile has no backend {match[1]!r}.",
        "torch._dynamo.list_backends() lists them all.",
        "",
        (("backend", repr(match[1])),),
        (Fix(f"If {near!r} is what you meant:", _with_backend(failure, near)),) if ratio >= _NEAR else (),
    )


def _no_mode(failure: Failure, match: re.Match[str]) -> Cause:
    known = [one.strip() for one in match[2].split(",")]
    ratio, near = max((SequenceMatcher(None, match[1], one).ratio(), one) for one in known)
    frame = failure.own
    found = written.calls(frame, "compile") if frame is not None else []
    code = found[-1].rewritten(written.with_word(found[-1].call, "mode", ast.Constant(near))) if found else ""
    return Cause(
        f"torch.compile has no mode {match[1]!r}.",
        f"It knows {', '.join(known)}.",
        "",
        (("mode", repr(match[1])),),
        (Fix(f"If {near!r} is what you meant:", code),) if ratio >= _NEAR else (Fix("Use one of them."),),
    )


def _too_often(failure: Failure, _: re.Match[str]) -> Cause:
    chained = failure.error.__cause__ or failure.error.__context__
    reason = re.search(r"last reason: (?:\d+/\d+: )?([^\n]+)", f"{failure.message}\n{chained or ''}")
    told = f"The last reason: {reason[1].strip()}." if reason is not None else ""
    return Cause(
        "torch.compile compiled the same code again and again, until its limit (recompile_limit).",
        told or "Each time, something it had assumed constant was different: a shape, a number, a flag.",
        "",
        (),
        (Fix("If shapes differ, let it write code that works for all of them:", _dynamic(failure)),),
    )


def _dynamic(failure: Failure) -> str:
    frame = failure.own
    found = written.calls(frame, "compile") if frame is not None else []
    if len(found) != 1:
        return "torch.compile(..., dynamic=True)"
    new = written.with_word(found[0].call, "dynamic", ast.Constant(True))
    if isinstance(found[0].statement, (ast.FunctionDef, ast.ClassDef)):
        return f"@{ast.unparse(ast.fix_missing_locations(new))}"
    return found[0].rewritten(new)


def _fake(failure: Failure, match: re.Match[str]) -> Cause:
    """An operation that failed while shapes were computed: a mistake of the model's, that it makes without torch.compile, too."""
    words = match["words"].strip().strip("'\"")
    return _looked_at(
        failure,
        f"An operation failed while torch.compile computed its shape: {own_words(failure.error, words)}",
        "No module has run yet: it only has shapes.",
        "",
        (),
        (Fix("Call the model once without torch.compile: its own error says more."),),
    )


def _other(failure: Failure, _: re.Match[str]) -> Cause | None:
    """Whatever else torch.compile says of a line of the user's."""
    if place(failure.message) is None or not any(base.__name__ == "TorchDynamoException" for base in type(failure.error).__mro__):
        return None
    return _looked_at(
        failure,
        "torch.compile cannot follow this line.",
        f"It says: {failure.words}",
        "",
        (),
        (Fix("To keep the function from being compiled, put @torch.compiler.disable above it."),),
    )


_R = (Exception,)
RULES = (
    Rule("compiled", _R, r"^backend='([^']+)' raised:\s*(?=\S*(?:InvalidCxxCompiler|No working C\+\+ compiler))", _no_compiler),
    Rule("compiled", _R, r"No working C\+\+ compiler found", _no_compiler),
    Rule("compiled", _R, r"^backend='([^']+)' raised:\s*(.+)", _backend_failed),
    Rule("compiled", _R, r"^(?P<kind>[^\n]+)\n  Explanation: (?P<explained>.+?)(?=\n\n|\n  Hint:|\Z)", _unsupported),
    Rule("compiled", _R, r"^Invalid backend: '([^']*)'", _no_backend),
    Rule("compiled", (RuntimeError,), r"^Unrecognized mode=(\S+), should be one of: (.+)", _no_mode),
    Rule("compiled", _R, r"^Hard failure due to fullgraph=True|recompile_limit reached", _too_often),
    Rule("compiled", _R, r"^Dynamo failed to run FX node with fake tensors: .*?got \w+\((?P<words>.+?)\)\n", _fake),
    Rule("compiled", _R, r"from user code:", _other),
)
