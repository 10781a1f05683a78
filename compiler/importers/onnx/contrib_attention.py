"""Rules for the attention of ONNX Runtime's own domain: products, masks and a softmax, which are fused again.

B is the batch, S the number of queries, T that of keys (those of the past among them), N and KV the numbers of heads
of queries and of keys, D the size of a head. Source: com.microsoft's operator documentation, and the CPU provider's
`attention_helper.h` for what masks mean.
"""

from __future__ import annotations

import math

import numpy as np
from onnx import TensorProto

from tilewright.compiler.importers.onnx import forms
from tilewright.compiler.importers.onnx.builder import Builder
from tilewright.compiler.importers.onnx.contrib import contrib
from tilewright.compiler.importers.onnx.values import Node, Refused, Value


def _refuse_others(node: Node, operands: dict[int, str], **neutral: float | str) -> None:
    """Refuses operands that are not taken, and attributes of another value than the one that means nothing."""
    for index, name in operands.items():
        if node.input(index) is not None:
            raise Refused(f"its operand `{name}` is not taken")
    for name, value in neutral.items():
        if node.attrs.get(name, value) != value:
            raise Refused(f"its attribute `{name}` is not taken")


def _heads(b: Builder, x: Value, count: int) -> Value:
    """[B, S, N * D] as [B, N, S, D]; four axes are left as they are."""
    if x.rank == 4:
        return x
    batch, length, width = x.shape
    if width % count:
        raise Refused(f"its {count} heads do not divide a width of {width}")
    return forms.transpose(b, forms.reshape(b, x, (batch, length, count, width // count)), (0, 2, 1, 3))


def _merged(b: Builder, x: Value) -> Value:
    """[B, N, S, D] as [B, S, N * D]."""
    batch, count, length, width = x.shape
    return forms.reshape(b, forms.transpose(b, x, (0, 2, 1, 3)), (batch, length, count * width))


def _columns(b: Builder, x: Value, widths: list[int]) -> list[Value]:
    """The last axis in parts of these widths."""
    ends = np.cumsum(widths)
    return [forms.slice_axis(b, x, x.rank - 1, int(e) - w, int(e)) for e, w in zip(ends, widths)]


def _scale(node: Node, head: int) -> float:
    """`scale`, of which 0 means the default."""
    return node.attrs.get("scale", 0.0) or 1 / math.sqrt(head)


def _attention(
    b: Builder, node: Node, q: Value, k: Value, v: Value, mask: Value | None, causal: bool
) -> Value:
    """softmax(scale * q k^T + mask) v of heads [B, N, S, D], as [B, S, N * D]; the last query sees every key."""
    queries, keys = q.shape[2], k.shape[2]
    scale = _scale(node, q.shape[3])
    if mask is None and (queries == keys or queries == 1 or not causal):
        return _merged(b, b.op("Attention", q, k, v, is_causal=int(causal and queries > 1), scale=scale))
    masks = [] if mask is None else [mask]
    if causal and queries > 1:
        masks.append(b.const(np.tril(np.ones((queries, keys), np.bool_), keys - queries)))
    return _masked(b, q, k, v, masks, scale)


def _masked(
    b: Builder, q: Value, k: Value, v: Value, masks: list[Value], scale: float, softcap: float = 0.0
) -> Value:
    """Attention whose scores get real masks added and bool ones put in, as [B, S, N * D].

    ONNX's `Attention` gives rows of zeros to queries that see no key, which costs another pass over the weights and
    is not what ONNX Runtime's operators do.
    """
    k, v = (_repeated(b, x, q.shape[1]) for x in (k, v))
    scores = b.op("MatMul", forms.mul(b, q, scale), forms.transpose(b, k, (0, 1, 3, 2)))
    if softcap:
        scores = forms.mul(b, b.op("Tanh", forms.div(b, scores, softcap)), softcap)
    for mask in masks:
        if mask.dtype == TensorProto.BOOL:
            scores = b.op("Where", mask, scores, b.scalar(-np.inf, scores))
        else:
            scores = forms.add(b, scores, mask)
    return _merged(b, b.op("MatMul", b.op("Softmax", scores, axis=-1), v))


def _repeated(b: Builder, x: Value, heads: int) -> Value:
    """[B, KV, T, D] as [B, N, T, D], each head for as many queries in a row."""
    batch, kv, length, width = x.shape
    if kv == heads:
        return x
    spread = forms.expand(b, forms.unsqueeze(b, x, 2), (batch, kv, heads // kv, length, width))
    return forms.reshape(b, spread, (batch, heads, length, width))


def _filtered(b: Builder, node: Node, given: Value, like: Value, queries: int, keys: int) -> Value:
    """What is added to scores: `mask_filter_value` where a mask of any of its forms hides a key.

    [B, T] and [B, S, T] hold 0 where a key is hidden; [B] holds the number of keys that are seen, and [2 B] after
    these the place of the first.
    """
    batch = like.shape[0]
    if given.shape in ((batch, keys), (batch, queries, keys)):
        seen = b.op("Greater", given, b.scalar(0, given))
        seen = forms.unsqueeze(b, seen, *((1, 2) if seen.rank == 2 else (1,)))
    elif given.shape in ((batch,), (2 * batch,)):
        places = b.const(np.arange(keys).reshape(1, 1, 1, keys), given.dtype)
        column = forms.reshape(b, given, (given.size // batch, batch, 1, 1, 1))
        seen = b.op("Less", places, forms.pick(b, column, 0, 0))
        if given.size > batch:
            seen = b.op("And", seen, b.op("GreaterOrEqual", places, forms.pick(b, column, 0, 1)))
    else:
        raise Refused(f"its mask of shape {given.shape} is of a form that is not taken")
    hidden = b.scalar(node.attrs.get("mask_filter_value", -10000.0), like)
    return b.op("Where", seen, b.scalar(0, like), hidden)


def _sum(b: Builder, *terms: Value | None) -> Value | None:
    """The sum of those that are there."""
    result = None
    for term in terms:
        if term is not None:
            result = term if result is None else forms.add(b, result, term)
    return result


@contrib("RotaryEmbedding")
def rotary_embedding(b: Builder, node: Node):
    """Pairs of numbers of each head turned by angles of their position: [B, S, N * D] or [B, N, S, D]."""
    _refuse_others(node, {}, is_packed_batching=0, scale=1.0)
    x, positions, cos, sin = (node.operand(i) for i in range(4))
    part, heads = node.attrs.get("rotary_embedding_dim", 0), node.attrs.get("num_heads", 0)
    if x.rank == 3 and not heads:
        heads = x.shape[2] // (2 * cos.shape[1])
    return _rotated(b, x, positions, cos, sin, heads, node.attrs.get("interleaved", 0), part)


def _rotated(
    b: Builder,
    x: Value,
    positions: Value,
    cos: Value,
    sin: Value,
    heads: int,
    interleaved: int,
    part: int = 0,
) -> Value:
    """ONNX's rotary embedding; `positions` are [B, S], or one number that the first query has."""
    batch, length = x.shape[0], x.shape[1 if x.rank == 3 else 2]
    if positions.size == 1:
        steps = b.const(np.arange(length).reshape(1, length), positions.dtype)
        positions = forms.add(b, forms.reshape(b, positions, (1, 1)), steps)
    places = forms.expand(b, positions, (batch, length))
    attrs = {"interleaved": interleaved, "rotary_embedding_dim": part}
    return b.op(
        "RotaryEmbedding", x, cos, sin, places, **attrs, **({"num_heads": heads} if x.rank == 3 else {})
    )


@contrib("MultiHeadAttention")
def multi_head_attention(b: Builder, node: Node):
    """q: [B, S, N * D], k and v: [B, L, N * D] or [B, N, L, D], after those of the past: [B, N, P, D].

    Further operands: the bias of the three projections, a mask of padding, and what is added to scores; further
    outputs: all keys and values, [B, N, T, D].
    """
    _refuse_others(node, {8: "past_sequence_length", 9: "cache_indirection"})
    if node.wants(3):
        raise Refused("its output `qk` is not given")
    count = node.attrs["num_heads"]
    sides = [node.operand(0), node.input(1), node.input(2)]
    if any(side is None or side.rank not in (3, 4) for side in sides) or sides[0].rank != 3:
        raise Refused("its packed queries, keys and values are not taken")
    if node.input(3) is not None:
        widths = [x.shape[2] if x.rank == 3 else count * x.shape[3] for x in sides]
        parts = _columns(b, node.operand(3), widths)
        sides = [forms.add(b, x, part) if x.rank == 3 else x for x, part in zip(sides, parts)]
    q, k, v = (_heads(b, x, count) for x in sides)
    if node.input(6) is not None:
        k = forms.concat(b, [node.operand(6), k], 2)
        v = forms.concat(b, [node.operand(7), v], 2)
    mask = node.input(4)
    if mask is not None:
        mask = _filtered(b, node, mask, q, q.shape[2], k.shape[2])
    mask = _sum(b, mask, node.input(5))
    y = _attention(b, node, q, k, v, mask, bool(node.attrs.get("unidirectional", 0)))
    return [y, k, v][: node.outputs]


@contrib("Attention")
def attention(b: Builder, node: Node):
    """x: [B, S, I] times the weights of all three projections, [I, (N + N + N) * D]; past and present: [2, B, N, T, D]."""
    _refuse_others(node, {6: "past_sequence_length"}, do_rotary=0, past_present_share_buffer=0)
    w = node.operand(1)
    widths = node.attrs.get("qkv_hidden_sizes") or [w.shape[1] // 3] * 3
    product = _sum(b, b.op("MatMul", node.operand(0), w), node.input(2))
    return _self_attention(b, node, product, widths, node.input(3), node.input(4), node.input(5))


@contrib("QAttention")
def quantised_attention(b: Builder, node: Node):
    """`Attention` whose x and weights are bytes, with a scale and a zero point for all weights or for each column."""
    _refuse_others(node, {}, do_rotary=0, past_present_share_buffer=0)
    x, w, bias, x_scale, w_scale = (node.operand(i) for i in range(5))
    total = b.op("MatMulInteger", x, w, node.input(6), node.input(7))
    scale = forms.mul(
        b, forms.reshape(b, x_scale, ()), w_scale if w_scale.size > 1 else forms.reshape(b, w_scale, ())
    )
    product = forms.add(b, forms.mul(b, forms.cast(b, total, TensorProto.FLOAT), scale), bias)
    return _self_attention(b, node, product, [w.shape[1] // 3] * 3, node.input(5), node.input(8), None)


def _self_attention(
    b: Builder,
    node: Node,
    product: Value,
    widths: list[int],
    mask: Value | None,
    past: Value | None,
    added: Value | None,
):
    """Attention of queries, keys and values that lie beside each other: [B, S, (N + N + N) * D]."""
    q, k, v = (_heads(b, part, node.attrs["num_heads"]) for part in _columns(b, product, list(widths)))
    if past is not None:
        k = forms.concat(b, [forms.pick(b, past, 0, 0), k], 2)
        v = forms.concat(b, [forms.pick(b, past, 0, 1), v], 2)
    if mask is not None:
        mask = _filtered(b, node, mask, q, q.shape[2], k.shape[2])
    y = _attention(b, node, q, k, v, _sum(b, mask, added), bool(node.attrs.get("unidirectional", 0)))
    return [y, forms.stack(b, [k, v], 0)] if node.wants(1) else y


@contrib("EmbedLayerNormalization")
def embed_layer_normalization(b: Builder, node: Node):
    """Layer norm of the sum of the embeddings of words, positions and segments, [B, S, H].

    The second output is how many entries of the mask are 1, per sequence; the third is the sum.
    """
    tables = [node.input(i) for i in range(2, 7)]
    return _embedded(b, node, tables, node.input(8))


@contrib("QEmbedLayerNormalization")
def quantised_embed_layer_normalization(b: Builder, node: Node):
    """`EmbedLayerNormalization` whose tables, weights and shifts are bytes, each with a scale and a zero point."""
    tables = [node.input(i) for i in range(2, 7)]
    real = [
        None if x is None else b.op("DequantizeLinear", x, node.operand(8 + i), node.operand(13 + i))
        for i, x in enumerate(tables)
    ]
    return _embedded(b, node, real, None)


def _embedded(b: Builder, node: Node, tables: list[Value | None], positions: Value | None) -> list[Value]:
    """`tables` are of words, positions and segments, then the norm's weight and shift."""
    words, segments, mask = node.operand(0), node.input(1), node.input(7)
    of_words, of_positions, of_segments, weight, shift = tables
    batch, length = words.shape
    total = b.op("Gather", of_words, words)
    if positions is None:
        assert of_positions is not None
        placed = forms.slice_axis(b, of_positions, 0, 0, length)
    else:
        placed = b.op("Gather", of_positions, positions)
    total = forms.add(b, total, placed)
    if segments is not None:
        total = forms.add(b, total, b.op("Gather", of_segments, segments))
    epsilon = node.attrs.get("epsilon", 1e-12)
    y = b.op("LayerNormalization", total, weight, shift, epsilon=epsilon)
    if not (node.wants(1) and mask is not None):
        return [y, forms.full(b, 0, TensorProto.INT32, (batch,)), total][: node.outputs]
    ones = forms.cast(b, b.op("Equal", mask, b.scalar(1, mask)), TensorProto.INT32)
    return [y, forms.reduce(b, "ReduceSum", ones, [1], keep=False), total][: node.outputs]


GROUPED_OPERANDS = {11: "head_sink", 12: "k_scale", 13: "v_scale", 14: "q_norm_weight", 15: "k_norm_weight",
                    16: "query_seqlens"}  # fmt: skip
"""Operands of GroupQueryAttention that are not taken."""


@contrib("GroupQueryAttention")
def group_query_attention(b: Builder, node: Node):
    """q: [B, S, N * D], k and v: [B, S, KV * D] or all in one; past and present: [B, KV, P, D] and [B, KV, T, D].

    Entry i of the batch holds `seqlens_k[i] + 1` keys after this call, the last S of which are new; the first prompt is
    the call whose S is `total_sequence_length`. A past that is longer than needed is a buffer, as long when it is
    present again. Query s stands at place p of its entry, and sees the keys 0 to p, or the last of them.
    """
    _refuse_others(node, GROUPED_OPERANDS, smooth_softmax=0, qk_output=0, k_quant_type="NONE",
                   v_quant_type="NONE", sliding_window_cache=0)  # fmt: skip
    if node.wants(3):
        raise Refused("its output `output_qk` is not given")
    heads, kv = node.attrs["num_heads"], node.attrs["kv_num_heads"]
    q, k, v = node.operand(0), node.input(1), node.input(2)
    if k is None or v is None:
        head = q.shape[2] // (heads + 2 * kv)
        q, k, v = _columns(b, q, [heads * head, kv * head, kv * head])
    batch, length, _ = q.shape
    total = node.operand(6).ints("total_sequence_length")[0]
    held = forms.cast(b, forms.reshape(b, node.operand(5), (batch, 1)), TensorProto.INT64)
    first = b.const(np.zeros((batch, 1), np.int64))
    start = first if length == total else forms.sub(b, held, length - 1)
    places = forms.add(b, start, b.const(np.arange(length).reshape(1, length), TensorProto.INT64))
    if node.attrs.get("do_rotary", 0):
        turned = places if node.input(9) is None else node.operand(9)
        interleaved = node.attrs.get("rotary_interleaved", 0)
        q, k = (
            _rotated(b, x, turned, node.operand(7), node.operand(8), count, interleaved)
            for x, count in ((q, heads), (k, kv))
        )
    q, k, v = _heads(b, q, heads), _heads(b, k, kv), _heads(b, v, kv)
    k, v = (_appended(b, node.input(i), new, start, total) for i, new in ((3, k), (4, v)))
    steps = b.const(np.arange(k.shape[2]).reshape(1, 1, 1, -1), TensorProto.INT64)
    place = forms.reshape(b, places, (batch, 1, length, 1))
    window = node.attrs.get("local_window_size", -1)
    if node.attrs.get("causal", 1):
        seen = b.op("LessOrEqual", steps, place)
        if window >= 0:
            seen = b.op("And", seen, b.op("Greater", steps, forms.sub(b, place, window)))
    else:
        seen = b.op("LessOrEqual", steps, forms.reshape(b, held, (batch, 1, 1, 1)))
    masks = [seen]
    bias = node.input(10)
    if bias is not None:
        beyond = k.shape[2] - bias.shape[3]
        masks.append(b.op("Pad", bias, b.ints(0, 0, 0, 0, 0, 0, 0, beyond)) if beyond else bias)
    y = _masked(b, q, k, v, masks, _scale(node, q.shape[3]), node.attrs.get("softcap", 0.0))
    return [y, k, v][: node.outputs]


def _appended(b: Builder, past: Value | None, new: Value, start: Value, total: int) -> Value:
    """`new` written into the past from place `start` on, as long as both are together or as the buffer is."""
    kept = 0 if past is None else past.shape[2]
    reach = max(kept, total)
    if not kept:
        beyond = reach - new.shape[2]
        return b.op("Pad", new, b.ints(0, 0, 0, 0, 0, 0, beyond, 0)) if beyond else new
    assert past is not None
    cache = b.op("Pad", past, b.ints(0, 0, 0, 0, 0, 0, reach - kept, 0)) if reach > kept else past
    return b.op("TensorScatter", cache, new, forms.reshape(b, start, (start.size,)), axis=2)
