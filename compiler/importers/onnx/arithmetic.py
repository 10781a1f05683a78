"""Rules for scalar arithmetic whose meaning in ONNX is not torch's: unsigned integers, shifts, rounding, casts."""

from __future__ import annotations

from onnx import TensorProto

from tilewright.compiler.importers.onnx import forms
from tilewright.compiler.importers.onnx.builder import Builder
from tilewright.compiler.importers.onnx.file import type_name
from tilewright.compiler.importers.onnx.rules import rule
from tilewright.compiler.importers.onnx.scalar import broadcast, carrier, elementwise, is_unsigned
from tilewright.compiler.importers.onnx.small_types import cast_small
from tilewright.compiler.importers.onnx.values import CARRIERS, DTYPES, SIGNED, Node, Refused, Value

BITS = {name: int(name.lstrip("biuf")) for name in DTYPES.values() if name[0] in "biuf"}


def bits(dtype: int) -> int:
    """Width of one element as the runtime stores it in the IR; 1 for bool."""
    return BITS[DTYPES[dtype]]


@rule("BitCast")
def bit_cast(b: Builder, node: Node):
    x, to = node.operand(0), node.attrs["to"]
    byte = TensorProto.BOOL
    if {to, x.dtype} in ({byte, TensorProto.UINT8}, {byte, TensorProto.INT8}):
        return b.op("Cast", x, to=to)  # a bool is a byte of 0 or 1
    if to not in DTYPES or bits(to) != bits(x.dtype):
        raise Refused("the two element types differ in width, or one is not computed on")
    source, target = carrier(x.dtype), carrier(to)
    if source == target:
        body = f"%r = arith.bitcast %a0 : {source} to {target}" if source[0] != "i" else None
        if body is None:
            zero = f"%z = arith.constant 0 : {source}\n"
            body = zero + f"%r = arith.ori %a0, %z : {source}"
        return elementwise(b, body, [x], to)
    return elementwise(b, f"%r = arith.bitcast %a0 : {source} to {target}", [x], to)


@rule("BitShift")
def bit_shift(b: Builder, node: Node):
    """Shifts by the width or more, or by less than nothing, empty the word or leave its sign."""
    x, y = node.operand(0), node.operand(1)
    type_ = carrier(x.dtype)
    left = node.attrs["direction"] == "LEFT"
    arithmetic = not left and not is_unsigned(x.dtype)
    most = bits(x.dtype) - 1
    body = [
        f"%most = arith.constant {most} : {type_}",
        f"%zero = arith.constant 0 : {type_}",
        f"%inside = arith.cmpi ule, %a1, %most : {type_}",
        f"%count = arith.select %inside, %a1, %most : {type_}",
        f"%shifted = arith.{'shli' if left else 'shrsi' if arithmetic else 'shrui'} %a0, %count : {type_}",
    ]
    kept = "%shifted" if arithmetic else "%zero"
    body.append(f"%r = arith.select %inside, %shifted, {kept} : {type_}")
    return elementwise(b, "\n".join(body), [x, y], x.dtype)


@rule("Round")
def round_half_even(b: Builder, node: Node):
    x = node.operand(0)
    return elementwise(b, f"%r = math.roundeven %a0 : {carrier(x.dtype)}", [x], x.dtype)


@rule("Div")
def divide(b: Builder, node: Node):
    """Integers divide towards zero, unsigned ones as such."""
    x, y = node.operand(0), node.operand(1)
    if x.is_float:
        return None
    op = "divui" if is_unsigned(x.dtype) else "divsi"
    return elementwise(b, f"%r = arith.{op} %a0, %a1 : {carrier(x.dtype)}", [x, y], x.dtype)


COMPARISONS = {"Greater": "gt", "GreaterOrEqual": "ge", "Less": "lt", "LessOrEqual": "le"}


@rule(*COMPARISONS)
def compare_unsigned(b: Builder, node: Node):
    x, y = node.operand(0), node.operand(1)
    if not is_unsigned(x.dtype):
        return None
    predicate = f"u{COMPARISONS[node.op]}"
    return elementwise(
        b, f"%r = arith.cmpi {predicate}, %a0, %a1 : {carrier(x.dtype)}", [x, y], TensorProto.BOOL
    )


@rule("Min", "Max")
def extremum(b: Builder, node: Node):
    """Of any number of operands; NaN wins, as in numpy."""
    word = node.op.lower()
    result = node.operand(0)
    for index in range(1, len(node.inputs)):
        other = node.operand(index)
        if result.is_float:
            op = f"arith.{word}imumf"
        else:
            op = f"arith.{word}{'ui' if is_unsigned(result.dtype) else 'si'}"
        result = elementwise(
            b, f"%r = {op} %a0, %a1 : {carrier(result.dtype)}", [result, other], result.dtype
        )
    return result


@rule("Clip")
def clip(b: Builder, node: Node):
    """min(max(x, least), most), either bound left out: where they cross, the result is `most`, and NaN is kept."""
    result = node.operand(0)
    for word, bound in (("Max", node.input(1)), ("Min", node.input(2))):
        if bound is None:
            continue
        if bound.size != 1:
            raise Refused(f"expected a number as its bound, found a tensor of shape {bound.shape}")
        result = b.op(word, result, forms.reshape(b, bound, ()))
    return result


@rule("Mod")
def modulo(b: Builder, node: Node):
    """`fmod` = 0 takes the divisor's sign (integers), 1 the dividend's."""
    x, y = node.operand(0), node.operand(1)
    type_ = carrier(x.dtype)
    if x.is_float:
        if node.attrs.get("fmod", 0):
            return elementwise(b, f"%r = arith.remf %a0, %a1 : {type_}", [x, y], x.dtype)
        return _floored(
            b, x, y, f"%m = arith.remf %a0, %a1 : {type_}", "arith.cmpf one", "arith.cmpf olt", "addf"
        )
    if is_unsigned(x.dtype):
        return elementwise(b, f"%r = arith.remui %a0, %a1 : {type_}", [x, y], x.dtype)
    rest = f"%m = arith.remsi %a0, %a1 : {type_}"
    if node.attrs.get("fmod", 0):
        return elementwise(b, rest.replace("%m", "%r"), [x, y], x.dtype)
    return _floored(b, x, y, rest, "arith.cmpi ne", "arith.cmpi slt", "addi")


def _floored(b: Builder, x, y, rest: str, differs: str, less: str, plus: str):
    type_ = carrier(x.dtype)
    zero = "0.0" if x.is_float else "0"
    body = [
        rest,
        f"%zero = arith.constant {zero} : {type_}",
        f"%some = {differs}, %m, %zero : {type_}",
        f"%below = {less}, %m, %zero : {type_}",
        f"%under = {less}, %a1, %zero : {type_}",
        "%across = arith.xori %below, %under : i1",
        "%both = arith.andi %some, %across : i1",
        f"%moved = arith.{plus} %m, %a1 : {type_}",
        f"%r = arith.select %both, %moved, %m : {type_}",
    ]
    return elementwise(b, "\n".join(body), [x, y], x.dtype)


@rule("Cast")
def cast(b: Builder, node: Node):
    """Between the types that kernels compute on; float to integer truncates and saturates, to bool tests for zero."""
    x, to = node.operand(0), node.attrs["to"]
    if to == x.dtype:
        return x
    if x.dtype in CARRIERS or to in CARRIERS:
        return cast_small(b, x, to, bool(node.attrs.get("saturate", 1)), node.attrs.get("round_mode", "up"))
    if x.dtype not in DTYPES or to not in DTYPES:
        raise Refused(f"there is no cast from {type_name(x.dtype)} to {type_name(to)}")
    return elementwise(b, cast_body(x.dtype, to), [x], to)


def cast_body(source: int, target: int) -> str:
    """The scalar body of a cast."""
    s, t = carrier(source), carrier(target)
    if "c" in DTYPES[source] + DTYPES[target]:
        raise Refused("casts of complex numbers are not taken")
    from_float, to_float = s[0] != "i", t[0] != "i"
    if target == TensorProto.BOOL:
        if from_float:
            return f"%z = arith.constant 0.0 : {s}\n%r = arith.cmpf une, %a0, %z : {s}"
        return f"%z = arith.constant 0 : {s}\n%r = arith.cmpi ne, %a0, %z : {s}"
    if from_float and to_float:
        return _float_to_float(s, t)
    if from_float:
        return _float_to_integer(source, target)
    if to_float:
        return f"%r = arith.{'uitofp' if is_unsigned(source) else 'sitofp'} %a0 : {s} to {t}"
    if bits(source) == bits(target):
        return f"%z = arith.constant 0 : {s}\n%r = arith.ori %a0, %z : {s}"
    if bits(source) > bits(target):
        return f"%r = arith.trunci %a0 : {s} to {t}"
    return f"%r = arith.{'extui' if is_unsigned(source) else 'extsi'} %a0 : {s} to {t}"


ODD = [
    "%near = arith.truncf %a0 : f64 to f32",
    "%back = arith.extf %near : f32 to f64",
    "%inexact = arith.cmpf one, %back, %a0 : f64",
    "%exactsize = math.absf %a0 : f64",
    "%nearsize = math.absf %back : f64",
    "%away = arith.cmpf ogt, %nearsize, %exactsize : f64",
    "%nearbits = arith.bitcast %near : f32 to i32",
    "%one = arith.constant 1 : i32",
    "%below = arith.subi %nearbits, %one : i32",
    "%chopped = arith.select %away, %below, %nearbits : i32",
    "%marked = arith.ori %chopped, %one : i32",
    "%oddbits = arith.select %inexact, %marked, %nearbits : i32",
    "%odd = arith.bitcast %oddbits : i32 to f32",
]
"""f64 rounded to an odd f32: rounding that again, to 16 bits, gives what rounding once gives.

There is no instruction for f64 to f16, and the library function that stands for it is in no C library.
"""


def _float_to_float(s: str, t: str) -> str:
    width = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64}
    if width[s] < width[t]:
        return f"%r = arith.extf %a0 : {s} to {t}"
    if width[s] == 64 and width[t] == 16:
        return "\n".join([*ODD, f"%r = arith.truncf %odd : f32 to {t}"])
    if width[s] > width[t]:
        return f"%r = arith.truncf %a0 : {s} to {t}"
    return f"%w = arith.extf %a0 : {s} to f32\n%r = arith.truncf %w : f32 to {t}"


def _float_to_integer(source: int, target: int) -> str:
    """Through 64 bits, so that a value beyond a narrow type wraps as numpy's casts do."""
    s, t = carrier(source), carrier(target)
    if bits(target) == 64:
        return f"%r = arith.{'fptoui' if is_unsigned(target) else 'fptosi'} %a0 : {s} to i64"
    return f"%w = arith.fptosi %a0 : {s} to i64\n%r = arith.trunci %w : i64 to {t}"


ORDERS = {"ReduceMax", "ReduceMin", "ArgMax", "ArgMin", "TopK", "ScatterND"}
"""Operators that only compare: unsigned 64-bit integers keep their order as signed ones with the top bit turned."""


def widened(b: Builder, node: Node, results: list[int]) -> list[Value]:
    """A node over unsigned integers done on signed ones that hold them, its unsigned results brought back."""
    top = f"%top = arith.constant {-(2**63)} : i64\n%r = arith.xori %a0, %top : i64"
    inputs: list[Value | None] = []
    for value in node.inputs:
        if value is None or value.dtype not in SIGNED:
            inputs.append(value)
        elif value.dtype != TensorProto.UINT64:
            inputs.append(b.op("Cast", value, to=TensorProto.INT64))
        elif node.op in ORDERS:
            inputs.append(elementwise(b, top, [value], TensorProto.INT64))
        else:
            raise Refused("on unsigned 64-bit integers there is no lowering for it")
    found = b.kept(node.op, *inputs, outputs=node.outputs, **node.attrs)
    outputs = found if node.outputs > 1 else [found]
    return [
        value
        if dtype not in SIGNED
        else elementwise(b, top, [value], dtype)
        if dtype == TensorProto.UINT64
        else b.op("Cast", value, to=dtype)
        for value, dtype in zip(outputs, results)
    ]


@rule("Neg")
def negative(b: Builder, node: Node):
    """0 - x of integers, which torch-mlir would negate as f32."""
    x = node.operand(0)
    return None if x.is_float else forms.sub(b, 0, x)


@rule("Abs", "Sign")
def magnitude(b: Builder, node: Node):
    """An unsigned integer is its own magnitude, its sign is whether it is more than zero; that of NaN is NaN."""
    x = node.operand(0)
    if node.op == "Sign" and x.is_float:
        return b.op("Where", b.op("IsNaN", x), x, b.kept("Sign", x))
    if x.dtype not in SIGNED:
        return None
    if node.op == "Abs":
        return x
    none = b.op("Equal", x, b.scalar(0, x))
    return b.op("Where", none, b.scalar(0, x), b.scalar(1, x))


@rule("Shrink")
def shrink(b: Builder, node: Node):
    """Integers are compared with the bound as numbers, and cut to integers again."""
    x = node.operand(0)
    if x.is_float:
        return None
    attrs = {name: float(node.attrs.get(name, default)) for name, default in (("bias", 0.0), ("lambd", 0.5))}
    return b.op("Cast", b.op("Shrink", b.op("Cast", x, to=TensorProto.DOUBLE), **attrs), to=x.dtype)


@rule("Pow")
def power(b: Builder, node: Node):
    """An integer exponent of a float is that float's type, which holds those that matter exactly.

    Integers to the power of floats are f64 powers cut to integers, to the power of integers products that wrap around.
    """
    x, y = node.operand(0), node.operand(1)
    if x.is_float:
        return None if y.is_float else b.op("Pow", x, b.op("Cast", y, to=x.dtype))
    if not y.is_float:
        return _integer_power(b, x, y)
    wide = (forms.cast(b, v, TensorProto.DOUBLE) for v in (x, y))
    return forms.cast(b, b.op("Pow", *wide), x.dtype)


def _integer_power(b: Builder, x: Value, y: Value) -> Value:
    """By squaring; a power below zero is 0 but of 1 and -1, and of 0 what infinity is cast to."""
    count = bits(y.dtype) - (not is_unsigned(y.dtype))
    if y.array is not None and not y.weight:
        count = min(count, max(map(int.bit_length, y.ints()), default=0))
    result, exponent = carrier(x.dtype), carrier(y.dtype)
    constants = {"%x0": 0, "%x1": 1, "%minus": -1, "%least": -(2 ** (bits(x.dtype) - 1))}
    body = [f"{name} = arith.constant {number} : {result}" for name, number in constants.items()]
    body += [f"%y{number} = arith.constant {number} : {exponent}" for number in (0, 1)]
    power, square = "%x1", "%a0"
    for bit in range(count):
        body += [
            f"%place{bit} = arith.constant {1 << bit} : {exponent}",
            f"%bit{bit} = arith.andi %a1, %place{bit} : {exponent}",
            f"%has{bit} = arith.cmpi ne, %bit{bit}, %y0 : {exponent}",
            f"%product{bit} = arith.muli {power}, {square} : {result}",
            f"%power{bit} = arith.select %has{bit}, %product{bit}, {power} : {result}",
            f"%square{bit} = arith.muli {square}, {square} : {result}",
        ]
        power, square = f"%power{bit}", f"%square{bit}"
    if is_unsigned(y.dtype):
        body.append(f"%r = arith.ori {power}, %x0 : {result}")
    else:
        body += [
            f"%parity = arith.andi %a1, %y1 : {exponent}",
            f"%odd = arith.cmpi ne, %parity, %y0 : {exponent}",
            f"%turning = arith.select %odd, %minus, %x1 : {result}",
            f"%none = arith.cmpi eq, %a0, %x0 : {result}",
            f"%one = arith.cmpi eq, %a0, %x1 : {result}",
            f"%turns = arith.cmpi eq, %a0, %minus : {result}",
            f"%below0 = arith.select %none, %least, %x0 : {result}",
            f"%below1 = arith.select %one, %x1, %below0 : {result}",
            f"%below = arith.select %turns, %turning, %below1 : {result}",
            f"%negative = arith.cmpi slt, %a1, %y0 : {exponent}",
            f"%r = arith.select %negative, %below, {power} : {result}",
        ]
    return elementwise(b, "\n".join(body), [x, y], x.dtype)


@rule("Sum")
def sum_of_many(b: Builder, node: Node):
    """torch-mlir adds up in the shape of the first two operands, so that the first gets that of all."""
    first = node.operand(0)
    shape = broadcast(*(node.operand(i).shape for i in range(len(node.inputs))))
    return None if first.shape == shape else b.op("Sum", forms.expand(b, first, shape), *node.inputs[1:])


@rule("Mean")
def mean_of_many(b: Builder, node: Node):
    """The sum over the number of operands, rounded once: torch-mlir does not lower that of four shapes."""
    kind, count = node.operand(0).dtype, len(node.inputs)
    wide = kind if kind == TensorProto.DOUBLE else TensorProto.FLOAT
    total = b.op("Sum", *(forms.cast(b, node.operand(i), wide) for i in range(count)))
    return forms.cast(b, forms.div(b, total, count), kind)
