"""approximate-math: elementary functions become arithmetic that LLVM vectorises."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from tilewright.compiler.ir import ir, walk
from tilewright.compiler.pipeline.pass_base import Pass
from tilewright.compiler.rewriting import elementary, elementary_wide
from tilewright.compiler.rewriting.expression import Number, element_of, scaled
from tilewright.compiler.targets.target import Target

EXPANSIONS: dict[str, Callable[..., Number]] = {
    "arith.remf": elementary.remainder,
    "math.acos": elementary.ANGLES.acos,
    "math.acosh": elementary.HYPERBOLICS.acosh,
    "math.asin": elementary.ANGLES.asin,
    "math.asinh": elementary.HYPERBOLICS.asinh,
    "math.atan": elementary.ANGLES.atan,
    "math.atan2": elementary.ANGLES.atan2,
    "math.atanh": elementary.HYPERBOLICS.atanh,
    "math.cos": elementary.cos,
    "math.cosh": elementary.HYPERBOLICS.cosh,
    "math.erf": elementary.erf,
    "math.erfc": elementary.erfc,
    "math.exp": elementary.exp,
    "math.exp2": elementary.exp2,
    "math.expm1": elementary.expm1,
    "math.fpowi": elementary.pow_integer,
    "math.log": elementary.log,
    "math.log10": elementary.log10,
    "math.log1p": elementary.log1p,
    "math.log2": elementary.log2,
    "math.powf": elementary.pow,
    "math.sin": elementary.sin,
    "math.sinh": elementary.HYPERBOLICS.sinh,
    "math.tan": elementary.tan,
    "math.tanh": elementary.tanh,
}
WIDE: dict[str, Callable[..., Number]] = {
    "math.acos": elementary_wide.ANGLES.acos,
    "math.acosh": elementary_wide.HYPERBOLICS.acosh,
    "math.asin": elementary_wide.ANGLES.asin,
    "math.asinh": elementary_wide.HYPERBOLICS.asinh,
    "math.atan": elementary_wide.ANGLES.atan,
    "math.atan2": elementary_wide.ANGLES.atan2,
    "math.atanh": elementary_wide.HYPERBOLICS.atanh,
    "math.cosh": elementary_wide.HYPERBOLICS.cosh,
    "math.erf": elementary_wide.erf,
    "math.erfc": elementary_wide.erfc,
    "math.exp": elementary_wide.exp,
    "math.exp2": elementary_wide.exp2,
    "math.expm1": elementary_wide.expm1,
    "math.fpowi": elementary_wide.pow_integer,
    "math.log": elementary_wide.log,
    "math.log10": elementary_wide.log10,
    "math.log1p": elementary_wide.log1p,
    "math.log2": elementary_wide.log2,
    "math.sinh": elementary_wide.HYPERBOLICS.sinh,
    "math.tanh": elementary_wide.tanh,
}
"""Expansions of f64."""
_SCALED: dict[str, Callable[..., Number]] = {
    "math.exp": partial(elementary.exp, scaled=scaled),
    "math.exp2": partial(elementary.exp2, scaled=scaled),
}
"""Expansions for targets that multiply by a power of two in one instruction: it replaces eight."""
_CORRECTED = ("math.expm1", "math.log1p")
"""What `convert-math-to-llvm` computes from exp and log, without the digits of small numbers."""
LIBM_ONLY = frozenset(("math.cbrt",))
"""Functions with no expansion here: `convert-math-to-libm` calls libm for each lane."""


@dataclass(frozen=True)
class ApproximateMath(Pass):
    """Replaces elementary functions of scalars and vectors by straight-line arithmetic.

    Before:

        %e = math.exp %x : vector<16xf32>

    After (compiler/rewriting/elementary.py, for f64 elementary_wide.py, has the formulas and their error bounds):

        %n = math.fma %x, %log2e, %round : vector<16xf32>
        ...
        %e = arith.mulf %scaled, %power : vector<16xf32>

    f16 and bf16 are computed in f32 and rounded once. Remainders, powers, sines, cosines and tangents of f64 are left to libm, powers
    of integers as those of floats, which it has. Square roots, roundings, fma, abs and copysign have instructions and
    stay, as do functions of whole tensors.

    Maxima and minima get the flag `nsz`: which zero wins is open in PyTorch and ONNX too, and an exact choice takes
    six instructions instead of three.

    Lower with `convert-math-to-llvm` before `convert-math-to-libm`: the latter makes calls of fma and floor too. With
    `only_corrected` nothing but `expm1` and `log1p` is replaced. `scales`: the target has an instruction for x 2^n
    (AVX-512's `vscalefps`), which LLVM makes of `llvm.ldexp` where vectors are none of its own.
    """

    anchor: ClassVar[str] = "func.func"
    only_corrected: bool = False
    scales: bool = False

    @classmethod
    def for_target(cls, target: Target) -> ApproximateMath:
        """The pass for a CPU."""
        return cls(scales="avx512f" in target.cpu_features)

    def run(self, op: ir.Operation) -> None:
        for inner in walk(op):
            if self.only_corrected and inner.name not in _CORRECTED:
                continue
            if inner.name in EXPANSIONS or inner.name in LIBM_ONLY:
                _expand(inner, self.scales)
            elif inner.name in ("arith.maximumf", "arith.minimumf"):
                _ignore_sign_of_zero(inner)


def _ignore_sign_of_zero(op: ir.Operation) -> None:
    flags = str(op.attributes["fastmath"]).partition("<")[2].rstrip(">").split(",")
    if not {"nsz", "fast"} & set(flags):
        kept = [flag for flag in flags if flag != "none"]
        op.attributes["fastmath"] = ir.Attribute.parse(f"#arith.fastmath<{','.join([*kept, 'nsz'])}>")


def _expand(op: ir.Operation, scales: bool) -> None:
    if not isinstance(op.results[0].type, (ir.FloatType, ir.VectorType)):
        return
    element = element_of(op.results[0].type)
    with op.location, ir.InsertionPoint(op):
        operands = [Number(operand) for operand in op.operands]
        if isinstance(element, ir.F64Type):
            if op.name not in WIDE:
                return
            result = WIDE[op.name](*operands)
        elif element.width > 32:
            return
        else:
            f32 = ir.F32Type.get()
            wide = [number.to(f32) if number.is_float else number for number in operands]
            if op.name in EXPANSIONS:
                expansion = (_SCALED if scales and op.name in _SCALED else EXPANSIONS)[op.name]
                result = expansion(*wide).to(element)
            elif isinstance(element, ir.F32Type):
                return
            else:
                call = ir.Operation.create(op.name, [wide[0].type], [number.value for number in wide])
                result = Number(call.results[0]).to(element)
    op.results[0].replace_all_uses_with(result.value)
    op.erase()
