"""Products of a few rows with weights of few bits: read as they are stored, and what they compute is what f32 does."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import tilewright
from tilewright.compiler.passes.graph.read_narrow_weights import ReadNarrowWeights
from tilewright.compiler.targets.target import resolve

onnx = pytest.importorskip("onnx")

DTYPES = {"i8": torch.int8, "u8": torch.uint8, "bf16": torch.bfloat16, "f16": torch.float16}


class Linear(nn.Module):
    """A layer whose weights are stored narrow, and scaled for each result: `inside` before the product, or after it."""

    def __init__(self, dtype: str, k: int, n: int, inside: bool) -> None:
        super().__init__()
        values = torch.randint(-127, 127, (n, k)) if dtype == "i8" else torch.randint(0, 255, (n, k))
        self.register_buffer("stored", (values if "8" in dtype else torch.randn(n, k)).to(DTYPES[dtype]))
        self.register_buffer("scale", torch.rand(n, 1) + 0.5)
        self.inside = inside

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.stored.to(x.dtype)
        if self.inside:
            return nn.functional.linear(x, weight * self.scale.to(x.dtype))
        return nn.functional.linear(x, weight) * self.scale[:, 0].to(x.dtype)


def bytes_read(compiled: tilewright.runtime.model.CompiledModel) -> int:
    """Bytes of weights that a call reads: packed ones, and those that it reads where they lie."""
    package = compiled.executable.package
    steps = [ref for step in package.main.steps for ref in step.buffers]
    read = {ref.index for ref in steps if ref.space == "weight"}
    return package.packed_bytes + sum(package.weights[number].nbytes for number in read)


def check(
    compiled: tilewright.runtime.model.CompiledModel, exact: torch.Tensor, *given: torch.Tensor
) -> None:
    size = exact.abs().max()
    assert ((compiled(*given) - exact).abs().max() / size) < 1e-5


@pytest.mark.parametrize("inside", [False, True], ids=["after", "before"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [1, 3])
def test_weights_are_read_as_they_are_stored(dtype: str, rows: int, inside: bool) -> None:
    model, x = Linear(dtype, 512, 384, inside), torch.randn(rows, 512)
    compiled = tilewright.compile(model, (x,), target="x86-64-v3")
    check(compiled, model(x.double()), x)
    stored = model.stored.nbytes
    assert stored <= bytes_read(compiled) <= stored + 2 * 384 * 4
    rebound = [-w if w.dtype == torch.int8 else w for w in compiled.weights]
    compiled.rebind(rebound)
    model.stored = rebound[[w.shape for w in rebound].index(model.stored.shape)]
    check(compiled, model(x.double()), x)


def test_floats_that_little_is_left_of_are_subtracted_first() -> None:
    class Moved(Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.linear(x, self.stored.to(x.dtype) - 1000.5)

    model, x = Moved("bf16", 512, 384, True), torch.randn(1, 512)
    model.stored = 1000 + model.stored
    exact = model(x.double())
    found = tilewright.compile(model, (x,), target="x86-64-v3")(x)
    assert (found - exact).abs().max() <= 1e-5 * exact.abs().max()


@pytest.mark.parametrize("zero", ["none", "integers", "floats"])
@pytest.mark.parametrize("form", ["bytes", "nibbles"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "f16"])
def test_models_of_short_floats_read_them_too(dtype: torch.dtype, form: str, zero: str) -> None:
    """What they compute is as near to the exact product as eager PyTorch's, which rounds the weights first."""
    k, n, block, rows = 256, 96, 32, ReadNarrowWeights.for_target(resolve("x86-64-v3")).rows // 2
    drawn = torch.Generator().manual_seed(3)
    model, x = (
        Grouped(form, k, n, block, zero, drawn).to(dtype),
        torch.randn(rows, k, generator=drawn).to(dtype),
    )
    compiled = tilewright.compile(model, (x,), target="x86-64-v3")
    exact, found = model(x.double()), compiled(x)
    assert found.dtype == dtype
    assert (found - exact).abs().max() <= 1.01 * (model(x) - exact).abs().max() + 1e-9
    assert bytes_read(compiled) < 1.5 * n * k
    more = torch.randn(rows + 1, k).to(dtype)
    assert bytes_read(tilewright.compile(model, (more,), target="x86-64-v3")) >= 2 * n * k


def test_products_of_many_rows_read_wide_weights() -> None:
    rows = ReadNarrowWeights.for_target(resolve("x86-64-v3")).rows
    for count, is_narrow in ((rows, True), (rows + 1, False)):
        model, x = Linear("i8", 512, 384, False), torch.randn(count, 512)
        compiled = tilewright.compile(model, (x,), target="x86-64-v3")
        check(compiled, model(x.double()), x)
        assert (bytes_read(compiled) < 2 * model.stored.nbytes) == is_narrow


@pytest.mark.parametrize("target", ["cpu", "x86-64-v3", "x86-64-v4"])
def test_every_target_has_a_bound_from_its_own_rates(target: str) -> None:
    assert 1 <= ReadNarrowWeights.for_target(resolve(target)).rows < 64


def test_gpus_multiply_out() -> None:
    assert ReadNarrowWeights.for_target(resolve("a100")).rows == 0


def test_matrices_that_other_products_read_too() -> None:
    """A vocabulary, tied: rows of it are chosen, and it multiplies."""

    class Tied(Linear):
        def forward(self, x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
            weight = self.stored.to(torch.float64 if x.dtype == torch.float64 else torch.float32)
            return (x + weight[i]) @ weight.mT

    model, x, i = Tied("i8", 256, 384, False), torch.randn(1, 256), torch.tensor([7])
    compiled = tilewright.compile(model, (x, i))
    check(compiled, model(x.double(), i), x, i)


FORMS = {"bytes": 8, "nibbles": 4, "halves": 4, "columns": 4, "words": 4, "quarters": 8, "pairs": 2}
"""How weights lie, and their bits: in bytes; neighbours of a row in one, halves of a row, or columns; eight or four in 32 bits; four in a byte."""
WORDS = ("words", "quarters")


class Grouped(nn.Module):
    """A layer whose weights have few bits, around zero points and with factors for blocks of what is summed."""

    def __init__(self, form: str, k: int, n: int, block: int, zero: str, drawn: torch.Generator) -> None:
        super().__init__()
        self.form, self.zero, self.shape = form, zero, (n, k // block, block)
        bits = FORMS[form]
        numbers = torch.randint(0, 1 << bits, (n, k), generator=drawn)
        shifts = torch.arange(0, 32 if form in WORDS else 8, bits)
        if form == "halves":
            stored = numbers[:, : k // 2] | (numbers[:, k // 2 :] << 4)
        elif form == "columns":
            stored = numbers[::2] | (numbers[1::2] << 4)
        else:
            stored = (numbers.view(n, -1, len(shifts)) << shifts).sum(-1)
        self.register_buffer("stored", stored.to(torch.int32 if form in WORDS else torch.uint8))
        self.register_buffer("scale", torch.rand(n, k // block, 1, generator=drawn) + 0.5)
        points = torch.randint(0, 1 << bits, (n, k // block, 1), generator=drawn)
        self.register_buffer("points", points.to(torch.int8) if zero == "integers" else points * 0.75)

    def numbers(self) -> torch.Tensor:
        stored, bits = self.stored, FORMS[self.form]
        if self.form == "bytes":
            return stored
        if self.form in ("halves", "columns"):
            halves = (stored & 15, stored >> 4)
            return torch.cat(halves, 1) if self.form == "halves" else torch.stack(halves, 1)
        shifts = torch.arange(0, 32 if self.form in WORDS else 8, bits, dtype=stored.dtype)
        return (stored[..., None] >> shifts) & (1 << bits) - 1

    def weight(self, dtype: torch.dtype) -> torch.Tensor:
        numbers = self.numbers().reshape(self.shape)
        if self.zero == "integers":
            moved = (numbers.to(torch.int32) - self.points.to(torch.int32)).to(dtype)
        elif self.zero == "shifted":
            moved = (numbers.to(torch.int16) - 8).to(dtype)
        else:
            moved = numbers.to(dtype) - {"none": 0, "eight": 8, "floats": self.points.to(dtype)}[self.zero]
        return (moved * self.scale.to(dtype)).flatten(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x, self.weight(x.dtype))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("zero", ["none", "eight", "shifted", "integers", "floats"])
def test_blocks_of_few_bits_are_read_as_few(form: str, zero: str) -> None:
    k, n, block = 256, 96, 32
    model = Grouped(form, k, n, block, zero, torch.Generator().manual_seed(3))
    x = torch.randn(1, k)
    compiled = tilewright.compile(model, (x,), target="x86-64-v3")
    check(compiled, model(x.double()), x)
    stored, numbers = n * k * FORMS[form] // 8, 4 * n * k // block
    assert stored <= bytes_read(compiled) <= stored + 2 * numbers


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_blocks_of_few_bits_compute_what_they_say(data: st.DataObject) -> None:
    form = data.draw(st.sampled_from(sorted(FORMS)), "form")
    zero = data.draw(st.sampled_from(["none", "eight", "shifted", "integers", "floats"]), "zero")
    block = data.draw(st.sampled_from([2, 8, 16, 24, 64]), "block")
    k = block * data.draw(st.integers(1, 5), "blocks") * (4 if block < 8 else 1)
    n = 2 * data.draw(st.integers(1, 40), "columns")
    rows = data.draw(st.integers(1, 7), "rows")
    drawn = torch.Generator().manual_seed(data.draw(st.integers(0, 999), "seed"))
    model = Grouped(form, k, n, block, zero, drawn)
    x = torch.randn(rows, k, generator=drawn)
    bound = x.double().abs() @ ((1 << FORMS[form]) * model.scale.double().expand(model.shape).flatten(1).mT)
    found = tilewright.compile(model, (x,))(x)
    assert ((found - model(x.double())).abs() <= 2e-6 * bound).all()


def quantised(
    stored: np.ndarray, scale: np.ndarray, zero: np.ndarray | None, rows: int, block: int
) -> onnx.ModelProto:
    """`x @ DequantizeLinear(stored)`, with numbers for each column, for blocks of columns, or for all of it."""
    from onnx import TensorProto, helper, numpy_helper

    weights = {"w": stored, "s": scale, **({} if zero is None else {"z": zero})}
    how = {"axis": 0, "block_size": block} if block else {"axis": 1}
    nodes = [
        helper.make_node("DequantizeLinear", list(weights), ["d"], **how),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
    ]
    k, n = stored.shape
    graph = helper.make_graph(
        nodes,
        "products",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, k])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, n])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_quantised_models_compute_what_they_say(data: st.DataObject) -> None:
    rows, k, n = data.draw(
        st.tuples(st.integers(1, 5), st.sampled_from([32, 96, 257]), st.integers(1, 70)), "shape"
    )
    unsigned, has_zero = data.draw(st.booleans(), "unsigned"), data.draw(st.booleans(), "zero")
    kind = data.draw(st.sampled_from(["columns", "all", "blocks"]), "scales")
    numbers = np.random.default_rng(data.draw(st.integers(0, 999), "seed"))
    dtype = np.uint8 if unsigned else np.int8
    info = np.iinfo(dtype)
    stored = numbers.integers(info.min, info.max, (k, n), dtype, endpoint=True)
    block = 32 if kind == "blocks" and k % 32 == 0 else 0
    shape = {"columns": (n,), "all": (), "blocks": (k // 32, n) if block else (n,)}[kind]
    scale = (numbers.random(shape) + 0.5).astype(np.float32)
    zero = numbers.integers(info.min, info.max, shape, dtype, endpoint=True) if has_zero else None
    if zero is not None:
        zero = np.asarray(zero, dtype)
    compiled = tilewright.compile(quantised(stored, np.asarray(scale), zero, rows, block))
    x = numbers.standard_normal((rows, k)).astype(np.float32)

    def spread(values: np.ndarray) -> np.ndarray:
        return np.repeat(values, 32, 0) if block else np.broadcast_to(values, (k, n))

    centred = stored.astype(np.float64) - (0 if zero is None else spread(zero.astype(np.float64)))
    exact = x.astype(np.float64) @ (centred * spread(scale.astype(np.float64)))
    bound = np.abs(x).astype(np.float64) @ (256 * np.ones((k, n)) * spread(scale.astype(np.float64)))
    found = compiled(x)
    assert np.all(np.abs(np.asarray(found) - exact) <= 1e-6 * bound * math.sqrt(1 + k / 256))
