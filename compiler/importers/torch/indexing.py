"""Decompositions of operators that move elements or address them by number, for whatever torch-mlir lacks."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import torch
from torch._subclasses.fake_tensor import DynamicOutputShapeException
from torch.utils._mode_utils import no_dispatch

from tilewright.compiler.importers.torch.known_values import of_value
from tilewright.compiler.importers.torch.result_memory import laid_out_as
from tilewright.runtime.views import is_injective

aten = torch.ops.aten


def roll(x, shifts, dims=()):
    """`x` with its elements moved on, those beyond the end to the front: two slices per dimension, joined.

    Shifts count modulo the extent; torch-mlir takes them as they are, and slices out of bounds.
    """
    shifts = [shifts] if isinstance(shifts, int) else shifts
    dims = [dims] if isinstance(dims, int) else dims
    if not dims:
        return roll(x.reshape(-1), shifts, [0]).reshape(x.shape)
    for shift, dim in zip(shifts, dims):
        extent = x.shape[dim]
        moved = shift % extent if extent else 0
        if moved:
            parts = x.narrow(dim, extent - moved, moved), x.narrow(dim, 0, extent - moved)
            x = torch.cat(parts, dim)
    return x.clone()


def index_add(x, dim, index, source, *, alpha=1):
    """Slices of `source` added to those of `x` that `index` numbers."""
    scaled = source if alpha == 1 else source * alpha
    return _put_along(x, dim, _from_the_front(x, dim, index), scaled, accumulate=True)


def index_copy(x, dim, index, source):
    """Slices of `x` that `index` numbers, replaced by those of `source`."""
    return _put_along(x, dim, _from_the_front(x, dim, index), source, accumulate=False)


def index_fill(x, dim, index, value):
    """Slices of `x` that `index` numbers, negative ones from the end, filled with one value."""
    if not isinstance(value, torch.Tensor):
        value = x.new_full((), value)
    return _put_along(x, dim, index, value, accumulate=False)


def _from_the_front(x, dim, index):
    """`index` with numbers that `index_put` would count from the end out of range."""
    return torch.where(index < 0, x.shape[dim], index) if x.dim() else index


def _put_along(x, dim, index, source, accumulate: bool):
    """`index_put` along one dimension."""
    if not x.dim() or not x.numel():
        return NotImplemented
    places = [None] * (dim % x.dim()) + [index.reshape(-1)]
    return aten.index_put(x, places, source.to(x.dtype), accumulate)


def index_reduce(x, dim, index, source, reduce, *, include_self=True):
    """`scatter_reduce` of whole slices."""
    if not x.dim():
        x, source = x.reshape(1), source.reshape(-1)
        return index_reduce(x, 0, index, source, reduce, include_self=include_self).reshape([])
    places = index.reshape([-1 if d == dim % x.dim() else 1 for d in range(x.dim())]).expand(source.shape)
    return aten.scatter_reduce(x, dim, places, source, reduce, include_self=include_self)


def of_rank_one(operator: Any):
    """`operator` along a dimension of a tensor without dimensions, or at indices without, by way of one element."""

    def decomposition(x, dim, index, *source, **kwargs):
        if x.dim() and index.dim():
            return NotImplemented
        lists = [part.reshape(-1) if isinstance(part, torch.Tensor) else part for part in (index, *source)]
        found = operator(x.reshape(-1), 0, *lists, **kwargs)
        return found.reshape(index.shape if operator is aten.gather.default else x.shape)

    return decomposition


def scatter_with(x, dim, index, source, *, reduce):
    """`scatter_reduce`, which knows the operations by other names."""
    if not isinstance(source, torch.Tensor):
        source = x.new_full(index.shape, source)
    return aten.scatter_reduce(x, dim, index, source, {"add": "sum", "multiply": "prod"}[reduce])


def put(x, index, source, accumulate=False):
    """Elements of the flattened tensor replaced by number, negative ones from its end."""
    if not x.numel():
        return NotImplemented
    written = aten.index_put(x.reshape(-1), [index.reshape(-1)], source.reshape(-1), accumulate)
    return laid_out_as(written.reshape(x.shape), x)


def as_strided(x, size, stride, storage_offset=None):
    """The one element of a tensor of rank 0 at all places, of which torch-mlir ends the process."""
    if x.dim() or storage_offset or any(step for n, step in zip(size, stride) if n > 1):
        return NotImplemented
    return x.expand(size)


def masked_scatter(x, mask, source):
    """An operand that is spread over the mask."""
    if x.shape == torch.broadcast_shapes(x.shape, mask.shape):
        return NotImplemented
    x, mask = torch.broadcast_tensors(x, mask)
    return aten.masked_scatter(x, mask, source)


def as_strided_copy(x, size, stride, storage_offset=None):
    """A copy of what `as_strided` views."""
    return aten.as_strided(x, size, stride, storage_offset).clone()


def as_strided_scatter(x, source, size, stride, storage_offset=None):
    """`x` with `source` at places of its memory, which is `x` itself, dense; no two elements may have one place."""
    if not x.is_contiguous() or (x.storage_offset() and storage_offset is not None):
        return NotImplemented
    reached = 0
    for step, extent in sorted(zip(stride, size)):
        if step <= reached and extent > 1:
            return NotImplemented
        reached += step * (extent - 1)
    places = torch.full(size, storage_offset or 0, dtype=torch.int64)
    for d, (extent, step) in enumerate(zip(size, stride)):
        places = places + (torch.arange(extent) * step).reshape(
            [-1 if d == n else 1 for n in range(len(size))]
        )
    return put(x, places, source) if source.numel() else x.clone()


def on_shared_places(operator: Any):
    """`operator`, a write into a copy of `x` with its strides, in which elements that share a place change as one.

    Of a tensor that is expanded eager makes a dense copy.
    """

    def decomposition(x, source, *where, **named):
        shape, strides = tuple(x.shape), tuple(x.stride())
        if not source.numel() or any(n > 1 and step == 0 for n, step in zip(shape, strides)):
            return NotImplemented
        if is_injective(shape, strides):
            return _in_memory_order(operator, x, source, *where, **named)
        with no_dispatch():
            own = torch.empty_strided(shape, strides, dtype=torch.int64)
            own.copy_(torch.arange(x.numel()).reshape(shape))
            others = torch.arange(source.numel()).reshape(source.shape) + x.numel()
            numbers = operator(own, others, *where, **named).reshape(-1)
        both = torch.cat((x.reshape(-1), source.reshape(-1)))
        return torch.index_select(both, 0, aten.lift_fresh_copy(numbers)).reshape(shape)

    return decomposition


def _in_memory_order(operator: Any, x, source, *where, **named):
    """`operator` with the dimensions of `x` in the order of its strides, so that its result has this order too.

    PyTorch's decompositions take over the order of `source`, and a view of the result, as the write into `x` needs
    it, may be none then.
    """
    if source.dtype != x.dtype:
        return operator(x, source.to(x.dtype), *where, **named)
    order = _order(x.stride())
    inputs = [argument.name for argument in operator._schema.arguments[2:]]
    given = dict(zip(inputs, where)) | named
    written = {name: given.get(name, dim) % x.dim() for name, dim in _WRITTEN[operator].items()}
    # A part of `x` has all its dimensions, or those that are not selected and then the diagonal.
    is_whole = source.dim() == x.dim()
    kept = [d for d in range(x.dim()) if is_whole or d not in written.values()]
    within = [kept.index(d) for d in order if d in kept]
    within += range(len(within), source.dim())
    moved, part = x.permute(order), source.permute(within)
    # An expanded dimension takes the place that `x` gives it.
    steps = [step for n, step in zip(part.shape, part.stride()) if n > 1 and step]
    is_in_order = steps == sorted(steps, reverse=True)
    if order == list(range(x.dim())) and is_in_order:
        if operator is not aten.select_scatter.default:
            return NotImplemented
        # A part that is written where `x` lies: PyTorch chooses between both for every element of `x`.
        dim = written["dim"]
        place = given["index"] % x.shape[dim]
        return aten.slice_scatter.default(x, source.unsqueeze(dim), dim, place, place + 1)
    given |= {name: order.index(dim) for name, dim in written.items()}
    found = operator(moved, part if is_in_order else part.contiguous(), **given)
    return found.permute([order.index(d) for d in range(x.dim())])


def _order(strides) -> list[int]:
    """Dimensions from the one with the largest stride to that with the smallest."""
    return sorted(range(len(strides)), key=lambda d: (-strides[d], d))


def copy_strided(x, strides):
    """A copy whose dimensions lie in the order of `strides`."""
    order = _order(strides)
    dense = x.permute(order).clone(memory_format=torch.contiguous_format)
    return dense.permute([order.index(d) for d in range(x.dim())])


def copy_of(view: Any):
    """Dense copies of what `view` gives."""

    def decomposition(*args, **kwargs):
        return torch.utils._pytree.tree_map(
            lambda part: part.clone(memory_format=torch.contiguous_format), view(*args, **kwargs)
        )

    return decomposition


def empty(size, layout, *, dtype=None, device=None, **memory):
    """A tensor of any values, dense whatever strides are asked for, as all fresh tensors are."""
    return aten.empty.memory_format(size, dtype=dtype, device=device)


def new_empty_strided(x, size, stride, *, dtype=None, device=None, **memory):
    """`empty` in the type of another tensor."""
    return empty(size, None, dtype=dtype or x.dtype, device=device)


def histc(x, bins=100, min=0, max=0):
    """How many elements lie in each of `bins` intervals between two bounds, by default the extreme elements."""
    if not x.dtype.is_floating_point or not x.numel():
        return NotImplemented
    x = x.reshape(-1)
    low, high = (x.amin(), x.amax()) if min == max else (x.new_full((), min), x.new_full((), max))
    even = low == high
    low, high = torch.where(even, low - 1, low), torch.where(even, high + 1, high)
    inside = (x >= low) & (x <= high)
    place = torch.where(inside, (x - low) * bins / (high - low), bins).to(torch.int64)
    place = torch.where(inside, torch.clamp_max(place, bins - 1), bins)
    if min == max:  # as eager does, refuses extreme elements that are no numbers: there is no such place
        place = torch.where((high - low).isfinite(), place, bins + 1)
    return x.new_zeros(bins + 1).index_put((place,), x.new_ones(()), accumulate=True)[:bins]


def index(x, indices):
    """`x` at indices of 64 bits, the only ones that torch-mlir counts from the end; masks that are known as places."""
    places = _known_places(indices)
    wide = _widened(places or indices) or places
    return NotImplemented if wide is None else aten.index(x, wide)


def masked_select(x, mask):
    """Elements at the places of a mask that is known while the model is traced."""
    x, mask = torch.broadcast_tensors(x, mask)
    places = _known_places([mask])
    return NotImplemented if places is None else aten.index(x, places)


def _known_places(indices):
    """`indices` with numbers in place of masks that are constants, whose values tracing knows; None without any."""
    found, is_known = [], False
    for mask in indices:
        places = [mask]
        if mask is not None and mask.dtype in MASKS and mask.dim():
            with contextlib.suppress(DynamicOutputShapeException):
                rows = _places(mask)
                if type(rows.shape[0]) is int:
                    places, is_known = list(rows.unbind(1)), True
        found += places
    return found if is_known else None


def _places(mask):
    """Indices of the elements that are true, a row for each; raises DynamicOutputShapeException where none knows them."""
    rows = of_value(torch.nonzero, mask)
    return aten.nonzero(mask) if rows is None else aten.lift_fresh_copy(rows)


def index_put(x, indices, values, accumulate=False):
    """A masked assignment as a choice between old and new elements; indices of 64 bits for others."""
    found = [number for number, index in enumerate(indices) if index is not None]
    if not all(indices[number].numel() for number in found):
        return x.clone()
    if len(found) == 1 and indices[found[0]].dtype in MASKS:
        chosen = _assigned(x, found[0], indices[found[0]] != 0, values.to(x.dtype), accumulate)
        if chosen is not NotImplemented:
            return chosen
    places = _known_places(indices)
    if places is not None:
        return aten.index_put(x, places, values, accumulate)
    if len(found) == 1 and indices[found[0]].dtype in MASKS:
        return NotImplemented
    wide = _widened(indices)
    if wide is not None:
        return aten.index_put(x, wide, values, accumulate)
    if not found:
        return NotImplemented
    if len(found) == 1 and 0 < found[0] < x.dim() - 1 and indices[found[0]].dim() and x.is_contiguous():
        return _put_rows(x, found[0], indices[found[0]], values, accumulate)
    places = range(found[0], found[0] + len(found))
    if found != list(places):
        # Numbers of dimensions apart have their places in front in `values`: so do these dimensions in what is written.
        order = [*found, *(d for d in range(x.dim()) if d not in found)]
        lists = [indices[number] for number in found]
        written = aten.index_put(x.permute(order), lists, values, accumulate)
        return written.permute([order.index(d) for d in range(x.dim())])
    if any(indices[place].dim() for place in places):
        return NotImplemented
    # Numbers of one slice: torch-mlir scatters lists of slices only.
    lists = [index if index is None else index.reshape(1) for index in indices]
    behind = x.dim() - places.stop
    if values.dim() > behind:
        values = values.unsqueeze(values.dim() - behind)
    return aten.index_put(x, lists, values, accumulate)


def _put_rows(x, dim: int, index, values, accumulate: bool):
    """`index_put` along an inner dimension, by whole rows behind it: torch-mlir would number every element of them."""
    outer, shape = math.prod(x.shape[:dim]), index.shape
    if values.dim():
        values = values.expand([*x.shape[:dim], *shape, *x.shape[dim + 1 :]])
        values = values.reshape([outer, *shape, *x.shape[dim + 1 :]])
    images = torch.arange(outer, device=x.device).reshape([outer, *[1] * len(shape)])
    rows = aten.index_put(x.flatten(0, dim - 1), [images, index.unsqueeze(0)], values, accumulate)
    return rows.reshape(x.shape)


def _assigned(x, first: int, mask, values, accumulate: bool):
    """`x` with `values` where the mask, which covers the dimensions from `first` on, is true.

    Where every true element takes the same values, they have no dimension or one of extent 1 in place of the mask's.
    """
    behind = x.dim() - first - mask.dim()
    while values.dim() > first + 1 + behind and values.shape[0] == 1:
        values = values.squeeze(0)
    if values.dim() > behind:
        counted = values.dim() - behind - 1
        if values.shape[counted] != 1:
            return NotImplemented
        spread = [1] * mask.dim()
        values = values.reshape([*values.shape[:counted], *spread, *values.shape[counted + 1 :]])
    chosen = mask.reshape([*mask.shape, *[1] * behind])
    if accumulate:
        values = x | values if x.dtype == torch.bool else x + values
    return torch.where(chosen, values, x)


def _widened(indices):
    """The indices with numbers of 64 bits, None where they have them already."""
    if all(index is None or index.dtype in (torch.int64, *MASKS) for index in indices):
        return None
    return [index if index is None or index.dtype in MASKS else index.to(torch.int64) for index in indices]


def nonzero_static(x, *, size, fill_value=-1):
    """Places of the first `size` elements that are not zero, a row for each, behind them rows of the filler."""
    is_chosen = (x != 0).reshape(-1)
    if not x.numel() or not x.dim() or not size:
        return (
            NotImplemented
            if x.numel() and size
            else x.new_full((size, x.dim()), fill_value, dtype=torch.int64)
        )
    row = torch.cumsum(is_chosen.to(torch.int64), 0) - 1
    row = torch.where(is_chosen & (row < size), row, size)
    count = torch.sum(is_chosen.to(torch.int64))
    place = torch.zeros(size + 1, dtype=torch.int64).scatter(0, row, torch.arange(x.numel()))[:size]
    columns = []
    for extent in reversed(x.shape):
        columns.append(place % extent)
        place = torch.div(place, extent, rounding_mode="floor")
    is_found = (torch.arange(size) < count).unsqueeze(1)
    return torch.where(is_found, torch.stack(columns[::-1], 1), fill_value)


def embedding_renorm(weight, indices, max_norm, norm_type):
    """`weight` with the rows that `indices` name shortened to a norm of at most `max_norm`."""
    named = torch.zeros(weight.shape[0], dtype=torch.int32)
    named = named.index_fill(0, indices.reshape(-1), 1).unsqueeze(1) != 0
    norm = torch.linalg.vector_norm(weight, norm_type, 1, keepdim=True)
    return torch.where(named & (norm > max_norm), weight * (max_norm / (norm + 1e-7)), weight)


def resize(x, size, *, memory_format=None):
    """The first elements in memory in another shape; those beyond them may be anything, and are zero."""
    if not x.is_contiguous() or memory_format not in (None, torch.contiguous_format, torch.preserve_format):
        return NotImplemented
    wanted, flat = math.prod(size), x.reshape(-1)
    if wanted > x.numel():
        flat = torch.cat((flat, flat.new_zeros(wanted - x.numel())))
    return flat[:wanted].reshape(size)


MASKS = (torch.bool, torch.uint8)
"""Types of indices that choose elements instead of numbering them."""

_BY_PLACE = (
    *(aten.gather.default, aten.scatter.src, aten.scatter.value),
    *(aten.scatter_add.default, aten.scatter_reduce.two),
)

_WRITTEN: dict[Any, dict[str, int]] = {
    aten.select_scatter.default: {"dim": 0},
    aten.slice_scatter.default: {"dim": 0},
    aten.diagonal_scatter.default: {"dim1": 0, "dim2": 1},
}
"""Writes into a copy -> the dimensions that they name, and their default values."""

_COPIES = {
    aten.view_copy.default: aten.reshape.default,
    aten.slice_copy.Tensor: aten.slice.Tensor,
    aten.select_copy.int: aten.select.int,
    aten.split_copy.Tensor: aten.split.Tensor,
    aten.unbind_copy.int: aten.unbind.int,
    aten.detach_copy.default: aten.alias.default,
    aten.view_as_real_copy.default: aten.view_as_real.default,
    aten.view_as_complex_copy.default: aten.view_as_complex.default,
}
"""Operators that copy -> what they copy; the table has the others."""


def detached(x):
    """`x`, of which a decomposition makes a constant: no graph of ours records what it has come from."""
    return aten.alias.default(x)


TABLE: dict[Any, Any] = {
    **{operator: of_rank_one(operator) for operator in _BY_PLACE},
    **{operator: on_shared_places(operator) for operator in _WRITTEN},
    **{operator: copy_of(view) for operator, view in _COPIES.items()},
    aten.detach_.default: detached,
    torch.ops.prims.copy_strided.default: copy_strided,
    aten.roll.default: roll,
    aten.histc.default: histc,
    aten.index.Tensor: index,
    aten.index_put.default: index_put,
    aten.masked_select.default: masked_select,
    aten.index_add.default: index_add,
    aten.index_copy.default: index_copy,
    aten.index_fill.int_Scalar: index_fill,
    aten.index_fill.int_Tensor: index_fill,
    aten.index_reduce.default: index_reduce,
    aten.put.default: put,
    aten.as_strided.default: as_strided,
    aten.masked_scatter.default: masked_scatter,
    aten.as_strided_copy.default: as_strided_copy,
    aten.as_strided_scatter.default: as_strided_scatter,
    aten.empty_strided.default: empty,
    aten.empty_permuted.default: empty,
    aten.new_empty_strided.default: new_empty_strided,
    aten.nonzero_static.default: nonzero_static,
    aten.embedding_renorm.default: embedding_renorm,
    aten.resize.default: resize,
    aten.scatter.reduce: scatter_with,
    aten.scatter.value_reduce: scatter_with,
}
"""Operator -> decomposition; a decomposition returns NotImplemented for what it does not cover."""
