"""AMX on any CPU: LLVM IR whose tile intrinsics are calls of plain functions on vectors of a tile's 1,024 bytes.

The loops, addresses, shapes and strides around the intrinsics stay the ones that real tiles are compiled from.
"""

from __future__ import annotations

import re

_TILE = "<256 x i32>"


def emulated(text: str) -> str:
    """The IR with every tile in vectors, and functions for its intrinsics added."""
    lines = [
        line for line in text.split("\n") if not re.match(r"declare .*@llvm\.x86\.t\w+\.internal\(", line)
    ]
    replaced = re.sub(r"@llvm\.x86\.(t\w+)\.internal", r"@emulated_\1", "\n".join(lines))
    if "@emulated_" not in replaced:
        return text
    return replaced.replace("x86_amx", _TILE) + _FUNCTIONS


def _loops(name: str, bounds: list[tuple[str, str]], body: str) -> str:
    """LLVM IR of nested loops: `bounds` are (counter, i64 limit) from the outside in; counters count from 0."""
    blocks, close = [], []
    for level, (counter, limit) in enumerate(bounds):
        here = f"{name}{level}"
        blocks.append(
            f"{here}.from:\n  br label %{here}\n"
            f"{here}:\n  %{counter} = phi i64 [ 0, %{here}.from ], [ %{counter}.next, %{here}.step ]\n"
            f"  %{counter}.more = icmp ult i64 %{counter}, {limit}\n"
            f"  br i1 %{counter}.more, label %{here}.body, label %{here}.done\n"
            f"{here}.body:\n"
        )
        after = f"{name}{level - 1}.step" if level else f"{name}.end"
        close.append(
            f"{here}.step:\n  %{counter}.next = add i64 %{counter}, 1\n  br label %{here}\n"
            f"{here}.done:\n  br label %{after}\n"
        )
    inner = f"{name}{len(bounds) - 1}"
    opened = "".join(
        block + (f"  br label %{name}{level + 1}.from\n" if level + 1 < len(bounds) else "")
        for level, block in enumerate(blocks)
    )
    return f"  br label %{name}0.from\n{opened}{body}  br label %{inner}.step\n{''.join(reversed(close))}{name}.end:\n"


def _at(result: str, base: str, row: str, column: str) -> str:
    """A pointer to 32-bit word `column` of row `row` of a tile in memory."""
    return (
        f"  %{result}.row = mul i64 {row}, 16\n  %{result}.word = add i64 %{result}.row, {column}\n"
        f"  %{result} = getelementptr i32, ptr {base}, i64 %{result}.word\n"
    )


def _widened(operand: str, word: str, shift: int, kind: str) -> str:
    """One element of a 32-bit group: bf16 as float, a byte as a signed or unsigned i32."""
    name = f"{operand}{shift}"
    if kind == "bf16":
        move = f"shl i32 %{word}, 16" if shift == 0 else f"and i32 %{word}, -65536"
        return f"  %{name}.bits = {move}\n  %{name} = bitcast i32 %{name}.bits to float\n"
    extend = "sext" if kind == "s8" else "zext"
    return (
        f"  %{name}.shifted = lshr i32 %{word}, {shift}\n  %{name}.byte = trunc i32 %{name}.shifted to i8\n"
        f"  %{name} = {extend} i8 %{name}.byte to i32\n"
    )


def _product(name: str, kinds: tuple[str, str], type_: str, shifts: tuple[int, ...]) -> str:
    multiply, add = ("fmul", "fadd") if type_ == "float" else ("mul", "add")
    body = _at("pa", "%a", "%i", "%q") + _at("pb", "%b", "%q", "%j") + _at("pc", "%c", "%i", "%j")
    body += "  %wa = load i32, ptr %pa\n  %wb = load i32, ptr %pb\n"
    body += f"  %sum0 = load {type_}, ptr %pc\n"
    for number, shift in enumerate(shifts):
        body += _widened("a", "wa", shift, kinds[0]) + _widened("b", "wb", shift, kinds[1])
        body += f"  %m{number} = {multiply} {type_} %a{shift}, %b{shift}\n"
        body += f"  %sum{number + 1} = {add} {type_} %sum{number}, %m{number}\n"
    body += f"  store {type_} %sum{len(shifts)}, ptr %pc\n"
    spill = "".join(f"  %{x} = alloca {_TILE}\n  store {_TILE} %{x}.tile, ptr %{x}\n" for x in "cab")
    return f"""
define internal {_TILE} @emulated_{name}(i16 %rows, i16 %columns, i16 %depth, {_TILE} %c.tile, {_TILE} %a.tile, {_TILE} %b.tile) noinline {{
entry:
{spill}  %rows.wide = zext i16 %rows to i64
  %columns.wide = zext i16 %columns to i64
  %depth.wide = zext i16 %depth to i64
  %words = lshr i64 %columns.wide, 2
  %groups = lshr i64 %depth.wide, 2
{_loops("loop", [("i", "%rows.wide"), ("q", "%groups"), ("j", "%words")], body)}  %result = load {_TILE}, ptr %c
  ret {_TILE} %result
}}
"""


def _move(name: str, stores: bool) -> str:
    """Loads or stores rows of `columns` bytes that lie `stride` bytes apart; the rest of a loaded tile is 0."""
    outside = "  %r.far = mul i64 %r, %stride\n  %r.at = add i64 %r.far, %b\n  %outside = getelementptr i8, ptr %memory, i64 %r.at\n"
    inside = "  %r.near = mul i64 %r, 64\n  %r.in = add i64 %r.near, %b\n  %inside = getelementptr i8, ptr %tile, i64 %r.in\n"
    source, target = ("%inside", "%outside") if stores else ("%outside", "%inside")
    body = outside + inside + f"  %byte = load i8, ptr {source}\n  store i8 %byte, ptr {target}\n"
    signature = f"void @emulated_{name}(i16 %rows, i16 %columns, ptr %memory, i64 %stride, {_TILE} %value)"
    start, end = "%value", "  ret void\n"
    if not stores:
        signature = f"{_TILE} @emulated_{name}(i16 %rows, i16 %columns, ptr %memory, i64 %stride)"
        start, end = "zeroinitializer", f"  %result = load {_TILE}, ptr %tile\n  ret {_TILE} %result\n"
    return f"""
define internal {signature} noinline {{
entry:
  %tile = alloca {_TILE}
  store {_TILE} {start}, ptr %tile
  %rows.wide = zext i16 %rows to i64
  %columns.wide = zext i16 %columns to i64
{_loops("loop", [("r", "%rows.wide"), ("b", "%columns.wide")], body)}{end}}}
"""


_FUNCTIONS = (
    f"\ndefine internal {_TILE} @emulated_tilezero(i16 %rows, i16 %columns) {{\n  ret {_TILE} zeroinitializer\n}}\n"
    + _move("tileloadd64", False)
    + _move("tilestored64", True)
    + _product("tdpbf16ps", ("bf16", "bf16"), "float", (0, 16))
    + _product("tdpbusd", ("u8", "s8"), "i32", (0, 8, 16, 24))
)
