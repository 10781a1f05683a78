"""What a mask selects (`x[m]`), whose number only a call knows: computed for all elements, in the places where they were.

y[m] = torch.relu(x[m])        =>        y = where(m, relu(x), y)
(x[m] - y[m]).sum()            =>        where(m, x - y, 0).sum()
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch._subclasses.fake_tensor import DynamicOutputShapeException
from torch.fx import Node
from torch.fx.node import map_arg
from torch.nn import functional
from torch.utils import _pytree as pytree

from tilewright.compiler.importers.torch.tracer import Traced

_functional: Any = torch  # functionalisation has no public names

_POINTWISE = """
abs add clamp clamp_max clamp_min clone cos detach div eq erf exp expm1 floor floor_divide fmod ge gt isfinite isinf isnan le log log10
log1p log2 logical_and logical_not logical_or logit lt maximum minimum mul multiply nan_to_num ne neg negative pow reciprocal relu remainder round
rsqrt sigmoid sign sin sqrt square sub subtract tanh true_divide
"""
_QUOTIENTS = "div floor_divide fmod remainder"
_METHODS = "bool bfloat16 contiguous double float half int long to type_as"
_ACTIVATIONS = "elu gelu hardsigmoid hardswish hardtanh leaky_relu logsigmoid mish relu relu6 selu sigmoid silu softplus softsign tanh"
_OPERATORS = "add and eq floordiv ge gt invert le lt mod mul ne neg or pow sub truediv"
_REFLECTED = "add and floordiv mod mul or pow sub truediv"

_ELEMENT_BY_ELEMENT: set[Any] = {
    *(getattr(torch, name) for name in _POINTWISE.split()),
    *(getattr(torch.Tensor, name) for name in (_POINTWISE + _METHODS).split()),
    *(getattr(functional, name) for name in _ACTIVATIONS.split()),
}
_DEPTH = 64
"""Operators on the way to masks that are compared."""


class Selection:
    """Elements of `values` where `mask`, which has its first dimensions, is true: a tensor of one row for each of them.

    What is computed row by row gives another one, and sums and means of all of it are tensors. What wants its shape is refused.
    """

    def __init__(
        self, values: torch.Tensor, mask: torch.Tensor, node: Node, refusal: DynamicOutputShapeException
    ):
        self.values, self.mask, self.node, self.refusal = values, mask, node, refusal

    def refuse(self, *_: Any) -> NoReturn:
        """Raises the exception that PyTorch's tracer did: how many there are is wanted before it is known."""
        raise self.refusal

    __len__ = __iter__ = __bool__ = __int__ = __float__ = __index__ = __setitem__ = refuse
    __hash__ = object.__hash__

    def __getitem__(self, index: Any) -> NoReturn:
        self.refuse()

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        selected = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Selection)]
        computed = selected[0]._computed(func, args, kwargs, selected)
        return computed if computed is not None else selected[0].refuse()

    def __getattr__(self, name: str) -> Any:
        method = getattr(torch.Tensor, name)
        if name in ("dtype", "device", "is_floating_point", "is_complex"):
            return getattr(self.values, name)
        if not callable(method):
            self.refuse()
        return lambda *args, **kwargs: self.__torch_function__(method, (), (self, *args), kwargs)

    @property
    def row(self) -> int:
        """The rank of what is selected at each place."""
        return self.values.dim() - self.mask.dim()

    def _computed(self, func: Any, args: Any, kwargs: Any, selected: list[Selection]) -> Any:
        """What `func` gives; None where that is not known."""
        if any(not _are_same(self.node, other.node) for other in selected):
            return None
        reduction = kwargs.get("reduction", "mean") if func in _LOSSES else "none"
        if func in _LOSSES:
            kwargs = {**kwargs, "reduction": "none"}
        if func in _SUMS and len(args) == 1 and (not kwargs or (set(kwargs) == {"dtype"} and func in _TYPED)):
            return _SUMS[func](self, **kwargs)
        others = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        if func in _ELEMENT_BY_ELEMENT or func in _LOSSES:
            is_known = (
                all(other.dim() <= self.row for other in others) and len({s.row for s in selected}) == 1
            )
        else:
            is_known = len(selected) == 1 and args[0] is self and _is_by_row(func, args, kwargs, self.row)
        if not is_known:
            return None
        found = Selection(_on_values(func, args, kwargs), self.mask, self.node, self.refusal)
        return found if reduction == "none" else getattr(found, reduction)()

    def spread(self) -> torch.Tensor:
        """The mask with a dimension for each of the values'."""
        return self.mask.reshape([*self.mask.shape, *[1] * self.row])

    def sum(self, dtype: torch.dtype | None = None) -> torch.Tensor:
        """The sum of all elements."""
        return torch.where(self.spread(), self.values, 0).sum(dtype=dtype)

    def all(self) -> torch.Tensor:
        """Whether all elements are true."""
        return torch.where(self.spread(), self.values != 0, True).all()

    def any(self) -> torch.Tensor:
        """Whether some element is true."""
        return torch.where(self.spread(), self.values != 0, False).any()

    def mean(self, dtype: torch.dtype | None = None) -> torch.Tensor:
        """The mean of all elements, NaN of none; of integers there is none."""
        kind = dtype or self.values.dtype
        if not kind.is_floating_point:
            self.refuse()
        wide = torch.promote_types(kind, torch.float32)  # in which sums do not overflow, nor does the count
        count = self.mask.sum() * self.values.shape[self.mask.dim() :].numel()
        return (self.sum(wide) / count.to(wide)).to(kind)

    def put_into(self, x: torch.Tensor, mask: Any) -> None:
        """Writes `x[mask] = self`."""
        x, mask = _under_mask(x, mask)
        node = _node(mask) if isinstance(mask, torch.Tensor) else None
        if node is None or not _are_same(node, self.node) or x.shape != self.values.shape:
            self.refuse()
        x.copy_(torch.where(self.spread(), self.values.to(x.dtype), x))


def _on_values(func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """What `func` gives of all elements; integers divide by 1 where none is selected, as 0 would fail the call."""

    def values(leaf: Any) -> Any:
        if not isinstance(leaf, Selection):
            return leaf
        if func in _DIVISIONS and not leaf.values.dtype.is_floating_point:
            return torch.where(leaf.spread(), leaf.values, 1)
        return leaf.values

    leaves, spec = pytree.tree_flatten((args, kwargs))
    args, kwargs = pytree.tree_unflatten([values(leaf) for leaf in leaves], spec)
    return func(*args, **kwargs)


def _is_by_row(func: Any, args: Any, kwargs: Any, row: int) -> bool:
    """Whether `func`, of a selection and other things, computes every row of `row` dimensions by itself."""
    if func is functional.linear:
        return row == 1
    if func in (torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__):
        return row == 1 and args[1].dim() == 2
    if func is functional.layer_norm:
        return len(args[1]) <= row
    if func in _SOFTMAXES:
        dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
        return dim is not None and -row <= dim < 0
    return False


def _node(x: torch.Tensor) -> Node | None:
    if _functional._is_functional_tensor(x):
        _functional._sync(x)
        x = _functional._from_functional_tensor(x)
    return x.node if isinstance(x, Traced) else None


def _are_same(
    one: Node, other: Node, known: set[tuple[Node, Node]] | None = None, depth: int = _DEPTH
) -> bool:
    """Whether two nodes are the same function of a model's inputs, however often it was computed; `known` pairs are."""
    known = set() if known is None else known
    if one is other or (one, other) in known:
        return True
    if not depth or one.op != "call_function" or (one.op, one.target) != (other.op, other.target):
        return False
    if torch.Tag.nondeterministic_seeded in getattr(one.target, "tags", ()):
        return False
    (operands, form), (others, other_form) = _operands(one), _operands(other)
    if form != other_form or not all(_are_same(a, b, known, depth - 1) for a, b in zip(operands, others)):
        return False
    known.add((one, other))
    return True


def _operands(node: Node) -> tuple[list[Node], str]:
    """The nodes among a node's arguments, and these as text with dots in their places."""
    found: list[Node] = []

    def taken(operand: Node) -> Any:
        found.append(operand)
        return ...

    return found, repr(map_arg((node.args, node.kwargs), taken))


_PARTS = (int, slice, type(Ellipsis))


def _under_mask(x: Any, index: Any) -> tuple[Any, Any]:
    """The part of `x` that the rest of `index` names, and the mask before it: `x[m, 1:]` is `x[:, 1:][m]`."""
    first, *rest = index if isinstance(index, tuple) and index else (index,)
    if not isinstance(first, torch.Tensor) or first.dtype != torch.bool:
        return x, index
    if not all(isinstance(part, _PARTS) and not isinstance(part, bool) for part in rest):
        return x, index
    return (x[(*[slice(None)] * first.dim(), *rest)] if rest else x), first


def select(x: Any, index: Any, refusal: DynamicOutputShapeException) -> Selection:
    """`x[index]` of one mask, in front of numbers and slices or alone; raises `refusal` for other indices."""
    x, mask = _under_mask(x, index)
    if not isinstance(mask, torch.Tensor) or mask.dtype != torch.bool or not mask.dim():
        raise refusal
    node = _node(mask)
    if node is None or mask.shape != x.shape[: mask.dim()]:
        raise refusal
    return Selection(x.clone(), mask.clone(), node, refusal)


def _operator(name: str) -> Callable[..., Any]:
    method = getattr(torch.Tensor, name)

    def operate(self: Selection, *others: Any) -> Any:
        return self.__torch_function__(method, (), (self, *others))

    _ELEMENT_BY_ELEMENT.add(method)
    return operate


for _name in (*_OPERATORS.split(), *(f"r{name}" for name in _REFLECTED.split())):
    setattr(Selection, f"__{_name}__", _operator(f"__{_name}__"))
Selection.__matmul__ = _operator("__matmul__")  # type: ignore[attr-defined]
_ELEMENT_BY_ELEMENT.discard(torch.Tensor.__matmul__)

_SOFTMAXES: set[Any] = {functional.softmax, functional.log_softmax}
_SOFTMAXES |= {getattr(of, name) for of in (torch, torch.Tensor) for name in ("softmax", "log_softmax")}

_DIVISIONS: set[Any] = {
    *(getattr(of, name) for of in (torch, torch.Tensor) for name in _QUOTIENTS.split()),
    *(getattr(torch.Tensor, f"__{r}{name}__") for r in ("", "r") for name in ("floordiv", "mod")),
}
_LOSSES: set[Any] = {
    *(functional.mse_loss, functional.l1_loss, functional.smooth_l1_loss, functional.huber_loss),
    *(functional.binary_cross_entropy, functional.binary_cross_entropy_with_logits),
}
_SUMS: dict[Any, Callable[..., torch.Tensor]] = {
    **dict.fromkeys((torch.all, torch.Tensor.all), Selection.all),
    **dict.fromkeys((torch.any, torch.Tensor.any), Selection.any),
    **dict.fromkeys((torch.sum, torch.Tensor.sum), Selection.sum),
    **dict.fromkeys((torch.mean, torch.Tensor.mean), Selection.mean),
}
_TYPED = (torch.sum, torch.Tensor.sum, torch.mean, torch.Tensor.mean)
