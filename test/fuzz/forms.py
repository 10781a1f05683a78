"""Calls written as templates: one line of Python with places for operands, dimensions and numbers."""

from __future__ import annotations

import re

from fuzz.generator import Growth, dtype_of
from fuzz.operators_elementwise import scalar
from fuzz.operators_reductions import dim_of, dims_of, keep
from fuzz.tensors import DTYPES, FLOATS, INTEGERS

_KINDS = {
    "any": DTYPES,
    "float": FLOATS,
    "int": INTEGERS,
    "bool": ("bool",),
    "number": (*FLOATS, *INTEGERS),
    "image": FLOATS,
}
_PLACE = re.compile(r"\{(\w+)(?::([\d,]*)(?:;(\w+))?)?\}")
_CHOICE = re.compile(r"<([^<>]*\|[^<>]*)>")


def written(g: Growth, form: str, first: str = "") -> str:
    """The form with one of `<this|that>` taken, and its places filled from left to right.

    - `{any}`, `{float}`, `{int}`, `{bool}`, `{number}`: a variable; with a digit, of that rank at least (`{any2}`),
      with two, from the first to the second (`{any22}`). The first, where none is given, is `{a}` afterwards.
    - `{like}`, `{other}`, `{mask}`, `{positive}`: what broadcasts with `{a}`: of its dtype, of any, a boolean, an
      input without zeros; `{new}` has its very shape.
    - `{t:2,3}`: an input of this shape, all of them in one form of one floating-point dtype, `{unit:2,3}` with numbers
      between 0 and 1; `{at:2,3;5}`: positions below 5.
    - `{dim}`, `{dims}`, `{keep}`: of `{a}`; `{scalar}`: a number that suits it; `{dtype}`, `{real}`: names of dtypes.
    """
    names = {"a": first} if first else {}
    kind = g.choose.choice(("float32", "float32", "float32", *FLOATS))

    def fill(match: re.Match[str]) -> str:
        word, sizes, bound = match.groups()
        if word in names:
            return names[word]
        if sizes is not None:
            shape = tuple(int(n) for n in sizes.split(",") if n)
            if word == "at":
                return g.new(shape, "int64", f"index:{bound}", "dense")
            return g.new(shape, kind, "unit" if word == "unit" else None)
        base, least, most = re.fullmatch(r"([a-z]+)(\d?)(\d?)", word).groups()  # pyright: ignore[reportOptionalMemberAccess]
        if base in _KINDS:
            found = g.any_of(_KINDS[base], int(least or 0), int(most or 6))
            names.setdefault("a", found)
            return found
        return _beside(g, names.get("a", ""), base)

    chosen = _CHOICE.sub(lambda match: g.choose.choice(match[1].split("|")), form)
    return _PLACE.sub(fill, chosen)


def _beside(g: Growth, a: str, word: str) -> str:
    """What a form asks for beside its first variable."""
    made = {
        "dtype": lambda: g.choose.choice(DTYPES),
        "real": lambda: g.choose.choice(FLOATS),
        "like": lambda: g.like(a),
        "other": lambda: g.like(a, g.choose.choice(DTYPES)),
        "mask": lambda: g.like(a, "bool"),
        "positive": lambda: g.like(a, fill="positive"),
        "new": lambda: g.new(g.values[a].shape, dtype_of(g.values[a])),
        "dim": lambda: str(dim_of(g, a)),
        "dims": lambda: dims_of(g, a),
        "keep": lambda: keep(g),
        "scalar": lambda: scalar(g, dtype_of(g.values[a])),
    }
    return made[word]()


def draw_form(g: Growth, table: dict[str, tuple[str, ...]]) -> None:
    """Adds a statement from a table of forms by rounding."""
    rounding = g.choose.choices(list(table), [len(forms) for forms in table.values()])[0]
    g.emit(written(g, g.choose.choice(table[rounding])), rounding, results=None)
