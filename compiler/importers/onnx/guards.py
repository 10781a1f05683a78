"""Run-time checks of a branch or an iteration hold only where it is taken.

Branches and iterations on data are computed whether they are taken or not, and selected from. An index out of range
and an integer divided by zero fail the call, so that in a part which is not taken indices become 0 and divisors 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tilewright.compiler.importers.onnx.values import Node, Value

if TYPE_CHECKING:
    from tilewright.compiler.importers.onnx.builder import Builder

INDEXED = {"Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND"}
"""Operators that check each element of their second operand, an index into the first."""

DIVISIONS = ("arith.divsi", "arith.divui", "arith.remsi", "arith.remui")
"""What checks that its second operand is not 0, in scalar bodies."""


@contextmanager
def taken_where(b: Builder, condition: Value | None) -> Iterator[None]:
    """What is built inside is taken where `condition` (a bool of rank 0) holds, and what stands around it is taken."""
    outer = b.taken
    if condition is not None and condition.array is None:
        b.taken = condition if outer is None else b.op("And", outer, condition)
    try:
        yield
    finally:
        b.taken = outer


def with_safe_operands(b: Builder, node: Node) -> Node:
    """The node with its checked operand replaced by one that passes, where the node is not taken."""
    divides = any(word in node.attrs.get("body", "") for word in DIVISIONS)
    if b.taken is None or not (divides or node.op in INDEXED):
        return node
    checked = node.operand(1)
    if checked.array is not None and (np.all(checked.array) if divides else _all_inside(checked.array, node)):
        return node
    operand = b.op("Where", b.taken, checked, b.scalar(int(divides), checked))
    return replace(node, inputs=[node.inputs[0], operand, *node.inputs[2:]])


def _all_inside(index: np.ndarray, node: Node) -> bool:
    """Whether known indices are in range, counted from the start or from the end."""
    shape = node.operand(0).shape
    if node.op.endswith("ND"):
        first = node.attrs.get("batch_dims", 0)
        extents = np.array(shape[first : first + index.shape[-1]])
    else:
        extents = np.array(shape[node.attrs.get("axis", 0)])
    return bool(np.all((-extents <= index) & (index < extents)))
