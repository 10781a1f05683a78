"""Turns depthwise convolutions and poolings into vector loops that read each input once per tile of outputs.

    linalg.generic (h, w, c, kh, kw) {tilewright.loops = {windows = [2, 5, 1]}}
        Y[h, w, c] += X[h + kh, w + kw, c] * K[kh, kw, c]                                   // memrefs, static

becomes the nest that `window_loops.py` shows, for a tile of rows x columns x registers of channels that the
attribute says. `vectorize-reductions` would do it too, one output row at a time and with a load for
every multiply-add, which halves its speed: a depthwise convolution has no other re-use than that of its windows.
What follows element by element is computed before the results leave their registers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilewright.compiler.dialects import reduction_attribute
from tilewright.compiler.families.cpu.reduction import Structure, take_fill
from tilewright.compiler.families.cpu.vector_epilogue import Epilogue
from tilewright.compiler.families.cpu.window_loops import WindowLoops, Windows
from tilewright.compiler.ir import ir, walk
from tilewright.compiler.nouns.register_tiles import WindowTile
from tilewright.compiler.pipeline.pass_base import Pass


@dataclass(frozen=True)
class VectorizeWindows(Pass):
    """Rewrites reductions on memrefs that are marked `windows`; `vector_bits` and `registers` describe the target.

    Raises ScheduleError for one that is none over windows, or has no such tile.
    """

    anchor: ClassVar[str] = "func.func"
    vector_bits: int = 512
    registers: int = 32

    def run(self, op: ir.Operation) -> None:
        # Read for all before the first is rewritten, which takes other operations with it.
        planned = []
        for generic in walk(op, "linalg.generic"):
            if reduction_attribute.is_for(generic, "windows"):
                reduction = Structure.read(generic)
                windows = Windows.read(reduction, self.vector_bits) if reduction is not None else None
                tile = WindowTile(*reduction_attribute.check(generic, windows, self.registers).sizes)
                planned.append((reduction, windows, tile))
        for reduction, windows, tile in planned:
            epilogue = Epilogue.after(reduction.op)
            last = epilogue.op if epilogue else reduction.op
            with ir.InsertionPoint(last), last.location:
                store = epilogue.store if epilogue else None
                WindowLoops(reduction, windows, tile, take_fill(reduction.op), store).emit()
            if epilogue:
                epilogue.op.erase()
            reduction.op.erase()
