"""Whether a model's next call computes what this one does, where it has kept something for it.

A program is called again and again, and holds no more than tensors of fixed shapes: what a model assigns to its attributes
must not matter to its results. Both calls are traced into one graph, and their results compared: as expressions, and where these
differ, as those of a table that is looked up once and sliced again do, by their values on random numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from tilewright.compiler.errors import UnsupportedError, UnsupportedOperator
from tilewright.compiler.importers.torch.kept import Change, Held
from tilewright.runtime.signature import Output

MOST_NAMED = 3


def assigned_in_place(
    changes: Iterable[Change],
    held: Held,
    own: Sequence[torch.Tensor],
    is_alone: Callable[[int], bool],
    outputs: Sequence[Output],
    place: str,
) -> list[Change]:
    """Writes what was assigned in place of one of the model's `own` tensors, and is like it, into that; the other changes.

    Among these are those of tensors that are not alone in their memory, where others would change too. Raises UnsupportedError
    where a result is, or is a view of, what was there before.
    """
    left = []
    for change in changes:
        number = next((i for i, tensor in enumerate(own) if tensor is change.before), None)
        old, new = change.before, change.after
        is_state = (
            number is not None
            and isinstance(new, torch.Tensor)
            and (new.shape, new.dtype) == (old.shape, old.dtype)
            and held.holders(old) == 1
            and is_alone(number)
        )
        if not is_state:
            left.append(change)
            continue
        if any(output.source == "tensor" and output.index == number for output in outputs):
            reason = "the model returns what it held before and assigns it anew; return a clone of it"
            raise UnsupportedError([UnsupportedOperator(f"`{change.name}`", reason, place)])
        old.copy_(new)
        change.container[change.key] = old
    return left


def refuse_changed_arguments(given: Held, place: str) -> None:
    """Raises UnsupportedError where a model puts something into objects, dictionaries or lists that it is given."""
    reason = "the model changes an argument where its caller would not see it; return what is new, and leave the argument"
    changed = dict.fromkeys(change.name for change in given.changes() if change.adds())
    if changed:
        raise UnsupportedError(
            [UnsupportedOperator(f"`{name}`", reason, place) for name in [*changed][:MOST_NAMED]]
        )


def refuse_kept(changes: Sequence[Change], place: str) -> None:
    """Raises UnsupportedError for a model whose next call depends on what it kept."""
    reason = (
        "the model assigns it, and its next call computes with what was assigned; keep state in a tensor of one shape, "
        "written in place or assigned anew"
    )
    names = dict.fromkeys(f"`{change.name}`" for change in changes)
    raise UnsupportedError([UnsupportedOperator(name, reason, place) for name in [*names][:MOST_NAMED]])


def halves_agree(module: GraphModule, own: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]) -> bool:
    """Whether a graph of the model's `own` tensors and inputs like these gives its results twice; the second half is dropped then."""
    (output,) = (node for node in module.graph.nodes if node.op == "output")
    (results,) = output.args
    half = len(results) // 2
    if len(results) != 2 * half:
        return False
    terms = _terms(module)
    is_same = all(terms[one] == terms[other] for one, other in zip(results[:half], results[half:]))
    if not is_same and not _agree_on_numbers(module, own, inputs):
        return False
    output.args = (results[:half],)
    module.graph.eliminate_dead_code()
    module.recompile()
    return True


def _agree_on_numbers(
    module: GraphModule, own: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]
) -> bool:
    """Whether both halves are bit for bit the same where the floating-point inputs are random numbers."""
    generator = torch.Generator().manual_seed(0)
    given = [x.detach() for x in own]
    for x in inputs:
        drawn = torch.randn(x.shape, generator=generator).to(x.dtype) if x.is_floating_point() else x.detach()
        given.append(torch.empty_like(x).copy_(drawn))
    try:
        with torch.no_grad():
            results = module(*given)
    except Exception:  # whatever cannot be run has not been shown to agree
        return False
    half = len(results) // 2
    pairs = zip(results[:half], results[half:])
    return all(
        one.shape == other.shape and torch.equal(one.nan_to_num(), other.nan_to_num()) for one, other in pairs
    )


def _terms(module: GraphModule) -> dict[Node, int]:
    """A number for each node of a functional graph, equal for equal expressions of the graph's inputs."""
    numbers: dict[Any, int] = {}
    found: dict[Node, int] = {}

    def key(value: Any) -> Any:
        if isinstance(value, Node):
            return "node", found[value]
        if isinstance(value, (list, tuple)):
            return type(value).__name__, *map(key, value)
        if isinstance(value, dict):
            return "dict", *((name, key(inner)) for name, inner in value.items())
        return type(value), repr(value)

    for node in module.graph.nodes:
        if node.op == "output":
            continue
        if node.op == "placeholder":
            term: Any = node.op, node.name
        elif node.op == "get_attr":
            term = node.op, _content(getattr(module, str(node.target)), str(node.target))
        else:
            term = node.op, node.target, key(node.args), key(node.kwargs)
        found[node] = numbers.setdefault(term, len(numbers))
    return found


def _content(constant: Any, name: str) -> Any:
    """What a constant is known by: its elements, where it has them here."""
    if type(constant) not in (torch.Tensor, torch.nn.Parameter) or constant.layout is not torch.strided:
        return name
    data = constant.detach().contiguous().reshape(-1).view(torch.uint8) if constant.numel() else constant
    return constant.dtype, tuple(constant.shape), data.numpy().tobytes()
