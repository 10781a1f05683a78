"""Chooses by which algorithm convolutions are computed: directly, or by Winograd's where that is faster.

    %c = linalg.generic ins(%x, %w : tensor<1x58x58x64xf32>, tensor<3x3x64x64xf32>)
      =>
    %c = linalg.generic {tilewright.choice = {algorithm = "winograd4"}} ins(%x, %w)

`transform-filters` carries it out. Convolutions of stride and dilation 1 in f32 are chosen for by
`tuning/winograd_choice.py`; others, grouped and depthwise ones, and those whose filter is no weight are direct without a
choice. f64 asks for more digits than the transforms keep, f16 has too few to lose any, integers none. A convolution that
carries an algorithm already keeps it.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.compiler.analysis.weight_flow import static_values
from tilewright.compiler.analysis.winograd_form import ATTRIBUTE, Convolution2d
from tilewright.compiler.dialects import choice_attribute
from tilewright.compiler.dialects.choice_attribute import DIRECT, WINOGRAD
from tilewright.compiler.ir import functions, ir
from tilewright.compiler.pipeline.pass_base import Pass
from tilewright.compiler.targets.file import written
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.cpu.winograd_choice import (
    OUTPUTS,
    WinogradMachine,
    WinogradProblem,
    choose_winograd,
)


@dataclass(frozen=True)
class ChooseWinograd(Pass):
    """Writes `algorithm` on the convolutions of a module: "direct" where the module says `tilewright.winograd = false`.

    `target` is a preset, a .json file or a target as JSON text.
    `outputs` forces the m of F(m, r) wherever it fits; 0 lets the estimate choose, and keep the direct convolution.
    """

    target: str = "cpu"
    outputs: int = 0

    @classmethod
    def for_target(cls, target: Target) -> ChooseWinograd:
        """The pass with a target's numbers."""
        return cls(written(target))

    def run(self, op: ir.Operation) -> None:
        direct = ATTRIBUTE in op.attributes and not ir.BoolAttr(op.attributes[ATTRIBUTE]).value
        machine = WinogradMachine.of(self.target_named(op, self.target))
        for function in functions(op.opview):
            static: set[ir.Value] | None = None
            for view in function.regions[0].blocks[0].operations:
                given = choice_attribute.read(view.operation)
                convolution = Convolution2d.read(view.operation, int(given.get("block", 0)))
                if convolution is None or convolution.outputs is not None or "algorithm" in given:
                    continue
                static = static_values(function) if static is None else static
                if convolution.op.operands[1] in static:
                    outputs = None if direct else self.decide(convolution, machine)
                    if outputs is not None or any(convolution.refuses(m) is None for m in OUTPUTS):
                        algorithm = DIRECT if outputs is None else f"{WINOGRAD}{outputs}"
                        choice_attribute.write(convolution.op, algorithm=algorithm)

    def decide(self, convolution: Convolution2d, machine: WinogradMachine) -> int | None:
        """The m of F(m, r) to use, None for the direct convolution."""
        if self.outputs:
            return None if convolution.refuses(self.outputs) else self.outputs
        n, h, w, f, r, s, c = convolution.extents
        if r != s or not isinstance(convolution.element_type, ir.F32Type):
            return None
        choice = choose_winograd(WinogradProblem(n, h, w, f, r, c, convolution.block), machine)
        return choice.outputs if choice else None


def keep_direct(module: ir.Module) -> None:
    """Writes down that no convolution of the module is to be computed by Winograd's algorithm."""
    with module.context:
        module.operation.attributes[ATTRIBUTE] = ir.BoolAttr.get(False)
