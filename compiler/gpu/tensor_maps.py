"""Tensor maps as attributes of a kernel's launch, written and read back; none that breaks the driver's rules."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.compiler.ir import ir
from tilewright.runtime.launch_rules import broken_map_rule
from tilewright.runtime.program import TensorMap


def tensor_map(
    buffer: int,
    dtype: str,
    shape: Sequence[int],
    strides_bytes: Sequence[int],
    box: Sequence[int],
    swizzle_bytes: int,
    element_strides: Sequence[int] = (),
) -> ir.DictAttr:
    """A tensor map over argument `buffer`, fields as in `TensorMap`; needs a context.

    Raises ValueError for one that `cuTensorMapEncodeTiled` would refuse.
    """
    sizes = {"shape": shape, "strides_bytes": strides_bytes, "box": box, "element_strides": element_strides}
    made = TensorMap(
        buffer, dtype, swizzle_bytes=swizzle_bytes, **{name: tuple(own) for name, own in sizes.items()}
    )
    if (rule := broken_map_rule(made)) is not None:
        raise ValueError(f"a tensor map over buffer {buffer}: {rule}")
    i64 = ir.IntegerType.get_signless(64)
    fields: dict[str, ir.Attribute] = {
        "buffer": ir.IntegerAttr.get(i64, buffer),
        "dtype": ir.StringAttr.get(dtype),
        "swizzle_bytes": ir.IntegerAttr.get(i64, swizzle_bytes),
    }
    for name, own in sizes.items():
        if own or name != "element_strides":
            fields[name] = ir.DenseI64ArrayAttr.get(list(own))
    return ir.DictAttr.get(fields)


def read_tensor_map(attribute: ir.Attribute) -> TensorMap:
    """What `tensor_map` wrote."""
    fields = {entry.name: entry.attr for entry in ir.DictAttr(attribute)}

    def sizes(name: str) -> tuple[int, ...]:
        return tuple(ir.DenseI64ArrayAttr(fields[name])) if name in fields else ()

    return TensorMap(
        ir.IntegerAttr(fields["buffer"]).value,
        ir.StringAttr(fields["dtype"]).value,
        sizes("shape"),
        sizes("strides_bytes"),
        sizes("box"),
        ir.IntegerAttr(fields["swizzle_bytes"]).value,
        sizes("element_strides"),
    )
