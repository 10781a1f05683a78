"""What a traced call returns: its tensors in the structure that the model returns them in, told apart from its arguments."""

from __future__ import annotations

import types
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from tilewright.compiler.errors import UnsupportedError, UnsupportedOperator
from tilewright.compiler.importers.torch.assertions import Assertions
from tilewright.compiler.importers.torch.kept import holds_tensors, tensors_in
from tilewright.compiler.importers.torch.numbers import Number
from tilewright.compiler.importers.torch.selections import Selection
from tilewright.compiler.importers.torch.source_lines import here
from tilewright.compiler.importers.torch.tracer import NotTraceable, is_relied_on
from tilewright.compiler.importers.torch.types import dtype_name
from tilewright.runtime.signature import Mutation, Output, Tree

_functional: Any = torch  # functionalisation has no public names


class Results:
    """A model's output tensors in the structure that it returns; tells results from views of inputs and repeated objects."""

    def __init__(self, wrapped: list[torch.Tensor], owned: int, returned: Any, assertions: Assertions):
        self.wrapped = wrapped
        self.owned = owned
        self.assertions = assertions
        self.outputs: list[Output] = []
        self.mutations: list[Mutation] = []
        self._values: list[torch.Tensor] = []
        self._numbers: dict[int, int] = {}
        self._kept: list[torch.Tensor] = []
        self._storages = {t.untyped_storage()._cdata: i for i, t in reversed(list(enumerate(wrapped)))}
        self.returns = Tree.of(returned, self.add, is_object=holds_tensors)
        _refuse_constants_of_tensors(self.returns)

    def add(self, value: Any, path: str) -> int | None:
        """The number of output tensor `value`, or None when it is no tensor."""
        if isinstance(value, (Number, Selection)):
            value.refuse()
        if not isinstance(value, torch.Tensor):
            return None
        refuse_layout(value, "a result")
        if id(value) not in self._numbers:
            self._numbers[id(value)] = len(self.outputs)
            self._kept.append(value)
            self.outputs.append(self._output(value))
        return self._numbers[id(value)]

    def _output(self, value: torch.Tensor) -> Output:
        if not _functional._is_functional_tensor(value):
            value = _functional._to_functional_tensor(value)
        _functional._sync(value)
        shape = tuple(value.shape)
        dtype = dtype_name(value.dtype)
        source = self._storages.get(value.untyped_storage()._cdata)
        whole = next((i for i, w in enumerate(self.wrapped) if w is value), None)
        number = whole if whole is not None else source
        if number is not None:
            base = self.wrapped[number]
            # Functionalisation does not tell a conjugate, which is a view in eager PyTorch, from a slice.
            if value.dtype.itemsize == base.dtype.itemsize and (
                whole is not None or not value.dtype.is_complex
            ):
                kind, index = ("tensor", number) if number < self.owned else ("input", number - self.owned)
                # A view is made anew of what was written, which may be dense where the input is not.
                _functional._sync(base)
                memory, view = (_functional._from_functional_tensor(t) for t in (base, value))
                offset = int(view.storage_offset()) - int(memory.storage_offset())
                strides = tuple(view.stride())
                known = None if memory.is_contiguous() else tuple(memory.stride())
                return Output(kind, index, dtype, shape, strides, offset, whole is not None, known)
        if value.numel() == 0:
            return Output("empty", 0, dtype, shape, tuple(value.stride()))
        dense, strides = physical(value)
        _functional._sync(dense)
        self._values.append(_functional._from_functional_tensor(dense))
        return Output("result", len(self._values) - 1, dtype, shape, strides)

    def finish(self, values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """All results of the graph: output tensors, then the new values of mutated inputs."""
        results = list(self._values)
        for number, (wrapper, value) in enumerate(zip(self.wrapped, values)):
            _functional._sync(wrapper)
            new = _functional._from_functional_tensor(wrapper)
            if new is value:
                continue
            if _functional._functionalize_has_metadata_mutation(wrapper) or new.shape != value.shape:
                reason = "it is resized, transposed or viewed otherwise in place; make another tensor of it"
                name = "a tensor of the model" if number < self.owned else f"argument {number - self.owned}"
                raise UnsupportedError([UnsupportedOperator(name, reason, here())])
            owned = number < self.owned
            if owned and is_relied_on(value):
                raise NotTraceable("a number that the trace relies on is written")
            target, index = ("tensor", number) if owned else ("input", number - self.owned)
            self.mutations.append(Mutation(len(results), target, index))
            results.append(new)
        return self.assertions.checked(results, here())


def _refuse_constants_of_tensors(returned: Tree) -> None:
    """Raises UnsupportedError for a result that is no tensor, and no container known here, and holds or makes tensors."""
    for child in returned.children:
        _refuse_constants_of_tensors(child)
    value = returned.value
    makes = isinstance(value, (types.FunctionType, Iterator))
    if returned.kind == "constant" and (makes or any(True for _ in tensors_in(value))):
        reason = (
            "compiled code returns tensors, in tuples, lists, dictionaries, data classes and plain objects"
        )
        raise UnsupportedError([UnsupportedOperator(f"a result of {type(value)}", reason, here())])


def physical(value: torch.Tensor) -> tuple[torch.Tensor, tuple[int, ...] | None]:
    """`value` with its dimensions in memory order and broadcast ones cut to one, and strides to view it by.

    The strides are None when a dense row-major tensor of the same shape is what eager gives.
    """
    shape, eager = tuple(value.shape), tuple(value.stride())
    if value.is_contiguous():
        return value, None
    broadcast = [d for d in range(len(shape)) if eager[d] == 0 and shape[d] > 1]
    for d in broadcast:
        value = value.narrow(d, 0, 1)
    order = list(range(len(shape)))  # dimensions of size 1 stay where they are
    places = [d for d in order if shape[d] > 1]
    for place, d in zip(places, sorted(places, key=lambda d: -eager[d])):
        order[place] = d
    strides, step = [0] * len(shape), 1
    for d in reversed(order):
        strides[d] = 0 if d in broadcast else step if shape[d] > 1 else eager[d]
        step *= 1 if d in broadcast else shape[d]
    if order != list(range(len(shape))):
        value = value.permute(order)
    return value, tuple(strides)


def refuse_layout(tensor: torch.Tensor, what: str) -> None:
    """Raises UnsupportedError for a sparse tensor, or another without strides."""
    if tensor.layout is not torch.strided:
        reason = "compiled code knows dense tensors only; convert it by to_dense()"
        raise UnsupportedError([UnsupportedOperator(f"{what} of layout {tensor.layout}", reason, here())])
