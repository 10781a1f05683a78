"""wgmma kernels in the emulator, checked: types, layouts, epilogues, ragged shapes, clusters, batches, divided tiles."""

from dataclasses import replace

import numpy as np
import pytest
from family_kernels import emitter
from hopper_products import Convolution, Product, two_results

from tilewright.compiler.codegen.emulation import execute, load_kernel, run_kernel
from tilewright.compiler.families.gpu.emitted_tiles import read_product
from tilewright.compiler.ir import context, functions, ir, parse
from tilewright.compiler.nouns.schedule import GpuTile, Schedule
from tilewright.compiler.targets.target import resolve

SEEDS = (0, 1, 2)
ROUNDING = {"f16": 2**-11, "bf16": 2**-8, "f32": 2**-23, "i32": 0}
"""Half a unit in the last place, relative."""


def tile(rows: int, columns: int, depth: int = 64, **more) -> GpuTile:
    return GpuTile("wgmma", block=(rows, columns, depth), **more)


def kernel(problem: Product | Convolution, gpu: GpuTile | None, cores: int) -> ir.Module:
    """The kernel for a device of `cores` multiprocessors."""
    return kernel_of(problem.text(), gpu, cores)


def kernel_of(text: str, gpu: GpuTile | None, cores: int) -> ir.Module:
    target = replace(resolve("h100"), num_cores=cores)
    with context(), ir.Location.unknown():
        (function,) = functions(module := parse(text))
        found = emitter("wgmma")(function, Schedule(gpu=gpu), target)
        del module
    return found


def stored(values: np.ndarray, dtype: str) -> np.ndarray:
    """Values as they lie in memory; bf16 as the upper halves of f32, rounded to nearest even."""
    if dtype != "bf16":
        return values.astype({"f16": np.float16, "f32": np.float32, "i8": np.int8, "i32": np.int32}[dtype])
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def loaded(values: np.ndarray, dtype: str) -> np.ndarray:
    return (values.astype(np.uint32) << 16).view(np.float32) if dtype == "bf16" else values


def draw(random: np.random.Generator, shape: list[int], dtype: str) -> np.ndarray:
    """Values as stored; tf32 factors of f32 have no more bits than tf32 takes, so products are exact."""
    if dtype == "i8":
        return random.integers(-128, 128, shape, dtype=np.int8)
    values = random.standard_normal(shape, dtype=np.float32)
    if dtype == "f32":
        return (values.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    return stored(values, dtype)


def check_product(problem: Product, gpu: GpuTile | None, cores: int = 4, seed: int = 0) -> np.ndarray:
    """Runs the kernel on drawn factors, compares with float64, and gives the result as stored."""
    random = np.random.default_rng(seed)
    factors = [draw(random, problem.shape(own), problem.dtype) for own in (problem.a, problem.b)]
    extra = problem.extra_shape()
    extras = [] if extra is None else [draw(random, *extra)]
    result = np.full(problem.shape("mn"), 77, stored(np.zeros(1), problem.result).dtype)
    run_kernel(kernel(problem, gpu, cores), [*factors, *extras, result], seed=seed)
    values = [loaded(own, problem.dtype) for own in factors]
    wanted = problem.expected(*values, loaded(extras[0], extra[1]) if extra else None)
    found = loaded(result, problem.result).astype(np.float64)
    if problem.result == "i32":
        assert np.array_equal(found, wanted)
    else:
        # Sums are in f32: an error in the last bit for every doubling of k, then one rounding.
        scale = np.abs(wanted) + np.sqrt(problem.k)
        error = np.max(np.abs(found - wanted) / scale)
        assert error <= 1.01 * ROUNDING[problem.result] + 16 * 2**-23, f"relative error {error:.2e}"
    return result


LAYOUTS = [(a, b) for a in ("mk", "km") for b in ("kn", "nk")]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("a", "b"), LAYOUTS)
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_layouts(dtype, a, b, seed):
    """Factors along k or across it, 16-bit results through TMA, tiles that come out even and ones that do not."""
    check_product(Product(136, 200, 152, dtype, a, b, dtype, "none"), tile(128, 128, cluster=1), 1, seed)


@pytest.mark.parametrize("cluster", [1, 2])
@pytest.mark.parametrize(("a", "b"), LAYOUTS)
def test_clusters(a, b, cluster):
    """Blocks below each other load columns for each other; rows that no block needs are nobody's."""
    check_product(Product(200, 136, 200, a=a, b=b), tile(64, 64, cluster=cluster), 4)


@pytest.mark.parametrize("epilogue", ["bias_relu", "residual_gelu"])
@pytest.mark.parametrize("result", ["f16", "f32"])
@pytest.mark.parametrize("n", [128, 88, 75])
def test_epilogues(n, result, epilogue):
    """What follows the sum is computed on it, also where rows and columns end inside of a tile."""
    check_product(Product(100, n, 72, result=result, epilogue=epilogue), tile(64, 64), 2)


@pytest.mark.parametrize("columns", [8, 16, 48, 72, 96, 192, 256])
def test_columns(columns):
    """Tiles of any multiple of 8 columns: odd ones are stored by threads, others leave in panels of up to 64."""
    check_product(Product(72, columns + 16, 64), tile(64, columns), 2)


@pytest.mark.parametrize("warpgroups", [2, 3, 4])
def test_consumers(warpgroups):
    """Up to four warpgroups, each with its rows of a and its results."""
    check_product(Product(64 * warpgroups + 40, 72, 136), tile(64 * warpgroups, 64), 1)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("cores", [1, 3])
def test_persistent_blocks(cores, seed):
    """Few blocks go through many tiles; the ring of stages runs on from one to the next."""
    check_product(Product(200, 264, 200), tile(64, 64, stages=3, raster=2), cores, seed)


@pytest.mark.parametrize("columns", [128, 192])
def test_buffers_take_turns(columns):
    """Results of several tiles leave by way of two buffers, or one where panels are odd in number."""
    check_product(Product(72, 2 * columns, 64, epilogue="bias_relu"), tile(64, columns, stages=2), 1)


def test_a_whole_tile_of_the_largest_kind():
    """128x256, four stages, two blocks: all of shared memory and a consumer's 128 sums."""
    check_product(
        Product(328, 264, 328, "bf16", b="kn", result="bf16"), tile(128, 256, cluster=2, stages=4), 4
    )


@pytest.mark.parametrize("dtypes", [("f16", "f16"), ("f32", "f16")])
def test_two_results(dtypes):
    """Results of one kernel leave each in its own way."""
    random = np.random.default_rng(3)
    a, b = draw(random, [72, 64], "f16"), draw(random, [136, 64], "f16")
    found = [np.zeros((72, 136), {"f16": np.float16, "f32": np.float32}[dtype]) for dtype in dtypes]
    run_kernel(kernel_of(two_results(72, 136, 64, dtypes), tile(64, 128), 1), [a, b, *found])
    total = a.astype(np.float64) @ b.astype(np.float64).T
    for values, wanted in zip(found, (total, np.maximum(total, 0))):
        assert np.allclose(values, wanted, rtol=2**-10, atol=1e-4)


@pytest.mark.parametrize("result", ["f32", "f16"])
def test_tf32(result):
    """f32 factors as tf32, where the schedule asks."""
    asked = tile(64, 64, 32, instruction="wgmma.m64n64k8.tf32")
    check_product(Product(72, 100, 68, "f32", result=result), asked, 2)


@pytest.mark.parametrize(("result", "epilogue"), [("i32", "none"), ("f32", "scaled")])
def test_i8(result, epilogue):
    """Products of 8-bit integers are exact."""
    check_product(Product(72, 100, 144, "i8", result=result, epilogue=epilogue), tile(64, 64, 128), 2)


@pytest.mark.parametrize("b", ["kn", "nk"])
@pytest.mark.parametrize("result", ["f16", "f32"])
def test_batches(b, result):
    """Every matrix of a batch is on its own: boxes that leave one do not reach into the next."""
    check_product(Product(72, 72, 40, b=b, result=result, batch=3), tile(64, 64), 2)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("cores", "cluster"), [(8, 1), (8, 2), (2, 1)])
def test_divided_tiles(cores, cluster, seed):
    """Parts of k are added up through memory: all tiles in parts, and those of the last wave only (2 cores)."""
    problem = Product(130, 72, 600, epilogue="bias_relu", result="f16")
    check_product(problem, tile(64, 64, split_k=3, cluster=cluster, stages=3), cores, seed)


def test_divided_tiles_are_deterministic():
    """The same bits whichever part comes last, and counters that are zero again."""
    problem = Product(64, 64, 1024, result="f32")
    random = np.random.default_rng(5)
    a, b = (draw(random, problem.shape(own), "f16") for own in (problem.a, problem.b))
    loaded_kernel = load_kernel(kernel(problem, tile(64, 64, split_k=4), 4))
    found = []
    for seed in range(6):
        result = np.zeros((64, 64), np.float32)
        execute(loaded_kernel, [a, b, result], seed=seed)
        found.append(result.tobytes())
    assert len(set(found)) == 1


CONVOLUTIONS = [
    Convolution(2, 12, 10, 64, 72),
    Convolution(3, 9, 11, 32, 64, window=3, stride=2),
    Convolution(1, 16, 16, 24, 40, window=5, filters_first=True),
    Convolution(1, 15, 13, 64, 64, dilation=2),
    Convolution(2, 9, 9, 128, 64, window=1, stride=2),
    Convolution(2, 10, 10, 64, 96, channels_first_result=True),
    Convolution(1, 14, 15, 48, 64, dtype="bf16"),
    Convolution(2, 10, 9, 72, 64, stride=2, filters_first=True),
    Convolution(1, 13, 17, 16, 64, window=7, stride=2, dtype="bf16"),
    Convolution(2, 11, 12, 32, 64, window=2, stride=4),
    Convolution(1, 9, 14, 64, 48, stride=2, filters_first=True, dtype="i8"),
    Convolution(2, 8, 9, 144, 32, filters_first=True, dtype="i8"),
]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("problem", CONVOLUTIONS)
def test_convolutions(problem, seed):
    """Convolutions as products: strides, dilation, windows, stages that channels fill, half fill or do not divide."""
    check_convolution(problem, None, seed)


def test_schedules_know_how_far_boxes_go():
    """Window columns and channels that boxes take apart are channels to a schedule, and 1x1 windows all of k."""
    for problem, run in (
        (CONVOLUTIONS[0], 64),
        (CONVOLUTIONS[3], 64),
        (CONVOLUTIONS[1], 32),
        (CONVOLUTIONS[4], 0),
    ):
        with context(), ir.Location.unknown():
            (function,) = functions(module := parse(problem.text()))
            product = read_product(function)
            del module
        assert product is not None
        assert product.gemm.tensor_maps
        assert product.gemm.run == run


@pytest.mark.parametrize("size", [(5, 9), (13, 8), (14, 11)])
def test_columns_of_several_loops(size):
    """Pixels as columns, in boxes so narrow that 8 columns, or even two, are in different rows of the image."""
    check_convolution(
        Convolution(2, *size, 16, 40, window=2, stride=3, channels_first_result=True), tile(64, 16)
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_convolutions_in_clusters(seed):
    """Boxes of pixels, two consumers, two blocks, three parts of k."""
    check_convolution(Convolution(2, 12, 14, 64, 64), tile(128, 64, cluster=2, split_k=2), seed)


@pytest.mark.parametrize("stride", [1, 2])
def test_clusters_share_pixels(stride):
    """Pixels as columns, of which each of two blocks loads its half for both, every other one with a stride of 2."""
    problem = Convolution(1, 5, 65 * stride, 16, 136, stride=stride, channels_first_result=True)
    check_convolution(problem, tile(64, 64, cluster=2))


def check_convolution(problem: Convolution, gpu: GpuTile | None, seed: int = 0) -> None:
    random = np.random.default_rng(seed)
    x = draw(random, [problem.batch, problem.height, problem.width, problem.channels], problem.dtype)
    f = draw(random, problem.filter_shape, problem.dtype)
    wanted = problem.expected(loaded(x, problem.dtype), loaded(f, problem.dtype))
    result = np.full(wanted.shape, 77, stored(np.zeros(1), problem.result).dtype)
    run_kernel(kernel(problem, gpu, 4), [x, f, result], seed=seed)
    scale = np.abs(wanted) + np.sqrt(problem.channels * problem.window**2)
    error = np.max(np.abs(loaded(result, problem.result) - wanted) / scale)
    assert error <= (0 if problem.dtype == "i8" else 1.01 * ROUNDING[problem.result] + 16 * 2**-23)
