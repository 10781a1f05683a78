"""The process that cases run in: one line of JSON per finished case on standard output, so that a fault loses one case.

`python -m bench.device.worker SETTING` reads keys of cases, one per line, on standard input.
"""

from __future__ import annotations

import json
import os
import sys

from tilewright.bench.device.cases import cases
from tilewright.bench.device.contenders import Setting
from tilewright.bench.device.run_case import is_fault, run


def main() -> int:
    setting = Setting(**json.loads(sys.argv[1]))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what contenders print is not an answer
    known: dict = {}
    for line in sys.stdin:
        key = line.strip()
        part = key.partition("/")[0]
        if part not in known:
            known[part] = {case.key: case for case in cases(part)}
        try:
            record = run(known[part][key], setting)
        except Exception as error:
            record = {
                "key": key,
                "failed": f"{type(error).__name__}: {error}"[:400],
                "fault": is_fault(setting),
            }
        print(json.dumps(record), file=answers, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
