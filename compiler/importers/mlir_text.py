"""Imports MLIR: a file or text with one entry function on tensors, in linalg, torch or TOSA."""

from __future__ import annotations

from pathlib import Path

from tilewright.compiler.dialects.schedule_attribute import refuse_scheduled
from tilewright.compiler.errors import ModelImportError, PassError
from tilewright.compiler.importers import Imported
from tilewright.compiler.ir import context, functions, ir, parse, run_upstream, walk
from tilewright.compiler.package.plan import tensor_spec
from tilewright.compiler.workers import modules
from tilewright.runtime.signature import Signature

_FROM_ONNX = "builtin.module(torch-onnx-to-torch-backend-pipeline)"
"""Brings `torch.operator "onnx.*"` to the torch dialect; functions need `torch.onnx_meta.opset_version`."""

_TO_LINALG = {
    "torch": "builtin.module(torch-backend-to-linalg-on-tensors-backend-pipeline)",
    "tosa": (
        "builtin.module(func.func(tosa-infer-shapes,tosa-make-broadcastable,tosa-to-linalg-named,canonicalize,"
        "tosa-to-linalg,tosa-to-arith,tosa-to-tensor))"
    ),
}
"""Dialect -> the upstream pipeline that brings it to linalg on tensors; the torch dialect in its backend form."""

_TIDY = "builtin.module(inline,symbol-dce,func.func(convert-elementwise-to-linalg))"
"""Puts callees into the entry, and `arith` and `math` on whole tensors into linalg."""


def import_mlir(model: str | Path) -> Imported:
    """`model` is a path ending in `.mlir`, or MLIR text; its arguments in order are the model's inputs.

    The entry is `@main`, or the only public function; its callees are inlined. Text holds no weights, so
    arguments that are marked as weights become inputs too. Calls take and give numpy arrays or torch tensors: one
    result as it is, several as a tuple. Raises ModelImportError that says what does not fit, with the place.
    """
    path = Path(model) if isinstance(model, Path) or ("\n" not in model and model.endswith(".mlir")) else None
    name = str(path) if path else "<string>"
    try:
        text = path.read_text() if path else str(model)
    except (OSError, UnicodeDecodeError) as error:
        raise ModelImportError(f"`{name}`: cannot be read: {error}") from None
    try:
        module, what = parse(text, name), f"the import of `{name}`"
        if any(op.name == "torch.operator" for op in walk(module.operation)):
            modules.run_upstream(module, _FROM_ONNX, what)
        for dialect, pipeline in _TO_LINALG.items():
            if any(op.name.startswith(f"{dialect}.") for op in walk(module.operation)):
                modules.run_upstream(module, pipeline, what)
        refuse_scheduled(module, "import")
        entry = _entry(module, name)
        run_upstream(module.operation, _TIDY)
    except PassError as error:
        raise ModelImportError(str(error)) from None
    type_ = entry.attributes["function_type"].value
    names = _names(entry, len(type_.inputs))
    try:
        inputs = [tensor_spec(t, name) for t, name in zip(type_.inputs, names, strict=True)]
        results = [tensor_spec(t, f"result{i}") for i, t in enumerate(type_.results)]
    except (PassError, ValueError, TypeError) as error:
        raise ModelImportError(
            f"{entry.location}: the entry function takes and gives tensors of static shape, found {type_}: {error}"
        ) from None
    with context():
        entry.attributes["sym_name"] = ir.StringAttr.get("main")
        entry.attributes["arg_attrs"] = ir.ArrayAttr.get(
            [
                ir.DictAttr.get(
                    {
                        "tilewright.role": ir.StringAttr.get("input"),
                        "tilewright.name": ir.StringAttr.get(name),
                    }
                )
                for name in names
            ]
        )
    returns = "tensor" if len(results) == 1 else "tuple"
    return Imported(module, Signature.flat(inputs, results, returns=returns))


def _entry(module: ir.Module, name: str) -> ir.Operation:
    """`@main`, or the only public function with a body; anything else that is public becomes private."""
    public = []
    for function in functions(module):
        hidden = (
            "sym_visibility" in function.attributes
            and function.attributes["sym_visibility"].value == "private"
        )
        if not hidden and function.regions[0].blocks:
            public.append(function)
    named = [f for f in public if ir.StringAttr(f.attributes["sym_name"]).value == "main"]
    if not named and len(public) != 1:
        found = ", ".join(f"@{ir.StringAttr(f.attributes['sym_name']).value}" for f in public) or "none"
        raise ModelImportError(
            f"`{name}`: expected a function @main or a single public function, found {found}"
        )
    entry = (named or public)[0]
    with context():
        for function in public:
            if function != entry:
                function.attributes["sym_visibility"] = ir.StringAttr.get("private")
    return entry


def _names(entry: ir.Operation, count: int) -> list[str]:
    """Arguments by their `tilewright.name`, else `arg0`, `arg1`, ..."""
    attributes = list(entry.attributes["arg_attrs"]) if "arg_attrs" in entry.attributes else [{}] * count
    return [
        ir.StringAttr(entry_attributes["tilewright.name"]).value
        if "tilewright.name" in entry_attributes
        else f"arg{number}"
        for number, entry_attributes in enumerate(attributes)
    ]
