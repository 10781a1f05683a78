"""Single operators as torch modules, for the suites that time one kernel at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import nn

from tilewright.bench.models.seeding import SEED, seeded

Built = tuple[nn.Module, tuple[torch.Tensor, ...]]


def normal(*shape: int) -> torch.Tensor:
    """A seeded normal tensor."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(SEED))


class WeightMatmul(nn.Module):
    """`[m, k] x [k, n]`, the second operand a weight."""

    def __init__(self, k: int, n: int):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(k, n) / k**0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight


class Matmul(nn.Module):
    """`[m, k] x [k, n]`, both operands given at every call."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b


class Mean(nn.Module):
    """The mean over `axes`."""

    def __init__(self, axes: Sequence[int]):
        super().__init__()
        self.axes = tuple(axes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean(self.axes)


class Scores(nn.Module):
    """Attention's first product: `q k^T`, `[heads, queries, size] x [heads, keys, size]`."""

    def forward(self, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return q @ k.transpose(-1, -2)


class Elementwise(nn.Module):
    """One function of every element, or the sum of two tensors."""

    def __init__(self, name: str):
        super().__init__()
        functions = {"relu": torch.relu, "gelu": nn.functional.gelu, "add": torch.add}
        self.function = functions[name]

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.function(*inputs)


def matmul(m: int, k: int, n: int, weight: bool = True, dtype: str = "f32") -> Built:
    """A matrix product whose second operand is a weight, or an input."""
    kind = {"f32": torch.float32, "bf16": torch.bfloat16}[dtype]
    if weight:
        return seeded(lambda: WeightMatmul(k, n)).to(kind), (normal(m, k).to(kind),)
    return Matmul().eval(), (normal(m, k).to(kind), normal(k, n).to(kind))


class Experts(nn.Module):
    """Rows in groups, each times its group's matrix, as experts of a mixture compute them; groups are of one size."""

    def __init__(self, experts: int, k: int, n: int):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(experts, k, n) / k**0.5)

    def forward(self, x: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        return nn.functional.grouped_mm(x, self.weight, offs=ends)


class Lines(nn.Module):
    """`function` of the tensors given: operators that take no weights."""

    def __init__(self, function: Callable[..., torch.Tensor | tuple[torch.Tensor, ...]]):
        super().__init__()
        self.function = function

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        return self.function(*tensors)


def cumsum(shape: Sequence[int], dim: int) -> Built:
    """Running sums along `dim`."""
    return Lines(lambda x: x.cumsum(dim)), (normal(*shape),)


def sort(shape: Sequence[int]) -> Built:
    """Rows in ascending order, with the places that elements had; equal ones stay in order."""
    return Lines(lambda x: x.sort(stable=True, dim=-1)), (normal(*shape),)


def sort_numbers(count: int, below: int) -> Built:
    """Numbers of things in ascending order, as those of the experts that tokens go to are."""
    numbers = torch.randint(0, below, (count,), generator=torch.Generator().manual_seed(SEED))
    return Lines(lambda x: x.sort(stable=True)), (numbers,)


def topk(shape: Sequence[int], count: int) -> Built:
    """The `count` greatest elements of rows, and their places."""
    return Lines(lambda x: x.topk(count)), (normal(*shape),)


def index_add(shape: Sequence[int], rows: int) -> Built:
    """`rows` rows added to zeros of `shape` at random places, as gradients of an embedding are."""
    places = torch.randint(0, shape[0], (rows,), generator=torch.Generator().manual_seed(SEED))
    return Lines(lambda at, x: x.new_zeros(shape).index_add(0, at, x)), (places, normal(rows, *shape[1:]))


def scatter_add(shape: Sequence[int]) -> Built:
    """Elements added to random ones of their own row."""
    places = torch.randint(0, shape[1], tuple(shape), generator=torch.Generator().manual_seed(SEED))
    return Lines(lambda x, at: torch.zeros_like(x).scatter_add(1, at, x)), (normal(*shape), places)


def put_tokens(shape: Sequence[int], kept: int) -> Built:
    """`kept` rows of every image put back among zeros where they had been, as decoders of masked autoencoders do."""
    images, tokens, width = shape
    order = torch.rand(images, tokens, generator=torch.Generator().manual_seed(SEED)).argsort(1)
    rows = normal(images, kept, width)
    return Lines(lambda x, at: x.new_zeros(shape).scatter(1, at.unsqueeze(-1).expand_as(x), x)), (
        rows,
        order[:, :kept],
    )


def spectrogram(shape: Sequence[int], window: int, step: int) -> Built:
    """Magnitudes of the transforms of overlapping windows of signals."""
    weights = torch.hann_window(window)

    def magnitudes(x: torch.Tensor) -> torch.Tensor:
        return torch.stft(x, window, step, window=weights, return_complex=True).abs()

    return Lines(magnitudes), (normal(*shape),)


def spectral_layer(shape: Sequence[int]) -> Built:
    """Images whose frequencies have weights, as layers of Fourier neural operators and of GFNet are."""
    *_, channels, rows, columns = shape
    weights = torch.complex(
        normal(channels, rows, columns // 2 + 1), normal(channels, rows, columns // 2 + 1)
    )
    return Lines(lambda x: torch.fft.irfft2(torch.fft.rfft2(x) * weights, s=(rows, columns))), (
        normal(*shape),
    )


def greatest_of_edges(shape: Sequence[int], edges: int) -> Built:
    """The greatest elements of the rows of `edges` that are meant for one of `shape[0]` nodes."""
    nodes = torch.randint(0, shape[0], (edges,), generator=torch.Generator().manual_seed(SEED))

    def greatest(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        return x.new_zeros(shape).scatter_reduce(
            0, at.unsqueeze(-1).expand_as(x), x, "amax", include_self=False
        )

    return Lines(greatest), (normal(edges, *shape[1:]), nodes)


def experts(count: int, rows: int, k: int, n: int, dtype: str = "f32") -> Built:
    """`rows` rows of `count` experts, whose matrices are weights; where groups end is an input."""
    kind = {"f32": torch.float32, "bf16": torch.bfloat16}[dtype]
    ends = torch.tensor([rows * (number + 1) // count for number in range(count)], dtype=torch.int32)
    return seeded(lambda: Experts(count, k, n)).to(kind), (normal(rows, k).to(kind), ends)


class StoredMatmul(nn.Module):
    """`[m, k] x [k, n]` in the type of the rows; the second operand is a weight of fewer bits, bytes with a factor per column."""

    def __init__(self, k: int, n: int, stored: str):
        super().__init__()
        values = torch.randn(n, k) / k**0.5
        factors = values.abs().amax(1) / 127
        bytes_ = torch.round(values / factors[:, None]).to(torch.int8)
        self.register_buffer("weight", bytes_ if stored == "i8" else values.to(torch.bfloat16))
        self.register_buffer("factors", factors if stored == "i8" else None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        product = nn.functional.linear(x, self.weight.to(x.dtype))
        return product if self.factors is None else product * self.factors


def stored_matmul(m: int, k: int, n: int, stored: str) -> Built:
    """A product in f32 with a weight that is stored as `i8` or `bf16`."""
    return seeded(lambda: StoredMatmul(k, n, stored)), (normal(m, k),)


class GroupedMatmul(nn.Module):
    """`[m, k] x [k, n]` in f32; the weight has 4 bits an element, two in a byte, around 8, with a factor for every `group` steps of k.

    Stored as ONNX Runtime's `MatMulNBits` takes it: bytes of [n, k / group, group / 2], the low bits first.
    """

    def __init__(self, k: int, n: int, group: int):
        super().__init__()
        values = torch.randn(n, k // group, group) / k**0.5
        factors = values.abs().amax(-1) / 7
        numbers = (torch.round(values / factors[..., None]) + 8).to(torch.uint8)
        self.register_buffer("weight", numbers[..., ::2] | (numbers[..., 1::2] << 4))
        self.register_buffer("factors", factors)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        numbers = torch.stack((self.weight & 15, self.weight >> 4), -1).flatten(2)
        weight = (numbers.to(x.dtype) - 8) * self.factors[..., None]
        return nn.functional.linear(x, weight.flatten(1))

    def write_onnx(self, path: Path, x: torch.Tensor) -> None:
        """Writes the operator that ONNX Runtime has for it."""
        import onnx
        from onnx import helper, numpy_helper

        (m, k), n, size = x.shape, self.weight.shape[0], self.weight.shape[2]
        sizes = {"K": k, "N": n, "bits": 4, "block_size": 2 * size}
        node = helper.make_node(
            "MatMulNBits", ["x", "weight", "factors"], ["y"], domain="com.microsoft", **sizes
        )
        x_type, y_type = (
            helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
            for name, shape in (("x", [m, k]), ("y", [m, n]))
        )
        weights = {"weight": self.weight.numpy(), "factors": self.factors.flatten().numpy()}
        tensors = [numpy_helper.from_array(value, name) for name, value in weights.items()]
        graph = helper.make_graph([node], "grouped", [x_type], [y_type], tensors)
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)


def grouped_matmul(m: int, k: int, n: int, group: int) -> Built:
    """A product in f32 with a weight of 4 bits an element and factors for `group` of them."""
    return seeded(lambda: GroupedMatmul(k, n, group)), (normal(m, k),)


class CachedAttention(nn.Module):
    """One query over caches of a fixed length, in which its own key and value are written first."""

    def forward(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        at: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
    ) -> torch.Tensor:
        keys.index_copy_(2, at, k)
        values.index_copy_(2, at, v)
        return nn.functional.scaled_dot_product_attention(q, keys, values)


def cached_attention(heads: int, length: int, size: int) -> Built:
    """A step of a decoder: a query, a key and a value of `heads` heads, the last position, and full caches."""
    rows = [normal(1, heads, 1, size) for _ in range(3)]
    caches = [normal(1, heads, length, size) for _ in range(2)]
    return CachedAttention().eval(), (*rows, torch.tensor([length - 1]), *caches)


class Attention(nn.Module):
    """Attention of as many queries as keys, fused."""

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(q, k, v)


def attention(heads: int, length: int, size: int) -> Built:
    """Fused attention of `heads` heads at batch 1."""
    return Attention().eval(), tuple(normal(1, heads, length, size) for _ in range(3))


def attention_scores(heads: int, queries: int, keys: int, size: int, batch: int = 1) -> Built:
    """`q k^T` of `batch * heads` heads."""
    return Scores().eval(), (normal(batch * heads, queries, size), normal(batch * heads, keys, size))


def attention_values(heads: int, queries: int, keys: int, size: int, batch: int = 1) -> Built:
    """`p v` of `batch * heads` heads."""
    return Matmul().eval(), (normal(batch * heads, queries, keys), normal(batch * heads, keys, size))


def elementwise(name: str, shape: Sequence[int], dtype: str = "f32") -> Built:
    """relu, gelu or add of tensors of `shape`."""
    kind = {"f32": torch.float32, "f64": torch.float64}[dtype]
    return Elementwise(name).eval(), tuple(normal(*shape).to(kind) for _ in range(2 if name == "add" else 1))


class ScaledRows(nn.Module):
    """Rows of `x`, each times a number of its own."""

    def forward(self, x: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
        return x * factor


def scale_rows(shape: Sequence[int]) -> Built:
    """Rows, each times a number of its own, as gates and attention over channels scale them."""
    return ScaledRows().eval(), (normal(*shape), normal(shape[0], 1))


class Sampled(nn.Module):
    """Images sampled bilinearly at places of a grid."""

    def forward(self, x: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
        return nn.functional.grid_sample(x, grid, align_corners=False)


def grid_sample(shape: Sequence[int]) -> Built:
    """Images sampled at as many places as they have elements, some of those outside."""
    images, _, *size = shape
    return Sampled().eval(), (normal(*shape), torch.tanh(normal(images, *size, 2)) * 1.1)


def max_pool2d(shape: Sequence[int], kernel: int, stride: int, padding: int) -> Built:
    """Max pooling over `[N, C, H, W]`."""
    return nn.MaxPool2d(kernel, stride, padding).eval(), (normal(*shape),)


def mean(shape: Sequence[int], axes: Sequence[int]) -> Built:
    """The mean over `axes`."""
    return Mean(axes).eval(), (normal(*shape),)


def softmax(shape: Sequence[int]) -> Built:
    """Softmax along the last axis."""
    return nn.Softmax(dim=-1).eval(), (normal(*shape),)


class Transpose(nn.Module):
    """The last two axes exchanged, in memory."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.transpose(-1, -2).contiguous()


def transpose(shape: Sequence[int]) -> Built:
    """A copy with the last two axes exchanged."""
    return Transpose().eval(), (normal(*shape),)


def layer_norm(shape: Sequence[int]) -> Built:
    """Layer normalisation over the last axis, with scale and shift."""
    return seeded(lambda: nn.LayerNorm(shape[-1])), (normal(*shape),)


def same_padding(extent: int, kernel: int, stride: int) -> tuple[int, int]:
    """TensorFlow's `same`: (before, after), output `ceil(extent / stride)`, the odd element after."""
    total = max((-(-extent // stride) - 1) * stride + kernel - extent, 0)
    return total // 2, total - total // 2


def conv2d(
    shape: Sequence[int], filters: int, kernel: int, stride: int, padding: int | str, groups: int = 1
) -> Built:
    """A convolution without bias over `[N, C, H, W]`; padding: a number, "valid" or TensorFlow's "same"."""
    before, after = (padding, padding) if isinstance(padding, int) else (0, 0)
    if padding == "same":
        before, after = same_padding(shape[2], kernel, stride)
        assert (before, after) == same_padding(shape[3], kernel, stride)

    def make() -> nn.Module:
        inside = before if before == after else 0
        conv = nn.Conv2d(shape[1], filters, kernel, stride, inside, groups=groups, bias=False)
        if before == after:
            return conv
        return nn.Sequential(nn.ZeroPad2d((before, after, before, after)), conv)

    return seeded(make), (normal(*shape),)


def avg_pool2d(shape: Sequence[int], kernel: int, stride: int, padding: str) -> Built:
    """Average pooling that leaves padding out of the mean, as TensorFlow does."""
    before, after = same_padding(shape[2], kernel, stride) if padding == "same" else (0, 0)
    if after - before not in (0, 1) or (after != before and before):
        raise ValueError(f"padding ({before}, {after}) has no equivalent in torch's average pooling")
    # One element of padding at the end only: that is what rounding the output size up means.
    pool = nn.AvgPool2d(kernel, stride, before, ceil_mode=after != before, count_include_pad=False)
    return pool.eval(), (normal(*shape),)


def from_row(row: dict, batch: int) -> Built:
    """The operator of one row of `data/roller119.json`, its batch dimension scaled from 128 to `batch`."""
    kind = row["kind"]
    if kind == "matmul":
        # 65,536 rows are 128 sequences of 512 tokens; 128 rows are one per image.
        return matmul(row["m"] // 128 * batch, row["k"], row["n"])
    shape = [row["input"][0] * batch // 128, *row["input"][1:]]
    if kind == "conv2d":
        return conv2d(shape, row["filters"], row["kernel"], row["stride"], row["padding"])
    if kind == "depthwise_conv2d":
        return conv2d(shape, shape[1], row["kernel"], row["stride"], row["padding"], groups=shape[1])
    if kind == "avg_pool2d":
        return avg_pool2d(shape, row["kernel"], row["stride"], row["padding"])
    if kind == "relu":
        return nn.ReLU().eval(), (normal(*shape),)
    if kind == "reduce_mean":
        return Mean(row["axes"]).eval(), (normal(*shape),)
    raise ValueError(f"{row['name']}: unknown operator kind `{kind}`")
