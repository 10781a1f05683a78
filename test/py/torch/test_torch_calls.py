"""What users of a compiled model meet at a call: structure, aliases, mutations, checks, saving."""

from __future__ import annotations

import collections
import copy
import dataclasses
import logging

import numpy as np
import pytest
import torch
from torch import nn

import tilewright
from tilewright.compiler.errors import ModelImportError, TilewrightError, UnsupportedError
from tilewright.compiler.importers.torch.model import import_torch
from tilewright.runtime.errors import ArgumentError
from tilewright.runtime.signature import Output, Signature, Tree
from tilewright.runtime.views import rebased

Pair = collections.namedtuple("Pair", "left right")


@dataclasses.dataclass
class Answer:
    logits: torch.Tensor
    loss: torch.Tensor | None = None


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.register_buffer("hidden", torch.randn(4), persistent=False)
        self.plain = torch.randn(4)

    def forward(self, x, scale=2, *, extra=None):
        y = self.second(torch.relu(self.first(x))) * scale + self.hidden + self.plain
        return Answer(y if extra is None else y + extra["bias"][0])


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("steps", torch.zeros(()))
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x):
        self.steps += 1
        return self.norm(x) * self.steps


def test_weights_are_arguments_tied_ones_once():
    net = Net().eval()
    imported = import_torch(net, (torch.randn(2, 4),))
    assert {id(w) for w in imported.weights} == {
        id(t) for t in (net.first.weight, net.first.bias, net.second.bias, net.hidden, net.plain)
    }
    text = str(imported.module)
    assert text.count('tilewright.role = "weight"') == 5 and 'tilewright.name = "first.weight"' in text


def test_weights_outlive_a_module_that_moves_on():
    """`double` gives parameters other memory; what was bound must stay, whatever takes its place."""
    net, x = nn.Sequential(nn.Linear(64, 4096), nn.ReLU()).eval(), torch.randn(2, 64)
    expected = net(x)
    compiled = tilewright.compile(net, (x,))
    net.double()
    others = [torch.full((4096,), float("nan")) for _ in range(64)]
    torch.testing.assert_close(compiled(x), expected)
    del others


def test_keywords_containers_constants_and_records():
    net = Net().eval()
    x, extra = torch.randn(2, 4), {"bias": (torch.randn(4),)}
    f = tilewright.compile(net, {"x": x, "extra": extra, "scale": 3})
    found = f(x, 3, extra=extra)
    assert isinstance(found, Answer) and found.loss is None
    torch.testing.assert_close(found.logits, net(x, 3, extra=extra).logits)
    torch.testing.assert_close(f(x=x, scale=3, extra=extra).logits, found.logits)


def test_arguments_left_out_have_the_defaults_of_the_model():
    net, x = Net().eval(), torch.randn(2, 4)
    f = tilewright.compile(net, (x,))
    for found in (f(x), f(x, 2), f(x, scale=2, extra=None)):
        torch.testing.assert_close(found.logits, net(x).logits)
    with pytest.raises(ArgumentError, match="`scale` was compiled as the constant 2, found 4"):
        f(x, 4)


@pytest.mark.parametrize(
    ("args", "kwargs", "error", "message"),
    [
        ((torch.zeros(3, 4), 3), {}, ArgumentError, r"`x`: expected shape \[2, 4\], found \[3, 4\]"),
        (
            (torch.zeros(2, 4).double(), 3),
            {},
            ArgumentError,
            r"`x`: expected torch.float32, found torch.float64",
        ),
        ((torch.zeros(2, 4), 5), {}, ArgumentError, r"`scale` was compiled as the constant 3, found 5"),
        ((), {"scale": 3}, TypeError, r"`x` is missing"),
        ((torch.zeros(2, 4),), {"x": torch.zeros(2, 4)}, TypeError, r"`x` was given twice"),
        ((torch.zeros(2, 4), 3), {"other": 1}, TypeError, r"`other`"),
        ((torch.zeros(2, 4),), {}, TypeError, r"`scale` is missing"),
        (
            (torch.zeros(2, 4, device="meta"), 3),
            {},
            ArgumentError,
            r"expected a tensor on the CPU, found one on meta",
        ),
    ],
)
def test_wrong_calls_name_the_argument(args, kwargs, error, message):
    f = tilewright.compile(Net().eval(), (torch.randn(2, 4), 3))
    with pytest.raises(error, match=message):
        f(*args, **kwargs)


def test_one_example_tensor_may_stand_for_several_arguments():
    x = torch.randn(2, 3)
    f = tilewright.compile(lambda a, b, c: a - 2 * b + c[0] * 3, (x, x, [x]))
    a, b, c = torch.randn(3, 2, 3)
    torch.testing.assert_close(f(a, b, [c]), a - 2 * b + c * 3)


def test_tensors_inside_dataclasses_are_inputs():
    f = tilewright.compile(lambda a: a.logits - a.loss, (Answer(torch.zeros(2), torch.zeros(2)),))
    left, right = torch.randn(2, 2)
    torch.testing.assert_close(f(Answer(left, right)), left - right)


def test_views_of_inputs_share_their_memory():
    def model(x):
        return x[1:], x.t(), x, (x * 2).t()

    f = tilewright.compile(model, (torch.randn(3, 4),))
    x = torch.randn(3, 4)
    rows, turned, same, fresh = f(x)
    assert same is x and rows.data_ptr() == x[1:].data_ptr() and turned.data_ptr() == x.data_ptr()
    assert turned.stride() == (1, 4) and fresh.stride() == (x * 2).t().stride()
    strided = torch.randn(4, 3).t()
    rows, turned, same, _ = f(strided)
    assert torch.equal(rows, strided[1:]) and torch.equal(turned, strided.t()) and same is strided
    assert rows.data_ptr() == strided[1:].data_ptr()


def test_inputs_and_buffers_are_updated():
    def model(x):
        x.mul_(2)
        x[0] = 7
        return x.sum()

    x = torch.randn(3, 4)
    expected = x.clone()
    total = model(expected)
    torch.testing.assert_close(tilewright.compile(model, (x.clone(),))(x), total)
    torch.testing.assert_close(x, expected)

    ours, theirs = Counter().train(), Counter().train()
    f = tilewright.compile(ours, (torch.randn(5, 3),))
    for _ in range(3):
        x = torch.randn(5, 3)
        torch.testing.assert_close(f(x), theirs(x))
    for name, value in theirs.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], value, msg=name)


def test_importing_leaves_the_model_alone():
    class Caches(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.LSTM(3, 3)
            self.last = None

        def forward(self, x):
            self.last = x
            return self.inner(x)[0]

    model = Caches().eval()
    before = {name: id(t) for name, t in model.named_parameters()}
    import_torch(model, (torch.randn(2, 1, 3),))
    assert model.last is None and {name: id(t) for name, t in model.named_parameters()} == before
    assert all(isinstance(w, nn.Parameter) for w in model.inner._flat_weights)


def test_exported_program_with_dynamic_shapes_takes_the_example_shapes():
    net = nn.Sequential(nn.Linear(4, 3), nn.Softmax(-1)).eval()
    batch = torch.export.Dim("batch", min=2, max=64)
    exported = torch.export.export(net, (torch.randn(5, 4),), dynamic_shapes=({0: batch},))
    f = tilewright.compile(exported, (torch.randn(7, 4),))
    x = torch.randn(7, 4)
    torch.testing.assert_close(f(x), net(x))


def test_exported_program_by_keyword_with_a_mutated_buffer():
    class Sum(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("total", torch.zeros(3))

        def forward(self, x, *, scale):
            self.total.add_(x)
            return self.total * scale

    ones = torch.ones(3)
    exported = torch.export.export(Sum(), (ones,), {"scale": ones.clone()})
    for example in ({"x": ones, "scale": ones}, None):
        f = tilewright.compile(copy.deepcopy(exported), example)
        torch.testing.assert_close(f(ones, scale=ones), ones)
        torch.testing.assert_close(f(x=ones, scale=2 * ones), 4 * ones)


def test_what_is_compiled_is_not_compiled_again():
    compiled = tilewright.compile(lambda x: x + 1, (torch.ones(3),))
    for model, advice in ((compiled, "call it"), ("model.twm", "take it by `tilewright.load`")):
        with pytest.raises(TilewrightError, match=f"is compiled already: {advice}"):
            tilewright.compile(model, (torch.ones(3),))


def test_saved_model_runs_on_numpy(tmp_path):
    net = Net().eval()
    x = torch.randn(2, 4)
    f = tilewright.compile(lambda x: net(x).logits, (x,))
    f.save(tmp_path / "net.twm")
    g = tilewright.load(tmp_path / "net.twm")
    found = g(x.numpy())
    assert isinstance(found, np.ndarray)
    np.testing.assert_allclose(found, net(x).logits.detach().numpy(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(g(x), net(x).logits)
    with pytest.raises(ArgumentError, match="expected shape"):
        g(x.numpy()[:1])


def test_saved_state_goes_on_counting(tmp_path):
    model = Counter().eval()
    f = tilewright.compile(model, (torch.randn(5, 3),))
    f(torch.randn(5, 3))
    f.save(tmp_path / "counter.twm")
    g = tilewright.load(tmp_path / "counter.twm")
    x = torch.randn(5, 3)
    np.testing.assert_allclose(g(x.numpy()), f(x).detach().numpy(), rtol=1e-5, atol=1e-6)
    assert float(g.state[0]) == float(model.steps) == 2


def test_signature_survives_json():
    imported = import_torch(Net().eval(), (torch.randn(2, 4), 3), {"extra": {"bias": (torch.randn(4),)}})
    assert Signature.from_json(imported.signature.to_json()) == imported.signature


@pytest.mark.parametrize(
    "value",
    [1, None, "text", 1 + 2j, (1, [2.5, {"a": 3}]), Pair(1, (2,)), Answer(1, 2), torch.Size([2, 3])],
)
def test_trees_rebuild_what_they_read(value):
    tree = Tree.of(value, lambda leaf, path: None)
    assert Tree.from_json(tree.to_json()).build([]) == value
    tree.collect(value, "value", [])


def test_a_view_across_merged_dimensions_has_no_strides():
    flat = Output("input", 0, "f32", (12,), (1,))
    assert rebased(flat, (3, 4), (4, 1)) == ((1,), 0)
    assert rebased(flat, (3, 4), (1, 3)) is None
    corner = Output("input", 0, "f32", (2, 2), (4, 2), 5)
    assert rebased(corner, (3, 4), (1, 3)) == ((1, 6), 4)


def test_every_unsupported_operator_is_listed_with_its_line():
    class Odd(nn.Module):
        def inner(self, x):
            return torch.special.airy_ai(x)

        def forward(self, x):
            return self.inner(x) + torch.igamma(x, x) + torch.rand_like(x)

    with pytest.raises(UnsupportedError) as caught:
        tilewright.compile(Odd(), (torch.randn(3, 4),))
    found = {op.operator.split(".")[1]: op for op in caught.value.operators}
    assert set(found) - {"rand", "rand_like"} == {"special_airy_ai", "igamma"} and len(found) == 3
    assert found["special_airy_ai"].location.endswith("in inner") and __file__ in found["igamma"].location


@pytest.mark.parametrize("model", [lambda x: x.nonzero(), lambda x: x if x.sum() > 0 else -x])
def test_data_dependent_models_are_refused_with_their_line(model):
    with pytest.raises(UnsupportedError, match=r"test_torch_calls.py:\d+ in <lambda>"):
        tilewright.compile(model, (torch.randn(3),))


def test_what_a_model_raises_is_told_once():
    told: list[logging.LogRecord] = []
    handler, log = logging.Handler(), logging.getLogger("torch._subclasses.fake_tensor")
    handler.emit = told.append
    log.addHandler(handler)
    try:
        with pytest.raises(ModelImportError, match="same reduction dim"):
            tilewright.compile(nn.Sequential(nn.Linear(8, 4)), (torch.ones(2, 9),))
    finally:
        log.removeHandler(handler)
    assert not told


def test_what_is_no_model_is_refused():
    with pytest.raises(ModelImportError, match=r"expected an nn\.Module"):
        import_torch(3, ())


def test_marks_for_the_profiler_compute_nothing():
    def model(x):
        with torch.profiler.record_function("outer"):
            y = x + 1
            with torch.autograd.profiler.record_function("inner"):
                return y * 2

    x = torch.randn(3)
    torch.testing.assert_close(tilewright.compile(model, (x,))(x), model(x))
