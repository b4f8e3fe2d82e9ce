"""Two processes beside a notebook: what they give, how each of their ends is told, and that nothing of them is left."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from modlab.lessons import lesson, lookup, workers
from modlab.lessons.checking import Judgement
from modlab.lessons.workers import Pair, WorkersError
from tests import courses
from tests.patience import PATIENCE, until

GLOO = "torch.distributed.ProcessGroupGloo"
pytestmark = [
    pytest.mark.skipif(not hasattr(dist, "ProcessGroupGloo"), reason="no gloo"),
    pytest.mark.skipif(sys.platform == "win32", reason="processes are killed by signals here"),
]


# ---- what the processes do ------------------------------------------------------------------------


def told(rank, number=0.0):
    return rank, number, os.getpid()


def added(rank, tensor):
    dist.all_reduce(tensor)
    return tensor


def one_raises(rank):
    if rank == 1:
        raise ZeroDivisionError("on purpose")
    dist.all_reduce(torch.ones(1))


def one_is_killed(rank):
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(torch.ones(1))


def one_leaves(rank):
    if rank == 0:
        sys.exit(3)


def one_answer_cannot_be_sent(rank):
    return (lambda: rank) if rank else 0


class Unreadable:
    """Pickles, and cannot be made again."""

    def __reduce__(self):
        return int, ("no number",)


def gives_what_cannot_be_read(rank):
    return Unreadable()


def hangs(rank, folder):
    Path(folder, str(rank)).write_text(str(os.getpid()))
    time.sleep(10 * PATIENCE)


# ---- how they are watched -------------------------------------------------------------------------


def is_gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    """Where the two meet; after each test nothing of them is left, neither process nor file."""
    monkeypatch.setattr(workers.tempfile, "tempdir", str(tmp_path))
    before = set(multiprocessing.active_children())
    yield tmp_path
    assert not set(multiprocessing.active_children()) - before
    assert not [*tmp_path.glob("modlab-pair-*")]


@pytest.fixture
def pair():
    with Pair() as pair:
        yield pair


def pids(pair):
    return [process.pid for process in pair._processes]


def assert_stopped(pair, started):
    assert repr(pair) == "two processes, not started"
    for pid in started:
        until(lambda pid=pid: is_gone(pid))


# ---- results --------------------------------------------------------------------------------------


def test_both_answer_in_the_order_of_their_ranks_and_go_on(pair):
    assert repr(pair) == "two processes, not started"
    first, second = pair(told, number=1.5), pair(told)
    assert [one[:2] for one in first] == [(0, 1.5), (1, 1.5)] and [one[:2] for one in second] == [(0, 0.0), (1, 0.0)]
    assert [one[2] for one in first] == [one[2] for one in second] == pids(pair)
    assert os.getpid() not in pids(pair)
    assert [one.tolist() for one in pair(added, tensor=torch.tensor([1.0, 2.0]))] == [[2.0, 4.0]] * 2
    assert repr(pair) == "two processes, running"
    started = pids(pair)
    pair.close()
    assert_stopped(pair, started)
    pair.close()
    assert [one[0] for one in pair(told)] == [0, 1]


def test_who_waits_for_nobody_says_so_in_the_second_step(pair):
    assert pair(workers.uneven, patience=0.1) == ["in step 2 nobody came, gave up", "ready after step 1"]


def test_a_pair_that_is_dropped_ends_its_processes():
    pair = Pair()
    pair(told)
    started = pids(pair)
    del pair
    for pid in started:
        until(lambda pid=pid: is_gone(pid))


# ---- ends -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("work", "says"),
    [
        (one_raises, "Process 1 raised ZeroDivisionError: on purpose; both are stopped"),
        (one_is_killed, "Process 1 ended without an answer|Process 0 raised"),
        (one_leaves, "Process 0 ended without an answer"),
        (one_answer_cannot_be_sent, "Process 1 raised .*lambda"),
        (gives_what_cannot_be_read, "The answer of process . cannot be read here"),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_an_end_is_told_and_the_next_call_begins_anew(pair, work, says):
    pair(told)
    started = pids(pair)
    with pytest.raises(WorkersError, match=says):
        pair(work)
    assert_stopped(pair, started)
    if work is one_raises:
        assert [one[0] for one in pair(told)] == [0, 1]
        assert not set(pids(pair)) & set(started)


def test_a_process_that_was_killed_between_two_calls_is_noticed(pair):
    pair(told)
    started = pids(pair)
    os.kill(started[1], signal.SIGKILL)
    until(lambda: is_gone(started[1]))
    with pytest.raises(WorkersError, match="has ended"):
        pair(told)
    assert_stopped(pair, started)


def test_no_answer_in_time_is_told(pair, tmp_path):
    pair(told)
    started = pids(pair)
    pair._patience = 0.3
    with pytest.raises(WorkersError, match=r"No answer from process 0 and 1 within 0\.3 seconds; both are stopped"):
        pair(hangs, folder=str(tmp_path))
    assert_stopped(pair, started)


def test_an_interrupt_ends_both(pair, tmp_path):
    pair(told)
    started = pids(pair)

    def interrupt():
        until(lambda: all(Path(tmp_path, name).exists() for name in "01"))
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    watcher = threading.Thread(target=interrupt)
    watcher.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            pair(hangs, folder=str(tmp_path))
    finally:
        watcher.join()
        signal.signal(signal.SIGINT, before)
    assert_stopped(pair, started)


def test_an_interrupt_while_they_start_ends_both(pair, monkeypatch):
    started = []
    start = multiprocessing.process.BaseProcess.start

    def interrupted(process):
        start(process)
        started.append(process.pid)
        if len(started) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(multiprocessing.process.BaseProcess, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        pair(told)
    assert_stopped(pair, started)


def test_what_cannot_be_sent_starts_nothing(pair):
    def local(rank):
        return rank

    in_a_cell = type(local)(told.__code__, {"__name__": "__main__"})
    with pytest.raises(WorkersError, match="cannot see a notebook's cells"):
        pair(in_a_cell)
    for work, options in ((local, {}), (lambda rank: rank, {}), (told, {"number": lambda: 0})):
        with pytest.raises(WorkersError, match=r"cannot be sent to a new process .*top level of a file"):
            pair(work, **options)
    assert repr(pair) == "two processes, not started"


KERNEL = """
import sys
from modlab.lessons.workers import Pair
from tests.lessons.test_workers import hangs
Pair()(hangs, folder=sys.argv[1])
"""


def test_nothing_outlives_a_killed_kernel(tmp_path):
    kernel = subprocess.Popen(
        [sys.executable, "-c", KERNEL, str(tmp_path)],
        cwd=Path(__file__).resolve().parents[2],
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )
    try:
        until(lambda: kernel.poll() is not None or all(Path(tmp_path, name).exists() and Path(tmp_path, name).read_text() for name in "01"))
        started = [int(Path(tmp_path, name).read_text()) for name in "01"]
    finally:
        kernel.kill()
        kernel.wait()
    for pid in started:
        until(lambda pid=pid: is_gone(pid))
    until(lambda: not [*tmp_path.glob("modlab-pair-*")])


# ---- where a torch cannot do it -------------------------------------------------------------------


@pytest.mark.parametrize("answers", [False, True], ids=["unanswered", "answered"])
def test_the_lesson_goes_on_where_torch_has_no_processes(monkeypatch, answers):
    content = lookup.find("15_two_processes")
    asked = []
    monkeypatch.setattr(lesson, "available", lambda feature: asked.append(feature))
    monkeypatch.setattr(Pair, "_start", lambda pair: pytest.fail("it has been started"))
    courses.reseed()
    values = courses.run(content, (lambda source: courses.answered(content, source)) if answers else str)
    assert asked == [GLOO]
    judgements = [value for value in values if isinstance(value, Judgement)]
    assert {one.outcome for one in judgements} == {"correct" if answers else "not attempted"} and len(judgements) == 2
