"""Whole packages come back from the cache, and a miss says what is different."""

from __future__ import annotations

import pytest

from tilewright.compiler import driver
from tilewright.compiler.cache import packages as package_cache
from tilewright.compiler.ir import parse
from tilewright.compiler.targets.target import resolve

SOURCE = """
#id = affine_map<(d0) -> (d0)>
func.func @main(%x: tensor<8xf32> {tilewright.role = "input", tilewright.name = "x"}) -> tensor<8xf32> {
  %e = tensor.empty() : tensor<8xf32>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%in: f32, %o: f32):
    %a = arith.addf %in, %in : f32
    linalg.yield %a : f32
  } -> tensor<8xf32>
  return %r : tensor<8xf32>
}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TILEWRIGHT_DEBUG", "1")
    return tmp_path


def compiled(precision: str = "f32", source: str = SOURCE):
    return driver.compile_package(parse(source), resolve("cpu"), {"opt": "O0", "precision": precision})


def test_the_second_compilation_is_a_look_up(capsys):
    first = compiled()
    assert "never compiled before" in capsys.readouterr().err
    second = compiled()
    assert "package cache: found" in capsys.readouterr().err
    assert (first.kernels, first.main, first.outputs) == (second.kernels, second.main, second.outputs)
    assert set(second.notes["phases_s"]) == {"cache"}


def test_a_miss_names_what_changed(capsys, monkeypatch):
    compiled()
    monkeypatch.setattr(package_cache, "compiler_digest", lambda: "another")
    capsys.readouterr()
    compiled()
    assert "with another compiler" in capsys.readouterr().err
    compiled(precision="bf16")
    assert "with another options" in capsys.readouterr().err
    compiled(source=SOURCE.replace("8", "16"))
    assert "never compiled before" in capsys.readouterr().err


def test_a_damaged_entry_is_compiled_anew(folder, capsys):
    compiled()
    (entry,) = folder.glob("packages/*/*.safetensors")
    entry.write_bytes(entry.read_bytes()[:-64])
    capsys.readouterr()
    assert compiled().outputs
    assert "compiled anew" in capsys.readouterr().err
