"""LLVM IR text as MLIR's LLVM prints it, made readable for the older LLVM that compiles it.

The newer printer writes floating-point constants in forms the older parser does not know (`f0x3727C5AC`,
`+inf`, `-qnan`, rounded decimals for half and bfloat); all of them become exact hexadecimal ones.
"""

from __future__ import annotations

import math
import re
import struct

import numpy as np

_TYPES = r"half|bfloat|float|double"
_NUMBER = r"[-+]?\d+\.\d+(?:e[-+]\d+)?|f0x[0-9A-Fa-f]+|[-+](?:inf|qnan|s?nan(?:\(0x[0-9A-Fa-f]+\))?)"
_TOKEN = re.compile(rf"(?<![\w.%@\"])(?:({_TYPES})\b|({_NUMBER})(?![\w.]))")
_MAY_BE_NUMBER = re.compile(r"\d\.\d|f0x|[-+][iqsn]")
"""In every `_NUMBER`, and found faster: few lines of a kernel have one."""
_UNKNOWN = re.compile(r"\bnocreateundeforpoison\b ?")
_BITS = {"half": 16, "bfloat": 16, "float": 32, "double": 64}


def for_older_llvm(text: str) -> str:
    """Rewrites every floating-point constant; the type of each is the last one named before it on its line."""
    lines = _UNKNOWN.sub("", text).split("\n")
    return "\n".join(_line(line) if _MAY_BE_NUMBER.search(line) else line for line in lines)


def _line(line: str) -> str:
    if line.startswith(("source_filename", "!", ";", "attributes")):
        return line
    current = ["double"]

    def replace(match: re.Match) -> str:
        if match[1]:
            current[0] = match[1]
            return match[0]
        return constant(match[2], current[0])

    return _TOKEN.sub(replace, line)


def constant(token: str, type_: str) -> str:
    """The exact older form of one constant: `0x` double bits for float and double, `0xH` and `0xR` for 16 bits."""
    bits = _bits(token, type_)
    if type_ == "half":
        return f"0xH{bits:04X}"
    if type_ == "bfloat":
        return f"0xR{bits:04X}"
    if type_ == "double":
        return f"0x{bits:016X}"
    exponent, mantissa = bits >> 23 & 0xFF, bits & 0x7FFFFF
    if exponent == 0xFF and mantissa:
        return f"0x{(bits >> 31) << 63 | 0x7FF << 52 | mantissa << 29:016X}"
    value = struct.unpack("<f", struct.pack("<I", bits))[0]
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def _bits(token: str, type_: str) -> int:
    width = _BITS[type_]
    if token.startswith("f0x"):
        return int(token[3:], 16)
    exponent_bits = {"half": 5, "bfloat": 8, "float": 8, "double": 11}[type_]
    fraction = width - 1 - exponent_bits
    if token[1:].startswith(("inf", "qnan", "snan", "nan")):
        bits = ((1 << exponent_bits) - 1) << fraction | (token[0] == "-") << (width - 1)
        if "nan" in token:
            payload = int(token.split("(0x")[1].rstrip(")"), 16) if "(" in token else 0
            bits |= payload if "snan" in token else 1 << (fraction - 1) | payload
        return bits
    value = float(token)
    if type_ == "double":
        return struct.unpack("<Q", struct.pack("<d", value))[0]
    single = int(np.float32(value).view(np.uint32))
    if type_ == "float":
        return single
    if type_ == "half":
        return int(np.float16(value).view(np.uint16))
    return (single + 0x7FFF + (single >> 16 & 1)) >> 16


_TILE_ASSEMBLY = {
    "ldtilecfg": "ldtilecfg ({0})",
    "tilerelease": "tilerelease",
    "tilezero": "tilezero %tmm{0}",
    "tileloadd64": "tileloadd ({1},{2}), %tmm{0}",
    "tilestored64": "tilestored %tmm{0}, ({1},{2})",
    "tdpbf16ps": "tdpbf16ps %tmm{2}, %tmm{1}, %tmm{0}",
    "tdpbusd": "tdpbusd %tmm{2}, %tmm{1}, %tmm{0}",
}
_TILE_CALL = re.compile(r"call void @llvm\.x86\.(" + "|".join(_TILE_ASSEMBLY) + r")\((.*)\)")


def with_fixed_tiles(text: str) -> str:
    """Calls of AMX's intrinsics as inline assembly, whose registers LLVM does not touch.

    The numbers given to the intrinsics are not kept: a scheduler after register allocation, where a CPU's model has one
    (all of AMD's, not Sapphire Rapids'), renames tile registers to break anti-dependences
    (CriticalAntiDepBreaker), as if every register had the same shape.
    """
    if "@llvm.x86.ldtilecfg" not in text:
        return text

    def assembled(match: re.Match[str]) -> str:
        values, words = [], []
        for argument in filter(None, match[2].split(", ")):
            type_, value = argument.rsplit(" ", 1)
            words.append(value if type_ == "i8" else f"${len(values)}")
            if type_ != "i8":
                values.append(argument)
        constraints = ",".join([*("r" for _ in values), "~{memory}"])
        body = _TILE_ASSEMBLY[match[1]].format(*words)
        return f'call void asm sideeffect "{body}", "{constraints}"({", ".join(values)})'

    return _TILE_CALL.sub(assembled, text)


_MASKED_STORE = re.compile(
    r"^(\s*)(?:tail )?call void @llvm\.masked\.store\.\w+\.\w+\((<(\d+) x (\w+)> .+), ptr ([^%@]*)([%@]\S+), "
    r"<\3 x i1> <(i1 \w+(?:, i1 \w+)*)>\)(?: #\d+)?(.*)$"
)
_ELEMENT_BYTES = {"half": 2, "bfloat": 2, "float": 4, "double": 8, "ptr": 8}


def with_scalar_stores(text: str) -> str:
    """Optimised IR with masked stores of one lane as stores of an element; the same text where there are none.

    Where the value was truncated before it is stored, LLVM 22 stores that lane in the type before, for CPUs with AVX-512:
    one lane of `<8 x i16>` from `<8 x i32>` writes four bytes (its X86 back end makes scalar stores of masked ones,
    truncating ones included).
    """
    if "@llvm.masked.store" not in text:
        return text
    lines = text.split("\n")
    for number, line in enumerate(lines):
        match = _MASKED_STORE.match(line)
        lanes = [lane == "i1 true" for lane in match[7].split(", ")] if match else []
        if match and sum(lanes) == 1 < len(lanes):
            lines[number] = _scalar_store(match, lanes.index(True), f"%tilewright.lane.{number}")
    return "\n".join(lines)


def _scalar_store(match: re.Match[str], lane: int, name: str) -> str:
    """One lane of a masked store, which `match` has read, by itself; `name` is that of a new value."""
    indent, value, _, type_, attributes, pointer, _, metadata = match.groups()
    size = _ELEMENT_BYTES.get(type_) or int(type_[1:]) // 8
    aligned = re.search(r"align (\d+)", attributes)
    alignment = math.gcd(int(aligned[1]) if aligned else 1, lane * size)
    return (
        f"{indent}{name} = extractelement {value}, i64 {lane}\n"
        f"{indent}{name}.at = getelementptr inbounds i8, ptr {pointer}, i64 {lane * size}\n"
        f"{indent}store {type_} {name}, ptr {name}.at, align {alignment}{metadata}"
    )
