"""Expected times of matrix products: thirty shapes in four types, none faster than the roofline, all taken by emitters."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tilewright.bench.gemm_expected import dispatch_text, expect, main, page
from tilewright.bench.gemm_shapes import DTYPES, GEMM_SHAPES, GemmShape
from tilewright.compiler.families.gpu.emitted_tiles import read_product
from tilewright.compiler.ir import functions, parse
from tilewright.compiler.targets.target import resolve

ROOT = Path(__file__).parents[3]
H200 = resolve("h200")


def test_there_are_thirty_products_with_names_of_their_own():
    assert len(GEMM_SHAPES) == 30 == len({shape.name for shape in GEMM_SHAPES})


@pytest.mark.parametrize("dtype", DTYPES)
def test_no_product_is_faster_than_the_roofline(dtype):
    for shape in GEMM_SHAPES:
        row = expect(shape, dtype, H200)
        assert 0 < row.share <= 1, shape.name
        assert row.to_json()["schedule_text"] in page([row], H200)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch", [1, 3])
def test_a_product_is_read_as_what_it_is(dtype, batch):
    module = parse(dispatch_text(GemmShape("odd", 17, 40, 29, batch), dtype))
    (function,) = functions(module)
    product = read_product(function)
    assert product is not None
    gemm = product.gemm
    assert (gemm.batch, gemm.m, gemm.n, gemm.k) == (batch, 17, 40, 29)
    assert gemm.dtype == ("f32" if dtype == "tf32" else dtype)
    assert (gemm.a_major, gemm.b_major) == ("k", "n")
    assert gemm.flops == 2 * batch * 17 * 40 * 29
    assert not gemm.tensor_maps  # rows of 29 elements start at no multiple of 16 bytes


def test_only_exact_instructions_for_f32():
    for shape in GEMM_SHAPES[:3]:
        assert expect(shape, "f32", H200).choice.tile.kernel in ("simt", "skinny")
        assert "tf32" in expect(shape, "tf32", H200).choice.tile.instruction


def test_the_record_is_of_these_products():
    rows = json.loads((ROOT / "bench/results/gemm-expected-h200.json").read_text())["products"]
    assert [(r["name"], r["dtype"]) for r in rows] == [(s.name, d) for d in DTYPES for s in GEMM_SHAPES]
    for row in rows:
        assert row["expected_us"] >= max(row["compute_bound_us"], row["dram_bound_us"])


def test_the_command_writes_a_record_and_a_page(tmp_path):
    arguments = ["--target", "a100", "--output", str(tmp_path / "a.json"), "--page", str(tmp_path / "a.md")]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    rows = json.loads((tmp_path / "a.json").read_text())["products"]
    assert len(rows) == 120
    text = (tmp_path / "a.md").read_text()
    assert "Predictions, not measurements" in text and "wgmma" not in text
