"""Schedules written by hand: every legal one computes the same, every illegal one is refused by name."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from kernel_checks import Batch, check, compiled
from kernel_draws import Case, Draw

from tilewright.compiler.analysis.sink import Loops, packed_blocks, sink_of
from tilewright.compiler.codegen.lower_cpu import lower
from tilewright.compiler.dialects import schedule_attribute
from tilewright.compiler.driver import import_model
from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.ir import functions, ir
from tilewright.compiler.nouns.schedule import Schedule
from tilewright.compiler.targets.target import resolve

MOST_TASKS = 64


def dispatches(module: ir.Module) -> list[ir.Operation]:
    return [f for f in functions(module) if "tilewright.operator" in f.attributes]


def random_schedule(draw: Draw, function: ir.Operation, sink: ir.Operation) -> Schedule:
    """A legal cut of the parallel loops into at most `MOST_TASKS` rTasks, ragged as often as not."""
    loops, blocks = Loops.of(sink), dict(packed_blocks(function, sink))
    tile, tasks = [], 1
    for loop, (extent, kind) in enumerate(zip(loops.extents, loops.kinds)):
        block = blocks.get(loop, 1)
        sizes = [size for size in range(1, extent + 1) if size % block == 0 or block % size == 0]
        sizes = [size for size in sizes if tasks * -(-extent // size) <= MOST_TASKS]
        size = draw.pick(sizes) if kind == "parallel" and draw.flip(0.7) else 0
        tasks *= -(-extent // size) if size else 1
        tile.append(size)
    if draw.flip(0.2):
        tile = tile[: draw.random.randint(0, len(tile))]
    return Schedule(tuple(tile), draw.pick([0, 0, 1, 3, 5, 8]))


def has_register_tile(function: ir.Operation) -> bool:
    """Whether the kernel has the register tile that its schedule says; the refusal names the field."""
    try:
        lower(function, resolve("cpu"))
    except ScheduleError as refusal:
        assert "unroll is" in str(refusal) or "accumulators" in str(refusal)
        return False
    return True


def groups(draw: Draw) -> list[Case]:
    """One of each kind of dispatch: contractions with epilogues, reductions with what follows, copies."""
    x, w, b = draw.tensor((29, 37)), draw.tensor((37, 48)), draw.tensor((48,))
    image, filters = draw.tensor((2, 5, 13, 11)), draw.tensor((16, 5, 3, 3))
    depthwise = draw.tensor((5, 1, 3, 3))
    return [
        Case("linear", lambda x, w, b: torch.relu(x @ w + b), (x,), (w, b), 37 + 300),
        Case("product", lambda x, w: x @ w, (x, w), (), 37),
        Case("conv", lambda x, w, b: torch.relu(F.conv2d(x, w, b, padding=1)), (image,), (filters, draw.tensor((16,))), 345),
        Case("strided", lambda x, w: F.conv2d(x, w, stride=2, dilation=2, padding=2), (image,), (filters,), 345),
        Case("depthwise", lambda x, w: F.conv2d(x, w, padding=1, groups=5), (image,), (depthwise,), 309),
        Case("layer_norm", lambda x: F.layer_norm(x, (37,)), (x,), slack=64),
        Case("softmax", lambda x: F.softmax(x, 0), (x,), slack=32),
        Case("pool", lambda x: F.max_pool2d(x, 3, 2, 1), (image,), (), 0),
        Case("sum", lambda x: x.sum((2, 3)), (image,), (), 143),
        Case("columns", lambda x: (x * x).sum(0), (x,), (), 29 + 8),
        Case("transpose", lambda x: x.permute(3, 0, 2, 1) * 2.0, (image,), (), 0),
        Case("chain", lambda x, y: torch.tanh(x) * y + x, (x, draw.tensor((29, 1))), slack=16),
        Case("gather", lambda t, i: t[i], (x, draw.index((41,), 29)), (), 0),
        Case("pad", lambda x: F.pad(x, (1, 2, 3, 0), value=1.5), (image,), (), 0),
        Case("scan", lambda x: x.cumsum(1), (x,), (), 37**2),
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(5))
def test_legal_schedules_compute_the_same(seed: int) -> None:
    draw = Draw.seeded(f"schedules {seed}")
    written: list[Schedule] = []

    def decide(module: ir.Module) -> None:
        for function in dispatches(module):
            sink = sink_of(function)
            if sink is not None:
                schedule = random_schedule(draw, function, sink)
                schedule_attribute.write(function, schedule)
                if schedule.unroll and not has_register_tile(function):
                    schedule = Schedule(schedule.tile)
                    schedule_attribute.write(function, schedule)
                written.append(schedule)

    check(groups(draw), decide, repeats=8)
    assert sum(any(schedule.tile) for schedule in written) >= 6


def refused(cases: list[Case], schedule: Schedule | None, text: str | None = None) -> str:
    """The refusal of the first tileable dispatch of `cases` under a schedule, or under an attribute as text."""

    def decide(module: ir.Module) -> None:
        function = next(f for f in dispatches(module) if sink_of(f) is not None)
        if schedule is not None:
            schedule_attribute.write(function, schedule)
        else:
            function.attributes[schedule_attribute.ATTRIBUTE] = ir.Attribute.parse(text)

    inputs = tuple(tensor for case in cases for tensor in case.inputs)
    with pytest.raises(ScheduleError) as refusal:
        compiled(import_model(Batch(cases), inputs), (1,), decide)
    return str(refusal.value)


def product() -> list[Case]:
    draw = Draw.seeded("illegal")
    return [Case("product", lambda x, w: x @ w, (draw.tensor((30, 8)), draw.tensor((8, 20))), (), 8)]


@pytest.mark.parametrize(
    ("schedule", "rule"),
    [
        (Schedule((4, 4, 4, 4)), "it tiles 4 loops, the sink has 3"),
        (Schedule((31,)), "tile 31 of loop 0 exceeds its extent 30"),
        (Schedule((0, 0, 4)), "loop 2 is a reduction"),
    ],
    ids=lambda value: str(getattr(value, "tile", "")),
)
def test_illegal_tiles_are_refused(schedule: Schedule, rule: str) -> None:
    message = refused(product(), schedule)
    assert rule in message
    assert "matmul" in message, "the message names the dispatch"


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("{tile = [-1]}", "-1"),
        ("{tile = [4], tasks = 3}", "`tasks`"),
        ("[4, 4]", "dictionary"),
        ('{tile = ["4"]}', "integer"),
    ],
)
def test_malformed_schedules_are_refused(text: str, rule: str) -> None:
    message = refused(product(), None, text)
    assert rule in message
    assert "matmul" in message, "the message names the dispatch"


def test_a_vector_across_packed_blocks_is_refused() -> None:
    draw = Draw.seeded("packed")
    case = Case("linear", lambda x, w: x @ w, (draw.tensor((32, 64)),), (draw.tensor((64, 128)),), 64)
    message = refused([case], Schedule((16, 0), 0, 48))
    assert "48" in message
    assert "block" in message


def test_all_cuts_of_one_loop() -> None:
    """Every size of tile of one ragged loop, with the tasks it makes."""
    draw = Draw.seeded("cuts")
    cases = [Case(f"cut {size}", lambda x, s=size: x * float(s) + x.sum(1, True), (draw.tensor((13, 5)),), (), 320) for size in range(1, 14)]  # fmt: skip
    tasks: list[int] = []

    def decide(module: ir.Module) -> None:
        sizes = iter(range(1, 14))
        for function in dispatches(module):
            sink = sink_of(function)
            assert sink is not None
            schedule = Schedule((next(sizes), 0))
            tasks.append(schedule.num_tasks(Loops.of(sink).extents))
            schedule_attribute.write(function, schedule)

    check(cases, decide)
    assert tasks == [math.ceil(13 / size) for size in range(1, 14)]
