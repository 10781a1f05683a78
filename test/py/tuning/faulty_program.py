"""A child that runs programs as the compiler's own does, but where `FAULTY` says what else happens, and with what.

`FAULTY` is DEED:TEXT: the deed is done by the process of each program whose file's name has the text in it; `FAULTY_ONCE` names
a file that is made by the first of them, behind which none does it any more.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from tilewright.compiler.profiler import measure_program
from tilewright.compiler.profiler.processes import Message


class Faulty(measure_program.Program):
    def __init__(self, request: Message):
        super().__init__(request)
        self._deed, _, text = os.environ["FAULTY"].partition(":")
        if text not in Path(request["load"]).name:
            self._deed = ""

    def run(self) -> None:
        super().run()
        if self._deed == "wrong":
            for memory in self._outputs:
                memory[...] = 63

    def visit(self) -> float:
        if self._deed and not self._is_over():
            if self._deed == "crash":
                os.kill(os.getpid(), signal.SIGSEGV)
            if self._deed == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if self._deed == "hang":
                time.sleep(600)
            if self._deed == "slow":
                return super().visit() * 1.5
        return super().visit()

    def _is_over(self) -> bool:
        once = os.environ.get("FAULTY_ONCE")
        if once is None:
            return False
        if Path(once).exists():
            return True
        Path(once).touch()
        return False


if __name__ == "__main__":
    measure_program.Program = Faulty
    measure_program.serve()
