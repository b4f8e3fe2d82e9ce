"""``tree`` and ``state`` of a sharded model beside the same model on one process: CPU time, and the ratio (at most 3).

python -m bench.sharded [blocks]: torch's fake process group stands for 64 and for 4,096 ranks.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial

import modlab
from tests.sharded import WAYS, fake_ranks, plain

RUNS = 9


def fastest(*actions: Callable[[], object]) -> list[float]:
    """Milliseconds of CPU time of each, the least of some runs in turns: what else the machine does meets all alike."""
    times: list[list[float]] = [[] for _ in actions]
    for _ in range(RUNS):
        for action, its in zip(actions, times, strict=True):
            start = time.process_time()
            action()
            its.append(time.process_time() - start)
    return [1e3 * min(its) for its in times]


def main() -> None:
    """Print a table."""
    blocks = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    net = plain(blocks=blocks, width=64)
    print(f"{'ms, and × of one process':28}{'tree':>8}{'':8}{'state':>8}")
    for world in (64, 4096):
        for way in ("fsdp2", "tp", "fsdp2 x tp"):
            with fake_ranks(world):
                spread = WAYS[way](blocks=blocks, width=64)
                cells = []
                for look in (modlab.tree, modlab.state):
                    alone, ours = fastest(partial(look, net), partial(look, spread))
                    cells.append(f"{ours:8.2f} ({ours / alone:4.1f})")
            print(f"{way + f' over {world:,} ranks':28}{' '.join(cells)}", flush=True)


if __name__ == "__main__":
    main()
