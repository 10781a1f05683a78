"""How lit runs the files here: each RUN line in a shell, with the tools of this Python's own environment."""

import os
import sys
from pathlib import Path

import lit.formats

config.name = "tilewright"  # noqa: F821
config.test_format = lit.formats.ShTest(execute_external=False)  # noqa: F821
config.suffixes = [".mlir"]  # noqa: F821
config.test_source_root = str(Path(__file__).parent)  # noqa: F821
config.test_exec_root = str(Path(__file__).parents[2] / ".lit")  # noqa: F821

_tools = Path(sys.executable).parent
config.environment["PATH"] = os.pathsep.join([str(_tools), os.environ["PATH"]])  # noqa: F821
config.environment["OMP_NUM_THREADS"] = "1"  # noqa: F821
config.environment["FILECHECK_OPTS"] = ""  # noqa: F821
config.substitutions.append(("%tilewright-opt", f"{sys.executable} -m tilewright.compiler.cli.opt"))  # noqa: F821
config.substitutions.append(("%translate", f"{sys.executable} -m tilewright.compiler.codegen.translate"))  # noqa: F821
