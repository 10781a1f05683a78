"""Casts between dtypes, constants like a tensor, and the reading of bits."""

from __future__ import annotations

from fuzz.catalogue import operator
from fuzz.generator import Growth, dtype_of
from fuzz.tensors import DTYPES, FLOATS, INTEGERS


@operator(4, plain=False)
def cast(g: Growth) -> None:
    a = g.any_of(DTYPES)
    to = g.choose.choice(DTYPES)
    g.emit(f"{a}.to(torch.{to})", "once")


@operator(1.2)
def cast_between_floats(g: Growth) -> None:
    g.emit(f"{g.floating()}.to(torch.{g.choose.choice(FLOATS)})", "once")


@operator(1, plain=False)
def constant_like(g: Growth) -> None:
    a = g.any_of(DTYPES)
    kind = g.choose.choice(DTYPES)
    form = g.choose.choice(
        (
            "torch.zeros_like({a})",
            "torch.ones_like({a})",
            "torch.ones_like({a}, dtype=torch.{kind})",
            "torch.full_like({a}, 2)",
            "{a}.new_zeros({shape})",
            "torch.full({shape}, 1, dtype=torch.{kind})",
            "torch.zeros({shape}, dtype=torch.{kind})",
            "{a}.new_full({shape}, 3)",
        )
    )
    g.emit(form.format(a=a, kind=kind, shape=tuple(g.values[a].shape)))


@operator(1, plain=False)
def constant(g: Growth) -> None:
    n, kind = g.choose.choice((1, 2, 3, 5, 8)), g.choose.choice((*FLOATS[:1], *INTEGERS))
    form = g.choose.choice(
        (
            "torch.arange({n}, dtype=torch.{kind})",
            "torch.arange({n})",
            "torch.arange(0, {n}, 2, dtype=torch.{kind})",
            "torch.linspace(0, 1, {n})",
            "torch.eye({n}, dtype=torch.{kind})",
            "torch.tensor({literal})",
            "torch.tril(torch.ones({n}, {n}, dtype=torch.bool))",
        )
    )
    literal = g.choose.choice(("1.5", "2", "True", "[1., 2., 3.]", "[0, 1]", "[True, False]", "[[1], [2]]"))
    g.emit(form.format(n=n, kind=kind, literal=literal), "once" if "linspace" in form else "exact")


@operator(0.5, plain=False)
def bits(g: Growth) -> None:
    same = {
        "float32": "int32",
        "int32": "float32",
        "float16": "int16",
        "bfloat16": "int16",
        "int16": "float16",
    }
    same |= {"float64": "int64", "int64": "float64", "uint8": "int8", "int8": "uint8"}
    a = g.any_of(tuple(same))
    g.emit(f"{a}.view(torch.{same[dtype_of(g.values[a])]})", "bits")


@operator(0.7, plain=False)
def type_as(g: Growth) -> None:
    g.emit(f"{g.any_of(DTYPES)}.type_as({g.any_of(DTYPES)})", "once")
