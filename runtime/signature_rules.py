"""What a signature read from a file must satisfy before a call trusts it: types, and numbers within its package."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from tilewright.runtime.program import ITEM_BYTES, Package, TensorSpec
from tilewright.runtime.signature import Output, Signature, Tree

_KINDS = ("tensor", "constant", "array", "tuple", "list", "dict", "record", "object")


def broken_rule(signature: Signature, package: Package) -> str | None:
    """The first rule that `signature` breaks, None when it fits `package`."""
    return next(_broken(signature, package), None)


def _broken(signature: Signature, package: Package) -> Iterator[str]:
    if signature.flavour not in ("torch", "numpy"):
        yield f"flavour: expected torch or numpy, found {signature.flavour!r}"
    names = [name for name, _ in signature.arguments]
    for name in (*names, *signature.positional, *signature.optional):
        if not isinstance(name, str):
            yield f"expected names of arguments, found {name!r}"
    if len(set(names)) != len(names) or not set(signature.optional) <= set(names):
        yield "two arguments have one name, or one that may be left out is none"
    taken = [*signature.inputs, *signature.state]
    for what, specs, own in (
        ("inputs", taken, package.inputs),
        ("results", signature.results, package.outputs),
    ):
        for spec in specs:
            yield from _spec(spec, what)
        if [(s.nbytes, s.shape) for s in specs] != [(s.nbytes, s.shape) for s in own]:
            yield f"{what}: expected the shapes and sizes of the program's, found others"
    numbers: list[int] = []
    for name, tree in signature.arguments:
        yield from _tree(tree, f"arguments.{name}", len(signature.inputs), numbers)
    if sorted(set(numbers)) != list(range(len(signature.inputs))):
        yield f"arguments: expected all {len(signature.inputs)} inputs, found {sorted(set(numbers))}"
    yield from _tree(signature.returns, "returns", len(signature.outputs), [])
    for output in signature.outputs:
        yield from _output(output, signature, package)
    for mutation in signature.mutations:
        target = {"input": signature.inputs, "state": signature.state}.get(mutation.target)
        if (
            target is None
            or not _within(mutation.index, target)
            or not _within(mutation.result, signature.results)
        ):
            yield f"mutations: expected a result and an input or state tensor, found {mutation}"
            continue
        changed, result = target[mutation.index], signature.results[mutation.result]
        if (changed.shape, changed.nbytes) != (result.shape, result.nbytes):
            yield f"mutations: expected a result like {changed}, found {result}"
    changed_by = {
        (m.result, m.index + (len(signature.inputs) if m.target == "state" else 0))
        for m in signature.mutations
    }
    for update in package.updates:
        if (update.output, update.input) not in changed_by:
            yield f"mutations: expected one for every update of the program, found none for {update}"
    if not all(_within(number, signature.inputs) for number in signature.in_memory):
        yield f"in_memory: expected numbers of inputs, found {signature.in_memory}"


def _is_size(value: Any) -> bool:
    return type(value) is int and 0 <= value <= 1 << 62


def _within(index: Any, items: Sequence[Any]) -> bool:
    return type(index) is int and 0 <= index < len(items)


def _spec(spec: TensorSpec, what: str) -> Iterator[str]:
    if not isinstance(spec.name, str) or not _is_dtype(spec.dtype) or not all(map(_is_size, spec.shape)):
        yield f"{what}: expected a name, an element type and a shape, found {spec}"


def _is_dtype(dtype: Any) -> bool:
    return isinstance(dtype, str) and dtype in ITEM_BYTES


def _tree(tree: Tree, place: str, tensors: int, numbers: list[int]) -> Iterator[str]:
    if tree.kind not in _KINDS:
        yield f"{place}: expected one of {', '.join(_KINDS)}, found {tree.kind!r}"
    elif tree.kind == "tensor":
        if not _within(tree.index, range(tensors)):
            yield f"{place}: expected a tensor from 0 to {tensors - 1}, found {tree.index!r}"
        else:
            numbers.append(tree.index)
    elif tree.kind == "array":
        value = tree.value
        if not isinstance(value, list) or len(value) != 2 or not _is_dtype(value[0]):
            yield f"{place}: expected an element type and elements, found {value!r:.60}"
    elif tree.kind in ("dict", "record", "object") and len(tree.keys) != len(tree.children):
        yield f"{place}: expected as many keys as members, found {len(tree.keys)} and {len(tree.children)}"
    elif not all(key is None or isinstance(key, (str, int, float)) for key in tree.keys):
        yield f"{place}: expected keys that are names or numbers, found {list(tree.keys)!r:.60}"
    if tree.kind in ("record", "object"):
        module, colon, name = str(tree.type_name).partition(":")
        if not isinstance(tree.type_name, str) or not (module and colon and name):
            yield f"{place}: expected a type as `module:name`, found {tree.type_name!r}"
    for number, child in enumerate(tree.children):
        yield from _tree(child, f"{place}[{number}]", tensors, numbers)


def _output(output: Output, signature: Signature, package: Package) -> Iterator[str]:
    known: dict[str, Sequence[TensorSpec]] = {
        "result": signature.results,
        "input": signature.inputs,
        "weight": package.weights,
        "state": signature.state,
    }
    source, shape = known.get(output.source), output.shape
    if not _is_dtype(output.dtype) or not isinstance(shape, tuple) or not all(map(_is_size, shape)):
        yield f"outputs: expected an element type and a shape, found {output}"
    elif output.source == "empty":
        if math.prod(shape):
            yield f"outputs: expected no elements of a tensor from nowhere, found {output}"
    elif source is None or not _within(output.index, source):
        yield f"outputs: expected a result, an input, a weight or a state tensor, found {output}"
    elif not _is_size(output.offset) or not _fits(output, source[output.index]):
        yield f"outputs: expected a view within {source[output.index]}, found {output}"


def _fits(output: Output, source: TensorSpec) -> bool:
    """Whether every element of the view lies in the source, as it is laid out, and is as long as those there."""
    if ITEM_BYTES[output.dtype] != ITEM_BYTES[source.dtype]:
        return False
    strides, base = output.strides, output.base
    for given, rank in ((strides, len(output.shape)), (base, len(source.shape))):
        if given is not None and not (
            isinstance(given, tuple) and len(given) == rank and all(map(_is_size, given))
        ):
            return False
    if math.prod(output.shape) == 0:
        return True
    held = math.prod(source.shape) if base is None else _span(source.shape, base)
    wanted = math.prod(output.shape) if strides is None else _span(output.shape, strides)
    return output.offset + wanted <= held


def _span(shape: Sequence[int], strides: Sequence[int]) -> int:
    return 1 + sum((extent - 1) * stride for extent, stride in zip(shape, strides))
