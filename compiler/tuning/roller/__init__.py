"""Roller's construction of aligned tiles, layer by layer, from a workload and a target's data (OSDI'22)."""

from tilewright.compiler.tuning.model.rtile import RTile
from tilewright.compiler.tuning.roller.construction import construct, evaluate
from tilewright.compiler.tuning.roller.options import RULES, ConstructOptions
from tilewright.compiler.tuning.roller.program import Program

__all__ = ["RULES", "ConstructOptions", "Program", "RTile", "construct", "evaluate"]
