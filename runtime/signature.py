"""How a model's own arguments and results map to the flat tensors of a compiled program, as plain JSON data.

A `Signature` is made by an importer and used at every call: it turns `(*args, **kwargs)` into input tensors,
and result tensors back into what the model returns, with mutations, aliases and strides.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from tilewright.runtime.errors import ArgumentError
from tilewright.runtime.program import TensorSpec

_SCALARS = (bool, int, float, complex, str, type(None))


@dataclass(frozen=True)
class Tree:
    """The structure of one argument or result: containers down to tensors (by number) and constants.

    `kind` is one of tensor, constant, array, tuple, list, dict, record, object; a record is a named tuple,
    dataclass or mapping subclass that is rebuilt from `type_name` ("module:QualName"), an object one of a class
    of which nothing is called (`_made`): it is given its attributes. An array is an
    argument whose elements were compiled in, because shapes depend on them: its value is [dtype name,
    nested lists].
    """

    kind: str
    children: tuple[Tree, ...] = ()
    keys: tuple[Any, ...] = ()
    type_name: str = ""
    index: int = 0
    value: Any = None

    @classmethod
    def of(
        cls,
        value: Any,
        tensor: Callable[[Any, str], int | None],
        path: str = "",
        is_object: Callable[[Any], bool] = lambda _: False,
    ) -> Tree:
        """Reads the structure of `value`; `tensor(leaf, path)` numbers a tensor, None for other leaves.

        Whatever is neither a tensor nor a container, nor an object to look into, is a constant, to be met again at every call.
        """
        number = tensor(value, path)
        if number is not None:
            return cls("tensor", index=number)

        def child(inner: Any, key: Any) -> Tree:
            return cls.of(inner, tensor, f"{path}.{key}" if path else str(key), is_object)

        def item(inner: Any, key: Any) -> Tree:
            return cls.of(inner, tensor, f"{path}[{key!r}]", is_object)

        kind = type(value)
        if kind in (tuple, list):
            return cls(kind.__name__, tuple(item(inner, i) for i, inner in enumerate(value)))
        if kind in (dict, defaultdict):  # what a missing entry would become cannot be kept in a file
            return cls("dict", tuple(item(inner, key) for key, inner in value.items()), tuple(value))
        if isinstance(value, tuple):
            # Named tuples have `_fields`; torch's structured results only `__match_args__`.
            fields: tuple[str, ...] = getattr(value, "_fields", None) or getattr(value, "__match_args__", ())
            if fields:
                members = tuple(child(getattr(value, f), f) for f in fields)
                return cls("record", members, tuple(fields), _type_name(kind))
            return cls("tuple", tuple(item(inner, i) for i, inner in enumerate(value)))
        if isinstance(value, Mapping):
            keys = tuple(value)
            return cls("record", tuple(item(value[key], key) for key in keys), keys, _type_name(kind))
        if isinstance(value, list):
            return cls("list", tuple(item(inner, i) for i, inner in enumerate(value)))
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = tuple(f.name for f in dataclasses.fields(value))
            return cls("record", tuple(child(getattr(value, f), f) for f in fields), fields, _type_name(kind))
        if is_object(value):
            members = tuple(child(inner, name) for name, inner in vars(value).items())
            return cls("object", members, tuple(vars(value)), _type_name(kind))
        return cls("constant", value=value)

    def build(self, tensors: Sequence[Any]) -> Any:
        """The value with this structure over `tensors`."""
        kind = self.kind
        if kind == "tensor":
            return tensors[self.index]
        if kind == "constant":
            return self.value
        children = [child.build(tensors) for child in self.children]
        if kind == "tuple":
            return tuple(children)
        if kind == "list":
            return children
        if kind == "dict":
            return dict(zip(self.keys, children))
        if kind == "object":
            return _made(self.type_name, dict(zip(self.keys, children)))
        return _rebuild(self.type_name, self.keys, children)

    def collect(self, value: Any, path: str, found: list[Any]) -> None:
        """Puts the tensors of `value` into `found` by number.

        Raises TypeError when the structure differs and ArgumentError when a baked-in constant does.
        """
        if self.kind == "tensor":
            found[self.index] = value
            return
        if self.kind == "constant":
            if not self._is_constant(value):
                raise ArgumentError(
                    f"argument `{path}` was compiled as the constant {self.value!r}, found {_show(value)}; "
                    "compile again for this value"
                )
            return
        if self.kind == "array":
            elements = value.tolist() if hasattr(value, "tolist") else value
            if not _equal(elements, self.value[1]):
                raise ArgumentError(
                    f"argument `{path}` was compiled with the elements {_show(self.value[1])}, which shapes "
                    f"depend on, found {_show(elements)}; compile again for these"
                )
            return
        for key, child in enumerate(self.children) if not self.keys else zip(self.keys, self.children):
            inner, place = self._member(value, key, path)
            child.collect(inner, place, found)
        if self.kind in ("tuple", "list", "dict") and len(value) != len(self.children):
            raise TypeError(f"argument `{path}`: expected {len(self.children)} members, found {len(value)}")

    def _is_constant(self, value: Any) -> bool:
        """Whether an argument is what was compiled in."""
        if isinstance(self.value, _Text):
            return str(value) == self.value
        return value is self.value or (type(value) is type(self.value) and _equal(value, self.value))

    def _member(self, value: Any, key: Any, path: str) -> tuple[Any, str]:
        try:
            if self.kind in ("tuple", "list") or isinstance(value, Mapping):
                return value[key], f"{path}[{key!r}]"
            return getattr(value, key), f"{path}.{key}"
        except (KeyError, IndexError, TypeError, AttributeError):
            raise TypeError(
                f"argument `{path}`: expected a {self.type_name or self.kind} with member {key!r}, "
                f"found {_show(value)}"
            ) from None

    def to_json(self) -> dict[str, Any]:
        data: dict[str, Any] = {"kind": self.kind}
        if self.children:
            data["children"] = [child.to_json() for child in self.children]
        if self.keys:
            data["keys"] = list(self.keys)
        if self.type_name:
            data["type"] = self.type_name
        if self.kind == "tensor":
            data["index"] = self.index
        if self.kind in ("constant", "array"):
            data["value"] = _constant_to_json(self.value)
        return data

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Tree:
        return cls(
            data["kind"],
            tuple(cls.from_json(child) for child in data.get("children", ())),
            tuple(data.get("keys", ())),
            data.get("type", ""),
            data.get("index", 0),
            _constant_from_json(data["value"]) if "value" in data else None,
        )


@dataclass(frozen=True)
class Output:
    """One tensor that the model returns: where it comes from and how its elements lie.

    `source` is "result" (number `index` of the program's results), "input" (a view of an input, same memory, where
    `dtype` may be another of the same size),
    "weight", "state", or "empty" (no elements). `strides` in elements, None for dense row-major; `offset` in
    elements. Those of a view hold over a source with strides `base` (None for row-major), which no two elements
    share a place in. `whole` says that the input object itself is returned.
    """

    source: str
    index: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None = None
    offset: int = 0
    whole: bool = False
    base: tuple[int, ...] | None = None

    def to_json(self) -> dict[str, Any]:
        data = dataclasses.asdict(self)
        if self.base is None:
            del data["base"]
        return data

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Output:
        sizes = {key: tuple(data[key]) for key in ("shape", "strides", "base") if data.get(key) is not None}
        return cls(**{**data, **sizes})


@dataclass(frozen=True)
class Mutation:
    """After a call, result number `result` is copied into input or state tensor number `index`."""

    result: int
    target: str
    index: int


@dataclass(frozen=True)
class Signature:
    """The flat program's inputs are `inputs` then `state`; its results are `results`, in order.

    `positional` names the arguments by position and `arguments` gives each one's structure; `state` are
    tensors that the model keeps between calls and updates (buffers in training mode). Dtypes are the model's
    own (`u8` where the program computes on signless bytes).
    """

    positional: tuple[str, ...]
    arguments: tuple[tuple[str, Tree], ...]
    inputs: tuple[TensorSpec, ...]
    results: tuple[TensorSpec, ...]
    outputs: tuple[Output, ...]
    returns: Tree
    state: tuple[TensorSpec, ...] = ()
    mutations: tuple[Mutation, ...] = ()
    flavour: str = "torch"
    optional: tuple[str, ...] = ()
    """Arguments that a call may leave out: constants equal to the model's own defaults."""
    in_memory: tuple[int, ...] = ()
    """Inputs of which the model sees the memory, not only the values (`as_strided`): they must be row-major."""
    output_names: tuple[str, ...] = ()
    """The model's own names of the members of what it returns, where it has names of them."""

    @classmethod
    def flat(
        cls,
        inputs: Sequence[TensorSpec],
        results: Sequence[TensorSpec],
        flavour: str = "numpy",
        returns: str = "tuple",
    ) -> Signature:
        """A signature of plain named tensors in, and a `tuple`, `list` or single `tensor` of them out."""
        outputs = tuple(Output("result", i, spec.dtype, spec.shape) for i, spec in enumerate(results))
        leaves = tuple(Tree("tensor", index=i) for i in range(len(results)))
        return cls(
            positional=tuple(spec.name for spec in inputs),
            arguments=tuple((spec.name, Tree("tensor", index=i)) for i, spec in enumerate(inputs)),
            inputs=tuple(inputs),
            results=tuple(results),
            outputs=outputs,
            returns=leaves[0] if returns == "tensor" else Tree(returns, leaves),
            flavour=flavour,
        )

    @property
    def is_flat(self) -> bool:
        """True when the positional arguments are exactly the input tensors in order."""
        needed = [(name, tree) for name, tree in self.arguments if name not in self.optional]
        names = tuple(name for name, _ in needed)
        return names == self.positional[: len(names)] and all(
            tree.kind == "tensor" and tree.index == i for i, (_, tree) in enumerate(needed)
        )

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """The input tensors, in order, of a call; raises TypeError or ArgumentError naming the argument."""
        given = dict(zip(self.positional, args))
        if len(args) > len(self.positional):
            raise TypeError(
                f"the model takes {len(self.positional)} positional argument(s), found {len(args)}"
            )
        for name, value in kwargs.items():
            if name in given:
                raise TypeError(f"argument `{name}` was given twice, by position and by name")
            given[name] = value
        found: list[Any] = [None] * len(self.inputs)
        for name, tree in self.arguments:
            if name in given:
                tree.collect(given.pop(name), name, found)
            elif name not in self.optional:
                raise TypeError(f"argument `{name}` is missing; the model was compiled with it")
        for name, value in given.items():
            if value is not None:
                raise TypeError(
                    f"argument `{name}` was not given when the model was compiled; compile again with it"
                )
        return found

    def to_json(self) -> str:
        """JSON text, the same for equal signatures; raises TypeError for a constant that JSON cannot hold."""
        data = {
            "positional": list(self.positional),
            "arguments": [[name, tree.to_json()] for name, tree in self.arguments],
            "inputs": [_spec_to_json(spec) for spec in self.inputs],
            "results": [_spec_to_json(spec) for spec in self.results],
            "state": [_spec_to_json(spec) for spec in self.state],
            "outputs": [output.to_json() for output in self.outputs],
            "mutations": [dataclasses.asdict(mutation) for mutation in self.mutations],
            "returns": self.returns.to_json(),
            "flavour": self.flavour,
            "optional": list(self.optional),
            "in_memory": list(self.in_memory),
        }
        if self.output_names:
            data["output_names"] = list(self.output_names)
        return json.dumps(data, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Signature:
        """The inverse of `to_json`."""
        data = json.loads(text)
        return cls(
            positional=tuple(data["positional"]),
            arguments=tuple((name, Tree.from_json(tree)) for name, tree in data["arguments"]),
            inputs=tuple(_spec_from_json(spec) for spec in data["inputs"]),
            results=tuple(_spec_from_json(spec) for spec in data["results"]),
            outputs=tuple(map(Output.from_json, data["outputs"])),
            returns=Tree.from_json(data["returns"]),
            state=tuple(_spec_from_json(spec) for spec in data["state"]),
            mutations=tuple(Mutation(**mutation) for mutation in data["mutations"]),
            flavour=data["flavour"],
            optional=tuple(data.get("optional", ())),
            in_memory=tuple(data.get("in_memory", ())),
            output_names=tuple(data.get("output_names", ())),
        )


def _spec_to_json(spec: TensorSpec) -> list[Any]:
    return [spec.name, spec.dtype, list(spec.shape)]


def _spec_from_json(data: list[Any]) -> TensorSpec:
    return TensorSpec(data[0], data[1], tuple(data[2]))


def _equal(left: Any, right: Any) -> bool:
    return bool(left == right) or (left != left and right != right)


def _show(value: Any) -> str:
    shape = getattr(value, "shape", None)
    text = f"{type(value).__name__}{list(shape)}" if shape is not None else repr(value)
    return text if len(text) < 80 else text[:77] + "..."


def _type_name(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _made(type_name: str, attributes: dict[str, Any]) -> Any:
    """An object of a class, of which nothing is called; one without behaviour where that cannot be.

    A file may name any class: its module must have been imported by somebody else, and it must have no finaliser, which
    Python would call with the attributes that the file gives.
    """
    module, _, name = type_name.partition(":")
    kind: Any = sys.modules.get(module)
    for part in name.split("."):
        kind = getattr(kind, part, None)
    try:
        if not isinstance(kind, type) or hasattr(kind, "__del__"):
            raise TypeError(f"no class to make objects of: {type_name}")
        made = object.__new__(kind)
        vars(made).update(attributes)
    except TypeError:  # nor of a built-in one, nor one with slots
        return SimpleNamespace(**attributes)
    return made


def _rebuild(type_name: str, keys: tuple[Any, ...], children: list[Any]) -> Any:
    module, _, name = type_name.partition(":")
    try:
        kind: Any = import_module(module)
        for part in name.split("."):
            kind = getattr(kind, part)
    except (ImportError, AttributeError):  # the defining module is absent where an artifact is loaded
        return OrderedDict(zip(keys, children))
    if hasattr(kind, "_make"):
        return kind._make(children)
    if isinstance(kind, type) and issubclass(kind, tuple):  # torch.return_types take one sequence
        return kind(children)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return kind(**dict(zip(keys, children)))
    return kind(zip(keys, children))


def _constant_to_json(value: Any) -> Any:
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, (*_SCALARS, list)):
        return value
    return {"text": str(value)}


def _constant_from_json(data: Any) -> Any:
    if isinstance(data, dict):
        return complex(*data["complex"]) if "complex" in data else _Text(data["text"])
    return data


class _Text(str):
    """What `str` gives of a constant that a file does not hold, such as a dtype: equal to what has the same text."""

    __slots__ = ()
