"""A plugin with one pass."""

from dataclasses import dataclass

from tilewright.compiler.ir import ir
from tilewright.compiler.pipeline.pass_base import Pass


@dataclass(frozen=True)
class Greet(Pass):
    """Says hello to `name`, in an attribute."""

    name_of: str = "world"

    def run(self, op: ir.Operation) -> None:
        if self.name_of == "nobody":
            raise self.refusal(op, "expected a name, found `nobody`; name somebody")
        op.attributes["example.hello"] = ir.StringAttr.get(self.name_of)


def register(plugin):
    plugin.compiler_pass(Greet)
