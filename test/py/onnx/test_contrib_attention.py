"""Attention of ONNX Runtime's domain in every form that its CPU provider takes, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from models import contributed, in_onnxruntime, random
from onnx import TensorProto

import tilewright
from tilewright.compiler import phases
from tilewright.compiler.driver import import_model
from tilewright.compiler.errors import UnsupportedError
from tilewright.compiler.targets.target import resolve

pytest.importorskip("onnxruntime")

F = TensorProto.FLOAT


def check(op: str, inputs: dict, types: list[int], compared=lambda results: results, **attrs) -> None:
    """All results, or what `compared` picks of them, are ONNX Runtime's."""
    made = contributed(op, inputs, types, **attrs)
    given = {name: array for name, array in inputs.items() if array is not None}
    results = tilewright.compile(made, given)(**given)
    for result, expected in zip(compared(results), compared(in_onnxruntime(made, given)), strict=True):
        assert result.dtype == expected.dtype and result.shape == expected.shape
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


def caches(rows: int, width: int) -> dict[str, np.ndarray]:
    """Cosines and sines of the angles of `rows` positions: [rows, width]."""
    angles = np.outer(np.arange(rows), 1 / 100 ** (np.arange(width) / width)).astype(np.float32)
    return {"cos": np.cos(angles), "sin": np.sin(angles)}


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize(
    ("shape", "positions", "attrs"),
    [
        ((2, 5, 24), [3], {}),
        ((2, 5, 24), [[0, 1, 2, 3, 4], [7, 2, 9, 1, 3]], {}),
        ((2, 3, 5, 8), [[0, 1, 2, 3, 4], [7, 2, 9, 1, 3]], {}),
        ((1, 5, 24), [0], {"num_heads": 2, "rotary_embedding_dim": 8}),
    ],
)
def test_rotary_embedding(shape, positions, attrs, interleaved):
    inputs = {"x": random(*shape), "positions": np.array(positions, np.int64), **caches(10, 4)}
    check("RotaryEmbedding", inputs, [F], interleaved=interleaved, **attrs)


B, S, L, N, D, V = 2, 4, 6, 3, 8, 5
SEEN = np.arange(L) < np.array([[6], [4]])
PADDING = {
    "lengths": np.array([6, 4], np.int32),
    "keys": SEEN.astype(np.int32),
    "keys and queries": np.random.default_rng(0).integers(0, 2, (B, S, L)).astype(np.int32),
}


def crossed(**changed) -> dict[str, np.ndarray | None]:
    """Operands of MultiHeadAttention: S queries, L keys, values of another width."""
    inputs = {
        "q": random(B, S, N * D),
        "k": random(B, L, N * D, seed=1),
        "v": random(B, L, N * V, seed=2),
        **dict.fromkeys(["bias", "padding", "added", "past_k", "past_v"]),
    }
    return inputs | changed


@pytest.mark.parametrize(
    ("inputs", "attrs"),
    [
        (crossed(), {}),
        (crossed(bias=random(N * (D + D + V))), {"scale": 0.5}),
        (crossed(padding=PADDING["lengths"]), {}),
        (crossed(padding=PADDING["keys"]), {"mask_filter_value": -50.0}),
        (crossed(padding=PADDING["keys and queries"]), {}),
        (crossed(added=random(1, N, S, L)), {}),
        (crossed(padding=PADDING["keys"], added=random(B, 1, S, L), bias=random(N * (D + D + V))), {}),
        (crossed(k=random(B, N, L, D), v=random(B, N, L, D)), {}),
        (crossed(k=random(B, S, N * D), v=random(B, S, N * D)), {"unidirectional": 1}),
        (
            crossed(k=random(B, S, N * D), v=random(B, S, N * D), padding=PADDING["keys"][:, :S]),
            {"unidirectional": 1},
        ),
    ],
)
def test_multi_head_attention(inputs, attrs):
    check("MultiHeadAttention", inputs, [F], num_heads=N, **attrs)


@pytest.mark.parametrize("queries", [1, 2])
@pytest.mark.parametrize("unidirectional", [0, 1])
def test_multi_head_attention_with_a_past(queries, unidirectional):
    past = {"past_k": random(B, N, L, D, seed=5), "past_v": random(B, N, L, D, seed=6)}
    sides = {name: random(B, queries, N * D, seed=seed) for seed, name in enumerate("qkv")}
    check("MultiHeadAttention", crossed(**sides, **past), [F] * 3, num_heads=N, unidirectional=unidirectional)


def projected(length: int = L, **changed) -> dict[str, np.ndarray | None]:
    """Operands of Attention: S queries and keys of themselves."""
    inputs = {
        "x": random(B, length, 16),
        "w": random(16, 3 * N * D, seed=1) / 4,
        **dict.fromkeys(["bias", "mask", "past", "added"]),
    }
    return inputs | changed


@pytest.mark.parametrize(
    ("inputs", "attrs"),
    [
        (projected(), {}),
        (projected(bias=random(3 * N * D)), {"scale": 0.25}),
        (projected(mask=PADDING["keys"]), {}),
        (projected(mask=PADDING["keys"], added=random(1, 1, L, L)), {"unidirectional": 1}),
        (projected(mask=np.random.default_rng(0).integers(0, 2, (B, L, L)).astype(np.int32)), {}),
        (projected(mask=PADDING["lengths"]), {}),
        (projected(mask=np.array([6, 5, 0, 2], np.int32)), {}),
        (projected(mask=np.array([6, 5, 0, 2], np.int32)), {"unidirectional": 1}),
        (projected(w=random(16, N * (D + D + V))), {"qkv_hidden_sizes": [N * D, N * D, N * V]}),
    ],
)
def test_attention_of_packed_weights(inputs, attrs):
    check("Attention", inputs, [F], num_heads=N, **attrs)


@pytest.mark.parametrize("length", [1, 2])
def test_attention_of_packed_weights_with_a_past(length):
    inputs = projected(length, bias=random(3 * N * D), past=random(2, B, N, 4, D, seed=7))
    check("Attention", inputs, [F] * 2, num_heads=N, unidirectional=1)
    check("Attention", inputs | {"mask": SEEN[:, : 4 + length].astype(np.int32)}, [F] * 2, num_heads=N)


def quantised(w_type: str, scales: int, zeros: int, **changed) -> dict[str, np.ndarray | None]:
    """Operands of QAttention, whose weights have that many scales and zero points."""
    numbers = np.random.default_rng(0)
    inputs = {
        "x": numbers.integers(0, 100, (B, L, 16)).astype(np.uint8),
        "w": numbers.integers(0, 100, (16, 3 * N * D)).astype(w_type),
        "bias": random(3 * N * D),
        "x_scale": np.array(0.02, np.float32),
        "w_scale": (0.005 + 0.01 * numbers.random(scales))
        .astype(np.float32)
        .reshape(scales if scales > 1 else ()),
        "mask": None,
        "x_zero": np.array(50, np.uint8),
        "w_zero": numbers.integers(40, 60, zeros).astype(w_type).reshape(zeros if zeros > 1 else ()),
        "past": None,
    }
    return inputs | changed


COLUMNS = 3 * N * D


@pytest.mark.parametrize(
    ("inputs", "attrs"),
    [
        (quantised("int8", 1, 1), {}),
        (quantised("uint8", COLUMNS, COLUMNS, mask=PADDING["keys"]), {"mask_filter_value": -50.0}),
        (quantised("int8", COLUMNS, 1, mask=PADDING["lengths"]), {"unidirectional": 1}),
        (quantised("int8", 1, 1, x_zero=None, w_zero=None), {"unidirectional": 1}),
    ],
)
def test_attention_of_bytes(inputs, attrs):
    check("QAttention", inputs, [F], num_heads=N, **attrs)


def test_attention_of_bytes_with_a_past():
    inputs = quantised("int8", 1, 1, past=random(2, B, N, 4, D, seed=7))
    check("QAttention", inputs, [F] * 2, num_heads=N, unidirectional=1)


@pytest.mark.parametrize(
    "given", [(), ("segments",), ("segments", "mask"), ("segments", "mask", "positions")]
)
def test_embeddings_and_their_norm(given):
    numbers = np.random.default_rng(0)
    inputs = {
        "words": numbers.integers(0, 20, (B, L)).astype(np.int32),
        "segments": numbers.integers(0, 2, (B, L)).astype(np.int32),
        "word": random(20, 8),
        "position": random(9, 8, seed=1),
        "segment": random(2, 8, seed=2),
        "gamma": random(8, seed=3),
        "beta": random(8, seed=4),
        "mask": SEEN.astype(np.int32),
        "positions": numbers.integers(0, 9, (B, L)).astype(np.int32),
    }
    left_out = {"segments", "mask", "positions"} - set(given) | (
        {"segment"} if "segments" not in given else set()
    )
    inputs |= dict.fromkeys(left_out)
    check("EmbedLayerNormalization", inputs, [F, TensorProto.INT32, F], epsilon=1e-5)


def test_embeddings_of_bytes_and_their_norm():
    numbers = np.random.default_rng(0)
    shapes = {"word": (20, 8), "position": (9, 8), "segment": (2, 8), "gamma": (8,), "beta": (8,)}
    inputs = {
        "words": numbers.integers(0, 20, (B, L)).astype(np.int32),
        "segments": numbers.integers(0, 2, (B, L)).astype(np.int32),
        **{name: numbers.integers(0, 256, shape).astype(np.uint8) for name, shape in shapes.items()},
        "mask": SEEN.astype(np.int32),
        **{f"{name}_scale": np.array(0.01 + 0.01 * i, np.float32) for i, name in enumerate(shapes)},
        **{f"{name}_zero": np.array(100 + 10 * i, np.uint8) for i, name in enumerate(shapes)},
    }
    check("QEmbedLayerNormalization", inputs, [F, TensorProto.INT32])
    check("QEmbedLayerNormalization", inputs | dict.fromkeys(["segments", "segment", "segment_scale", "segment_zero", "mask"]),
          [F, TensorProto.INT32], epsilon=1e-5)  # fmt: skip


KV, HEAD = 2, 16  # the CPU provider turns heads of multiples of 16 only


def grouped(batch: int, length: int, total: int, held: list[int], past: int | None, **changed) -> dict:
    """Operands of GroupQueryAttention: 4 heads of queries, 2 of keys."""
    inputs = {
        "q": random(batch, length, 4 * HEAD),
        "k": random(batch, length, KV * HEAD, seed=1),
        "v": random(batch, length, KV * HEAD, seed=2),
        "past_k": None if past is None else random(batch, KV, past, HEAD, seed=3),
        "past_v": None if past is None else random(batch, KV, past, HEAD, seed=4),
        "seqlens_k": np.array(held, np.int32) - 1,
        "total": np.array(total, np.int32),
        **dict.fromkeys(["cos", "sin", "positions", "added"]),
    }
    return inputs | changed


ROTARY = caches(16, HEAD // 2)
PACKED = {"q": random(2, 5, (4 + 2 * KV) * HEAD), "k": None, "v": None}


@pytest.mark.parametrize(
    ("inputs", "attrs"),
    [
        (grouped(2, 5, 5, [5, 5], None), {}),
        (grouped(2, 5, 5, [5, 3], None, **ROTARY), {"do_rotary": 1, "softcap": 2.0}),
        (grouped(2, 5, 5, [5, 5], None, **PACKED, **ROTARY), {"do_rotary": 1, "rotary_interleaved": 1}),
        (grouped(2, 5, 5, [5, 5], 9), {"scale": 0.3}),
        (grouped(2, 1, 8, [8, 8], 7, **ROTARY), {"do_rotary": 1}),
        (grouped(2, 1, 8, [8, 5], 12, **ROTARY), {"do_rotary": 1}),
        (grouped(1, 3, 9, [9], 12, **ROTARY), {"do_rotary": 1}),
        (grouped(1, 6, 6, [6], None), {"local_window_size": 2}),
        (grouped(1, 1, 8, [8], 7), {"local_window_size": 3}),
        (grouped(2, 5, 5, [5, 5], None, added=random(1, 1, 5, 5)), {}),
        (grouped(1, 1, 8, [8], 12, added=random(1, 4, 1, 8)), {"softcap": 1.5}),
        (grouped(1, 1, 8, [8], 7, positions=np.array([[4]], np.int64), **ROTARY), {"do_rotary": 1}),
    ],
)  # fmt: skip
def test_group_query_attention(inputs, attrs):
    held = inputs["seqlens_k"] + 1
    length, total = (inputs["q"].shape[1], int(inputs["total"]))

    def specified(results):
        """Rows of queries and keys that belong to their sequences: others hold anything."""
        rows = np.arange(length) < (held if length == total else np.full(len(held), length))[:, None]
        y = np.where(rows[:, :, None], results[0], 0)
        keys = np.arange(results[1].shape[2]) < held[:, None]
        return [y, *(np.where(keys[:, None, :, None], r, 0) for r in results[1:])]

    check("GroupQueryAttention", inputs, [F] * 3, specified, num_heads=4, kv_num_heads=KV, **attrs)


@pytest.mark.parametrize(
    ("op", "inputs", "attrs", "words"),
    [
        ("RotaryEmbedding", {"x": random(1, 5, 8), "p": np.array([0]), **caches(9, 4)}, {"scale": 2.0}, "`scale`"),
        ("MultiHeadAttention", crossed(k=None, v=None), {"num_heads": N}, "packed"),
        ("Attention", projected(), {"num_heads": N, "do_rotary": 1}, "`do_rotary`"),
        ("GroupQueryAttention", grouped(1, 5, 5, [5], None, head_sink=random(4)), {"num_heads": 4, "kv_num_heads": KV},
         "`head_sink`"),
        ("GroupQueryAttention", grouped(1, 5, 5, [5], None), {"num_heads": 4, "kv_num_heads": KV, "smooth_softmax": 1},
         "`smooth_softmax`"),
    ],
)  # fmt: skip
def test_what_is_not_taken_is_refused_by_name(op, inputs, attrs, words):
    given = {name: array for name, array in inputs.items() if array is not None}
    with pytest.raises(UnsupportedError, match=words):
        tilewright.compile(contributed(op, inputs, [F], **attrs), given)


LONG = {"q": random(2, 64, 64), "k": random(2, 64, 64, seed=1), "v": random(2, 64, 64, seed=2)}
MASKED = {**LONG, "bias": None, "padding": np.ones((2, 64), np.int32)}
GROUPED = {
    **dict.fromkeys(["past_k", "past_v"]),
    "held": np.array([63, 63], np.int32),
    "total": np.array(64, np.int32),
}
FUSED = {
    "MultiHeadAttention": [(LONG, {}), (MASKED, {}), (MASKED, {"unidirectional": 1})],
    "GroupQueryAttention": [({**LONG, **GROUPED}, {"kv_num_heads": 4})],
    "Attention": [({"x": random(2, 64, 64), "w": random(64, 192)}, {"unidirectional": 1})],
}


@pytest.mark.parametrize("op", FUSED)
def test_attention_is_one_operation(op):
    for inputs, attrs in FUSED[op]:
        given = {name: array for name, array in inputs.items() if array is not None}
        imported = import_model(contributed(op, inputs, [F], num_heads=4, **attrs), given)
        phases.run_phases(imported.module, resolve("cpu"), "graph", "layout")
        assert str(imported.module).count('"tilewright.attention"(') == 1
