"""The CUDA runtime on a real GPU: small PTX kernels, then whole models; `pytest -m cuda`."""

from __future__ import annotations

import itertools
import threading

import numpy as np
import pytest
import torch

import tilewright
from tilewright.compiler.codegen import ptxas
from tilewright.runtime import cuda
from tilewright.runtime.cuda import CudaExecutable, DeviceArray
from tilewright.runtime.errors import KernelAssertError
from tilewright.runtime.program import BufferRef, Kernel, Launch, Package, Program, Step, TensorSpec

COUNT = 1000
HEAD = """.version 7.8
.target sm_70
.address_size 64
"""
PLACE = """
    .reg .pred %p<3>; .reg .b32 %r<8>; .reg .f32 %f<4>; .reg .b64 %d<8>;
    mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;
    mad.lo.s32 %r4, %r1, %r2, %r3;
    setp.ge.s32 %p1, %r4, 1000;
    @%p1 bra done;
    ld.param.u64 %d1, [x]; ld.param.u64 %d2, [y];
    cvta.to.global.u64 %d1, %d1; cvta.to.global.u64 %d2, %d2;
    mul.wide.s32 %d3, %r4, 4;
    add.s64 %d4, %d1, %d3; add.s64 %d5, %d2, %d3;
    ld.global.f32 %f1, [%d4];
"""
DOUBLE = f"""{HEAD}
.visible .entry double(.param .u64 x, .param .u64 y) {{ {PLACE}
    add.f32 %f2, %f1, %f1;
    st.global.f32 [%d5], %f2;
done: ret; }}
"""
CHECKED = f"""{HEAD}
.visible .entry checked(.param .u64 x, .param .u64 y, .param .u64 status) {{ {PLACE}
    st.global.f32 [%d5], %f1;
    setp.le.f32 %p2, %f1, 0f41200000;
    @%p2 bra done;
    ld.param.u64 %d6, [status];
    mov.u32 %r5, 2;
    st.global.u32 [%d6], %r5;
done: ret; }}
"""
LAUNCH = Launch("ptx", 8, 128)
X = np.linspace(-3, 5, COUNT, dtype=np.float32)
pytestmark = pytest.mark.cuda


def package(kernel: Kernel, steps: int) -> Package:
    places = [
        BufferRef("input"),
        *(BufferRef("arena", 0, 4096 * (i % 2)) for i in range(steps - 1)),
        BufferRef("output"),
    ]
    program = Program(tuple(Step(0, (a, b), 8) for a, b in itertools.pairwise(places)), 8192)
    specs = (TensorSpec("x", "f32", (COUNT,)),), (TensorSpec("y", "f32", (COUNT,)),)
    return Package("cuda:sm_70", ("sm_70",), *specs, (), (), (kernel,), program)


def doubling(steps: int, graph: bool | str = "auto") -> CudaExecutable:
    return CudaExecutable(
        package(Kernel("double", "double", DOUBLE.encode(), launch=LAUNCH), steps), cuda_graph=graph
    )


def checking() -> CudaExecutable:
    kernel = Kernel("checked", "checked", CHECKED.encode(), asserts=("unused", "too large"), launch=LAUNCH)
    return CudaExecutable(package(kernel, 1))


def test_devices_are_those_of_torch():
    found = cuda.devices()
    assert len(found) == torch.cuda.device_count() > 0
    for device in found:
        assert device.capability == torch.cuda.get_device_capability(device.index)
        assert device.name == torch.cuda.get_device_name(device.index)
        assert device.multiprocessors == torch.cuda.get_device_properties(device.index).multi_processor_count


@pytest.mark.parametrize("graph", [True, False, "auto"])
@pytest.mark.parametrize("steps", [1, 5])
def test_host_calls(graph, steps):
    executable = doubling(steps, graph)
    for x in (X, -X, X + 1, X):
        np.testing.assert_array_equal(executable(x)[0], 2**steps * x)
    assert all(step.time_us > 0 for step in executable.profile(repeats=3))
    assert executable.resources()[0]["registers"] > 0


@pytest.mark.parametrize("graph", [True, False])
def test_device_calls_on_streams(graph):
    executable = doubling(5, graph)
    streams = [torch.cuda.Stream() for _ in range(3)]
    sources = [torch.randn(COUNT, device="cuda") for _ in range(8)]
    targets = [torch.empty(COUNT, device="cuda") for _ in range(8)]
    torch.cuda.synchronize()
    for turn in range(200):
        source, target, stream = sources[turn % 8], targets[turn % 7], streams[turn % 3]
        executable.launch([source.data_ptr()], [target.data_ptr()], stream.cuda_stream)
        if turn % 50 == 49:
            executable.synchronize()
            torch.testing.assert_close(target, 32 * source, rtol=0, atol=0)


def test_threads():
    executable = doubling(5)
    wrong: list[int] = []

    def work(seed: int) -> None:
        for turn in range(100):
            x = X + seed * 100 + turn
            if not np.array_equal(executable(x)[0], 32 * x):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_failed_checks():
    executable = checking()
    np.testing.assert_array_equal(executable(X)[0], X)
    with pytest.raises(KernelAssertError, match="too large"):
        executable(X + 10)
    source, target = DeviceArray(4 * COUNT), DeviceArray(4 * COUNT)
    source.write(X + 10)
    executable.launch([source.address], [target.address])
    with pytest.raises(KernelAssertError, match="too large"):
        executable.synchronize()
    np.testing.assert_array_equal(executable(X)[0], X)


def test_the_callers_own_graph():
    executable = doubling(5)
    source, target = torch.zeros(COUNT, device="cuda"), torch.empty(COUNT, device="cuda")
    executable.launch([source.data_ptr()], [target.data_ptr()], torch.cuda.current_stream().cuda_stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        executable.launch([source.data_ptr()], [target.data_ptr()], torch.cuda.current_stream().cuda_stream)
    source.copy_(torch.from_numpy(X))
    graph.replay()
    torch.testing.assert_close(target.cpu(), torch.from_numpy(32 * X), rtol=0, atol=0)


def test_cubins_where_there_is_an_assembler():
    device = cuda.device(0)
    made = ptxas.assemble(DOUBLE.replace("sm_70", device.arch.rstrip("a")), device.arch.rstrip("a"))
    assert made is not None, "no ptxas is installed"
    kernel = Kernel("double", "double", made.cubin, launch=Launch("cubin", 8, 128, ptx=DOUBLE.encode()))
    executable = CudaExecutable(package(kernel, 1))
    np.testing.assert_array_equal(executable(X)[0], 2 * X)
    assert not executable.resources()[0]["from_ptx"]


class Block(torch.nn.Module):
    """A convolution, a normalisation, attention and products, on ragged shapes."""

    def __init__(self):
        super().__init__()
        self.convolution = torch.nn.Conv2d(3, 20, 3, padding=1)
        self.normalise = torch.nn.LayerNorm(20)
        self.up, self.down = torch.nn.Linear(20, 52), torch.nn.Linear(52, 7)

    def forward(self, x):
        y = self.convolution(x).flatten(2).transpose(1, 2)
        y = self.normalise(y)
        y = torch.nn.functional.scaled_dot_product_attention(y[:, None], y[:, None], y[:, None])[:, 0]
        return self.down(torch.nn.functional.gelu(self.up(y)))


@pytest.fixture
def block():
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    return Block().cuda().eval(), torch.randn(2, 3, 9, 11, device="cuda")


def test_a_model_of_cuda_tensors(block, tmp_path):
    model, x = block
    with torch.no_grad():
        expected = model(x)
        compiled = tilewright.compile(model, (x,), target="cuda")
        for given in (x, x.transpose(2, 3).contiguous().transpose(2, 3)):
            for _ in range(4):
                torch.testing.assert_close(compiled(given), expected, rtol=1e-3, atol=1e-4)
    compiled.save(str(tmp_path / "block.twm"))
    loaded = tilewright.load(tmp_path / "block.twm", cuda_graph=True)
    torch.testing.assert_close(loaded(x), expected, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(
        tilewright.load(tmp_path / "block.twm")(x.cpu().numpy()), expected.cpu().numpy(), rtol=1e-3, atol=1e-4
    )


@pytest.mark.parametrize("dynamic", [False, True])
def test_torch_compile(block, dynamic):
    model, x = block
    before = tilewright.fallback_count()
    compiled = torch.compile(model, backend="tilewright", dynamic=dynamic, options={"strict": True})
    with torch.no_grad():
        for given in (x, x, x[:1]):
            torch.testing.assert_close(compiled(given), model(given), rtol=1e-3, atol=1e-4)
    assert tilewright.fallback_count() == before


def test_training_under_torch_compile(block):
    model, x = block
    x.requires_grad_()
    compiled = torch.compile(model, backend="tilewright")
    for function in (model, compiled):
        function(x).square().sum().backward()
    gradients = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    model(x).square().sum().backward()
    for both, once in zip(gradients, model.parameters(), strict=True):
        torch.testing.assert_close(both, 2 * once.grad, rtol=1e-2, atol=1e-2)
