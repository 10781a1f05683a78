"""Layouts that our tracer works out without PyTorch's kernels, against the tensors that these give."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch._dispatch.python import enable_python_dispatcher

import tilewright
from tilewright.compiler.errors import ModelImportError
from tilewright.compiler.importers.torch.decompositions import decomposition_table
from tilewright.compiler.importers.torch.tracer import Layout, layout_of, trace_fast

aten = torch.ops.aten
LAYOUTS = [
    ((4, 5), (5, 1), 0),
    ((4, 5), (1, 4), 3),
    ((0, 3), (3, 1), 2),
    ((1,), (7,), 1),
    ((3, 1, 2), (2, 2, 1), 0),
]
STARTS, ENDS = (None, -9, -3, 0, 1, 4, 9), (None, -9, -2, 0, 1, 3, 2**63 - 1)


def traced(function, *examples):
    with torch.no_grad(), enable_python_dispatcher():
        return trace_fast(lambda *args: list(function(*args)), list(examples), decomposition_table())


def _agree(graph, *given):
    """Every node says the layout of what it gives."""

    class Compared(torch.fx.Interpreter):
        def run_node(self, n):
            found = super().run_node(n)
            if isinstance(found, torch.Tensor):
                assert layout_of(n.meta["val"]) == layout_of(found), n.format_node()
            return found

    return Compared(graph).run(*given)


@pytest.mark.parametrize("form", LAYOUTS, ids=str)
def test_selections_and_slices(form):
    x = torch.arange(64.0).as_strided(*form)
    dims = range(-x.dim(), x.dim())
    selected = [(dim, n) for dim in dims for n in range(-x.shape[dim], x.shape[dim])]
    sliced = list(itertools.product(dims, STARTS, ENDS, (1, 2, 7)))

    def views(x):
        yield from (aten.select.int(x, *which) for which in selected)
        yield from (aten.slice.Tensor(x, *which) for which in sliced)

    expected = [Layout(*layout_of(view)) for view in views(x)]
    (output,) = traced(views, x).graph.find_nodes(op="output")
    found = [layout_of(node.meta["val"]) for node in output.args[0]]
    assert [layout.moved(form[2]) for layout in found] == expected or found == expected


def test_views_of_steps():
    """The same views of every step: one is worked out, the others lie further on."""

    def steps(x, y):
        for n in range(3):
            step = x[:, n]
            first, second = step.split([1, 3], 1)
            rows = step.unsqueeze(0).transpose(1, 2).squeeze(0).expand(4, 2)
            yield from (
                first + y,
                second.t(),
                rows * rows,
                step.reshape(2, 2, 2),
                (step * 2).view(-1),
                *step.unbind(1),
            )
            yield torch.stack([step, step], 1).flatten() @ torch.ones(16)

    given = torch.randn(2, 3, 4), torch.randn(2, 1)
    found = _agree(traced(steps, *given), *given)
    for ours, theirs in zip(found, steps(*given), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_parts_of_complex_numbers_start_elsewhere():
    def parts(x):
        for n in range(3):
            yield from (torch.view_as_real(x[n]), x[n].imag * 1)

    x = torch.randn(3, 4, dtype=torch.complex64)
    _agree(traced(parts, x), x)


@pytest.mark.parametrize("wrong", [(2, 0), (0, 4), (0, -5)], ids=str)
def test_selections_outside_are_errors(wrong):
    with pytest.raises((IndexError, RuntimeError)):
        traced(lambda x: [aten.select.int(x, *wrong) + 1], torch.randn(4, 5))


def test_dimensions_before_the_first_are_errors():
    """PyTorch's fake tensors select along any."""
    with pytest.raises(ModelImportError, match="there is no dimension -3"):
        tilewright.compile(lambda x: x.select(-3, 0) + 1, (torch.randn(4, 5),))
