"""What cannot be traced is refused by name, in one sentence, where the model does it: never a guess, never a crash."""

from __future__ import annotations

import copy
import io
import pickle

import numpy as np
import pytest
import torch
from torch import nn
from torch._higher_order_ops import while_loop

import tilewright
from tilewright.compiler.errors import ModelImportError, UnsupportedError


def _saved(x):
    torch.save(x, io.BytesIO())
    return x


READS = {
    "numpy": lambda x: torch.from_numpy(x.numpy() * 2),
    "detach, numpy": lambda x: torch.from_numpy(x.detach().cpu().numpy()),
    "asarray": lambda x: torch.from_numpy(np.asarray(x) * 2),
    "a function of numpy": lambda x: torch.as_tensor(np.sin(x)),
    "from_dlpack of numpy": lambda x: torch.from_numpy(np.from_dlpack(x)),
    "numpy of a constant": lambda x: x + torch.from_numpy(torch.arange(4).numpy()),
    "tolist": lambda x: torch.tensor(x.tolist()),
    "data_ptr": lambda x: x + (x.data_ptr() > 0),
    "storage": lambda x: x + x.storage()[0],
    "untyped_storage": lambda x: x + float(x.untyped_storage()[0]),
    "copy": lambda x: copy.copy(x) + 1,
    "pickle": lambda x: pickle.loads(pickle.dumps(x)) + 1,
    "save": _saved,
    "from_dlpack": lambda x: torch.from_dlpack(x) + 1,
    "to_dlpack": lambda x: torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(x)) + 1,
}


@pytest.mark.parametrize("name", READS)
@pytest.mark.filterwarnings("ignore")
def test_memory_that_does_not_exist_yet_is_not_read(name):
    with pytest.raises(
        UnsupportedError, match=rf"torch\.Tensor\.\w+.* at {__file__}:\d+ in .*reads the memory"
    ):
        tilewright.compile(READS[name], (torch.randn(4),))


@pytest.mark.filterwarnings("ignore")
def test_memory_of_tensors_that_are_not_traced_is_read():
    table, capsules = torch.arange(4.0), torch.utils.dlpack.to_dlpack

    def f(x):
        own = torch.from_dlpack(table) + torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(table))
        return x + own * torch.from_numpy(np.asarray(table) + table.numpy()) + table.tolist()[1]

    x = torch.randn(4)
    torch.testing.assert_close(tilewright.compile(f, (x,))(x), f(x))
    assert torch.utils.dlpack.to_dlpack is capsules


def test_deep_copies_are_clones():
    def f(x):
        first, second = copy.deepcopy((x, {"again": x}))
        first.add_(1)
        return x, first, second["again"]

    x = torch.randn(4)
    compiled, before = tilewright.compile(f, (x,)), x.clone()
    same, first, second = compiled(x)
    assert same is x
    assert torch.equal(x, before)
    assert torch.equal(first, x + 1)
    assert second is first


BY_VALUES = {
    "cond": lambda x: torch.cond(x.sum() > 0, lambda y: y.sin(), lambda y: y.cos(), (x,)),
    "while_loop": lambda x: while_loop(lambda y: y.sum() < 10, lambda y: (y + 1,), (x,)),
}


@pytest.mark.parametrize("name", BY_VALUES)
def test_functions_that_values_choose_are_refused(name):
    with pytest.raises(
        UnsupportedError, match=rf"{name} at {__file__}:\d+ in .*: calls functions that it is given"
    ):
        tilewright.compile(BY_VALUES[name], (torch.randn(4),))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_types_that_compiled_code_does_not_have(dtype):
    def f(x):
        return (x * 2).to(dtype).to(torch.float32) + 1

    x = torch.randn(9)
    with pytest.raises(UnsupportedError, match=rf"compiled code has no such type.*makes {dtype}"):
        tilewright.compile(f, (x,))
    found, before = torch.compile(f, backend="tilewright")(x), tilewright.fallback_count()
    assert torch.equal(found, f(x))
    assert before > 0


@pytest.mark.filterwarnings("ignore")
def test_scripted_modules_are_refused():
    scripted = torch.jit.script(nn.Linear(4, 3))
    for model in (scripted, nn.Sequential(nn.ReLU(), scripted)):
        with pytest.raises(
            UnsupportedError, match=r"torch\.jit\.ScriptModule.*TorchScript holds its tensors"
        ):
            tilewright.compile(model, (torch.randn(2, 4),))


def test_refusals_inside_of_modules_of_pytorch_say_where():
    layer = nn.FractionalMaxPool2d(2, output_size=2)
    with pytest.raises(UnsupportedError, match=r"pooling\.py:\d+ in forward"):
        tilewright.compile(layer, (torch.randn(1, 2, 6, 6),))


def test_operators_without_results_have_a_plain_reason():
    with pytest.raises(UnsupportedError) as caught:
        tilewright.compile(torch.linalg.inv, (torch.eye(17),))
    assert "FX Node" not in str(caught.value)


@pytest.mark.filterwarnings("ignore")
def test_nested_tensors_are_refused():
    def f(x):
        return torch.nested.nested_tensor([x, x[:2]]).to_padded_tensor(0.0)

    with pytest.raises(UnsupportedError, match=r"_nested_tensor\w*.* at "):
        tilewright.compile(f, (torch.randn(3, 4),))


def test_wrong_shapes_are_one_error_without_a_log(caplog):
    with pytest.raises(ModelImportError, match=rf"same reduction dim.*{__file__}:\d+ in"):
        tilewright.compile(lambda x: x @ torch.ones(4, 3), (torch.randn(2, 5),))
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_sparse_results_are_refused(layout):
    for model in (lambda x: x.to_sparse(layout=layout), lambda x: (x + 1, [x.to_sparse(layout=layout)])):
        with pytest.raises(UnsupportedError, match=rf"a result of layout {layout} .*dense tensors only"):
            tilewright.compile(model, (torch.eye(3),))


class Masked(nn.Module):
    """Attention that looks at its mask to leave it out, as transformers does, unless somebody traces it."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        if not torch.compiler.is_exporting() and mask.all():
            return nn.functional.scaled_dot_product_attention(x, x, x)
        return nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=mask[:, None, None, :])


@pytest.mark.parametrize("count", [9, 6], ids=["nothing masked", "three keys masked"])
def test_models_are_told_that_they_are_exported(count: int) -> None:
    x, mask = torch.randn(2, 4, 9, 16), (torch.arange(9) < count).expand(2, 9).contiguous()
    compiled = tilewright.compile(Masked(), (x, mask))
    torch.testing.assert_close(compiled(x, mask), Masked()(x, mask), rtol=1e-5, atol=1e-6)
    assert not torch.compiler.is_exporting() and not torch.compiler.is_compiling()


def test_models_that_cannot_be_traced_are_no_longer_told_so() -> None:
    with pytest.raises(UnsupportedError, match="its result depends on values"):
        tilewright.compile(lambda x: x if x.sum() > 0 else -x, (torch.randn(4),))
    assert not torch.compiler.is_exporting() and not torch.compiler.is_compiling()


def test_models_that_fail_when_they_are_told_are_traced_as_in_eager() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        scale = None if torch.compiler.is_exporting() else 2.0
        return x * scale  # type: ignore[operator]

    x = torch.randn(4)
    torch.testing.assert_close(tilewright.compile(f, (x,))(x), 2 * x)
    assert not torch.compiler.is_exporting() and not torch.compiler.is_compiling()


def test_models_that_fail_in_either_way_say_what_they_raised_first() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("told" if torch.compiler.is_exporting() else "not told")

    with pytest.raises(ModelImportError, match="RuntimeError: told"):
        tilewright.compile(f, (torch.randn(4),))
