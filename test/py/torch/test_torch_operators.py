"""Every case of the tables through the front end alone, and through the whole compiler."""

from __future__ import annotations

import zlib

import pytest
import torch
from torch_cases import every_case
from torch_harness import check
from torch_loops import LoopExecutable

import tilewright
from tilewright.compiler.importers.torch.model import import_torch
from tilewright.runtime.model import CompiledModel

CASES = every_case()
QUICK = sorted(name for name in CASES if zlib.crc32(name.encode()) % 6 == 0)
REST = sorted(set(CASES) - set(QUICK))


def _interpreted(function, args):
    imported = import_torch(function, args)
    return CompiledModel(LoopExecutable(imported), imported.signature, imported.state, imported.weights)


def _under_torch_compile(function, args):
    torch._dynamo.reset()
    return torch.compile(function, backend="tilewright")


@pytest.mark.parametrize("name", sorted(CASES))
def test_imports_right(name):
    check(CASES[name], _interpreted)


@pytest.mark.parametrize("name", QUICK)
def test_compiles_right(name):
    check(CASES[name], tilewright.compile)


@pytest.mark.slow
@pytest.mark.parametrize("name", REST)
def test_rest_compiles_right(name):
    check(CASES[name], tilewright.compile)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(CASES))
def test_torch_compile_is_right(name):
    check(CASES[name], _under_torch_compile)
