"""Every dispatch has a workload, whose key is equal for equal work and no other, and whose text is read back."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.compiler import driver, phases
from tilewright.compiler.analysis.workload_of import workload_of
from tilewright.compiler.ir import functions, ir, parse
from tilewright.compiler.nouns.quasi_affine import QuasiAffine, Term
from tilewright.compiler.nouns.workload import Axis, Operand, Workload
from tilewright.compiler.targets.target import resolve

_ALIVE: list = []


def dispatches(model: torch.nn.Module, *inputs: torch.Tensor) -> Iterator[ir.Operation]:
    """The dispatches that a model becomes on a CPU."""
    module = driver.import_model(model.eval(), inputs).module
    _ALIVE.append(module)
    phases.run_phases(module, resolve("x86-64-v3"), "graph", "dispatch")
    for function in functions(module):
        if "tilewright.operator" in function.attributes:
            yield function


class Of(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor):
        return self.function(*inputs)


def keys(function, *inputs: torch.Tensor) -> list[str]:
    return sorted(workload_of(found).key for found in dispatches(Of(function), *inputs))


X = torch.zeros(6, 10)


@pytest.mark.parametrize(
    "function, op",
    [
        (lambda x: x @ x.t(), "matmul"),
        (lambda x: x.softmax(1), "reduction"),
        (lambda x: x.sort(1)[0], "topk"),
        (lambda x: x.cumsum(1), "scan"),
        (lambda x: torch.fft.rfft(x).real, "fourier"),
        (lambda x: torch.zeros(6, 10).index_add(0, torch.tensor([1, 1]), x[:2]), "scatter"),
        (
            lambda x: torch.nn.functional.scaled_dot_product_attention(
                *[x.repeat(11, 4).view(1, 1, 66, 40)] * 3
            ),
            "attention",
        ),
        (lambda x: torch.nn.functional.max_pool2d(x[None, None], 3, 1), "pooling"),
        (lambda x: x.t().relu(), "elementwise"),
        (lambda x: torch.view_as_real(torch.view_as_complex(x.reshape(6, 5, 2)) * 1j), "elementwise"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_kind_of_dispatch_has_a_workload(function, op: str) -> None:
    found = [workload_of(dispatch) for dispatch in dispatches(Of(function), X)]
    assert op in {workload.op for workload in found}
    for workload in found:
        assert workload.body
        again = Workload.from_text(workload.to_text())
        assert again.key == workload.key and again.to_text() == workload.to_text()
        assert again.extents == workload.extents and again.nbytes == workload.nbytes


@pytest.mark.parametrize(
    "one, other",
    [
        (lambda x: x.relu(), lambda x: x.sin()),
        (lambda x: x + 1, lambda x: x + 2),
        (lambda x: x.sum(1), lambda x: x.amax(1)),
        (lambda x: x.sum(1), lambda x: x.sum(0)),
        (lambda x: x - x.t().contiguous().t(), lambda x: x.t().contiguous().t() - x),
        (lambda x: x.sort(1)[0], lambda x: x.sort(1, descending=True)[0]),
        (lambda x: x.cumsum(1), lambda x: x.cumprod(1)),
        (lambda x: torch.nn.functional.pad(x, (1, 2)), lambda x: torch.nn.functional.pad(x, (1, 2), value=3.0)),
        (lambda x: x @ x.t(), lambda x: (x @ x.t()).relu()),
    ],
)  # fmt: skip
def test_other_work_has_another_key(one, other) -> None:
    assert keys(one, X) == keys(one, X)
    assert keys(one, X) != keys(other, X)


def test_other_shapes_and_types_have_another_key() -> None:
    found = [keys(torch.relu, torch.zeros(4, 6)), keys(torch.relu, torch.zeros(4, 7))]
    found.append(keys(torch.relu, torch.zeros(4, 6, dtype=torch.float64)))
    assert len({tuple(one) for one in found}) == 3


GENERIC = """func.func private @{name}(%{a}: tensor<4x8xf32>, %{b}: tensor<8xf32>) -> (tensor<4x8xf32>{lies}) attributes {{tilewright.operator = "{operator}"}} {{
  %c = arith.constant 2.0 : f32
  %e = tensor.empty() : tensor<4x8xf32>
  {first}
  {second}
  %r = linalg.generic {{indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}} ins(%p, %q : tensor<4x8xf32>, tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) {{
  ^bb0(%{x}: f32, %y: f32, %z: f32):
    %v = arith.addf %{x}, %y : f32
    linalg.yield %v : f32
  }} -> tensor<4x8xf32>
  return %r : tensor<4x8xf32>
}}"""


def _unary(
    result: str, source: str, map_: str, type_: str, loops: str = "d0, d1", out: str = "d0, d1"
) -> str:
    return f"""%{result} = linalg.generic {{indexing_maps = [affine_map<({loops}) -> ({map_})>, affine_map<({loops}) -> ({out})>], iterator_types = ["parallel", "parallel"]}} ins(%{source} : {type_}) outs(%e : tensor<4x8xf32>) {{
  ^bb0(%s: f32, %t: f32):
    %m = arith.mulf %s, %c : f32
    linalg.yield %m : f32
  }} -> tensor<4x8xf32>"""


def key_of_generic(swapped: bool = False, **names: str) -> str:
    a, b = names.get("a", "a"), names.get("b", "b")
    parts = [_unary("p", a, "d0, d1", "tensor<4x8xf32>"), _unary("q", b, "d1", "tensor<8xf32>")]
    if "loops" in names:
        parts[1] = _unary("q", b, "d0", "tensor<8xf32>", out="d1, d0")
    first, second = reversed(parts) if swapped else parts
    fields = {"name": "d", "operator": "e", "x": "x", "lies": "", **names, "a": a, "b": b}
    module = parse(GENERIC.format(first=first, second=second, **fields))
    _ALIVE.append(module)
    return workload_of(next(iter(module.body.operations)).operation).key


def test_names_and_the_order_of_what_is_independent_are_no_part_of_a_key() -> None:
    plain = key_of_generic()
    assert key_of_generic(name="other", operator="sum", a="left", b="right", x="one") == plain
    assert key_of_generic(swapped=True) == plain
    assert key_of_generic(loops="transposed") == plain


def test_where_a_result_lies_is_part_of_a_key() -> None:
    inside = " {tilewright.strides = array<i64: 64, 1>}"
    assert key_of_generic(lies=inside) not in (
        key_of_generic(),
        key_of_generic(lies=inside.replace("64, 1", "32, 1")),
    )


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    count = draw(st.integers(0, 4))
    kinds = st.sampled_from(["parallel", "reduction", "sequential"])
    axes = tuple(Axis(f"x{i}", draw(st.integers(0, 1 << 40)), draw(kinds)) for i in range(count))
    small = st.integers(0, 9)
    term = st.builds(Term, st.integers(0, max(0, count - 1)), st.integers(-9, 9), st.integers(1, 9), small)
    index = st.builds(QuasiAffine, st.tuples(term) if count else st.just(()), st.integers(-9, 9))

    def operand(output: bool) -> Operand:
        shape = tuple(draw(st.lists(small, max_size=3)))
        strides = draw(st.sampled_from([(), tuple(range(len(shape)))]))
        dtype = draw(st.sampled_from(["f32", "i1", "c64"]))
        return Operand("x", shape, dtype, tuple(draw(index) for _ in shape), output, strides)

    operands = tuple(operand(False) for _ in range(draw(st.integers(0, 3))))
    numbers = st.floats(0, 1e9)
    return Workload(
        draw(st.text(max_size=5)),
        axes,
        (*operands, operand(True)),
        draw(numbers),
        draw(numbers),
        draw(st.text()),
    )


@settings(max_examples=100, deadline=None)
@given(workloads())
def test_texts_are_read_back(workload: Workload) -> None:
    again = Workload.from_text(workload.to_text())
    assert again.to_text() == workload.to_text() and again.key == workload.key
    assert again.flops == workload.flops and again.nbytes == workload.nbytes


GOOD = json.loads(
    Workload(
        "relu", (Axis("x", 4),), (Operand("o", (4,), "f32", (QuasiAffine((Term(0),)),), True),)
    ).to_text()
)


@pytest.mark.parametrize(
    "changed, why",
    [
        ({"op": 3}, "op: a string"),
        ({"more": 3}, "a workload has the fields"),
        ({"axes": {}}, "axes: a list"),
        ({"axes": [[4, "backwards"]]}, "axes: an extent and one of"),
        ({"axes": [[-4, "parallel"]]}, "axes: an extent and one of"),
        ({"axes": [[True, "parallel"]]}, "axes: an extent and one of"),
        ({"flops": [1.0]}, "flops: two numbers"),
        ({"flops": [1.0, -1]}, "flops: two numbers"),
        ({"operands": []}, "expected one output"),
        ({"operands": [{}]}, "operands: each has the fields"),
        ({"operands": [GOOD["operands"][0] | {"dtype": "f7"}]}, "operands.dtype"),
        ({"operands": [GOOD["operands"][0] | {"shape": ["4"]}]}, "operands.shape"),
        ({"operands": [GOOD["operands"][0] | {"index": [[[[0, 1, 0, 0]], 0]]}]}, "operands.index"),
        ({"operands": [GOOD["operands"][0] | {"index": [[[[7, 1, 1, 0]], 0]]}]}, "an axis that is not there"),
        ({"operands": [GOOD["operands"][0] | {"index": []}]}, "0 indices for a shape of rank 1"),
    ],
)
def test_a_text_that_is_no_workload_is_refused_by_field(changed: dict, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Workload.from_text(json.dumps(GOOD | changed))


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "[" * 100_000])
def test_a_text_that_is_no_json_object_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a workload"):
        Workload.from_text(text)
