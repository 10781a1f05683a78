"""Kernels of sizes that make many rTasks, the last of them ragged, run often enough to show races.

How many rTasks pay for starting them depends on the CPU; these are cut as if starting cost nothing.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from kernel_checks import Batch, compiled, differences, finely
from kernel_draws import Case, Draw

from tilewright.compiler.driver import import_model

REPEATS = 12


def matmul(draw: Draw) -> Case:
    w, b = draw.tensor((331, 517)), draw.tensor((517,))
    return Case(
        "matmul", lambda x, w, b: F.gelu(x @ w + b), (draw.tensor((197, 331)) * 0.05,), (w, b), slack=512
    )


def matmul_plain(draw: Draw) -> Case:
    return Case("plain", torch.matmul, (draw.tensor((203, 307)), draw.tensor((307, 401))), (), 307)


def matmul_prime(draw: Draw) -> Case:
    return Case("prime", torch.matmul, (draw.tensor((199, 211)), draw.tensor((211, 307))), (), 211)


def columns_prime(draw: Draw) -> Case:
    return Case(
        "prime columns", lambda x: (x.sum(0), x.sum(1), x.amax(1)), (draw.tensor((701, 997)),), (), 997
    )


def matmul_bf16(draw: Draw) -> Case:
    x, w = draw.tensor((129, 257), torch.bfloat16), draw.tensor((257, 384), torch.bfloat16)
    return Case("bf16", torch.matmul, (x,), (w,), 257)


def conv(draw: Draw) -> Case:
    w, b = draw.tensor((48, 37, 3, 3)), draw.tensor((48,))
    return Case(
        "conv", lambda x, w, b: F.conv2d(x, w, b, padding=1), (draw.tensor((1, 37, 29, 31)),), (w, b), 633
    )


def conv_strided(draw: Draw) -> Case:
    x, w = draw.tensor((2, 3, 67, 71)), draw.tensor((64, 3, 7, 7))
    return Case("stem", lambda x, w: F.conv2d(x, w, stride=2, padding=3), (x,), (w,), 147 + 300)


def depthwise(draw: Draw) -> Case:
    x, w = draw.tensor((1, 96, 41, 43)), draw.tensor((96, 1, 3, 3))
    return Case("depthwise", lambda x, w: F.conv2d(x, w, padding=1, groups=96), (x,), (w,), 309)


def attention(draw: Draw) -> Case:
    q, k, v = (draw.tensor((2, 5, 67, 32)) for _ in range(3))
    return Case("attention", F.scaled_dot_product_attention, (q, k, v), slack=24)


def softmax(draw: Draw) -> Case:
    return Case("softmax", lambda x: F.softmax(x, -1), (draw.tensor((301, 517)),), slack=32)


def layer_norm(draw: Draw) -> Case:
    x, scale, shift = draw.tensor((197, 768)), draw.tensor((768,)), draw.tensor((768,))
    return Case("layer_norm", lambda x, g, b: F.layer_norm(x, (768,), g, b), (x,), (scale, shift), slack=64)


def columns(draw: Draw) -> Case:
    return Case("columns", lambda x: (x.sum(0), x.sum(1), x.amax(1)), (draw.tensor((702, 516)),), (), 702)


def pool(draw: Draw) -> Case:
    return Case("pool", lambda x: F.max_pool2d(x, 3, 2, 1), (draw.tensor((1, 64, 61, 59)),), (), 0)


def elementwise(draw: Draw) -> Case:
    x, y = draw.tensor((7, 331, 253)), draw.tensor((331, 1))
    return Case("elementwise", lambda x, y: (x * y + 1.0) * (x > y), (x, y), slack=8)


def transpose(draw: Draw) -> Case:
    return Case("transpose", lambda x: x.transpose(1, 2).contiguous(), (draw.tensor((3, 257, 331)),), (), 0)


def embedding(draw: Draw) -> Case:
    table = draw.tensor((1009, 317))
    return Case("embedding", F.embedding, (draw.index((7, 101), 1009),), (table,), 0)


def scatter(draw: Draw) -> Case:
    base, values, index = draw.tensor((211, 97)), draw.tensor((3001, 97)), draw.index((3001,), 211)
    return Case("index_add", lambda b, i, v: b.index_add(0, i, v), (base, index, values), (), 64)


def scan(draw: Draw) -> Case:
    return Case("scan", lambda x: x.cumsum(1), (draw.tensor((101, 257)),), (), 257**2)


def join(draw: Draw) -> Case:
    x, y = draw.tensor((67, 511)), draw.tensor((67, 1023))
    return Case("join", lambda x, y: torch.cat([x, torch.relu(y), x.flip(1)], 1), (x, y), (), 0)


CASES = [
    *(matmul, matmul_plain, matmul_bf16, conv, conv_strided, depthwise, attention, softmax, layer_norm),
    *(matmul_prime, columns_prime, columns, pool, elementwise, transpose, embedding, scatter, scan, join),
]
WHOLE = {"scatter", "scan", "embedding", "join", "matmul_prime", "columns_prime"}
"""What one rTask may compute alone: what follows an order, or is small work."""


@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_many_tasks(make) -> None:
    case = make(Draw.seeded(make.__name__))
    one, two = compiled(import_model(Batch([case]), case.inputs), (1, 2), finely)
    tasks = [step.tasks for step in one.executable.package.main.steps]
    if make.__name__ not in WHOLE:
        assert max(tasks) >= 4, tasks
    first = one(*case.inputs)[0]
    assert not differences(case, first)
    for repeat in range(REPEATS):
        for again, wanted in zip(two(*case.inputs)[0], first):
            assert torch.equal(again, wanted), f"run {repeat} with two threads differs from one thread"
