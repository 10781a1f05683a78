"""simplify-bodies: linalg bodies keep only what PyTorch computes and somebody reads."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from tilewright.compiler.ir import arith, ir, linalg, static_shape, tensor, transform_interpreter, walk
from tilewright.compiler.ir import math as math_dialect
from tilewright.compiler.pipeline.pass_base import Pass
from tilewright.compiler.rewriting.generics import body, drop_operands, input_count, is_read, terminator

FOREIGN_ASSERTS = frozenset({"unimplemented: tensor with zero element"})
"""Messages of run-time checks that torch-mlir adds and eager PyTorch does not make: `1 / 0` is infinity."""

_NAMED = """
abs add broadcast ceil copy div div_unsigned elementwise erf exp floor log map max min mul negf powf
reciprocal reduce round rsqrt select sqrt square sub tanh transpose
"""
GENERALIZED = frozenset(f"linalg.{name}" for name in _NAMED.split())
"""Named ops that carry no more meaning than their generic form: contractions, convolutions, poolings, fills
and packs stay named."""

_PURE_DIALECTS = ("arith", "math", "complex")
_PURE_OPS = ("linalg.index", "tensor.extract", "tensor.dim")


@dataclass(frozen=True)
class SimplifyBodies(Pass):
    """Removes from linalg bodies what blocks fusion: foreign asserts, unread results, scalar casts, powers.

    Before: a maximum that drags its index along, a reciprocal that refuses zero, a square through `pow`:

        %m:2 = linalg.generic ... ins(%x) outs(%lowest, %zeros)      // %m#1 has no reader
                 { maximumf; cmpf; select; yield %max, %index }
        %r = linalg.generic ... { %ok = cmpf one, %in, 0; cf.assert %ok, "unimplemented: ..."; divf 1, %in }
        %s = linalg.generic ... { %e = truncf %c2 : f64 to f32; math.powf %in, %e }

    After:

        %m = linalg.generic ... ins(%x) outs(%lowest) { maximumf; yield %max }
        %r = linalg.generic ... { divf 1, %in }
        %s = linalg.generic ... { mulf %in, %in }

    Named elementwise, broadcast, transpose, map and reduce ops become `linalg.generic` first (`generalize`).
    Asserts that eager PyTorch makes too (an index out of range) stay. Powers follow eager PyTorch, which
    computes exponents 0.5, 2, 3, -0.5, -1 and -2 by square roots, products and reciprocals; the
    factors inside GELU are eager's too.
    """

    anchor: ClassVar[str] = "builtin.module"
    generalize: bool = True

    def run(self, op: ir.Operation) -> None:
        if self.generalize:
            _generalize(op)
        # Consumers first: a result that loses its last reader there is seen as unread here.
        for generic in reversed(walk(op, "linalg.generic")):
            block = body(generic)
            changed = [_simplify(inner.operation) for inner in list(block.operations)]
            if any(changed):
                _erase_dead(block)
            if len(generic.results) > 1:
                generic = _keep_read_results(generic)
            elif generic.results and constant_of(terminator(block).operands[0]) is not None:
                _become_fill(generic)
                continue
            _take_starts_as_inputs(generic)


def _generalize(op: ir.Operation) -> None:
    """Rewrites the named ops of GENERALIZED in `op` to `linalg.generic`, which fusion treats alike."""
    present = sorted({inner.name for inner in walk(op) if inner.name in GENERALIZED})
    if not present:
        return
    names = ", ".join(f'"{name}"' for name in present)
    script = ir.Module.parse(f"""
      module attributes {{transform.with_named_sequence}} {{
        transform.named_sequence @__transform_main(%root: !transform.any_op {{transform.readonly}}) {{
          %named = transform.structured.match ops{{[{names}]}} in %root
              : (!transform.any_op) -> !transform.any_op
          %generic = transform.structured.generalize %named : (!transform.any_op) -> !transform.any_op
          transform.yield
        }}
      }}""")
    sequence = script.body.operations[0].operation
    transform_interpreter.apply_named_sequence(op, sequence, script.operation)


def constant_of(value: ir.Value) -> float | int | None:
    """The number that a scalar `arith.constant` gives `value`, None when it is anything else."""
    if isinstance(value.owner, ir.Block) or value.owner.name != "arith.constant":
        return None
    attribute = value.owner.attributes["value"]
    return attribute.value if isinstance(attribute, (ir.FloatAttr, ir.IntegerAttr)) else None


def _simplify(op: ir.Operation) -> bool:
    """Simplifies one op of a body; returns whether anything changed."""
    if op.name == "cf.assert":
        message = ir.StringAttr(op.attributes["msg"]).value
        if message not in FOREIGN_ASSERTS and constant_of(op.operands[0]) not in (1, -1):
            return False
        op.erase()
        return True
    if op.name in ("arith.truncf", "arith.extf"):
        number = constant_of(op.operands[0])
        return number is not None and _replace_by_constant(op, float(number))
    if op.name in ("arith.fptosi", "arith.fptoui"):
        return _convert_by_words(op)
    if op.name in ("math.powf", "math.fpowi"):
        exponent = constant_of(op.operands[1])
        return exponent is not None and _expand_power(op, float(exponent))
    if op.name in ("math.tanh", "math.erf"):
        return _as_eager_gelu(op)
    if op.name == "arith.cmpf":
        return _let_nan_win(op)
    return False


def _become_fill(generic: ir.Operation) -> None:
    """Replaces a generic whose every element is one constant by `linalg.fill`, which fusion clones for free."""
    if len(generic.results) != 1 or any(op.operation.name == "cf.assert" for op in body(generic).operations):
        return
    with generic.location, ir.InsertionPoint(generic):
        value = terminator(body(generic)).operands[0]
        number = arith.constant(value.type, value.owner.attributes["value"])
        filled = linalg.fill(number, outs=[generic.operands[len(generic.operands) - 1]])
    generic.results[0].replace_all_uses_with(filled)
    generic.erase()


def _replace_by_constant(op: ir.Operation, number: float) -> bool:
    """Replaces a cast of a constant by the constant rounded to nearest, placed beside the original."""
    with op.location, ir.InsertionPoint(op.operands[0].owner):
        folded = arith.constant(op.results[0].type, number)
    op.results[0].replace_all_uses_with(folded)
    op.erase()
    return True


def _convert_by_words(op: ir.Operation) -> bool:
    """Converts to integers of fewer than 32 bits by way of 32, and keeps the low bits, as eager PyTorch does.

    LLVM may convert vectors with saturation where a signed conversion cannot hold the number: 200.0 to `i8`, which
    bytes without a sign are too, comes out as 127.
    """
    narrow = op.results[0].type
    if not isinstance(narrow, ir.IntegerType) or not 1 < narrow.width < 32:
        return False
    with op.location, ir.InsertionPoint(op):
        word = arith.fptosi(ir.IntegerType.get_signless(32), op.operands[0])
        op.results[0].replace_all_uses_with(arith.trunci(narrow, word))
    op.erase()
    return True


def _as_eager_gelu(op: ir.Operation) -> bool:
    """Gives the argument of a GELU's tanh or erf the factor that eager PyTorch uses.

    torch-mlir scales the argument of tanh by 0.797724 where sqrt(2/π) = 0.797885 is meant, and divides that of
    erf by sqrt(2) where eager multiplies by sqrt(1/2).
    """
    argument = op.operands[0]
    if isinstance(argument.owner, ir.Block):
        return False
    scaled = argument.owner.operation
    expected = {"math.tanh": ("arith.mulf", 0.797724), "math.erf": ("arith.divf", math.sqrt(2.0))}[op.name]
    factor = constant_of(scaled.operands[1]) if len(scaled.operands) == 2 else None
    if scaled.name != expected[0] or factor is None or abs(factor - expected[1]) > 2e-7:
        return False
    exact = math.sqrt(2.0 / math.pi) if op.name == "math.tanh" else math.sqrt(0.5)
    with scaled.location, ir.InsertionPoint(scaled):
        replacement = arith.mulf(scaled.operands[0], arith.constant(argument.type, exact))
    op.operands[0] = replacement
    return True


_EXTREMES = {"arith.maximumf": arith.CmpFPredicate.OGT, "arith.minimumf": arith.CmpFPredicate.OLT}


def _let_nan_win(op: ir.Operation) -> bool:
    """Lets the comparison beside a running extreme, which chooses its index, hold for the first NaN too.

    torch-mlir and our ONNX importer write `ogt %in, %best` beside `maximumf %in, %best`: the extreme is NaN then,
    its index another element's.
    """
    predicate = ir.IntegerAttr(op.attributes["predicate"]).value
    new, best = op.operands
    if predicate == arith.CmpFPredicate.OEQ and not isinstance(new.owner, ir.Block):
        return _let_nan_win_in_window(op)
    if not isinstance(best.owner, ir.Block):
        return False
    beside = {use.owner.name for use in new.uses if list(use.owner.operands) == [new, best]}
    if not any(_EXTREMES.get(name) == predicate for name in beside):
        return False
    uses = [(use.owner, use.operand_number) for use in op.results[0].uses]
    with op.location, ir.InsertionPoint.after(op):
        is_nan = arith.cmpf(arith.CmpFPredicate.UNO, new, new)
        is_first = arith.andi(is_nan, arith.cmpf(arith.CmpFPredicate.ORD, best, best))
        wins = arith.ori(op.results[0], is_first)
    for owner, number in uses:
        owner.operands[number] = wins
    return True


def _let_nan_win_in_window(equal: ir.Operation) -> bool:
    """Lets the index of a window's maximum be that of its last NaN, as in eager PyTorch.

    torch-mlir looks for the first element that equals the maximum, and finds none where that is NaN:

        %equal = oeq %extracted, %max ; %new = select %equal, %at, %index
        %unset = eq %index, -1        ; %result = select %unset, %new, %index
    """
    element = equal.operands[0]
    chosen = [use.owner for use in equal.results[0].uses]
    if element.owner.name != "tensor.extract" or [op.name for op in chosen] != ["arith.select"]:
        return False
    result = [use.owner for use in chosen[0].results[0].uses]
    if [op.name for op in result] != ["arith.select"] or result[0].operands[2] != chosen[0].operands[2]:
        return False
    with equal.location, ir.InsertionPoint.after(equal):
        is_nan = arith.cmpf(arith.CmpFPredicate.UNO, element, element)
        chosen[0].operands[0] = arith.ori(equal.results[0], is_nan)
    with equal.location, ir.InsertionPoint(result[0]):
        result[0].operands[0] = arith.ori(result[0].operands[0], is_nan)
    return True


def _expand_power(op: ir.Operation, exponent: float) -> bool:
    """Replaces `x ** exponent` by products, square roots and reciprocals where eager PyTorch does so too."""
    base, type_ = op.operands[0], op.results[0].type
    if not isinstance(type_, ir.FloatType):
        return False
    with op.location, ir.InsertionPoint(op):
        one = lambda: arith.constant(type_, 1.0)  # noqa: E731
        expansions = {
            0.0: one,
            1.0: lambda: base,
            2.0: lambda: arith.mulf(base, base),
            3.0: lambda: arith.mulf(arith.mulf(base, base), base),
            -1.0: lambda: arith.divf(one(), base),
            -2.0: lambda: arith.divf(one(), arith.mulf(base, base)),
            0.5: lambda: math_dialect.sqrt(base),
            -0.5: lambda: arith.divf(one(), math_dialect.sqrt(base)),
        }
        if exponent not in expansions:
            return False
        replacement = expansions[exponent]()
    op.results[0].replace_all_uses_with(replacement)
    op.erase()
    return True


def _is_pure(op: ir.Operation) -> bool:
    return op.name.split(".")[0] in _PURE_DIALECTS or op.name in _PURE_OPS


def _erase_dead(block: ir.Block) -> None:
    for inner in reversed(list(block.operations)):
        op = inner.operation
        if _is_pure(op) and not any(is_read(result) for result in op.results):
            op.erase()


def read_results(generic: ir.Operation) -> list[bool]:
    """Which results of a `linalg.generic` are read: by an op outside, or inside for a result that is."""
    block = body(generic)
    num_results = len(generic.results)
    first_out = len(block.arguments) - num_results
    yielded = terminator(block)
    read = [is_read(result) for result in generic.results]
    visited: set[ir.Operation] = set()
    pending = [yielded.operands[i] for i in range(num_results) if read[i]]
    for op in block.operations:
        if op.operation != yielded and not _is_pure(op.operation):
            pending.extend(operand for inner in walk(op.operation) for operand in inner.operands)
    while pending:
        value = pending.pop()
        if isinstance(value.owner, ir.Block):
            index = ir.BlockArgument(value).arg_number - first_out if value.owner == block else -1
            if index >= 0 and not read[index]:
                read[index] = True
                pending.append(yielded.operands[index])
        elif value.owner not in visited:
            visited.add(value.owner)
            pending.extend(value.owner.operands)
    return read


def _keep_read_results(generic: ir.Operation) -> ir.Operation:
    """Rebuilds `generic` without unread results, and without the inputs that only they used."""
    if not len(generic.results) or len(generic.results) != len(generic.operands) - input_count(generic):
        return generic
    read = read_results(generic)
    if all(read) or not any(read):
        return generic
    block = body(generic)
    old = terminator(block)
    with generic.location, ir.InsertionPoint(old):
        linalg.YieldOp([value for value, keep in zip(old.operands, read) if keep])
    old.erase()
    _erase_dead(block)
    return drop_operands(generic, read)


def _take_starts_as_inputs(generic: ir.Operation) -> None:
    """Lets a generic that reduces over no loop, as that of a tensor of rank 0, read its start as an input.

    Before: linalg.generic ins(%x : tensor<f32>) outs(%start : tensor<f32>) { addf %in, %out }
    After:  linalg.generic ins(%x, %start : tensor<f32>, tensor<f32>) outs(%empty : tensor<f32>) { addf %in, %s }

    Fusion takes parallel generics for element-wise ones, and would run such an accumulation once per reader.
    """
    kinds = [str(kind) for kind in generic.attributes["iterator_types"]]
    block, num_ins = body(generic), input_count(generic)
    starts = [i for i in range(num_ins, len(generic.operands)) if is_read(block.arguments[i])]
    if not starts or not len(generic.results) or any("parallel" not in kind for kind in kinds):
        return
    operands, maps = list(generic.operands), list(generic.attributes["indexing_maps"])
    order = [*range(num_ins), *starts, *range(num_ins, len(operands))]
    with generic.location, ir.InsertionPoint(generic):
        outs = [tensor.empty(static_shape(v.type), v.type.element_type) for v in operands[num_ins:]]
        rebuilt = ir.Operation.create(
            "linalg.generic",
            results=[result.type for result in generic.results],
            operands=[*(operands[i] for i in order[: num_ins + len(starts)]), *outs],
            attributes={
                **{name: generic.attributes[name] for name in generic.attributes},
                "indexing_maps": ir.ArrayAttr.get([maps[i] for i in order]),
                "operandSegmentSizes": ir.DenseI32ArrayAttr.get([num_ins + len(starts), len(outs)]),
            },
            regions=1,
        )
    made = ir.Block.create_at_start(rebuilt.regions[0], [block.arguments[i].type for i in order])
    for op in list(block.operations):
        made.append(op)
    for i, argument in enumerate(block.arguments):
        argument.replace_all_uses_with(made.arguments[order.index(i)])
    for old, new in zip(generic.results, rebuilt.results):
        old.replace_all_uses_with(new)
    generic.erase()
