"""Turns a GPU kernel into a function of the CPU: the body of one GPU thread, which calls the emulator.

    gpu.func @scale(%a: memref<256xf32>) kernel { %t = gpu.thread_id x  ...  gpu.barrier  ...  gpu.return }
becomes
    func.func @scale(%context: !llvm.ptr, %thread: index, %block: index, %shared: memref<16xi8>, %a: memref<256xf32>)
        attributes {tilewright.emulated = "{...}"} {
      ...
      call @twe_barrier(%context, %site)
      ...

`tilewright.emulated` is what the emulator must know of the kernel, as JSON: see runtime/emulated_kernel.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

from tilewright.compiler.gpu.emulated_accesses import ATOMICS, LOADS, STORES, Accesses
from tilewright.compiler.gpu.emulated_calls import SITE, Calls, index, is_shared, origin, pointer, value_bytes
from tilewright.compiler.gpu.emulated_operations import LOWERINGS, Kernel, lower_operations
from tilewright.compiler.gpu.launch import LAUNCH
from tilewright.compiler.ir import element_bytes, func, ir, walk
from tilewright.compiler.pipeline.diagnostics import place
from tilewright.compiler.pipeline.pass_base import Pass

EMULATED = "tilewright.emulated"
MOST_SITES = 0x7FFF
"""Operations that the emulator can tell apart."""
MOST_OWN_BYTES = 65536
"""Bytes of `memref.alloca`: half of a fiber's stack. On a GPU no thread has so many registers by far."""
_LEAST_SHARED_BYTES = 16
_ATOMIC = ATOMICS | {"tilewright.load_acquire", "tilewright.store_release", "tilewright.atomic_add"}
_ASYNC_PROXY = {
    "tilewright.tma_load", "tilewright.tma_load_multicast", "tilewright.tma_store", "tilewright.wgmma",
    "tilewright.wgmma_register",
}  # fmt: skip
_LONGEST = 200


@dataclass(frozen=True)
class LowerToEmulator(Pass):
    """Rewrites the module's kernel, whose shared memory has been placed; `checked` adds checks of every access."""

    checked: bool = True

    def run(self, op: ir.Operation) -> None:
        kernels = walk(op, "gpu.func")
        if len(kernels) != 1:
            raise self.refusal(op, f"expected one gpu.func, found {len(kernels)}; lower kernels one by one")
        kernel = kernels[0]
        for inner in walk(kernel, "memref.alloc"):
            raise self.refusal(inner, "expected placed shared memory, found an allocation; run place-shared")
        own = sum(_bytes(ir.MemRefType(array.results[0].type)) for array in walk(kernel, "memref.alloca"))
        if own > MOST_OWN_BYTES:
            raise self.refusal(
                kernel,
                f"arrays of a thread may have {MOST_OWN_BYTES:,} B in all, found {own:,} B; keep them in shared memory",
            )
        if LAUNCH not in kernel.attributes:
            raise self.refusal(kernel, f"expected `{LAUNCH}`, found none; write how the kernel is launched")
        launch = {entry.name: entry.attr for entry in ir.DictAttr(kernel.attributes[LAUNCH])}
        description = {"checked": self.checked, **_number(kernel)}
        if len(description["sites"]) > MOST_SITES:
            raise self.refusal(
                kernel,
                f"the emulator tells at most {MOST_SITES} operations apart, found {len(description['sites'])}; "
                "unroll less",
            )
        description["buffers"] = _buffers(kernel, launch)
        module = op.regions[0].blocks[0]
        function = self._function(kernel, launch, module)
        for inner in list(module.operations):
            if inner.operation.name == "gpu.module":
                inner.operation.erase()
        if "gpu.container_module" in op.attributes:
            del op.attributes["gpu.container_module"]
        self._rewrite(op, function, launch)
        _forget_spaces(function)
        function.attributes[EMULATED] = ir.StringAttr.get(json.dumps(description))

    def _function(self, kernel: ir.Operation, launch: dict, module: ir.Block) -> ir.Operation:
        """A function with the kernel's body; its first arguments are the context, ids and shared memory."""
        body = kernel.regions[0].blocks[0]
        shared = _integer(launch, "shared_bytes")
        space = ir.Attribute.parse("#gpu.address_space<workgroup>")
        memory = ir.MemRefType.get(
            [max(shared, _LEAST_SHARED_BYTES)], ir.IntegerType.get_signless(8), memory_space=space
        )
        first = [pointer(), index(), index(), memory]
        types = [*first, *(argument.type for argument in body.arguments)]
        with ir.InsertionPoint(module), kernel.location:
            made = func.FuncOp(ir.StringAttr(kernel.attributes["sym_name"]).value, (types, [])).operation
        region = made.regions[0]
        entry = region.blocks.append(*types, arg_locs=[kernel.location] * len(types))
        for old, new in zip(body.arguments, list(entry.arguments)[len(first) :]):
            old.replace_all_uses_with(new)
        for inner in list(body.operations):
            inner.operation.detach_from_parent()
            entry.append(inner)
        for block in list(kernel.regions[0].blocks)[1:]:
            block.append_to(region)
        return made

    def _rewrite(self, module: ir.Operation, function: ir.Operation, launch: dict) -> None:
        _, thread, block, shared, *parameters = function.regions[0].blocks[0].arguments
        calls = Calls(module, function)
        accesses = Accesses(calls, [p for p in parameters if isinstance(p.type, ir.MemRefType)])
        sizes = _integer(launch, "block"), _integer(launch, "grid")
        kernel = Kernel(calls, accesses, thread, block, shared, *sizes, self.checked)
        for inner in walk(function):
            if inner.name == "gpu.return":
                with ir.InsertionPoint(inner), inner.location:
                    func.ReturnOp([])
                inner.erase()
            elif self.checked and inner.name in LOADS | STORES | ATOMICS:
                accesses.check(inner)
        for left in lower_operations(kernel, function):
            raise self.refusal(left, f"the emulator does not know `{left.name}`; write it with what it knows")
        for inner in walk(function):
            if inner.name in LOADS | STORES and "alignment" in inner.attributes:
                # The CPU takes any address as fast, and one that is wrongly aligned must not end the process.
                del inner.attributes["alignment"]


def _number(kernel: ir.Operation) -> dict:
    """Numbers the operations that findings may name: their text and place, and which are atomic."""
    numbered = [op for op in walk(kernel) if op.name in LOADS | STORES | ATOMICS | LOWERINGS.keys()]
    i64 = ir.IntegerType.get_signless(64)
    for number, op in enumerate(numbered):
        op.attributes[SITE] = ir.IntegerAttr.get(i64, number)
    texts = [""] * len(numbered)
    mark = re.compile(rf"(, )?{re.escape(SITE)} = (\d+) : i64(, )?")
    for line in kernel.get_asm(enable_debug_info=False, use_local_scope=True).splitlines():
        if found := mark.search(line):
            both = ", " if found[1] and found[3] else ""
            text = (
                (line[: found.start()] + both + line[found.end() :]).replace(" {}", "").replace(" <{}>", "")
            )
            texts[int(found[2])] = text.strip()
    sites = []
    for op, text in zip(numbered, texts):
        text = (text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "...") or op.name
        where = place(op.location)
        sites.append(f"{text}  ({where})" if where else text)
    return {
        "sites": sites,
        "atomic": [int(op.name in _ATOMIC) for op in numbered],
        "async_proxy": any(op.name in _ASYNC_PROXY for op in numbered),
    }


def _buffers(kernel: ir.Operation, launch: dict) -> list[dict]:
    """Facts of the memref arguments in order: buffers of the step, then workspace, then status."""
    arguments = [a for a in kernel.regions[0].blocks[0].arguments if isinstance(a.type, ir.MemRefType)]
    kinds = ["buffer"] * len(arguments)
    if "asserts" in launch and len(ir.ArrayAttr(launch["asserts"])):
        kinds[-1] = "status"
    if _integer(launch, "workspace_bytes"):
        kinds[-2 if kinds[-1] == "status" else -1] = "workspace"
    written = _written(kernel, arguments, launch)
    marks = list(kernel.attributes["arg_attrs"]) if "arg_attrs" in kernel.attributes else []
    described = []
    for number, (argument, kind) in enumerate(zip(arguments, kinds)):
        type_ = ir.MemRefType(argument.type)
        strides, offset = type_.get_strides_and_offset()
        size = element_bytes(type_.element_type)
        last = sum((extent - 1) * stride for extent, stride in zip(type_.shape, strides))
        described.append(
            {
                "kind": kind,
                "bytes": 0 if 0 in type_.shape else (offset + last + 1) * size,
                "granule": min(4, _viewed_bytes(argument) if kind == "workspace" else size),
                "written": int(number in written),
                "private": int(number < len(marks) and "llvm.noalias" in marks[number]),
            }
        )
    return described


def _viewed_bytes(workspace: ir.Value) -> int:
    """Bytes of the shortest elements that lie in a workspace: blocks may write such beside each other."""
    views = (use.owner.operation for use in workspace.uses)
    types = (ir.MemRefType(op.results[0].type) for op in views if op.name == "memref.view")
    return min((element_bytes(type_.element_type) for type_ in types), default=4)


def _bytes(type_: ir.MemRefType) -> int:
    count = value_bytes(type_.element_type)
    for extent in type_.shape:
        count *= extent
    return count


def _written(kernel: ir.Operation, arguments: list[ir.Value], launch: dict) -> set[int]:
    """Numbers of the arguments that the kernel may write to; all of them where a target is chosen at run time."""
    targets = [op.operands[1] for op in walk(kernel) if op.name in STORES or op.name == "memref.atomic_rmw"]
    others = ("memref.generic_atomic_rmw", "tilewright.store_release", "tilewright.atomic_add")
    targets += [op.operands[0] for op in walk(kernel) if op.name in others]
    written: set[int] = set()
    for target in targets:
        if is_shared(target.type):
            continue
        base = origin(target)
        if isinstance(base.owner, ir.Block):
            known = [number for number, argument in enumerate(arguments) if argument == base]
            written |= set(known) if known else set(range(len(arguments)))
        elif base.owner.name not in ("memref.alloca", "gpu.dynamic_shared_memory"):
            written |= set(range(len(arguments)))
    if walk(kernel, "tilewright.tma_store"):
        maps = [a for a in kernel.regions[0].blocks[0].arguments if not isinstance(a.type, ir.MemRefType)]
        for store in walk(kernel, "tilewright.tma_store"):
            number = next((i for i, map_ in enumerate(maps) if map_ == store.operands[0]), None)
            fields = [] if number is None else [launch["tensor_maps"][number]]
            for entry in fields or launch["tensor_maps"]:
                written.add(ir.IntegerAttr(ir.DictAttr(entry)["buffer"]).value)
    return written


def _forget_spaces(function: ir.Operation) -> None:
    """Removes memory spaces, which the CPU has none of, from all types; copies' tokens become numbers."""

    def plain(type_: ir.Type) -> ir.Type | None:
        if isinstance(type_, ir.MemRefType) and type_.memory_space is not None:
            return ir.MemRefType.get(type_.shape, type_.element_type, layout=type_.layout)
        return index() if str(type_) == "!nvgpu.device.async.token" else None

    def forget(values: Iterable[ir.Value]) -> None:
        for value in values:
            if (type_ := plain(value.type)) is not None:
                value.set_type(type_)

    for op in walk(function):
        forget(op.results)
        for region in op.regions:
            for block in region.blocks:
                forget(block.arguments)
    for cast in walk(function, "memref.memory_space_cast"):
        cast.results[0].replace_all_uses_with(cast.operands[0])
        cast.erase()
    types = [argument.type for argument in function.regions[0].blocks[0].arguments]
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, []))


def _integer(launch: dict, name: str) -> int:
    return ir.IntegerAttr(launch[name]).value if name in launch else 0
