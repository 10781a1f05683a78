"""Lets `python test/fuzz` run the package."""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])

from fuzz.cli import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
