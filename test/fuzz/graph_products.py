"""ONNX products of matrices."""

from __future__ import annotations

from fuzz.graph_draw import node
from fuzz.graph_growth import FLOATS, Growth

EQUATIONS = ("ij,jk->ik", "ij,jk", "bij,bjk->bik", "i,i->", "ii->i", "ii", "ij->ji", "ij->", "i,j->ij", "bij,bkj->bik",
             "...ij,...jk->...ik", "ij,ij->ij", "bhid,bhjd->bhij", "ijk->kj", "ij, jk -> ik", "...i->...", "b...,b...->...",
             "ij,jk,kl->il")  # fmt: skip


@node(4)
def matmul(g: Growth) -> None:
    kind = g.dtype("MatMul")
    m, k, n = (g.choose.choice((1, 2, 3, 5, 8)) for _ in range(3))
    if g.maybe(0.03):
        k = 0
    left = g.choose.choice(((k,), (m, k), (m, k), (2, m, k), (3, 1, m, k)))
    right = g.choose.choice(((k,), (k, n), (k, n), (2, k, n), (1, 2, k, n)))
    operands = [g.any_shape(left, kind), g.any_shape(right, kind)]
    g.emit("MatMul", operands)


@node(3)
def gemm(g: Growth) -> None:
    kind = g.dtype("Gemm")
    m, k, n = (g.choose.choice((1, 2, 3, 5, 8)) for _ in range(3))
    across = [g.optional(g.choose.randint(0, 1)) for _ in range(2)]
    fill = None if kind in FLOATS else "normal"  # the reference has whole numbers in floats
    a = g.any_shape((k, m) if across[0] else (m, k), kind, fill)
    b = g.any_shape((n, k) if across[1] else (k, n), kind, fill)
    shapes = ((), (1,), (n,), (1, n), (m, 1), (m, n))
    c = g.any_shape(g.choose.choice(shapes), kind, fill) if g.maybe(0.7) or g.opset < 11 else None
    numbers = {
        name: g.optional(g.choose.choice((0.5, 2.0, 0.0, 1.0) if kind[0] in "bf" else (2.0, 1.0)))
        for name in ("alpha", "beta")
    }
    g.emit("Gemm", [a, b, c], transA=across[0], transB=across[1], **numbers)


@node(1.5)
def einsum(g: Growth) -> None:
    equation = g.choose.choice(EQUATIONS)
    kind = g.dtype("Einsum", among=("float32", "float64", "int32", "int64", "float16"))
    sizes = {letter: g.choose.randint(1, 4) for letter in "bdhijkl"}
    operands = []
    for term in equation.partition("->")[0].replace(" ", "").split(","):
        letters = term.replace("...", "_")
        shape = [s for letter in letters for s in ((2, 3) if letter == "_" else (sizes[letter],))]
        operands.append(g.any_shape(tuple(shape), kind))
    g.emit("Einsum", operands, equation=equation)


@node(1)
def attention(g: Growth) -> None:
    kind = g.dtype("Attention", among=("float32", "float32", "float16", "float64"))
    batch, heads, group = g.choose.randint(1, 2), g.choose.choice((1, 2)), g.choose.choice((1, 2))
    queries, keys, size, value = (g.choose.randint(1, 5) for _ in range(4))
    flat = g.maybe(0.3)
    shapes = [(heads * group, queries, size), (heads, keys, size), (heads, keys, value)]
    attrs: dict = {"is_causal": g.optional(g.choose.randint(0, 1)), "scale": g.optional(0.5)}
    attrs["softcap"] = g.optional(g.choose.choice((0.0, 2.0)), 0.3)
    if flat:
        attrs |= {"q_num_heads": heads * group, "kv_num_heads": heads}
        made = [g.fresh((batch, s[1], s[0] * s[2]), kind, "normal") for s in shapes]
    else:
        made = [g.fresh((batch, *s), kind, "normal") for s in shapes]
    past: list[str | None] = [None, None]
    outputs, before = 1, 0
    if g.maybe(0.25):
        before = g.choose.randint(1, 3)
        past = [g.fresh((batch, heads, before, s), kind, "normal") for s in (size, value)]
        outputs = 3
    mask = None
    if g.maybe(0.4):
        shape = g.broadcasting((batch, heads * group, queries, keys + before))
        shape = (*shape[:-1], keys + before) if len(shape) > 1 else (queries, keys + before)
        mask = g.fresh(shape, g.choose.choice((kind, "bool")), "normal")
    if g.maybe(0.15):
        outputs, attrs["qk_matmul_output_mode"] = 4, g.choose.randint(0, 3)
    g.emit("Attention", [*made, mask, *past], outputs, **attrs)


@node(0.7)
def rotary(g: Growth) -> None:
    kind = g.dtype("RotaryEmbedding", among=("float32", "float32", "float16"))
    batch, heads, length, size = 2, g.choose.randint(1, 3), g.choose.randint(1, 4), g.choose.choice((4, 8))
    part = g.choose.choice((0, 0, 4))
    width = (part or size) // 2
    flat = g.maybe(0.4)
    x = g.fresh((batch, length, heads * size) if flat else (batch, heads, length, size), kind, "normal")
    places = None
    if g.maybe():
        caches = [g.fresh((6, width), kind, "normal") for _ in range(2)]
        places = g.fresh((batch, length), "int64", "index:6")
    else:
        caches = [g.fresh((batch, length, width), kind, "normal") for _ in range(2)]
    attrs = {"interleaved": g.optional(g.choose.randint(0, 1)), "rotary_embedding_dim": part or g.optional(0)}
    attrs["num_heads"] = heads if flat else g.optional(heads)
    g.emit("RotaryEmbedding", [x, *caches, places], **attrs)
