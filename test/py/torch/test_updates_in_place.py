"""Arguments of which a program writes a part: the part is written where they lie, and nothing else is copied."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from written_arguments import HEADS, LENGTH, WIDTH, Inputs, check, copied, updates

import tilewright
from tilewright.runtime.errors import KernelAssertError
from tilewright.runtime.program import Update


class Decoder(nn.Module):
    """One step of attention with caches of a fixed length, as transformers' models are with a `StaticCache`."""

    def __init__(self, layers: int = 2) -> None:
        super().__init__()
        self.project = nn.ModuleList(nn.Linear(HEADS * WIDTH, 3 * HEADS * WIDTH) for _ in range(layers))

    def forward(self, x: torch.Tensor, at: torch.Tensor, *caches: torch.Tensor) -> torch.Tensor:
        mask = (torch.arange(LENGTH) <= at[:, None])[None, None]
        for number, project in enumerate(self.project):
            parts = project(x).view(1, -1, 3, HEADS, WIDTH).permute(2, 0, 3, 1, 4)
            keys, values = caches[2 * number : 2 * number + 2]
            keys.index_copy_(2, at, parts[1])
            values[:, :, at] = parts[2]
            found = nn.functional.scaled_dot_product_attention(parts[0], keys, values, attn_mask=mask)
            x = x + found.transpose(1, 2).reshape(x.shape)
        return x


def inputs(at: list[int], layers: int = 2) -> Inputs:
    caches = [torch.randn(1, HEADS, LENGTH, WIDTH) for _ in range(2 * layers)]
    return [torch.randn(1, len(at), HEADS * WIDTH), torch.tensor(at), *caches]


@pytest.mark.parametrize("at", [[4], [0, 1, 2]], ids=["one", "several"])
def test_caches_are_written_where_they_lie(at: list[int], tmp_path: Path) -> None:
    model = Decoder().eval()
    compiled = tilewright.compile(model, tuple(inputs(at)))
    compiled.save(tmp_path / "decoder.twm")
    loaded = tilewright.load(tmp_path / "decoder.twm")
    for called in (compiled, loaded):
        assert [update.input for update in updates(called)] == [2, 3, 4, 5]
        given = inputs(at)
        for position in (at, [LENGTH - 1 - p for p in at]):
            given[1].copy_(torch.tensor(position))
            check(called, model, given)
    arrays = inputs(at)
    check(lambda *a: torch.from_numpy(loaded(*(t.numpy() for t in a))), model, arrays)


def test_changes_are_counted_once() -> None:
    compiled = tilewright.compile(Decoder().eval(), tuple(inputs([4])))
    given = inputs([4])
    before = [tensor._version for tensor in given]
    compiled(*given)
    assert [tensor._version - old for tensor, old in zip(given, before)] == [0, 0, 1, 1, 1, 1]


def test_arguments_of_other_strides_are_written_too() -> None:
    model = Decoder().eval()
    compiled = tilewright.compile(model, tuple(inputs([4])))
    given = inputs([4])
    given[2:] = [tensor.transpose(2, 3).contiguous().transpose(2, 3) for tensor in given[2:]]
    check(compiled, model, given)
    assert not given[2].is_contiguous()


def test_tensors_of_a_model_are_written_where_they_lie() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(5, 3))

        def forward(self, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
            self.seen[at] = x
            return self.seen.sum(0)

    compiled = tilewright.compile(Counting(), (torch.ones(1, 3), torch.tensor([0])))
    assert updates(compiled) == [Update(1, 2)]
    for number in range(4):
        found = compiled(torch.full((1, 3), float(number)), torch.tensor([number]))
    assert found.tolist() == [6.0] * 3


def test_failed_calls_leave_arguments_alone() -> None:
    """The number that is out of range is met after another argument was written, in the program's order."""

    def write(x: torch.Tensor, y: torch.Tensor, i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
        x[i] = 1.0
        total = x.sum()
        y[j] = total
        return total / y.sum()

    given = [torch.randn(6, 4), torch.randn(6, 4), torch.tensor([2]), torch.tensor([3])]
    compiled = tilewright.compile(write, tuple(given))
    assert len(updates(compiled)) == 2
    given[3][0] = 6
    before = copied(given)
    with pytest.raises(KernelAssertError, match="index out of range"):
        compiled(*given)
    assert all(map(torch.equal, given, before))
    given[3][0] = 5
    check(compiled, write, given)


class TestWhatIsReadLater:
    """Values from before a write, and results of their own, are what they are in eager PyTorch."""

    def test_the_old_value_is_read_before(self) -> None:
        def write(x: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, ...]:
            old = x * 2
            x[i] = 1.0
            return old, x + old

        given = [torch.randn(6, 4), torch.tensor([2])]
        check(tilewright.compile(write, tuple(given)), write, given)

    def test_a_result_is_no_view_of_the_argument(self) -> None:
        def write(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
            new = x.index_fill(0, i, 3.0)
            x.copy_(new)
            return new

        for compiled in (
            tilewright.compile(write, (torch.randn(6, 4), torch.tensor([2]))),
            torch.compile(write, backend="tilewright", options={"strict": True}),
        ):
            given = [torch.randn(6, 4), torch.tensor([2])]
            check(compiled, write, given)
            with torch.no_grad():
                found = compiled(*given)
            found.zero_()
            assert given[0].any()

    def test_new_values_that_nothing_is_read_for(self) -> None:
        def write(x: torch.Tensor, y: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
            x.lt_(x)
            y.ge_(y)
            return i + 1

        given = [torch.tensor(-2, dtype=torch.int8), torch.randint(9, (6, 4)), torch.tensor([2])]
        check(tilewright.compile(write, tuple(given)), write, given)

    def test_two_arguments_with_one_new_value(self) -> None:
        def write(x: torch.Tensor, y: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
            x[i] = 1.0
            y.copy_(x)
            return y.sum()

        given = [torch.randn(6, 4), torch.randn(6, 4), torch.tensor([2])]
        check(tilewright.compile(write, tuple(given)), write, given)

    def test_arguments_that_change_places(self) -> None:
        def write(x: torch.Tensor, y: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
            a, b = x.index_fill(0, i, 1.0), y.index_fill(0, i, 2.0)
            x.copy_(b)
            y.copy_(a)
            return a - b

        given = [torch.randn(6, 4), torch.randn(6, 4), torch.tensor([2])]
        compiled = tilewright.compile(write, tuple(given))
        assert not updates(compiled)
        check(compiled, write, given)


class TestTorchCompile:
    def test_caches_are_written_where_they_lie(self) -> None:
        model = Decoder().eval()
        compiled = torch.compile(model, backend="tilewright", options={"strict": True})
        given = inputs([4])
        for position in (4, 0, 8):
            given[1][0] = position
            before = [tensor._version for tensor in given]
            check(compiled, model, given)
            assert [tensor._version - old for tensor, old in zip(given, before)][2:] == [1] * 4

    def test_results_that_are_the_arguments(self) -> None:
        def write(x: torch.Tensor, y: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, ...]:
            total = y.sum()
            same = x.type_as(x)
            y.index_add_(-1, i, torch.ones(6, 1))
            x.mul_(2)
            return y, total, same, x + 1

        compiled = torch.compile(write, backend="tilewright", options={"strict": True})
        given = [torch.randn(6, 4), torch.randn(6, 4), torch.tensor([2])]
        check(compiled, write, given)
        with torch.no_grad():
            found = compiled(*given)
        assert found[0] is given[1] and found[2].data_ptr() == given[0].data_ptr()

    def test_where_gradients_are_asked_for(self) -> None:
        model = Decoder()
        compiled = torch.compile(model, backend="tilewright", options={"strict": True})
        given = inputs([4])
        wanted = copied(given)
        found, expected = compiled(*given), model(*wanted)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(given, wanted)
        found.sum().backward()
        gradients = [parameter.grad.clone() for parameter in model.parameters()]
        model.zero_grad()
        expected.sum().backward()
        torch.testing.assert_close(gradients, [parameter.grad for parameter in model.parameters()])

    @pytest.mark.filterwarnings("ignore::tilewright.compiler.torch.fallback.FallbackWarning")
    @pytest.mark.parametrize("dynamic", [False, True])
    def test_graphs_in_parts_and_of_any_shape(self, dynamic: bool) -> None:
        def write(x: torch.Tensor, i: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            x[i] = torch.special.airy_ai(y)
            return (x * 2).sum()

        compiled = torch.compile(write, backend="tilewright", dynamic=dynamic)
        for rows in (6, 7):
            check(compiled, write, [torch.randn(rows, 4), torch.tensor([2]), torch.rand(1, 4)])


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_dimension_is_written(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4), "shape")
    dim = data.draw(st.integers(0, len(shape) - 1), "dim")
    count = data.draw(st.integers(1, shape[dim]), "count")
    accumulate = data.draw(st.booleans(), "accumulate")
    places = data.draw(st.permutations(range(-shape[dim], 0)), "places")[:count]

    def write(x: torch.Tensor, i: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        whole = [slice(None)] * dim
        if accumulate:
            x[(*whole, i)] += y
        else:
            x[(*whole, i)] = y
        return x.sum()

    part = [*shape[:dim], count, *shape[dim + 1 :]]
    given = [torch.randn(shape), torch.tensor(places), torch.randn(part)]
    check(tilewright.compile(write, tuple(given)), write, given)


def test_slices_are_written_where_they_lie() -> None:
    def write(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        x[:, 2:4] = y
        z[1:] = z[:-1].clone()
        return x @ z.mT

    given = [torch.randn(3, 6, 4), torch.randn(3, 2, 4), torch.randn(6, 4)]
    compiled = tilewright.compile(write, tuple(given))
    assert updates(compiled) == [Update(1, 0)], "rows that move within their own tensor need a copy"
    check(compiled, write, given)


@pytest.mark.parametrize("rows", [3, 40])
def test_large_parts_are_cut_into_tasks(rows: int) -> None:
    def write(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x[:, 1:-1] = y * 2
        return x.amax()

    given = [torch.randn(rows, 1027, 65), torch.randn(rows, 1025, 65)]
    compiled = tilewright.compile(write, tuple(given))
    assert updates(compiled) == [Update(1, 0)]
    check(compiled, write, given)


class TestEveryElement:
    """Arguments that are computed anew from themselves: written over as they are read, each element once."""

    @staticmethod
    def momentum(p: torch.Tensor, g: torch.Tensor, m: torch.Tensor) -> None:
        m.mul_(0.9).add_(g)
        p.sub_(m, alpha=0.1)

    @pytest.mark.parametrize(
        "shape",
        [(), (1,), (37,), (100_003,), (317, 331), (1024, 1000), (513, 1025), (64, 3, 7, 7), (2, 999_983)],
    )
    def test_is_computed_once(self, shape: tuple[int, ...]) -> None:
        given = [torch.randn(shape) for _ in range(3)]
        compiled = tilewright.compile(self.momentum, tuple(given))
        assert [update.input for update in updates(compiled)] == [0, 2]
        for _ in range(3):
            check(compiled, self.momentum, given)

    @pytest.mark.parametrize(
        "dtype", [torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int16]
    )
    def test_of_any_type(self, dtype: torch.dtype) -> None:
        def count(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            x.mul_(3).add_(y[0])
            return x.to(torch.float32).amax()

        given = [(torch.randn(257, 129) * 5).to(dtype), torch.ones(2, 129, dtype=dtype)]
        compiled = tilewright.compile(count, tuple(given))
        assert [update.input for update in updates(compiled)] == [0]
        check(compiled, count, given)

    def test_what_is_read_elsewhere_too_has_memory_of_its_own(self) -> None:
        def turn(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> None:
            x.add_(x.mT.clone())
            y.sub_(y[0].clone())
            z.div_(z.sum(1, keepdim=True))

        given = [torch.rand(300, 300) for _ in range(3)]
        compiled = tilewright.compile(turn, tuple(given))
        check(compiled, turn, given)

    def test_what_is_gathered_too_has_memory_of_its_own(self) -> None:
        def gather(x: torch.Tensor, i: torch.Tensor, y: torch.Tensor) -> None:
            x.add_(x[i])
            y.mul_(y.flip(0)).add_(y[i])

        given = [torch.randn(999, 33), torch.randperm(999), torch.randn(999, 33)]
        compiled = tilewright.compile(gather, tuple(given))
        assert not updates(compiled)
        check(compiled, gather, given)

    def test_an_order_that_cannot_be_is_not_asked_for(self) -> None:
        """Each of two new values is computed from both old ones."""

        def swing(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            a, b = x - 0.1 * y, y + 0.1 * x
            x.copy_(a)
            y.copy_(b)
            return (a * b).sum()

        given = [torch.rand(300, 100) for _ in range(2)]
        compiled = tilewright.compile(swing, tuple(given))
        assert len(updates(compiled)) == 1
        check(compiled, swing, given)

    def test_measured_programs_write_in_place(self) -> None:
        given = [torch.randn(1000, 1000) for _ in range(3)]
        compiled = tilewright.compile(self.momentum, tuple(given), opt="O1")
        assert [update.input for update in updates(compiled)] == [0, 2]
        check(compiled, self.momentum, given)

    def test_searched_programs_write_in_place(self) -> None:
        given = [torch.randn(1000, 1000) for _ in range(3)]
        compiled = tilewright.compile(self.momentum, tuple(given), opt="O2", trials=12, seed=1)
        assert [update.input for update in updates(compiled)] == [0, 2]
        check(compiled, self.momentum, given)

    @pytest.mark.parametrize(
        "optimizer",
        [
            lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, nesterov=True),
            lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
            lambda p: torch.optim.RMSprop(p, lr=0.01, centered=True),
        ],
        ids=["sgd", "adamw", "rmsprop"],
    )
    def test_steps_of_optimizers(self, optimizer: Callable[..., torch.optim.Optimizer]) -> None:
        def trained(compiles: bool) -> list[torch.Tensor]:
            torch.manual_seed(3)
            parameters = [nn.Parameter(torch.randn(n, 257)) for n in (1, 40, 300)]
            chosen = optimizer(parameters)
            step = torch.compile(chosen.step, backend="tilewright") if compiles else chosen.step
            for _ in range(3):
                for parameter in parameters:
                    parameter.grad = torch.randn_like(parameter)
                step()
            return [parameter.detach() for parameter in parameters]

        torch._dynamo.reset()
        torch.testing.assert_close(trained(True), trained(False))


@settings(max_examples=25, deadline=None)
@given(
    shape=st.lists(st.sampled_from([1, 2, 3, 7, 16, 33, 64, 127, 250]), min_size=1, max_size=4).filter(
        lambda shape: (
            math.prod(shape) <= 1 << 22
        )  # a list of four may have more elements than there is memory for
    ),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.int32]),
    threads=st.integers(1, 3),
)
def test_every_element_of_any_shape_is_computed_once(
    shape: list[int], dtype: torch.dtype, threads: int
) -> None:
    def halve(x: torch.Tensor, y: torch.Tensor) -> None:
        x.mul_(2).sub_(y)

    given = [(torch.randn(shape) * 9).to(dtype), (torch.randn(shape[-1:]) * 9).to(dtype)]
    compiled = tilewright.compile(halve, tuple(given))
    assert [update.input for update in updates(compiled)] == [0]
    compiled.executable.num_threads = threads
    for _ in range(2):
        check(compiled, halve, given)
