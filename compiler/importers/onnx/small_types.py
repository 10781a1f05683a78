"""Casts to and from 8-bit and 4-bit floats and 4-bit and 2-bit integers, which are computed on as bytes."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from onnx import TensorProto

from tilewright.compiler.importers.onnx.builder import Builder
from tilewright.compiler.importers.onnx.scalar import elementwise
from tilewright.compiler.importers.onnx.values import Refused, Value


@dataclass(frozen=True)
class SmallFloat:
    """A float of sign, exponent and `mantissa` bits, exponent bias `bias`.

    Codes above `largest` are not finite: `overflow` is what a value beyond them becomes when it does not saturate,
    `nan` the code that not-a-number becomes (minus zero in 4 bits, which have no such code). Where `one_zero`, there is no negative zero.
    Source: the ONNX operator specification, "Float stored in 8 bits" and "4 bit floating point".
    """

    bits: int
    mantissa: int
    bias: int
    largest: int
    overflow: int
    nan: int
    one_zero: bool = False

    @property
    def sign(self) -> int:
        return 1 << (self.bits - 1)


SMALL_FLOATS: dict[int, SmallFloat] = {
    TensorProto.FLOAT8E4M3FN: SmallFloat(8, 3, 7, 0x7E, 0x7F, 0x7F),
    TensorProto.FLOAT8E4M3FNUZ: SmallFloat(8, 3, 8, 0x7F, 0x80, 0x80, one_zero=True),
    TensorProto.FLOAT8E5M2: SmallFloat(8, 2, 15, 0x7B, 0x7C, 0x7E),
    TensorProto.FLOAT8E5M2FNUZ: SmallFloat(8, 2, 16, 0x7F, 0x80, 0x80, one_zero=True),
    TensorProto.FLOAT4E2M1: SmallFloat(4, 1, 1, 0x7, 0x7, 0x8),
}

SMALL_INTEGERS: dict[int, tuple[int, bool]] = {
    TensorProto.INT4: (4, True),
    TensorProto.UINT4: (4, False),
    TensorProto.INT2: (2, True),
    TensorProto.UINT2: (2, False),
}
"""Width and signedness."""


def cast_small(b: Builder, x: Value, to: int, saturate: bool, round_mode: str) -> Value:
    """A cast where one side or both are small types, through f32 or i32."""
    if x.dtype in SMALL_FLOATS or x.dtype == TensorProto.FLOAT8E8M0:
        wide = _decode(b, x)
        return b.op("Cast", wide, to=to, saturate=int(saturate))
    if x.dtype in SMALL_INTEGERS:
        return b.op("Cast", _of_small_integer(b, x), to=to, saturate=int(saturate))
    if to in SMALL_INTEGERS:
        return _to_small_integer(b, b.op("Cast", x, to=TensorProto.INT32), to)
    x = b.op("Cast", x, to=TensorProto.FLOAT)
    if to == TensorProto.FLOAT8E8M0:
        return _to_exponent(b, x, round_mode)
    return _encode(b, x, to, SMALL_FLOATS[to], saturate)


def _of_small_integer(b: Builder, x: Value) -> Value:
    """As i32. The byte that carries it has no other bits, but says so: weights are stored by the bits that they need."""
    width, signed = SMALL_INTEGERS[x.dtype]
    body = [
        f"%shift = arith.constant {8 - width} : i8",
        "%high = arith.shli %a0, %shift : i8",
        f"%low = arith.{'shrsi' if signed else 'shrui'} %high, %shift : i8",
        f"%r = arith.{'extsi' if signed else 'extui'} %low : i8 to i32",
    ]
    return elementwise(b, "\n".join(body), [x], TensorProto.INT32)


def _to_small_integer(b: Builder, x: Value, to: int) -> Value:
    width, signed = SMALL_INTEGERS[to]
    shift = 32 - width
    body = [
        f"%shift = arith.constant {shift} : i32",
        "%high = arith.shli %a0, %shift : i32",
        f"%wrapped = arith.{'shrsi' if signed else 'shrui'} %high, %shift : i32",
        "%r = arith.trunci %wrapped : i32 to i8",
    ]
    return elementwise(b, "\n".join(body), [x], to)


def _bits(number: float) -> int:
    return int(np.float32(number).view(np.uint32))


def _encode(b: Builder, x: Value, to: int, form: SmallFloat, saturate: bool) -> Value:
    """Rounds to nearest, ties to even: normal numbers by adding half a unit, subnormal ones by aligning to a magic one."""
    drop = 23 - form.mantissa
    magic = 2.0 ** (drop + 1 - form.bias)
    beyond = form.largest if saturate or form.bits == 4 else form.overflow
    body = [
        "%bits = arith.bitcast %a0 : f32 to i32",
        "%mask = arith.constant 0x7fffffff : i32",
        "%magnitude = arith.andi %bits, %mask : i32",
        f"%drop = arith.constant {drop} : i32",
        "%one = arith.constant 1 : i32",
        f"%half = arith.constant {(1 << (drop - 1)) - 1} : i32",
        f"%rebias = arith.constant {(127 - form.bias) << form.mantissa} : i32",
        "%kept = arith.shrui %magnitude, %drop : i32",
        "%odd = arith.andi %kept, %one : i32",
        "%nudge = arith.addi %half, %odd : i32",
        "%rounded = arith.addi %magnitude, %nudge : i32",
        "%shifted = arith.shrui %rounded, %drop : i32",
        "%normal = arith.subi %shifted, %rebias : i32",
        "%absolute = arith.bitcast %magnitude : i32 to f32",
        f"%magic = arith.constant {magic!r} : f32",
        "%aligned = arith.addf %absolute, %magic : f32",
        "%alignedbits = arith.bitcast %aligned : f32 to i32",
        f"%magicbits = arith.constant {_bits(magic)} : i32",
        "%subnormal = arith.subi %alignedbits, %magicbits : i32",
        f"%least = arith.constant {_bits(2.0 ** (1 - form.bias))} : i32",
        "%tiny = arith.cmpi ult, %magnitude, %least : i32",
        "%finite = arith.select %tiny, %subnormal, %normal : i32",
        f"%largest = arith.constant {form.largest} : i32",
        "%over = arith.cmpi ugt, %finite, %largest : i32",
        f"%beyond = arith.constant {beyond} : i32",
        "%code = arith.select %over, %beyond, %finite : i32",
        f"%signshift = arith.constant {32 - form.bits} : i32",
        f"%signbit = arith.constant {form.sign} : i32",
        "%high = arith.shrui %bits, %signshift : i32",
        "%sign = arith.andi %high, %signbit : i32",
        "%both = arith.ori %code, %sign : i32",
        "%zero = arith.constant 0 : i32",
    ]
    result = "%both"
    if form.one_zero:
        body.append("%isnone = arith.cmpi eq, %code, %zero : i32")
        body.append(f"%unsigned = arith.select %isnone, %zero, {result} : i32")
        result = "%unsigned"
    body += [
        "%infinity = arith.constant 0x7f800000 : i32",
        "%isnan = arith.cmpi ugt, %magnitude, %infinity : i32",
        f"%nan = arith.constant {form.nan} : i32",
        f"%chosen = arith.select %isnan, %nan, {result} : i32",
        "%r = arith.trunci %chosen : i32 to i8",
    ]
    return elementwise(b, "\n".join(body), [x], to)


def _decode(b: Builder, x: Value) -> Value:
    """The f32 value of a code: its bits moved in place and scaled, which is exact for subnormal ones too."""
    if x.dtype == TensorProto.FLOAT8E8M0:
        return _from_exponent(b, x)
    form = SMALL_FLOATS[x.dtype]
    body = [
        "%code = arith.extui %a0 : i8 to i32",
        f"%signbit = arith.constant {form.sign} : i32",
        f"%mask = arith.constant {form.sign - 1} : i32",
        "%magnitude = arith.andi %code, %mask : i32",
        "%sign = arith.andi %code, %signbit : i32",
        f"%up = arith.constant {23 - form.mantissa} : i32",
        "%moved = arith.shli %magnitude, %up : i32",
        "%small = arith.bitcast %moved : i32 to f32",
        f"%scale = arith.constant {2.0 ** (127 - form.bias)!r} : f32",
        "%absolute = arith.mulf %small, %scale : f32",
        "%absolutebits = arith.bitcast %absolute : f32 to i32",
        f"%signup = arith.constant {32 - form.bits} : i32",
        "%signplace = arith.shli %sign, %signup : i32",
        "%valuebits = arith.ori %absolutebits, %signplace : i32",
        "%value = arith.bitcast %valuebits : i32 to f32",
    ]
    result = "%value"
    for name, code, word in _specials(form):
        body += [
            f"%{name}code = arith.constant {code} : i32",
            f"%is{name} = arith.cmpi {word} : i32",
        ]
        if name == "inf":
            body += [
                "%infbits = arith.constant 0x7f800000 : i32",
                "%signedinf = arith.ori %infbits, %signplace : i32",
                "%infvalue = arith.bitcast %signedinf : i32 to f32",
            ]
        else:
            body += [
                "%nanbits = arith.constant 0x7fc00000 : i32",
                "%nanvalue = arith.bitcast %nanbits : i32 to f32",
            ]
        body.append(f"%after{name} = arith.select %is{name}, %{name}value, {result} : f32")
        result = f"%after{name}"
    body[-1] = re.sub(r"^%\w+", "%r", body[-1])
    return elementwise(b, "\n".join(body), [x], TensorProto.FLOAT)


def _specials(form: SmallFloat):
    """(name, code, comparison) of what is not finite."""
    if form.bits == 4:
        return []
    if form.one_zero:
        return [("nan", form.nan, "eq, %code, %nancode")]
    if form.overflow != form.nan:
        return [
            ("inf", form.overflow, "eq, %magnitude, %infcode"),
            ("nan", form.overflow, "ugt, %magnitude, %nancode"),
        ]
    return [("nan", form.nan, "eq, %magnitude, %nancode")]


def _from_exponent(b: Builder, x: Value) -> Value:
    """E8M0: 2^(code - 127), code 255 is NaN and code 0 a subnormal f32."""
    body = [
        "%code = arith.extui %a0 : i8 to i32",
        "%up = arith.constant 23 : i32",
        "%moved = arith.shli %code, %up : i32",
        "%least = arith.constant 0x00400000 : i32",
        "%zero = arith.constant 0 : i32",
        "%iszero = arith.cmpi eq, %code, %zero : i32",
        "%bits = arith.select %iszero, %least, %moved : i32",
        "%nancode = arith.constant 255 : i32",
        "%nanbits = arith.constant 0x7fc00000 : i32",
        "%isnan = arith.cmpi eq, %code, %nancode : i32",
        "%chosen = arith.select %isnan, %nanbits, %bits : i32",
        "%r = arith.bitcast %chosen : i32 to f32",
    ]
    return elementwise(b, "\n".join(body), [x], TensorProto.FLOAT)


def _to_exponent(b: Builder, x: Value, mode: str) -> Value:
    """The exponent of |x|, its mantissa rounded up, down or to the nearest power of two; saturates below 255."""
    nudge = {"up": 0x7FFFFF, "down": 0, "nearest": 0x400000}.get(mode)
    if nudge is None:
        raise Refused(f"round_mode `{mode}` is not one of up, down, nearest")
    body = [
        "%bits = arith.bitcast %a0 : f32 to i32",
        "%mask = arith.constant 0x7fffffff : i32",
        "%magnitude = arith.andi %bits, %mask : i32",
        f"%nudge = arith.constant {nudge} : i32",
        "%rounded = arith.addi %magnitude, %nudge : i32",
        "%down = arith.constant 23 : i32",
        "%exponent = arith.shrui %rounded, %down : i32",
        "%largest = arith.constant 254 : i32",
        "%clipped = arith.minui %exponent, %largest : i32",
        "%infinity = arith.constant 0x7f800000 : i32",
        "%isnan = arith.cmpi ugt, %magnitude, %infinity : i32",
        "%nan = arith.constant 255 : i32",
        "%chosen = arith.select %isnan, %nan, %clipped : i32",
        "%r = arith.trunci %chosen : i32 to i8",
    ]
    return elementwise(b, "\n".join(body), [x], TensorProto.FLOAT8E8M0)
