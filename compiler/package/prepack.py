"""@prepack, the function that runs once when weights are bound, and the arguments of @main that it computes."""

from __future__ import annotations

from tilewright.compiler.analysis.weight_flow import ROLE
from tilewright.compiler.ir import func, ir

NAME, INDEX = "tilewright.name", "tilewright.index"
"""On an argument of @main: what it is called, and which result of @prepack it is."""


def empty_prepack(main: ir.Operation, roles: list[str]) -> ir.Operation:
    """A @prepack behind @main that takes all weights and gives nothing yet."""
    block = main.regions[0].blocks[0]
    weights = [i for i, role in enumerate(roles) if role == "weight"]
    types = [block.arguments[i].type for i in weights]
    with main.location, ir.InsertionPoint.after(main):
        prepack = func.FuncOp("prepack", (types, [])).operation
    attributes = main.attributes["arg_attrs"]
    prepack.attributes["arg_attrs"] = ir.ArrayAttr.get([attributes[i] for i in weights])
    with main.location:
        entry = ir.Block.create_at_start(prepack.regions[0], types, [main.location] * len(types))
        with ir.InsertionPoint(entry):
            func.ReturnOp([])
    return prepack


def packed_attributes(number: int) -> ir.DictAttr:
    """What an argument of @main carries that is result `number` of @prepack."""
    i64 = ir.IntegerType.get_signless(64)
    return ir.DictAttr.get(
        {
            ROLE: ir.StringAttr.get("packed"),
            NAME: ir.StringAttr.get(f"packed{number}"),
            INDEX: ir.IntegerAttr.get(i64, number),
        }
    )


def function_type(function: ir.Operation) -> ir.FunctionType:
    return ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)


def retype(function: ir.Operation, inputs: list, results: list, arg_attrs: list) -> None:
    """Gives `function` other types; its block is the caller's concern."""
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, results))
    function.attributes["arg_attrs"] = ir.ArrayAttr.get(arg_attrs)


def return_values(function: ir.Operation, terminator: ir.Operation, values: list[ir.Value]) -> None:
    """Makes `function` return `values`."""
    with terminator.location, ir.InsertionPoint(terminator):
        func.ReturnOp(values)
    terminator.erase()
    inputs = list(function_type(function).inputs)
    retype(function, inputs, [value.type for value in values], list(function.attributes["arg_attrs"]))
