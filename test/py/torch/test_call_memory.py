"""Memory that arguments, results and state share: views over any strides, overlaps with what a model changes."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import tilewright
from tilewright.compiler.errors import ModelImportError, UnsupportedError
from tilewright.runtime.argument_memory import Place
from tilewright.runtime.errors import ArgumentError
from tilewright.runtime.signature import Output
from tilewright.runtime.views import is_injective, over_a_copy, rebased

LAYOUTS = {
    "row_major": lambda: torch.arange(32.0).reshape(8, 4),
    "transposed": lambda: torch.arange(32.0).reshape(4, 8).t(),
    "every_second": lambda: torch.arange(128.0).reshape(8, 16)[:, 2:10:2],
    "every_second_transposed": lambda: torch.arange(128.0).reshape(8, 16)[2:6, ::2].t(),
    "expanded": lambda: torch.arange(8.0)[:, None].expand(8, 4),
    "expanded_rows": lambda: torch.arange(4.0).expand(8, 4),
}


def views(x):
    """What changes no strides of its own: each is a view in eager PyTorch whatever the strides of `x`."""
    return {
        "slice": x[1:3],
        "step": x[::3, 1:],
        "select": x[2],
        "element": x[-1, 1],
        "permute": x.permute(1, 0),
        "movedim": x.movedim(0, -1),
        "unsqueeze": x.unsqueeze(1),
        "chunk": x.chunk(3)[1],
        "detach": x.detach(),
        "expand": x.expand(2, 8, 4),
        "split_dimension": x.unflatten(0, (2, 4)),
        "view": x.view(2, 4, 4),
        "diagonal": x.diagonal(1),
        "unfold": x.unfold(0, 3, 2),
        "empty": x[3:3],
        "twice": x[1:].t()[::2, 1],
        "itself": x,
    }


@pytest.mark.parametrize("example", LAYOUTS)
def test_views_of_arguments_are_views_of_the_actual_argument(example, tmp_path):
    """Compiled on one layout, called on each of them: values, memory and strides of eager PyTorch."""
    f = tilewright.compile(views, (LAYOUTS[example](),))
    f.save(tmp_path / "views.twm")
    loaded = tilewright.load(tmp_path / "views.twm")
    for make in LAYOUTS.values():
        x = make()
        array = x.numpy()
        for (name, wanted), found, by_file, of_array in zip(
            views(x).items(), f(x).values(), loaded(x).values(), f(array).values()
        ):
            for tensor in (found, by_file, torch.from_numpy(of_array)):
                assert torch.equal(tensor, wanted), name
                assert tensor.data_ptr() == wanted.data_ptr() or not wanted.numel(), name
                assert moving(tensor) == moving(wanted), name


def moving(tensor: torch.Tensor) -> list[int]:
    """The strides that lead from one element to another."""
    return [step for step, extent in zip(tensor.stride(), tensor.shape) if extent > 1 and tensor.numel()]


@pytest.mark.parametrize("compiler", ["compile", "torch.compile"])
def test_writes_through_broadcast_views_that_repeat_nothing_are_exact(compiler):
    """A difference that is added to 1e10 leaves nothing of 1, and one of infinities is NaN."""

    def every(*tensors):
        a, b, c, d, e, f = tensors
        like = torch.ones(1, 2, 3)
        a.expand(2, 3).fill_(1)
        b.expand(1, *b.shape)[0].mul_(-1e-10)
        c.expand_as(like)[:, 1:].mul_(2)
        torch.broadcast_to(d, (1, 2, 3)).transpose(1, 2)[0, 1].mul_(0.5)
        torch.broadcast_tensors(e, like)[0].add_(1)
        f.unsqueeze(1).expand(-1, 1, -1)[0].zero_()
        return a + f

    def made():
        values = torch.tensor([[1e10, 3e38, -float("inf")], [float("inf"), -0.0, float("nan")]])
        return [values.clone() for _ in range(6)]

    torch._dynamo.reset()
    compiled = (
        tilewright.compile(every, tuple(made()))
        if compiler == "compile"
        else torch.compile(every, backend="tilewright")
    )
    wanted, found = made(), made()
    results = every(*wanted), compiled(*found)
    torch.testing.assert_close([*found, results[1]], [*wanted, results[0]], rtol=0, atol=0, equal_nan=True)


def test_what_needs_contiguous_memory_is_copied_as_for_the_example():
    """`reshape` and `contiguous` decide by the example's strides; called on others, values stay right."""

    def model(x):
        return x.reshape(-1), x.t().reshape(2, 16), x.flatten(), x.contiguous()

    for example in LAYOUTS.values():
        f = tilewright.compile(model, (example(),))
        for make in LAYOUTS.values():
            x = make()
            assert all(map(torch.equal, f(x), model(x)))
        x = example()
        for found, wanted in zip(f(x), model(x)):
            shared = wanted.data_ptr() == x.data_ptr()
            assert (found.data_ptr() == x.data_ptr()) == shared and found.stride() == wanted.stride()


def test_views_of_an_image_in_channels_last_beside_its_convolution():
    conv = nn.Conv2d(3, 4, 3).eval()
    f = tilewright.compile(lambda a: (conv(a), a[:, :, 1:]), (image(torch.channels_last),))
    for layout in (torch.channels_last, torch.contiguous_format):
        a = image(layout)
        found, view = f(a)
        torch.testing.assert_close(found, conv(a), rtol=1e-4, atol=1e-5)
        assert torch.equal(view, a[:, :, 1:]) and view.stride() == a[:, :, 1:].stride()


def image(layout: torch.memory_format) -> torch.Tensor:
    return torch.randn(2, 3, 6, 5).to(memory_format=layout)


@pytest.mark.parametrize("example", [name for name in LAYOUTS if not name.startswith("expanded")])
def test_writes_through_views_reach_arguments_of_any_strides(example):
    def model(x):
        x[1:3].add_(1)
        x.t()[0].mul_(2)
        return x[2], x.sum()

    f = tilewright.compile(model, (LAYOUTS[example](),))
    for name, make in LAYOUTS.items():
        if not name.startswith("expanded"):
            ours, theirs = make(), make()
            (row, total), (wanted, sums) = f(ours), model(theirs)
            assert (
                torch.equal(ours, theirs)
                and torch.equal(row, wanted)
                and row.data_ptr() == ours[2].data_ptr()
            )
            torch.testing.assert_close(total, sums)


@pytest.mark.parametrize("called", ["row_major", "transposed", "every_second", "every_second_transposed"])
@pytest.mark.parametrize("example", ["row_major", "transposed", "every_second", "every_second_transposed"])
def test_views_of_what_is_written_in_part_are_views_of_the_argument(example, called):
    """A write through one view makes the argument anew, dense, while it is traced; other views of it are of that."""

    def model(x, y):
        before = x[1:3], x.t(), x[2]
        x[:, 1] = y
        x[2] *= 2
        return *before, x, x[3:, 1], x[-2:]

    compiled = tilewright.compile(model, (LAYOUTS[example](), torch.ones(8)))
    ours, eager = LAYOUTS[called](), LAYOUTS[called]()
    y = torch.linspace(-1, 1, 8)
    found, expected = compiled(ours, y), model(eager, y)
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0)
        assert mine.stride() == theirs.stride() and mine.storage_offset() == theirs.storage_offset()
        assert mine.untyped_storage().data_ptr() == ours.untyped_storage().data_ptr()
    torch.testing.assert_close(ours, eager, rtol=0, atol=0)


@st.composite
def strided(draw, rank: int, shape: tuple[int, ...]) -> torch.Tensor:
    """An injective tensor of `shape` whose elements are their numbers, its dimensions in any order, with gaps."""
    order = draw(st.permutations(range(rank)))
    steps, step = [0] * rank, draw(st.integers(1, 2))
    for d in order:
        steps[d] = step
        step = step * shape[d] + draw(st.sampled_from([0, 0, 3]))
    return torch.empty(step + 1, dtype=torch.int64).as_strided(shape, steps)


OPERATORS = st.sampled_from(
    ["transpose", "slice", "step", "select", "unsqueeze", "expand", "diagonal", "unfold", "flatten", "split"]
)


def viewed(x: torch.Tensor, operator: str, number: int) -> torch.Tensor:
    """One view of `x`; `x` itself where it has no such view."""
    d = number % x.dim() if x.dim() else 0
    last = (d + 1) % x.dim() if x.dim() else 0
    if operator == "unsqueeze":
        return x.unsqueeze(d)
    if operator == "expand":
        return x.expand(2, *x.shape)
    if not x.dim() or not x.shape[d]:
        return x
    if operator == "transpose":
        return x.transpose(d, last)
    if operator == "slice":
        return x.narrow(d, number % x.shape[d], 1 + number % (x.shape[d] - number % x.shape[d]))
    if operator == "step":
        return x[(slice(None),) * d + (slice(None, None, 2),)]
    if operator == "select":
        return x.select(d, number % x.shape[d])
    if operator == "diagonal":
        return x.diagonal(number % 3 - 1, d, last) if d != last else x
    if operator == "unfold":
        return x.unfold(d, min(2, x.shape[d]), 1 + number % 2)
    if operator == "split":
        return x.unflatten(d, (2, -1)) if x.shape[d] % 2 == 0 else x
    try:
        return x.view(*x.shape[: x.dim() - 2], -1) if x.dim() > 1 else x
    except RuntimeError:
        return x


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_any_chain_of_views_holds_over_any_strides(data):
    """The chain's elements over other strides, by strides where there are any; else over a copy."""
    rank = data.draw(st.integers(1, 4))
    shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=rank, max_size=rank)))
    example, actual = data.draw(strided(rank, shape)), data.draw(strided(rank, shape))
    assert is_injective(shape, example.stride())
    numbers = torch.arange(example.numel()).reshape(shape)
    example.copy_(numbers)
    actual.copy_(numbers)
    view = example
    for operator, number in data.draw(st.lists(st.tuples(OPERATORS, st.integers(0, 5)), max_size=4)):
        view = viewed(view, operator, number)
    output = Output(
        "input", 0, "i64", tuple(view.shape), view.stride(), view.storage_offset(), base=example.stride()
    )
    placed = rebased(output, shape, actual.stride())
    if placed is not None:
        assert torch.equal(actual.as_strided(view.shape, *placed), view)
    assert rebased(output, shape, example.stride()) is not None
    order, *placed = over_a_copy(output, shape)
    assert torch.equal(actual.permute(order).contiguous().as_strided(view.shape, *placed), view)


def test_as_strided_of_an_argument_asks_for_the_memory_of_the_example():
    def model(x):
        return x.as_strided((2, 2), (1, 4), 1) * 2, x.as_strided((3,), (2,))

    f = tilewright.compile(model, (LAYOUTS["row_major"](),))
    x = LAYOUTS["row_major"]()
    assert all(map(torch.equal, f(x), model(x)))
    for name, make in LAYOUTS.items():
        if name != "row_major":
            with pytest.raises(
                ArgumentError, match=r"argument `x`: the model reads its memory \(as_strided\)"
            ):
                f(make())
            with pytest.raises(UnsupportedError, match="not contiguous from the start"):
                tilewright.compile(model, (make(),))
    with pytest.raises(ArgumentError, match="as_strided"):
        f(torch.zeros(9, 4)[1:])


def adds_and_doubles(x, y):
    x.add_(1)
    return y * 2


def halves() -> torch.Tensor:
    return torch.arange(8.0).reshape(4, 2)


@pytest.mark.parametrize(
    ("arguments", "is_refused"),
    [
        (lambda: (torch.ones(4),) * 2, True),
        (lambda: (torch.arange(6.0)[:4], torch.ones(4)), False),
        (lambda: (lambda t: (t[:4], t[2:]))(torch.arange(6.0)), True),
        (lambda: (lambda t: (t[2:], t[:4]))(torch.arange(6.0)), True),
        (lambda: (lambda t: (t[:4], t[4:]))(torch.arange(8.0)), False),
        (lambda: (lambda t: (t[:, 0], t[:, 1]))(halves()), False),
        (lambda: (lambda t: (t[:, 0], t.reshape(-1)[2:6]))(halves()), True),
        (lambda: (torch.ones(1).expand(4), torch.ones(4)), True),
        (lambda: (torch.ones(4), torch.ones(1).expand(4)), False),
        (lambda: (lambda t: (t[1:], t[:1].expand(4)))(torch.arange(5.0)), False),
        (lambda: (lambda t: (t[:4], t[:1].expand(4)))(torch.arange(5.0)), True),
    ],
)
def test_what_is_changed_shares_no_memory_with_what_is_read(arguments, is_refused):
    f = tilewright.compile(adds_and_doubles, (torch.zeros(4), torch.zeros(4)))
    for convert in (lambda t: t, lambda t: t.numpy()):
        given_ = arguments()
        before = [t.clone() for t in given_]
        called = [
            np.lib.stride_tricks.as_strided(convert(t), writeable=True) if convert(t) is not t else t
            for t in given_
        ]
        if is_refused:
            with pytest.raises(ArgumentError, match="pass a copy of"):
                f(*called)
            assert all(map(torch.equal, given_, before))
        else:
            assert torch.equal(torch.as_tensor(f(*called)), before[1] * 2)
            assert torch.equal(given_[0], before[0] + 1)


class Counter(nn.Module):
    """Counts in a buffer of a transposed layout, which it returns views of."""

    def __init__(self, dtype: torch.dtype = torch.float32):
        super().__init__()
        self.register_buffer("count", torch.zeros(4, 2, dtype=dtype).t())
        self.register_buffer("scale", torch.full((2, 4), 3, dtype=dtype).t().contiguous().t())

    def forward(self, x):
        self.count.add_(1)
        return x * self.count, self.count[:1], self.scale.t()


def test_state_and_weights_are_kept_apart_from_arguments():
    model = Counter()
    f = tilewright.compile(model, (torch.ones(2, 4),))
    with pytest.raises(ArgumentError, match="argument `x` shares memory with `count` of the model"):
        f(model.count)
    f(model.scale)
    assert float(model.count[0, 0]) == 1

    with pytest.raises(ModelImportError):
        tilewright.compile(TwoNames(), (torch.ones(2),))
    net = Scaled()
    g = tilewright.compile(net, (torch.ones(4),))
    with pytest.raises(ArgumentError, match="shares memory with a weight of the model"):
        g(net.scale.detach())


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, x):
        return x.mul_(2) * self.scale


class TwoNames(nn.Module):
    """Updates a buffer and reads a part of it by another name."""

    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(4))
        self.first = self.count[:2]

    def forward(self, x):
        self.count.add_(1)
        return x * self.first


def test_arguments_are_not_turned_in_place():
    with pytest.raises(UnsupportedError, match="transposed or viewed otherwise in place"):
        tilewright.compile(lambda x: x.t_() * 2, (torch.ones(2, 2),))


def test_disjointness_is_decided_by_elements():
    t = torch.zeros(6, 10)
    parts = {"left": t[:, :5], "right": t[:, 5:], "corner": t[3:, 3:], "last": t[-1, -1], "none": t[2:2]}
    for one, x in parts.items():
        for other, y in parts.items():
            marked = torch.zeros_like(t)
            marks = marked.as_strided(x.shape, x.stride(), x.storage_offset()).fill_(1)
            wanted = (
                bool(marked.as_strided(y.shape, y.stride(), y.storage_offset()).any()) and marks.numel() > 0
            )
            assert Place.of("x", x).shares(Place.of("y", y)) == wanted, (one, other)
            assert not x.numel() or Place.of("x", x.numpy()) == Place.of("x", x)
    array = np.zeros(8)
    assert Place.of("x", array[3::-1]).shares(Place.of("y", array[:1]))
    assert not Place.of("x", array[3::-1]).shares(Place.of("y", array[4:]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.uint8])
def test_torch_tensors_and_numpy_arrays_may_take_turns(dtype, tmp_path):
    """One model, one state, whichever library the arguments come from, and whichever came first."""
    x = torch.full((2, 4), 2, dtype=dtype)
    array = x.view(torch.int16).numpy().view(np.uint16) if dtype is torch.bfloat16 else x.numpy()
    f = tilewright.compile(Counter(dtype), (x,))
    f.save(tmp_path / "counter.twm")
    for g in (f, tilewright.load(tmp_path / "counter.twm")):
        for count, given_ in enumerate((x, array, x, array, array, x), 1):
            product, view, scale = (np.asarray(t, np.float32) for t in map(as_array, g(given_)))
            assert (product == 2 * count).all() and (view == count).all() and (scale == 3).all()
        with pytest.raises(ArgumentError, match="expected shape"):
            g(array[:1])
        with pytest.raises(ArgumentError, match="expected a torch tensor, found ndarray"):
            tilewright.compile(adds_and_doubles, (x, x))(x, array)


def as_array(value):
    if isinstance(value, torch.Tensor):
        return value.float().numpy()
    return (
        torch.as_tensor(value.view(np.int16)).view(torch.bfloat16).float().numpy()
        if is_bf16(value)
        else value
    )


def is_bf16(array: np.ndarray) -> bool:
    return array.dtype.name in ("bfloat16", "uint16")


def test_numpy_arguments_that_are_changed_are_writable():
    f = tilewright.compile(adds_and_doubles, (torch.zeros(4), torch.zeros(4)))
    frozen = np.zeros(4, np.float32)
    frozen.flags.writeable = False
    with pytest.raises(
        ArgumentError, match="`x` is changed by the model: expected a writable array, found a read-only"
    ):
        f(frozen, np.zeros(4, np.float32))
    with pytest.raises(ArgumentError, match="found a list"):
        f([np.float32(0)] * 4, np.zeros(4, np.float32))


def test_copies_share_code_and_pickles_are_saved_models():
    model, x = Counter(), torch.ones(2, 4)
    f = tilewright.compile(model, (x,))
    f(x)
    twin, unpickled = copy.deepcopy(f), pickle.loads(pickle.dumps(f))
    assert twin.executable is f.executable and copy.copy(f) is f
    for g in (twin, unpickled, f):
        assert [float(g(x)[0][0, 0]) for _ in range(2)] == [2, 3]
    module, inside = copy.deepcopy((model, f))
    inside(x)
    assert float(module.count[0, 0]) == 4 and float(model.count[0, 0]) == 3
    with pytest.raises(TypeError, match="pickle the compiled model"):
        pickle.dumps(f.executable)


@pytest.mark.parametrize("compiler", ["compile", "torch.compile"])
def test_what_is_joined_with_nothing_is_a_copy(compiler):
    def joined(x):
        return torch.cat((torch.empty(2, 0), x, x[:, :0]), 1)

    x = torch.randn(2, 3)
    torch._dynamo.reset()
    made = torch.compile(joined, backend="tilewright") if compiler == "torch.compile" else None
    found = (made or tilewright.compile(joined, (x,)))(x)
    assert torch.equal(found, x) and found.data_ptr() != x.data_ptr()
