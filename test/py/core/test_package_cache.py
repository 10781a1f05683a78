"""The package cache spares a second compilation, and never gives what is not exactly what was stored."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.compiler import driver, package_cache, phases
from tilewright.compiler.ir import parse
from tilewright.compiler.target import resolve

MODEL = """
func.func @main(%x: tensor<6x10xf32>, %y: tensor<10x7xf32>) -> tensor<6x7xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<6x7xf32>
  %i = linalg.fill ins(%zero : f32) outs(%e : tensor<6x7xf32>) -> tensor<6x7xf32>
  %r = linalg.matmul ins(%x, %y : tensor<6x10xf32>, tensor<10x7xf32>) outs(%i : tensor<6x7xf32>) -> tensor<6x7xf32>
  return %r : tensor<6x7xf32>
}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    for name in ("TILEWRIGHT_DUMP", "TILEWRIGHT_OVERRIDE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "packages"


def entry(folder):
    (path,) = folder.rglob("*.safetensors")
    return path


def from_cache(compiled) -> bool:
    return set(compiled.executable.package.notes["phases_s"]) == {"cache"}


def check(compiled) -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(shape, dtype=np.float32) for shape in ((6, 10), (10, 7)))
    np.testing.assert_allclose(compiled(x, y), x @ y, rtol=1e-5, atol=1e-5)


def test_a_model_is_compiled_once(folder, monkeypatch):
    first = driver.compile(MODEL)
    assert not from_cache(first)
    assert entry(folder).exists()
    monkeypatch.setattr(phases, "compile_module", lambda *_: pytest.fail("compiled again"))
    second = driver.compile(MODEL)
    assert from_cache(second)
    check(first)
    check(second)


def test_keys_tell_models_targets_and_compilers_apart(monkeypatch):
    cpu, v3 = resolve("x86-64-v4"), resolve("x86-64-v3")
    options = {"opt": "O0"}
    module = parse(MODEL)
    key = package_cache.package_key(module, cpu, options)
    assert key == package_cache.package_key(parse(MODEL), cpu, options)
    others = {
        package_cache.package_key(parse(MODEL.replace("0.0", "1.0")), cpu, options),
        package_cache.package_key(module, v3, options),
        package_cache.package_key(module, cpu, {"opt": "O1"}),
    }
    monkeypatch.setattr(package_cache, "compiler_digest", lambda: "another compiler")
    others.add(package_cache.package_key(module, cpu, options))
    assert len(others | {key}) == 5


def test_damaged_entries_are_compiled_anew(folder):
    """One bit in each of many places, and files that end early.

    A few bits are in names that nobody reads; what is found in spite of them is exactly what was stored.
    """
    driver.compile(MODEL)
    path = entry(folder)
    data = path.read_bytes()
    key = path.stem
    stored = package_cache.find(key)
    assert stored is not None
    places = {*range(0, len(data), max(1, len(data) // 60)), len(data) - 1}
    for place in sorted(places):
        damaged = bytearray(data)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        assert package_cache.find(key) in (None, stored), f"byte {place} of {len(data)}"
        path.write_bytes(data[:place])
        assert package_cache.find(key) is None, f"{place} of {len(data)} bytes"
    assert not from_cache(driver.compile(MODEL))
    assert from_cache(driver.compile(MODEL))


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path, monkeypatch, capsys):
    (tmp_path / "packages").write_text("in the way")
    monkeypatch.setenv("TILEWRIGHT_DEBUG", "1")
    check(driver.compile(MODEL))
    assert "package cache: not stored" in capsys.readouterr().err


def test_a_dump_runs_the_phases(tmp_path, monkeypatch):
    driver.compile(MODEL)
    monkeypatch.setenv("TILEWRIGHT_DUMP", str(tmp_path / "dump"))
    assert not from_cache(driver.compile(MODEL))
    assert (tmp_path / "dump" / "3-schedule.mlir").exists()
