"""Functions of PyTorch that it takes apart before operators are looked up in tables, in forms that can be traced."""

from __future__ import annotations

import functools
import itertools
import operator
import sys
from collections.abc import Callable, Container
from typing import Any

import torch
from torch._ops import OpOverload, OpOverloadPacket
from torch._subclasses.fake_tensor import DynamicOutputShapeException
from torch.fx import GraphModule, Node
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from tilewright.compiler.errors import UnsupportedError, UnsupportedOperator
from tilewright.compiler.importers.torch import assertions as torch_assertions
from tilewright.compiler.importers.torch import bags as torch_bags
from tilewright.compiler.importers.torch import borders as torch_borders
from tilewright.compiler.importers.torch import checks as torch_checks
from tilewright.compiler.importers.torch import given_functions
from tilewright.compiler.importers.torch import linear_systems as torch_linear_systems
from tilewright.compiler.importers.torch import losses as torch_losses
from tilewright.compiler.importers.torch import memory_reads as torch_memory_reads
from tilewright.compiler.importers.torch import numbers as torch_numbers
from tilewright.compiler.importers.torch import places as torch_places
from tilewright.compiler.importers.torch import recurrent as torch_recurrent
from tilewright.compiler.importers.torch import resizing as torch_resizing
from tilewright.compiler.importers.torch import sampling as torch_sampling
from tilewright.compiler.importers.torch import selections as torch_selections
from tilewright.compiler.importers.torch.outside import OutsideTensors

Place = Callable[[], str]
"""Tells the line of the model that is being traced."""
_MOST_OF_PAIRS = 1 << 24
"""Most elements of the rows of all pairs, which are written beside each other."""


def one_hot(x, num_classes=-1):
    """1 at the class of each element, 0 elsewhere; looking classes up is what refuses those that are none."""
    if num_classes < 0 or not x.numel():
        return functional.one_hot(x, num_classes)
    classes = torch.arange(num_classes, device=x.device)
    known = classes.index_select(0, x.reshape(-1)).reshape(x.shape)
    return (known.unsqueeze(-1) == classes).to(torch.int64)


def ndtr(x):
    """The normal distribution function of single precision in double: 1 + erf(x) keeps little of its lower tail."""
    dtype = x.dtype if x.dtype.is_floating_point else torch.get_default_dtype()
    if dtype != torch.float32:
        return torch.special.ndtr(x)
    return torch.special.ndtr(x.to(torch.float64)).to(dtype)


def pdist(x, p=2.0):
    """Distances between all pairs of rows in the p-norm, in order of the first."""
    rows = list(itertools.combinations(range(x.shape[0]), 2))
    if x.dim() != 2 or not rows or len(rows) * x.shape[1] > _MOST_OF_PAIRS:
        return torch.pdist(x, p)
    first, second = torch.tensor(rows, device=x.device).t()
    difference = x.index_select(0, first) - x.index_select(0, second)
    if not x.shape[1]:
        # Distances of nothing are zero, but there is no largest difference of nothing.
        return difference.sum(-1)
    distances = torch.linalg.vector_norm(difference, p, -1)
    # PyTorch's distances have a gradient of zeros here, its norms have none.
    return torch.where(distances < 0, difference.sum(-1), distances) if p == 0 else distances


def narrow(x, dim, start, length):
    """`x.narrow` from a start that is a tensor: elements looked up by number, negative ones from the end."""
    if not isinstance(start, torch.Tensor) or not x.dim():
        return torch.narrow(x, dim, start, length)
    start = start.reshape([])
    front = torch.where(start < 0, start + x.shape[dim], start)
    return x.index_select(dim, front + torch.arange(length, device=x.device))


def select(x, dim, index):
    """One step along a dimension, which PyTorch's tracer counts from the end however far."""
    if isinstance(dim, int) and dim < -x.dim():
        raise IndexError(f"select(): there is no dimension {dim} of a tensor of {x.dim()}")
    return torch.select(x, dim, index)


def equal(x, other):
    """Whether all elements are equal, a number that only a call knows: those of two shapes never are."""
    if x.shape != other.shape:
        return False
    return torch.equal(x, other) if x.dtype != other.dtype else torch_numbers.item(torch.all(x == other))


def allclose(x, other, rtol=1e-05, atol=1e-08, equal_nan=False):
    """Whether all elements are close to each other, a number that only a call knows."""
    return torch_numbers.item(torch.all(torch.isclose(x, other, rtol, atol, equal_nan)))


def getitem(x, index):
    """`x[index]` by numbers that are tensors, or of a mask."""
    try:
        return torch_places.getitem(x, index)
    except DynamicOutputShapeException as refusal:
        return torch_selections.select(x, index, refusal)


def setitem(x, index, value):
    """`x[index] = value` by numbers that are tensors, or of what a mask selected elsewhere."""
    if isinstance(value, torch_selections.Selection):
        value.put_into(x, index)
    else:
        torch_places.setitem(x, index, value)


def view_of(x):
    """A view of all elements."""
    return x.view(x.shape)


def _unless_repeated(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """`function`, which broadcasts a tensor, as a view where it repeats nothing.

    What is written into an expanded tensor PyTorch adds to its source as a difference, which rounds and makes NaN of
    infinities; what is written into a view it takes as it is.
    """

    def broadcast(x, *args, **kwargs):
        found = function(x, *args, **kwargs)
        return x.view(found.shape) if found.numel() == x.numel() else found

    return broadcast


def broadcast_tensors(*tensors):
    """Views of tensors in one shape."""
    given = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)) else tensors
    found = torch.broadcast_tensors(*given)
    return type(found)(_unless_repeated(torch.Tensor.expand)(x, y.shape) for x, y in zip(given, found))


def combinations(x, r=2, with_replacement=False):
    """Rows of `r` elements in order, looked up by number: which ones depends on the length alone."""
    if x.dim() != 1 or r < 0:
        return torch.combinations(x, r, with_replacement)
    chosen = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    rows = list(chosen(range(x.shape[0]), r))
    if not rows or not r:
        return x.new_empty(0 if not r else (0, r))
    return x.index_select(0, torch.tensor(rows, device=x.device).reshape(-1)).reshape(-1, r)


_BROADCASTS = (torch.Tensor.expand, torch.Tensor.expand_as, torch.Tensor.broadcast_to, torch.broadcast_to)
_METHODS = (*_BROADCASTS, torch.Tensor.fill_diagonal_, torch.Tensor.inverse)
"""Methods whose forms are put into graphs of TorchDynamo's too."""


def _dropping(function: Callable) -> Callable:
    """A dropout, whose result is its argument itself outside of training, as in eager PyTorch."""

    def dropout(x, p=0.5, training=True, inplace=False):
        return function(x, p, training, inplace) if training or not 0 <= p <= 1 else x

    return dropout


def softshrink(x, lambd=0.5):
    """In single precision on 16-bit floats: PyTorch's tracer takes a bound away that is rounded to them, eager does not."""
    if x.dtype not in (torch.float16, torch.bfloat16):
        return functional.softshrink(x, lambd)
    return functional.softshrink(x.to(torch.float32), lambd).to(x.dtype)


def fill_diagonal_(x, fill_value, wrap=False):
    """`fill_value` where all indices are equal, chosen by a mask: PyTorch's tracer has no view that is a diagonal.

    With `wrap`, every element of a tall matrix whose place in order of rows is a multiple of its width and one.
    """
    if x.dim() < 2 or not x.numel() or (x.dim() > 2 and len(set(x.shape)) > 1):
        return x.fill_diagonal_(fill_value, wrap)
    first, *others = (
        torch.arange(size, device=x.device).reshape([-1] + [1] * (x.dim() - 1 - dim))
        for dim, size in enumerate(x.shape)
    )
    if wrap and x.dim() == 2:
        mask = (first * x.shape[1] + others[0]) % (x.shape[1] + 1) == 0
    else:
        mask = functools.reduce(torch.logical_and, (first == other for other in others))
    return x.masked_fill_(mask, fill_value)


_DROPOUTS = (functional.dropout, functional.dropout1d, functional.dropout2d, functional.dropout3d)


FUNCTIONS: dict[Any, Any] = {
    **{function: _dropping(function) for function in _DROPOUTS},
    functional.one_hot: one_hot,
    torch.Tensor.__getitem__: getitem,
    torch.Tensor.__setitem__: setitem,
    torch.special.ndtr: ndtr,
    functional.softshrink: softshrink,
    torch.pdist: pdist,
    **dict.fromkeys((torch.narrow, torch.Tensor.narrow), narrow),
    **dict.fromkeys((torch.select, torch.Tensor.select), select),
    **dict.fromkeys((torch.equal, torch.Tensor.equal), equal),
    **dict.fromkeys((torch.allclose, torch.Tensor.allclose), allclose),
    torch.ops.prims.view_of: view_of,
    torch.ops.prims.view_of.default: view_of,
    torch.broadcast_tensors: broadcast_tensors,
    **{function: _unless_repeated(function) for function in _BROADCASTS},
    **torch_bags.FUNCTIONS,
    **torch_borders.FUNCTIONS,
    **torch_recurrent.FUNCTIONS,
    **torch_checks.FUNCTIONS,
    **torch_linear_systems.FUNCTIONS,
    **torch_losses.FUNCTIONS,
    **torch_numbers.FUNCTIONS,
    **torch_memory_reads.FUNCTIONS,
    **torch_resizing.FUNCTIONS,
    **torch_sampling.FUNCTIONS,
    torch.combinations: combinations,
    torch.Tensor.fill_diagonal_: fill_diagonal_,
}
"""Functions of PyTorch's interface -> our forms of them, called instead while a model is traced."""

_FIRST = ("input", "x", "a", "x1")
"""Keywords by which PyTorch's parser knows the first argument of a function."""


def _by_place(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call as our forms take them: the first by place, `dim` by that name alone."""
    kwargs = {"dim" if name == "axis" else name: value for name, value in kwargs.items()}
    for name in _FIRST:
        if not args and name in kwargs:
            args = (kwargs.pop(name),)
    return args, kwargs


_IN_PLACE = ("__iadd__", "__isub__", "__imul__", "__itruediv__", "__ifloordiv__", "__imod__", "__ipow__")
_IN_PLACE += ("__iand__", "__ior__", "__ixor__", "__ilshift__", "__irshift__", "__setitem__")


def writes(function: Any) -> bool:
    """Whether a function or method changes its first argument."""
    name = function if isinstance(function, str) else getattr(function, "__name__", "")
    return name in _IN_PLACE or (name.endswith("_") and not name.endswith("__")) or name in _OPERATORS


_OPERATORS = {
    "iadd",
    "isub",
    "imul",
    "itruediv",
    "ifloordiv",
    "imod",
    "ipow",
    "iand",
    "ior",
    "ixor",
    "setitem",
}


_OF_VALUES = {torch.Tensor.item, torch.Tensor.__bool__, torch.Tensor.__int__, torch.Tensor.__float__}
_OF_VALUES |= {
    torch.Tensor.__index__,
    torch.Tensor.__deepcopy__,
    torch.Tensor.__repr__,
    torch.Tensor.__format__,
}
"""Methods that give a tensor's values to Python, which those of tensors from outside have."""


_OF_A_NUMBER = torch.ops.aten._assert_scalar.default


class OwnFunctions(TorchFunctionMode):
    """Calls our forms of FUNCTIONS.

    A slice that was looked up is a copy where eager PyTorch has a view. Writing to either of the two afterwards is
    refused, since the other would not see it. So is writing to a tensor whose elements share memory, as those of
    `expand` and of windows do, or to a view of one: PyTorch's tracer adds what is written to each, or ends.
    """

    def __init__(self, place: Place, held: Container[int]):
        super().__init__()
        self._place = place
        self.outside = OutsideTensors(place, held)
        self.assertions = torch_assertions.Assertions()
        self._copied: list[torch.Tensor] = []
        self._overlapping: list[torch.Tensor] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.__bool__:
            return self.assertions.truth(args[0], torch_assertions.calling_frame(sys._getframe(1)))
        if func in torch_assertions.OPERATORS:
            return self.assertions.add(*args, **(kwargs or {}))
        if func is _OF_A_NUMBER and isinstance(args[0], torch_numbers.Number):
            return self.assertions.add(args[0].value, *args[1:])
        if func in torch_memory_reads.READS:
            return torch_memory_reads.read(func, args, kwargs or {}, self._place)
        if func in given_functions.BY_VALUES:
            raise UnsupportedError(
                [UnsupportedOperator(func.__name__, given_functions.REASON, self._place())]
            )
        # Operators by themselves are PyTorch's own tracers at work, which would take a wrapper for a tensor with memory.
        is_internal = isinstance(func, (OpOverload, OpOverloadPacket))
        if not is_internal and func not in _OF_VALUES and getattr(func, "__name__", "") != "__get__":
            args, kwargs = self.outside.wrap(args, kwargs or {})
        if self._copied and args and isinstance(args[0], torch.Tensor) and writes(func):
            written = _storage(args[0])
            if any(_storage(tensor) == written for tensor in self._copied):
                reason = (
                    "changes a tensor of which x[n] with a tensor n took a copy, or that copy; clone it first"
                )
                raise UnsupportedError([UnsupportedOperator(func.__name__, reason, self._place())])
        if self._overlapping:
            written = [*args[:1]] if writes(func) else []
            if any(self._shares(tensor) for tensor in [*written, (kwargs or {}).get("out")]):
                reason = (
                    "changes a tensor whose elements share memory, as `expand` and `unfold` make them, or a "
                    "view of one; clone it first"
                )
                raise UnsupportedError([UnsupportedOperator(func.__name__, reason, self._place())])
        own = FUNCTIONS.get(func) or given_functions.FUNCTIONS.get(func, func)
        if func in FUNCTIONS:
            args, kwargs = _by_place(args, kwargs or {})
        found = own(*args, **(kwargs or {}))
        with torch._C.DisableTorchFunction():  # questions of ours are no calls of the model
            self._follow(found, args)
        if writes(func):
            self.outside.refuse_written()
        is_view = func is torch.Tensor.__getitem__ and not torch_places.copies(args[1])
        if is_view and torch_places.numbered(*args) is not None:
            self._copied += [args[0], found]
        return found

    def _shares(self, tensor: Any) -> bool:
        return any(tensor is other for other in self._overlapping)

    def _follow(self, found: Any, args: tuple[Any, ...]) -> None:
        """Takes note of results whose elements share memory, and of views of such tensors."""
        source = args[0] if args and isinstance(args[0], torch.Tensor) else None
        for made in found if isinstance(found, (tuple, list)) else [found]:
            if source is None or not isinstance(made, torch.Tensor) or made.layout != torch.strided:
                continue
            viewed = self._shares(source) and _storage(made) == _storage(source)
            if viewed or overlaps(made):
                self._overlapping.append(made)


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def overlaps(tensor: torch.Tensor) -> bool:
    """Whether steps along some dimension end inside of what others span: elements share memory, or interleave."""
    reach = 0
    for step, size in sorted(zip(tensor.stride(), tensor.shape)):
        if size > 1 and tensor.numel():
            if step <= reach and (reach or not step):
                return True
            reach += step * (size - 1)
    return False


def replace_functions(module: GraphModule) -> None:
    """Puts our forms into a graph captured by TorchDynamo, but lookups for views only where nothing is written.

    So it does into functions that the graph gives to operators.
    """
    for body in module.children():
        if isinstance(body, GraphModule):
            replace_functions(body)
    nodes = module.graph.nodes
    is_pure = not any(
        writes(node.target) or "out" in node.kwargs for node in nodes if node.op != "placeholder"
    )
    for node in nodes:
        if node.target is operator.getitem and is_pure and _has_number(node.args[1]):
            node.target = torch_places.getitem
        elif node.target is operator.setitem and _has_number(node.args[1]):
            node.target = torch_places.setitem
        elif node.op == "call_method" and getattr(torch.Tensor, node.target, None) in _METHODS:
            node.op, node.target = "call_function", FUNCTIONS[getattr(torch.Tensor, node.target)]
        elif node.target in FUNCTIONS:
            node.target = FUNCTIONS[node.target]
            node.args, node.kwargs = _by_place(node.args, node.kwargs)
        else:
            node.target = given_functions.FUNCTIONS.get(node.target, node.target)
    module.recompile()


def _has_number(index: Any) -> bool:
    elements = index if isinstance(index, (tuple, list)) else (index,)
    return any(
        isinstance(element, Node) and torch_places.is_number(element.meta.get("example_value"))
        for element in elements
    )
