"""The inline PTX of each primitive: template and constraints, from the table and the operation's attributes.

Registers are numbered as LLVM's inline assembly wants them: results first, then operands. What must change in place
(accumulators) is both, tied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewright.compiler.errors import PassError
from tilewright.compiler.nouns.primitive_table import Primitive

_SWIZZLES = {0: 0, 128: 1, 64: 2, 32: 3}
"""Bytes of a shared-memory swizzle -> its code in bits 62 and 63 of a wgmma descriptor."""
_WGMMA_K = {"f16": 16, "bf16": 16, "tf32": 8, "i8": 32, "u8": 32}
_WGMMA_PTX = {"f16": "f16", "bf16": "bf16", "tf32": "tf32", "i8": "s8", "u8": "u8"}

Attributes = Mapping[str, int | bool | str]


@dataclass(frozen=True)
class Asm:
    """Inline assembly: its text, and LLVM's constraints of results and operands."""

    text: str
    constraints: str


def registers(first: int, count: int) -> list[str]:
    """`$first`, `$first+1`, ..."""
    return [f"${i}" for i in range(first, first + count)]


def simple(primitive: Primitive, counts: Sequence[int], attributes: Attributes) -> Asm:
    """The table's own template with names replaced; `counts` gives the registers of results, then operands."""
    named: dict[str, str | int | bool] = dict(attributes)
    constraints, number = [], 0
    for position, operand in enumerate((*primitive.results, *primitive.operands)):
        count = counts[position]
        named[operand.name] = ", ".join(registers(number, count))
        number += count
        letter = {"shared": "r", "global": "l", "map": "l", "i16": "h", "i32": "r", "f32": "f"}[operand.base]
        constraints += ["=" + letter if position < len(primitive.results) else letter] * count
        if operand.name == "coordinates":
            named["rank"] = count
    text = (primitive.ptx or _WRITERS[primitive.name](attributes)).format(**named)
    if not primitive.pure:
        constraints.append("~{memory}")
    return Asm(text, ",".join(constraints))


def _set_max_registers(attributes: Attributes) -> str:
    count = int(attributes["count"])
    if count % 8 or not 24 <= count <= 256:
        raise PassError(
            f"`tilewright.set_max_registers`: expected a multiple of 8 from 24 to 256, found {count}"
        )
    return f"setmaxnreg.{'inc' if attributes['increase'] else 'dec'}.sync.aligned.u32 {count};"


def _bulk_wait(attributes: Attributes) -> str:
    return f"cp.async.bulk.wait_group{'.read' if attributes['read'] else ''} {attributes['groups']};"


def _stmatrix(attributes: Attributes) -> str:
    transpose = ".trans" if attributes["transpose"] else ""
    return f"stmatrix.sync.aligned.m8n8.x4{transpose}.shared.b16 [{{target}}], {{{{{{r0}}, {{r1}}, {{r2}}, {{r3}}}}}};"


_WRITERS = {"set_max_registers": _set_max_registers, "bulk_wait": _bulk_wait, "stmatrix": _stmatrix}


def wgmma(attributes: Attributes, letter: str, a_registers: int) -> Asm:
    """A group of wgmma instructions. Registers: n/2 results, n/2 accumulators, a's (or its descriptor), b's, scale_d.

    `letter` is the accumulators' register class, `a_registers` how many i32 hold a, 0 when it is in shared memory.
    """
    _check_wgmma(attributes, a_registers)
    n, steps, dtype = int(attributes["n"]), int(attributes["k_steps"]), str(attributes["type"])
    accumulators = n // 2
    a_first = 2 * accumulators
    b, scale = f"${a_first + (a_registers or 1)}", f"${a_first + (a_registers or 1) + 1}"
    shape = f"m64n{n}k{_WGMMA_K[dtype]}.{'s32' if dtype in ('i8', 'u8') else 'f32'}"
    shape += f".{_WGMMA_PTX[dtype]}.{_WGMMA_PTX[dtype]}"
    into = "{" + ", ".join(registers(0, accumulators)) + "}"
    lines = [
        "{ .reg .pred scaled; .reg .b64 a, b;",
        f"setp.ne.b32 scaled, {scale}, 0;",
        "wgmma.fence.sync.aligned;",
    ]
    for step in range(steps):
        if a_registers:
            left = "{" + ", ".join(registers(a_first + 4 * step, 4)) + "}"
        else:
            left = _advance(lines, "a", f"${a_first}", step * int(attributes["a_step_bytes"]))
        right = _advance(lines, "b", b, step * int(attributes["b_step_bytes"]))
        operands = [into, left, right, "1" if step else "scaled", *_immediates(attributes, bool(a_registers))]
        lines.append(f"wgmma.mma_async.sync.aligned.{shape} {', '.join(operands)};")
    lines += ["wgmma.commit_group.sync.aligned;", "}"]
    tied = [str(i) for i in range(accumulators)]
    left_constraints = ["r"] * a_registers if a_registers else ["l"]
    # Early clobbers: the first instruction must not write over what later ones read.
    constraints = [f"=&{letter}"] * accumulators + tied + left_constraints + ["l", "r", "~{memory}"]
    return Asm("\n".join(lines), ",".join(constraints))


def _advance(lines: list[str], name: str, descriptor: str, step_bytes: int) -> str:
    """The descriptor moved on by a step; its address counts 16 bytes."""
    if not step_bytes:
        return descriptor
    lines.append(f"add.s64 {name}, {descriptor}, {step_bytes >> 4};")
    return name


def _immediates(attributes: Attributes, a_in_registers: bool) -> list[str]:
    """Signs of a and b, and whether each lies with rows or columns contiguous; integers take none of them."""
    if attributes["type"] in ("i8", "u8"):
        return []
    signs = ["1", "1"]
    if attributes["type"] == "tf32":
        return signs
    transposed = [] if a_in_registers else ["1" if attributes["a_major"] == "m" else "0"]
    return [*signs, *transposed, "1" if attributes["b_major"] == "n" else "0"]


def _check_wgmma(attributes: Attributes, a_registers: int) -> None:
    n, dtype = int(attributes["n"]), str(attributes["type"])
    most = 256
    if n % 8 or not 8 <= n <= most or (dtype in ("i8", "u8") and n > 32 and n % 16 and n != 24):
        raise PassError(
            f"`tilewright.wgmma`: expected n to be a multiple of 8 (of 16 for i8) up to {most}, found {n}"
        )
    for name in ("b",) if a_registers else ("a", "b"):
        major, swizzle = attributes[f"{name}_major"], attributes[f"{name}_swizzle_bytes"]
        if major != "k" and dtype not in ("f16", "bf16"):
            raise PassError(
                f"`tilewright.wgmma`: {dtype} takes k-major operands only, found {name} {major}-major"
            )
        if swizzle not in _SWIZZLES:
            raise PassError(
                f"`tilewright.wgmma`: expected {name}_swizzle_bytes 0, 32, 64 or 128, found {swizzle}"
            )
        for field in ("leading_bytes", "stride_bytes", "step_bytes"):
            value = int(attributes[f"{name}_{field}"])
            if value % 16 or not 0 <= value < 1 << 18:
                raise PassError(
                    f"`tilewright.wgmma`: expected {name}_{field} to be a multiple of 16 under 256 KiB, found {value}"
                )


def descriptor(attributes: Attributes, name: str) -> int:
    """A wgmma descriptor of operand `name` without its address, which goes into bits 0 to 13 in units of 16 bytes."""
    leading, stride = int(attributes[f"{name}_leading_bytes"]), int(attributes[f"{name}_stride_bytes"])
    swizzle = _SWIZZLES[int(attributes[f"{name}_swizzle_bytes"])]
    return swizzle << 62 | (stride >> 4) << 32 | (leading >> 4) << 16


def wgmma_wait(letters: Sequence[str], groups: int) -> Asm:
    """Waits for groups; the accumulators pass through, so that no use of them comes before."""
    tied = [str(i) for i in range(len(letters))]
    constraints = [f"={letter}" for letter in letters] + tied + ["~{memory}"]
    return Asm(f"wgmma.wait_group.sync.aligned {groups};", ",".join(constraints))


def mma_m8n8k4(attributes: Attributes) -> Asm:
    """Registers: 8 f32 results, 2 i32 of a, 2 of b, 8 f32 of c."""
    layout = f"{attributes['a_layout']}.{attributes['b_layout']}"
    groups = ["{" + ", ".join(registers(*span)) + "}" for span in ((0, 8), (8, 2), (10, 2), (12, 8))]
    constraints = ["=f"] * 8 + ["r"] * 4 + ["f"] * 8
    return Asm(
        f"mma.sync.aligned.m8n8k4.{layout}.f32.f16.f16.f32 {', '.join(groups)};", ",".join(constraints)
    )
