"""CUDA tensors through the mock driver: its device memory is host memory, so CPU tensors can stand in for them."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
import pytest
import torch
from mock_cuda_driver import ADD, DOUBLE, MockDriver, kernel, package, step, vector
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import tilewright
from tilewright.compiler.driver import compile_imported
from tilewright.compiler.errors import UnsupportedError
from tilewright.compiler.importers.torch.decompositions import decomposition_table
from tilewright.compiler.importers.torch.graph import import_graph
from tilewright.compiler.torch import devices as torch_devices
from tilewright.compiler.torch.options import Options
from tilewright.compiler.torch.partition import Parameters, build
from tilewright.runtime import torch_cuda_calls
from tilewright.runtime.cuda import CudaExecutable
from tilewright.runtime.errors import ArgumentError, PackageError
from tilewright.runtime.model import CompiledModel
from tilewright.runtime.program import TensorSpec
from tilewright.runtime.signature import Mutation, Output, Signature


class OnDevice(torch.Tensor):
    """A tensor that says it is on a GPU, in memory that `mock` takes for the device's."""

    driver: MockDriver
    memory: ClassVar[list[torch.Tensor]] = []
    index = 0

    is_cuda = property(lambda self: True)
    is_cpu = property(lambda self: False)
    device = property(lambda self: torch.device("cuda", self.index))

    @classmethod
    def empty(cls, shape, dtype=torch.float32, offset=0) -> OnDevice:
        nbytes = math.prod(shape) * torch.empty((), dtype=dtype).element_size()
        whole = torch.zeros(nbytes + offset, dtype=torch.uint8)  # 64-byte aligned
        OnDevice.driver.lib.mock_adopt(whole.data_ptr(), nbytes + offset)
        OnDevice.memory.append(whole)
        return whole[offset:].view(dtype).view(shape).as_subclass(cls)

    @classmethod
    def of(cls, tensor, offset=0) -> OnDevice:
        made = cls.empty(tuple(tensor.shape), tensor.dtype, offset)
        made.as_subclass(torch.Tensor).copy_(tensor)
        return made

    def contiguous(self, **_):
        return self if self.is_contiguous() else OnDevice.of(self.as_subclass(torch.Tensor))

    def clone(self, **_):
        return OnDevice.of(self.as_subclass(torch.Tensor))

    def cpu(self):
        return self.as_subclass(torch.Tensor).clone()


@pytest.fixture
def device(mock, monkeypatch):
    """Device memory for tensors, torch's allocator on it, and a current stream of torch's."""
    OnDevice.driver = mock
    OnDevice.memory.clear()
    stream = mock.lib.mock_stream()
    monkeypatch.setattr(torch_cuda_calls, "current_stream", lambda index: stream)
    calls = torch_cuda_calls.TorchCudaCalls
    monkeypatch.setattr(calls, "_empty", lambda self, shape, dtype: OnDevice.empty(tuple(shape), dtype))
    mock.stream = stream
    return mock


X = torch.linspace(-3, 5, 1000)
W = torch.sin(torch.arange(1000.0))


def adding_model(weight, device_index=None) -> CompiledModel:
    """y = x + 2 * w, with w doubled by prepack."""
    built = package(
        [kernel("double", DOUBLE), kernel("add", ADD)],
        [step(1, "input:0", "packed", "output:0")],
        weights=(vector("w"),),
        prepack=[step(0, "weight:0", "packed")],
        packed_bytes=4000,
    )
    executable = CudaExecutable(built, [weight], device_index)
    return CompiledModel(executable, Signature.flat((vector("x"),), (vector("y"),)))


def test_calls_copy_nothing_and_wait_for_nothing(device):
    weight = OnDevice.of(W)
    model = adding_model(weight)
    assert model.executable.device.index == 0
    device.taken()
    x = OnDevice.of(X)
    (y,) = model(x)
    assert [line.split()[0] for line in device.log] == ["launch"]
    device.lib.mock_drain(device.stream)
    torch.testing.assert_close(y.cpu(), X + 2 * W)
    assert isinstance(y, OnDevice)
    (storage,) = model.executable.weight_storages
    np.testing.assert_array_equal(np.frombuffer(storage.view(), np.float32), W.numpy())
    assert model.executable.weights[0].data_ptr() == weight.data_ptr()


def test_calls_follow_the_work_of_torchs_stream(device):
    model, doubling = (
        adding_model(W),
        CudaExecutable(package([kernel("double", DOUBLE)], [step(0, "input:0", "output:0")])),
    )
    x, between = OnDevice.of(X), OnDevice.empty((1000,))
    doubling.launch([x.data_ptr()], [between.data_ptr()], device.stream)
    (y,) = model(between)
    device.lib.mock_drain(device.stream)
    torch.testing.assert_close(y.cpu(), 2 * X + 2 * W)


def test_weights_are_kept_until_calls_that_read_them_are_done(device):
    """Binding more weights than before that are not on the device takes other memory for them, and lets the old one go."""
    built = package(
        [kernel("add", ADD)],
        [step(0, "input:0", "weight:0", "arena"), step(0, "arena", "weight:1", "output:0")],
        weights=(vector("v"), vector("w")),
        arena_bytes=4096,
    )
    executable = CudaExecutable(built, [OnDevice.of(W), 2 * W])
    model = CompiledModel(executable, Signature.flat((vector("x"),), (vector("y"),)))
    x = OnDevice.of(X)
    (before,) = model(x)
    executable.rebind([4 * W, 8 * W])
    (after,) = model(x)
    device.lib.mock_drain(device.stream)
    torch.testing.assert_close(before.cpu(), X + 3 * W)
    torch.testing.assert_close(after.cpu(), X + 12 * W)


@pytest.mark.parametrize("given", ["strided", "misaligned", "both"])
def test_tensors_that_kernels_cannot_load_are_copied(device, given):
    model = adding_model(OnDevice.of(W, offset=8))
    if given == "strided":
        x = OnDevice.of(X.repeat_interleave(2))[::2]
    elif given == "misaligned":
        x = OnDevice.of(X, offset=4)
    else:
        x = OnDevice.of(X.repeat_interleave(2), offset=12)[::2]
    (y,) = model(x)
    device.lib.mock_drain(device.stream)
    torch.testing.assert_close(y.cpu(), X + 2 * W)
    assert y.data_ptr() % 16 == 0


def test_cpu_tensors_and_numpy_arrays_are_copied_there_and_back(device):
    model = adding_model(OnDevice.of(W))
    np.testing.assert_allclose(model(X.numpy())[0], (X + 2 * W).numpy(), rtol=1e-6)
    (y,) = model(X)
    assert type(y) is torch.Tensor
    torch.testing.assert_close(y, X + 2 * W)


def test_tensors_elsewhere_are_refused(device):
    device.device(1)
    model = adding_model(W)
    other = OnDevice.of(X)
    other.index = 1
    message = (
        r"argument `x`: expected a tensor on cuda:0, where the model is, found one on cuda:1; move it, or load the "
        r"model with device='cuda:1'"
    )
    with pytest.raises(ArgumentError, match=message):
        model(other)
    (y,) = adding_model(W, device_index=1)(other)
    device.lib.mock_drain(device.stream)
    torch.testing.assert_close(y.cpu(), X + 2 * W)
    with pytest.raises(
        PackageError, match=r"weight `w` .*: it lies on cuda:1, the model runs on cuda:0; move one"
    ):
        adding_model(other, device_index=0)
    assert adding_model(other).executable.device.index == 1
    with pytest.raises(ArgumentError, match=r"argument `x`: expected torch.float32, found torch.float64"):
        model(OnDevice.of(X.double()))
    with pytest.raises(ArgumentError, match=r"expected shape \[1000\], found \[10, 100\]"):
        model(OnDevice.of(X.view(10, 100)))


def test_weights_that_are_not_what_they_should_be_are_refused(device):
    with pytest.raises(PackageError, match=r"weight `w` \(f32\[1000\]\): found float32\[10, 100\]"):
        adding_model(OnDevice.of(W.view(10, 100)))
    with pytest.raises(PackageError, match=r"found float64\[1000\]"):
        adding_model(OnDevice.of(W.double()))


def counting_model(state) -> CompiledModel:
    """Adds to its state and returns both the sum and a transposed view of it."""
    built = package(
        [kernel("add", ADD)], [step(0, "input:0", "input:1", "output:0")], inputs=(vector("x"), vector("s"))
    )
    spec = TensorSpec("s", "f32", (1000,))
    signature = Signature(
        **{
            **vars(Signature.flat((vector("x"),), (vector("y"),))),
            "state": (spec,),
            "mutations": (Mutation(result=0, target="state", index=0),),
            "outputs": (Output("result", 0, "f32", (20, 50), (1, 20)),),
        }
    )
    return CompiledModel(CudaExecutable(built), signature, [state])


def test_state_moves_to_the_device_and_stays(device, monkeypatch, tmp_path):
    moved, launch = torch.Tensor.to, CudaExecutable.launch

    def to(self, *where, **options):
        return OnDevice.of(self) if where == (torch.device("cuda", 0),) else moved(self, *where, **options)

    def run(self, *arguments) -> None:
        """Runs at once: here torch's copy into the state does not wait for the stream."""
        launch(self, *arguments)
        device.lib.mock_drain(device.stream)

    monkeypatch.setattr(torch.Tensor, "to", to)
    monkeypatch.setattr(CudaExecutable, "launch", run)
    model = counting_model(torch.zeros(1000))
    for turn in (1, 2, 3):
        (y,) = model(OnDevice.of(X))
        torch.testing.assert_close(y.cpu(), (turn * X).view(50, 20).T)
    assert isinstance(model.state[0], OnDevice)
    model.save(tmp_path / "m.twm")
    np.testing.assert_allclose(tilewright.load(tmp_path / "m.twm").state[0], 3 * X.numpy(), rtol=1e-6)
    with pytest.raises(ArgumentError, match="the model's state lies on cuda:0: call it with tensors there"):
        model(X)
    numbers = counting_model(OnDevice.of(torch.zeros(1000)))
    with pytest.raises(
        ArgumentError, match="the model's state lies on a GPU: call it with torch tensors there"
    ):
        numbers(X.numpy())


def test_state_on_the_host_serves_host_calls(device):
    model = counting_model(torch.zeros(1000))
    for turn in (1, 2):
        torch.testing.assert_close(model(X)[0], (turn * X).view(50, 20).T)


def captured(function, *shapes, device: str = "cuda:0"):
    """The graph of a function of CUDA tensors, and of a number on the CPU."""
    with FakeTensorMode():
        given = [torch.empty(shape, device=device) for shape in shapes]
        return make_fx(function, decomposition_table=decomposition_table())(*given, torch.empty(()))


def on_one(x, w, s):
    ramp = torch.arange(w.shape[1], device=x.device).to(torch.float32)
    return (x @ w + ramp) * s, torch.zeros(3, 7, device=x.device) + x.sum()


def across(x, w, s):
    return (*on_one(x, w, s), x.cpu() + 1)


class TestTorchCompile:
    def test_finds_the_device_and_what_leaves_it(self):
        graph = captured(across, (3, 5), (5, 7)).graph
        found = torch_devices.device_of(graph)
        assert found == torch.device("cuda:0")
        assert [node.name for node in torch_devices.strays(graph, found)] == ["device_put", "add_2"]
        graph = captured(on_one, (3, 5), (5, 7)).graph
        assert torch_devices.strays(graph, found) == []
        assert (
            torch_devices.device_of(captured(on_one, (3, 5), (5, 7), device="cpu").graph) == torch_devices.CPU
        )

    def test_lowers_graphs_of_cuda_tensors_as_those_of_others(self):
        module = captured(on_one, (3, 5), (5, 7))
        model = compile_imported(import_graph(module, [None] * 3), "cpu")
        given = torch.randn(3, 5), torch.randn(5, 7), torch.tensor(2.5)
        for found, expected in zip(model(*given), on_one(*given), strict=True):
            torch.testing.assert_close(found, expected)

    def test_names_what_works_across_devices(self):
        with pytest.raises(UnsupportedError, match="moves or makes a tensor on another device") as caught:
            build(captured(across, (3, 5), (5, 7)), Options.of({"strict": True}), Parameters(), [])
        assert len(caught.value.operators) == 2

    def test_compiles_for_the_device_at_hand(self, mock):
        mock.device(0, "NVIDIA H200 SXM", major=9)
        mock.device(1, "NVIDIA A100-SXM4-80GB", major=8, minor=0)
        first, second = (torch.device("cuda", i) for i in range(2))
        assert torch_devices.target_of(None, torch_devices.CPU) == "cpu"
        assert torch_devices.target_of("cuda:sm_80", first) == "cuda:sm_80"
        assert torch_devices.target_of("cpu", first) == "cpu"
        assert [torch_devices.target_of(name, first).arch for name in (None, "cuda")] == ["sm_90a", "sm_90a"]
        target = torch_devices.target_of(None, second)
        assert (target.name, target.arch, target.num_cores) == ("cuda:sm_80", "sm_80", 4)

    def test_takes_numbers_along(self):
        number, tensor = torch.tensor(2.0), torch.zeros(3)
        assert torch_devices.beside(tensor, torch.device("meta")) is tensor
        assert torch_devices.beside(3, torch.device("meta")) == 3
        assert torch_devices.beside(number, torch.device("meta")).device.type == "meta"
