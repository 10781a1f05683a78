"""Runs cases in a worker that is started anew after a fault or a hang, and keeps every result as it comes."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence

CASE_LIMIT_S = 180.0
"""A case that takes longer is given up; autotuning Inductor takes the longest, about a minute."""


class Supervisor:
    """Feeds keys of cases to a worker process, one at a time."""

    def __init__(self, setting: dict, case_limit_s: float = CASE_LIMIT_S, command: Sequence[str] = ()):
        """`command` stands in for the worker."""
        worker = [sys.executable, "-m", "tilewright.bench.device.worker", json.dumps(setting)]
        self.command = list(command) or worker
        self.case_limit_s = case_limit_s
        self._process: subprocess.Popen | None = None
        self._lines: queue.Queue[str | None] = queue.Queue()

    def run(self, keys: Sequence[str], done: Callable[[dict], None], until: float) -> list[str]:
        """Runs cases in order until the monotonic time `until`; gives the keys that were not reached."""
        pending = list(keys)
        try:
            while pending and time.monotonic() < until:
                done(self._case(pending.pop(0), until))
        finally:
            self.close()
        return pending

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _case(self, key: str, until: float) -> dict:
        process = self._started()
        assert process.stdin is not None
        try:
            process.stdin.write(key + "\n")
            process.stdin.flush()
            line = self._lines.get(timeout=max(1.0, min(self.case_limit_s, until - time.monotonic() + 30)))
        except queue.Empty:
            self.close()
            return {"key": key, "failed": f"no result within {self.case_limit_s:.0f} s"}
        except OSError:
            line = None
        if line is None:
            status = process.wait()
            self.close()
            return {"key": key, "failed": f"the process ended with status {status}"}
        record = json.loads(line)
        if record.pop("fault", False):
            self.close()
        return record

    def _started(self) -> subprocess.Popen:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self._lines = queue.Queue()
        self._process = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        threading.Thread(target=_read, args=(self._process.stdout, self._lines), daemon=True).start()
        return self._process


def _read(stream, lines: queue.Queue) -> None:
    for line in stream:
        lines.put(line)
    lines.put(None)
