"""Arguments that share memory: refused where compiled code, which reads all before it writes any, would differ."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from tilewright.runtime.errors import ArgumentError
from tilewright.runtime.signature import Signature
from tilewright.runtime.views import dense_strides, is_injective

_WORK: Any = 100_000
"""Solutions that numpy may look at to find an element which two tensors share."""


@dataclass(frozen=True)
class Place:
    """Where a tensor lies: first byte and the byte behind its last; shape; strides and items in bytes."""

    name: str
    begin: int
    end: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    item: int

    @classmethod
    def of(cls, name: str, tensor: Any) -> Place:
        """The place of a torch tensor or a numpy array."""
        if isinstance(tensor, np.ndarray):
            address, item, strides = tensor.ctypes.data, tensor.itemsize, tensor.strides
        else:
            address, item = tensor.data_ptr(), tensor.element_size()
            strides = tuple(step * item for step in tensor.stride())
        shape = tuple(tensor.shape)
        if 0 in shape:
            return cls(name, address, address, shape, strides, item)
        reach = [step * (extent - 1) for step, extent in zip(strides, shape)]
        below = sum(bytes_ for bytes_ in reach if bytes_ < 0)
        return cls(name, address + below, address + sum(reach) - below + item, shape, strides, item)

    def shares(self, other: Place) -> bool:
        """True when some byte belongs to both, or when that is too hard to tell."""
        if self.begin >= other.end or other.begin >= self.end:
            return False
        try:
            return np.shares_memory(np.asarray(_Bytes(self)), np.asarray(_Bytes(other)), max_work=_WORK)
        except np.exceptions.TooHardError:
            return True


class _Bytes:
    """What numpy needs to know of memory that it does not touch."""

    def __init__(self, place: Place):
        first = place.begin - sum(
            step * (extent - 1) for step, extent in zip(place.strides, place.shape) if step < 0
        )
        self.__array_interface__ = {
            "version": 3,
            "data": (first, True),
            "typestr": f"|V{place.item}",
            "shape": place.shape,
            "strides": place.strides,
        }


class MemoryRules:
    """What a signature asks of the memory of its arguments; None where it asks nothing."""

    def __init__(self, signature: Signature, weights: Sequence[Any]):
        self._signature = signature
        self._mutated = {m.index for m in signature.mutations if m.target == "input"}
        held = [weight for weight in weights if isinstance(weight, np.ndarray) or hasattr(weight, "data_ptr")]
        places = [Place.of("a weight of the model", weight) for weight in held]
        self._weights = sorted(places, key=lambda place: place.begin)
        self._begins = [place.begin for place in self._weights]
        self._reach = list(accumulate((place.end for place in self._weights), max))

    @classmethod
    def of(cls, signature: Signature, weights: Sequence[Any]) -> MemoryRules | None:
        return cls(signature, weights) if signature.mutations or signature.in_memory else None

    def check(self, tensors: Sequence[Any], state: Sequence[Any]) -> None:
        """Raises ArgumentError where the call's tensors break a rule; they fit the signature otherwise."""
        inputs = self._signature.inputs
        for number in self._signature.in_memory:
            self._refuse_elsewhere(inputs[number].name, tensors[number])
        if not self._signature.mutations:
            return
        places = [Place.of(f"argument `{s.name}`", tensor) for s, tensor in zip(inputs, tensors)]
        kept = [Place.of(f"`{s.name}` of the model", t) for s, t in zip(self._signature.state, state)]
        mutated = [places[number] for number in sorted(self._mutated)]
        for place in mutated:
            if not is_injective(place.shape, tuple(map(abs, place.strides))):
                raise ArgumentError(
                    f"{place.name} is changed by the model, and several of its elements share one place in memory; "
                    "pass a copy of it"
                )
            self._refuse_shared(place, self._weights_at(place))
        read = [place for number, place in enumerate(places) if number not in self._mutated]
        changed = {id(place) for place in (*mutated, *kept)}
        open_: list[Place] = []
        for place in sorted((*mutated, *kept, *read), key=lambda place: place.begin):
            open_ = [other for other in open_ if other.end > place.begin]
            own = id(place) in changed
            self._refuse_shared(place, (other for other in open_ if own or id(other) in changed))
            open_.append(place)

    def _weights_at(self, place: Place) -> Iterable[Place]:
        number = bisect_left(self._begins, place.end)
        while number and self._reach[number - 1] > place.begin:
            number -= 1
            yield self._weights[number]

    def _refuse_shared(self, place: Place, others: Iterable[Place]) -> None:
        for other in others:
            if place.shares(other):
                raise ArgumentError(
                    f"{place.name} shares memory with {other.name}, and the model changes one of them; compiled code "
                    "reads everything before it changes anything: pass a copy of one"
                )

    @staticmethod
    def _refuse_elsewhere(name: str, tensor: Any) -> None:
        place = Place.of(name, tensor)
        dense = tuple(step * place.item for step in dense_strides(place.shape))
        even = all(a == d or n == 1 for a, d, n in zip(place.strides, dense, place.shape))
        if not even or (hasattr(tensor, "storage_offset") and tensor.storage_offset()):
            raise ArgumentError(
                f"argument `{name}`: the model reads its memory (as_strided) and was compiled for one that is "
                "contiguous from the start of its memory; pass a contiguous copy"
            )
