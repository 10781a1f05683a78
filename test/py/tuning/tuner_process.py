"""A process that measures candidates of one task and says which: `python tuner_process.py STORE COUNT [ROOM_AFTER]`.

With ROOM_AFTER files may not grow until so many outcomes are there, as on a full disk where somebody makes room then.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path

from faulty_task import faulty_task, quick

from tilewright.compiler.profiler.local_device import LocalCpuDevice
from tilewright.compiler.targets.target import resolve


def main(store: Path, count: int, room_after: int | None = None) -> None:
    task = faulty_task()
    options = quick(compiling="distinct_candidates:compile_candidate", seconds=0.002)
    with LocalCpuDevice(resolve("cpu"), options, store) as device:
        if room_after is not None:
            size = max(path.stat().st_size for path in store.parent.glob(f"{store.name}*"))
            _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20_000, most))
        device.submit(task, [task.deed(2000 + number) for number in range(count)])
        for number, outcome in enumerate(device.outcomes(), 1):
            print(outcome.object, outcome.us, flush=True)
            if number == room_after:
                resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
