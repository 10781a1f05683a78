"""torch.compile(backend="tilewright"): training, dynamic shapes, fallbacks, changing weights."""

from __future__ import annotations

import copy

import pytest
import torch
import torch._dynamo
from torch import nn

import tilewright
from tilewright.compiler.errors import UnsupportedError
from tilewright.compiler.torch import backend as torch_backend
from tilewright.compiler.torch import fallback
from tilewright.compiler.torch import options as torch_options
from tilewright.compiler.torch import specialise as torch_specialise
from tilewright.compiler.torch.fallback import FallbackWarning

STRICT = {"strict": True}


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)
    fallback._reported.clear()


def compiled(function, **options):
    return torch.compile(function, backend="tilewright", options=options)


def small_net():
    return nn.Sequential(
        *(
            nn.Conv2d(3, 8, 3),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(8, 3),
        )
    )


def test_weights_may_change_between_calls():
    net = small_net().eval()
    f = compiled(net, **STRICT)
    x = torch.randn(2, 3, 8, 8)
    with torch.no_grad():
        torch.testing.assert_close(f(x), net(x))
        net[0].weight.mul_(2)
        torch.testing.assert_close(f(x), net(x))
        net.load_state_dict({k: v * 1.5 if v.is_floating_point() else v for k, v in net.state_dict().items()})
        torch.testing.assert_close(f(x), net(x))
        net[5].weight = nn.Parameter(torch.randn(3, 8))
        torch.testing.assert_close(f(x), net(x))
    with torch.inference_mode():
        torch.testing.assert_close(f(x), net(x))


def test_training_follows_eager():
    ours = small_net().train()
    theirs = copy.deepcopy(ours)
    f = compiled(ours, **STRICT)
    before = tilewright.fallback_count()
    optimisers = [torch.optim.SGD(m.parameters(), 0.1, momentum=0.9) for m in (ours, theirs)]
    for _ in range(3):
        x, y = torch.randn(4, 3, 8, 8), torch.randint(0, 3, (4,))
        for model, optimiser in zip((f, theirs), optimisers):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimiser.step()
    for name, value in theirs.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], value, rtol=1e-3, atol=1e-4, msg=name)
    assert tilewright.fallback_count() == before


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("shape", [(), (1,), (2, 3), (2, 0)])
def test_steps_have_gradients_of_zeros(dtype, shape):
    def steps(x):
        return torch.sgn(x) + torch.sign(x) * x + torch.floor(x)

    torch._dynamo.reset()
    x = torch.full(shape, 1.5, dtype=dtype, requires_grad=True)
    fallbacks = tilewright.fallback_count()
    (found,) = torch.autograd.grad(torch.compile(steps, backend="tilewright")(x).sum(), x)
    (wanted,) = torch.autograd.grad(steps(x).sum(), x)
    torch.testing.assert_close(found, wanted)
    (alone,) = torch.autograd.grad(torch.compile(torch.sgn, backend="tilewright")(x).sum(), x)
    assert not alone.any()
    assert tilewright.fallback_count() == fallbacks


def test_attention_has_gradients():
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True).train()
    twin = copy.deepcopy(layer)
    x = torch.randn(2, 5, 16)
    compiled(layer)(x).square().sum().backward()
    twin(x).square().sum().backward()
    for (name, p), q in zip(layer.named_parameters(), twin.parameters()):
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-3, atol=1e-3, msg=name)


def test_unsupported_operators_run_eagerly_counted_and_reported_once():
    def model(x):
        return torch.relu(torch.special.chebyshev_polynomial_t(x * 2, x) + 1) * 3

    f, x = compiled(model), torch.randn(3, 8)
    with pytest.warns(
        FallbackWarning, match=r"aten.special_chebyshev_polynomial_t.*test_torch_backend.py:\d+ in model"
    ) as seen:
        torch.testing.assert_close(f(x), model(x))
    assert len(seen) == 1
    before = tilewright.fallback_count()
    f(x)
    assert tilewright.fallback_count() == before + 1


def test_strict_refuses_them():
    with pytest.raises(Exception, match="chebyshev") as caught:
        compiled(lambda x: torch.special.chebyshev_polynomial_t(x, x + 1), **STRICT)(torch.randn(3))
    assert isinstance(caught.value, UnsupportedError) or isinstance(caught.value.__cause__, UnsupportedError)


def test_a_failing_compiler_does_not_fail_the_model(monkeypatch):
    from tilewright.compiler import driver

    def broken(*arguments, **options):
        raise ValueError("no luck")

    monkeypatch.setattr(driver, "compile_imported", broken)
    before = tilewright.fallback_count()
    with pytest.warns(FallbackWarning, match="no luck"):
        torch.testing.assert_close(compiled(lambda x: x * 2 + 1)(torch.ones(3)), torch.full((3,), 3.0))
    assert tilewright.fallback_count() == before + 2
    torch._dynamo.reset()
    with pytest.raises(ValueError, match="no luck"):
        compiled(lambda x: x * 2, **STRICT)(torch.ones(3))


def test_an_error_of_ours_beside_aot_autograd_is_told_as_ours(monkeypatch):
    monkeypatch.setattr(torch_backend, "name_views", None)
    torch._dynamo.reset()
    x = torch.randn(3, requires_grad=True)
    with pytest.warns(FallbackWarning, match="the compiler failed on its graph: TypeError"):
        found = torch.compile(lambda x: x.sin() * 2, backend="tilewright")(x)
    torch.testing.assert_close(found, x.sin() * 2)


def test_each_shape_is_compiled_up_to_a_bound(monkeypatch):
    monkeypatch.setattr(torch_specialise, "LARGEST_CACHE", 2)

    def model(x):
        return torch.softmax(x @ x.T, -1).sum(0) * x.shape[0]

    f = torch.compile(model, backend="tilewright", dynamic=True)
    for rows in (3, 4, 3):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(f(x), model(x))
    before = tilewright.fallback_count()
    x = torch.randn(5, 4)
    with pytest.warns(FallbackWarning, match="more than 2 different shapes"):
        torch.testing.assert_close(f(x), model(x))
    assert tilewright.fallback_count() > before


def test_inputs_mutated_viewed_and_mixed():
    def model(x, y):
        x.add_(1)
        y.mul_(x)
        return x[0], y, x.int(), x > 0, x.t(), (x + 1).expand(2, 3, 4), x.shape[0]

    x, y = torch.randn(3, 4), torch.randn(3, 4)
    x2, y2 = x.clone(), y.clone()
    found, expected = compiled(model)(x, y), model(x2, y2)
    for ours, theirs in zip((*found, x, y), (*expected, x2, y2)):
        if isinstance(theirs, torch.Tensor):
            torch.testing.assert_close(ours, theirs)
            assert ours.stride() == theirs.stride()
    assert found[0].data_ptr() == x.data_ptr() and found[1] is y and found[6] == 3


def test_autocast():
    layer = nn.Linear(8, 8)
    f, x = compiled(layer, **STRICT), torch.randn(4, 8)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        found, expected = f(x), layer(x)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-2)


def test_graphs_without_tensors_to_return():
    assert compiled(lambda x: x.shape[0] + 1)(torch.randn(4)) == 5
    assert compiled(lambda x: None)(torch.randn(4)) is None


def test_results_of_empty_inputs_are_their_known_values():
    x, y = torch.randn(2, 0), torch.randn(0, 3)
    product = torch.compile(lambda x, y: x @ y, backend="tilewright", options={"strict": True})
    sums = torch.compile(lambda y: (y.sum(), y * 2, y.sum(0)), backend="tilewright", options={"strict": True})
    with torch.no_grad():
        assert torch.equal(product(x, y), x @ y)
        assert [tuple(t.shape) for t in sums(y)] == [(), (0, 3), (3,)]
        assert torch.equal(sums(y)[2], y.sum(0))


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"options": {"foo": 1}}, "unknown option `foo`; the options are: .*strict"),
        ({"options": {"opt": "O9"}}, "opt: expected one of"),
        ({"options": {"strict": "yes"}}, "strict: expected True or False, found `yes`"),
        ({"options": {"target": "pdp11"}}, "unknown target `pdp11`"),
        ({"options": {"target": "neoverse-n1"}}, "code is generated for x86-64 CPUs and for NVIDIA GPUs"),
        ({"options": {"target": ["cpu"]}}, r"target: expected a name, .*found `\['cpu'\]`"),
        ({"mode": "fastest"}, "mode: expected one of default, .*found `fastest`"),
    ],
)
def test_options_and_modes_that_there_are_none_of_raise(how, message):
    """Nothing runs eagerly for a misspelt option: with a warning alone, nobody would notice."""
    f = torch.compile(lambda x: x + 1, backend="tilewright", **how)
    before = tilewright.fallback_count()
    with pytest.raises(Exception, match=message):
        f(torch.ones(3))
    assert tilewright.fallback_count() == before


@pytest.mark.parametrize("mode", [None, *torch_options.MODES])
def test_modes_mean_options(mode, monkeypatch):
    from tilewright.compiler import driver
    from tilewright.compiler.options import check_options

    seen = []
    compile_imported = driver.compile_imported

    def spy(imported, target, options, device):
        seen.append(options)
        return compile_imported(imported, target, {**options, "opt": "O0"}, device)

    monkeypatch.setattr(driver, "compile_imported", spy)
    f, x = torch.compile(lambda x: x + 1, backend="tilewright", mode=mode), torch.ones(3)
    torch.testing.assert_close(f(x), x + 1)
    wanted = torch_options.MODES[mode or "default"]
    assert len(seen) == 1 and {**check_options(None), **wanted} == seen[0]


def test_what_reads_memory_is_compiled_beside_what_is_not():
    def model(x):
        """A copy of dense memory and of a transposed one, and parts of copies that reach beyond themselves."""
        dense, turned = x + 1, (x * 2).t().clone()
        return (
            torch.as_strided(dense, (2, 2), (2, 1)),
            torch.as_strided(turned, (3,), (4,), 1) * 2,
            torch.as_strided(dense[1], (2, 5), (1, 2)),
            torch.as_strided(dense[1:, 2:], (2, 2), (0, 1), 0),
            torch.as_strided(dense, (0, 2), (1, 1)),
            torch.special.chebyshev_polynomial_t(x, dense),
        )

    f, x = compiled(model), torch.randn(4, 5)
    with pytest.warns(FallbackWarning, match="chebyshev") as seen:
        found = f(x)
    assert [str(w.message).count("aten.") for w in seen] == [1]
    assert all(map(torch.equal, found, model(x)))


@pytest.mark.parametrize(
    ("size", "strides", "offset"), [((2,), (1,), 0), ((3, 2), (4, 1), 2), ((2, 2), (0, 3), 1)], ids=str
)
def test_memory_that_an_argument_leaves_out_is_not_read(size, strides, offset):
    x = torch.arange(24.0)[::2]

    def model(x):
        return torch.as_strided(x, size, strides, offset) + x.sum()

    with pytest.raises(UnsupportedError, match=r"as_strided.*cannot be mapped to base indices"):
        compiled(model, **STRICT)(x)
    torch._dynamo.reset()
    with pytest.warns(FallbackWarning, match="cannot be mapped to base indices") as seen:
        torch.testing.assert_close(compiled(model)(x), model(x))
    assert [str(w.message).count("  - ") for w in seen] == [1]


def test_memory_behind_a_write_to_a_view_runs_in_eager_by_name():
    """What `as_strided` reads then is no tensor of the graph: the rest of it is compiled."""

    def model(x):
        x.swapaxes(0, -1)[1:].masked_fill_(x.isnan().any(), 1)
        return torch.as_strided(x, (3,), (2,)), torch.cummax(x * 2, 0).values

    x = torch.randn(5, 1)
    with pytest.warns(FallbackWarning) as seen:
        found = compiled(model)(x.clone())
    assert [str(w.message).count("  - ") for w in seen] == [1]
    assert "aten.as_strided" in str(seen[0].message)
    assert all(map(torch.equal, found, model(x.clone())))


def test_writes_through_strided_views_are_refused_by_name():
    def model(x):
        torch.as_strided(x[None], (3,), (2,))[..., [0]] = 1
        return x

    with pytest.raises(UnsupportedError, match=r"as_strided.*written through"):
        tilewright.compile(model, (torch.randn(5),))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.int32], ids=str)
def test_products_and_quotients_are_added_in_place_with_a_factor(dtype):
    x, y = torch.tensor([3, -2, 7]).to(dtype), torch.tensor([4, 5, -6]).to(dtype)

    def added(x, y):
        found = [x.clone().addcmul_(y, y, value=3), x.clone().add_(y, alpha=y[0])]
        return [*found, x.clone().addcdiv_(y, y + 1, value=-2)] if x.is_floating_point() else found

    torch.testing.assert_close(compiled(added, **STRICT)(x, y), added(x, y))


@pytest.mark.parametrize(
    "function", [lambda x: x.swapaxes(0, -1) * 2, lambda x: x.sin().transpose(-1, 0), lambda x: (x * 2).t()]
)
def test_numbers_are_transposed_in_graphs_for_training(function):
    x = torch.tensor(0.3, requires_grad=True)
    torch._dynamo.reset()
    found = torch.compile(function, backend="tilewright", options={"strict": True})(x)
    torch.testing.assert_close(found, function(x))
    torch.testing.assert_close(torch.autograd.grad(found, x), torch.autograd.grad(function(x), x))


def test_a_number_in_a_gradient_is_a_constant():
    x = torch.tensor([0.5, 2.0], requires_grad=True)
    for function in (lambda x: torch.xlogy(x, 2), lambda x: torch.special.xlog1py(x, 3.0)):
        (wanted,) = torch.autograd.grad(function(x).sum(), x)
        (found,) = torch.autograd.grad(compiled(function, **STRICT)(x).sum(), x)
        torch.testing.assert_close(found, wanted)


def test_constants_stay_in_graphs_that_are_traced_again():
    """A product of nothing is a constant, and what PyTorch takes apart (`sum` of parts) is traced a second time."""

    def model(x, y, parts, index):
        constant = torch.amax(torch.matmul(x, y), 1)
        copied = torch.index_copy(sum(parts.unbind(0)), 0, index, parts[0, : len(index)])
        written = copied.clone()
        written[[0, -1]] = written[[-1, 0]]
        return constant, copied, written

    x, y = torch.ones(2, 0, dtype=torch.bfloat16), torch.ones(0, 3, dtype=torch.bfloat16)
    arguments = x, y, torch.randn(4, 7, 7), torch.tensor([3, 0, 6])
    torch.testing.assert_close(compiled(model, **STRICT)(*arguments), model(*arguments))


def test_only_what_makes_a_sparse_gradient_runs_eagerly():
    table = nn.Embedding(10, 4, sparse=True)
    twin, i = copy.deepcopy(table), torch.tensor([1, 3, 3])
    before = tilewright.fallback_count()
    with pytest.warns(FallbackWarning, match=r"layout torch.sparse_coo") as seen:
        compiled(lambda i: table(i).square().sum())(i).backward()
    twin(i).square().sum().backward()
    torch.testing.assert_close(table.weight.grad, twin.weight.grad)
    assert len(seen) == 1 and tilewright.fallback_count() == before + 1


def test_forward_mode_compiles_whole():
    w, x = torch.randn(3, 4), torch.randn(4)
    jacobian = torch.func.jacfwd(lambda x: (w @ x).tanh())
    torch.testing.assert_close(compiled(jacobian, **STRICT)(x), jacobian(x))
