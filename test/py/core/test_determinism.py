"""The same module compiles to the same bytes: in another process, with other hash seeds, with and without the cache."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

MODEL = """
#id = affine_map<(d0, d1) -> (d0, d1)>
#rows = affine_map<(d0, d1) -> (d0)>
#columns = affine_map<(d0, d1) -> (d1)>
func.func @main(
    %x: tensor<50x64xf32> {tilewright.role = "input", tilewright.name = "x"},
    %w: tensor<64x96xf32> {tilewright.role = "weight", tilewright.name = "w"},
    %b: tensor<96xf32> {tilewright.role = "weight", tilewright.name = "b"}) -> (tensor<50x96xf32>, tensor<50xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<50x96xf32>
  %i = linalg.fill ins(%zero : f32) outs(%e : tensor<50x96xf32>) -> tensor<50x96xf32>
  %m = linalg.matmul ins(%x, %w : tensor<50x64xf32>, tensor<64x96xf32>) outs(%i : tensor<50x96xf32>) -> tensor<50x96xf32>
  %r = linalg.generic {indexing_maps = [#id, #columns, #id], iterator_types = ["parallel", "parallel"]}
      ins(%m, %b : tensor<50x96xf32>, tensor<96xf32>) outs(%e : tensor<50x96xf32>) {
  ^bb0(%in: f32, %bias: f32, %o: f32):
    %s = arith.addf %in, %bias : f32
    %t = math.tanh %s : f32
    linalg.yield %t : f32
  } -> tensor<50x96xf32>
  %es = tensor.empty() : tensor<50xf32>
  %is = linalg.fill ins(%zero : f32) outs(%es : tensor<50xf32>) -> tensor<50xf32>
  %n = linalg.generic {indexing_maps = [#id, #rows], iterator_types = ["parallel", "reduction"]}
      ins(%r : tensor<50x96xf32>) outs(%is : tensor<50xf32>) {
  ^bb0(%in: f32, %o: f32):
    %q = arith.mulf %in, %in : f32
    %s = arith.addf %o, %q : f32
    linalg.yield %s : f32
  } -> tensor<50xf32>
  return %r, %n : tensor<50x96xf32>, tensor<50xf32>
}
"""

PROGRAM = """
import dataclasses, hashlib, json, sys
from tilewright.compiler import phases
from tilewright.compiler.ir import parse
from tilewright.compiler.targets.target import resolve

module, report = parse(sys.stdin.read()), phases.Report()
package = phases.compile_module(module, resolve("x86-64-v3"), report)
tables = dataclasses.replace(package, notes={}, kernels=())
print(json.dumps({
    "ir": hashlib.sha256(str(module).encode()).hexdigest(),
    "kernels": [[k.name, hashlib.sha256(k.object).hexdigest(), k.scratch_bytes, k.asserts] for k in package.kernels],
    "tables": repr(tables),
    "notes": package.notes["dispatches"],
    "compiled": report.kernels_compiled,
    "cached": report.kernels_cached,
}))
"""


def compiled(cache, seed: int) -> dict:
    environment = {**os.environ, "TILEWRIGHT_CACHE_DIR": str(cache), "PYTHONHASHSEED": str(seed)}
    for name in ("TILEWRIGHT_DUMP", "TILEWRIGHT_OVERRIDE", "TILEWRIGHT_DEBUG"):
        environment.pop(name, None)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=MODEL,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    cache = tmp_path_factory.mktemp("cache")
    return cache, compiled(cache, 1)


def test_two_processes_agree(first, tmp_path):
    _, one = first
    other = compiled(tmp_path, 2)
    assert one["compiled"] == other["compiled"] >= 2
    assert one == other


def test_the_cache_changes_nothing(first):
    cache, one = first
    again = compiled(cache, 3)
    assert (again.pop("compiled"), again.pop("cached")) == (0, one["compiled"])
    assert again == {name: value for name, value in one.items() if name not in ("compiled", "cached")}
