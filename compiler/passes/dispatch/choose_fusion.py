"""Chooses which operations are computed in the dispatch of those that read their results, and writes it on them.

    %0 = linalg.generic // matmul ; %1 = linalg.generic // bias
      =>
    %0 = linalg.generic {tilewright.choice = {joins = true}} // matmul ; %1 = linalg.generic // bias

`outline-dispatches` carries it out, and chooses the same for what carries nothing: this pass writes it down to be read and
edited. An operation that carries `joins` keeps it; one that no group could ever take in has none.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.compiler.analysis.fusion_groups import Grouping, IllegalChoiceError
from tilewright.compiler.dialects import choice_attribute
from tilewright.compiler.ir import functions, ir
from tilewright.compiler.passes.dispatch.outline_dispatches import OutlineDispatches
from tilewright.compiler.pipeline.pass_base import Pass
from tilewright.compiler.targets.target import Target


@dataclass(frozen=True)
class ChooseFusion(Pass):
    """Writes `joins` on the operations of all public functions; other options are those of `outline-dispatches`.

    With `where_asked` it leaves modules alone that ask for no choices: `outline-dispatches` needs none of it.
    """

    min_rows: int = 8
    under_windows: bool = False
    kept_bytes: int = 0
    along_same: bool = False
    where_asked: bool = False

    @classmethod
    def for_target(cls, target: Target) -> ChooseFusion:
        """The pass where a compilation for a target runs it."""
        options = OutlineDispatches.for_target(target)
        return cls(
            options.min_rows, options.under_windows, options.kept_bytes, options.along_same, where_asked=True
        )

    def run(self, op: ir.Operation) -> None:
        if self.where_asked and choice_attribute.ASKED not in op.attributes:
            return
        self.refuse_lost(op)
        for function in list(functions(op.opview)):
            grouping = Grouping(op.opview, function, self)
            try:
                groups = grouping.groups(range(len(grouping.ops)))
            except IllegalChoiceError as broken:
                raise self.refusal(broken.op, str(broken)) from None
            joined = {number for group in groups for number in group.members[1:]}
            for number, inner in enumerate(grouping.ops):
                if number in joined or grouping.may_join(number):
                    choice_attribute.write(inner, joins=number in joined)
        if choice_attribute.ASKED in op.attributes:
            del op.attributes[choice_attribute.ASKED]

    def refuse_lost(self, module: ir.Operation) -> None:
        """Refuses what a module asks of operations that have gone into others since they were named."""
        wanted = {
            name: knob
            for knob in choice_attribute.asked(module)
            for name, _, field in [knob.rpartition(".")]
            if field == "joins"
        }
        if not wanted:
            return
        kept = {
            choice_attribute.read(view.operation).get("name")
            for function in functions(module.opview)
            for view in function.regions[0].blocks[0].operations
        }
        for name, knob in wanted.items():
            if name not in kept:
                raise self.refusal(
                    module, f"{knob}: `{name}` is no operation of its own any more; leave it out"
                )
