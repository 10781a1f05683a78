"""tilewright-opt: mlir-opt, with upstream, torch-mlir and tilewright's own passes in one pipeline."""

from __future__ import annotations

import argparse
import difflib
import faulthandler
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from tilewright.compiler import plugins
from tilewright.compiler.cli.opt_run import BYTECODE_MAGIC, BufferRun, Dumps, Options, Printing, Timing
from tilewright.compiler.errors import PipelineSyntaxError, TilewrightError
from tilewright.compiler.ir import loaded_dialects
from tilewright.compiler.pipeline import registry
from tilewright.compiler.pipeline.diagnostics import SourceText
from tilewright.compiler.pipeline.pass_base import Pass
from tilewright.compiler.pipeline.pipeline import Node, Pipeline, check_leaf

SPLIT_MARKER = "// -----"

_EPILOG = """\
Any pass may be given as a flag of its own, in order, with its options behind `=`:

  tilewright-opt model.mlir --canonicalize --simplify-bodies=generalize=false
  tilewright-opt model.mlir --pass-pipeline='builtin.module(simplify-bodies,func.func(cse))'

Upstream and torch-mlir passes are all there: https://mlir.llvm.org/docs/Passes/ documents the former.
The tool ends with 0, or with 1 when the input, the pipeline or a pass failed.
"""

_FLAGS = {
    "allow-unregistered-dialect": "accept operations and types of dialects that nobody registered",
    "split-input-file": f"treat the parts between `{SPLIT_MARKER}` lines as inputs of their own",
    "verify-each": "verify the IR after every pass (the default)",
    "no-implicit-module": "take the single top-level operation as it is, not inside a module",
    "emit-bytecode": "write MLIR bytecode instead of text",
    "dump-pass-pipeline": "print the pipeline that will run to standard error",
    "run-reproducer": "run the pipeline that the input records",
    "mlir-timing": "report the seconds spent in every pass",
    "mlir-print-ir-before-all": "print the IR before every pass",
    "mlir-print-ir-after-all": "print the IR after every pass",
    "mlir-print-ir-after-change": "print the IR after passes that changed it",
    "mlir-print-ir-after-failure": "print the IR that a failing pass left",
    "mlir-print-ir-module-scope": "print the whole module even around nested passes",
    "mlir-print-debuginfo": "print locations",
    "mlir-pretty-debuginfo": "print locations in their short form",
    "mlir-print-op-generic": "print operations in their generic form",
    "mlir-print-local-scope": "print types and attributes in place, without aliases",
    "mlir-print-op-on-diagnostic": "show the operation that a diagnostic is about (the default)",
    "mlir-disable-threading": "accepted for mlir-opt's sake: passes run one at a time here",
    "list-passes": "list tilewright's own passes with their options, and exit",
    "show-dialects": "list the dialects that may occur in the input, and exit",
}
_PLUGIN = "--load-plugin"
_ON_BY_DEFAULT = {"verify-each", "mlir-print-op-on-diagnostic"}


class UsageError(TilewrightError):
    """The command line itself is wrong."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


@dataclass(frozen=True)
class Command:
    """A parsed command line."""

    file: str
    output: str
    options: Options
    split: bool
    timing: bool


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the tool; returns its exit code: 0, or 1 on any failure."""
    if argv is None:
        faulthandler.enable()
    try:
        command = parse_command(list(sys.argv[1:] if argv is None else argv))
        return 0 if command is None else run(command)
    except (TilewrightError, UsageError) as error:
        print(f"tilewright-opt: error: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader of our output has gone, as `head` does; nothing can be told to it.
        sys.stderr.close()
        return 1


def run(command: Command) -> int:
    """Processes the input, one buffer after the other; the rest is tried when one fails."""
    data = _read(command.file)
    name = "<stdin>" if command.file == "-" else command.file
    timing = Timing()
    outputs: list[str | bytes] = []
    succeeded = True
    if data.startswith(BYTECODE_MAGIC):
        runs = [BufferRun(SourceText(name, ""), command.options, timing, data)]
    else:
        buffers = split(_decoded(data, name)) if command.split else [_decoded(data, name)]
        runs = [BufferRun(SourceText(name, text), command.options, timing) for text in buffers]
    for one in runs:
        good = one.run()
        succeeded &= good
        outputs.append(one.output)
    if succeeded or command.output == "-":
        _write(command.output, outputs)
    if command.timing:
        sys.stderr.write(timing.report())
    return 0 if succeeded else 1


def split(text: str) -> list[str]:
    """The buffers between `// -----` lines; blank lines in front keep line numbers those of the file."""
    buffers, line = [], 0
    for part in re.split(rf"^{SPLIT_MARKER}[ \t]*(?:\n|\Z)", text, flags=re.MULTILINE):
        buffers.append("\n" * line + part)
        line += part.count("\n") + 1
    return buffers


def parse_command(argv: list[str]) -> Command | None:
    """Reads a command line; None when it asked for a listing, printed here; UsageError when wrong."""
    parser = _argument_parser()
    ours, rest = _separated(parser, _with_values(argv))
    _load_plugins(ours)
    known, strange = parser.parse_known_args(ours)
    if strange:
        raise UsageError(f"unexpected argument `{strange[0]}`; `--help` lists what there is")
    if known.list_passes:
        print(list_passes(), end="")
        return None
    if known.show_dialects:
        print("Registered Dialects:\n" + ", ".join(loaded_dialects()))
        return None
    flags = [_pass_flag(argument) for argument in rest]
    if flags and known.pass_pipeline is not None:
        raise UsageError(
            f"`--pass-pipeline` cannot be used with single pass flags; move `{flags[0]}` into it"
        )
    pipeline = known.pass_pipeline
    if flags:
        pipeline = f"builtin.module({','.join(_implicitly_nested(flag) for flag in flags)})"
    if pipeline is not None:
        Pipeline.parse(pipeline)  # what is wrong with it is said before the input is read
    if known.run_reproducer and pipeline is not None:
        raise UsageError("`--run-reproducer` runs the pipeline that the input records; give no other")
    return Command(known.file, known.o, _options(known, pipeline), known.split_input_file, known.mlir_timing)


def _load_plugins(ours: list[str]) -> None:
    """Loads installed plugins and those that the command line names: what else it says may be theirs."""
    finder = _Parser(add_help=False, allow_abbrev=False)
    finder.add_argument(_PLUGIN, action="append", default=[])
    known, _ = finder.parse_known_args(ours)
    plugins.load_installed()
    for named in known.load_plugin:
        plugins.load(named)


def _argument_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="tilewright-opt",
        usage="tilewright-opt [FILE] [--pass-pipeline=TEXT | --PASS[=OPTIONS] ...] [flags]",
        description=(__doc__ or "").partition(": ")[2],
        epilog=_EPILOG,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("file", nargs="?", default="-", help="an .mlir or bytecode file; `-`, the default, is standard input")
    add("-o", metavar="FILE", default="-", help="write the result to FILE instead of standard output")
    add(
        "--pass-pipeline",
        metavar="TEXT",
        help="what to run, e.g. 'builtin.module(canonicalize,func.func(cse))'",
    )
    for flag, text in _FLAGS.items():
        add(f"--{flag}", type=_boolean, default=flag in _ON_BY_DEFAULT, help=text, metavar="")
    add(
        "--verify-diagnostics",
        choices=("all", "only-expected", "none"),
        default="none",
        help="check diagnostics against `expected-error@+1 {{...}}` comments; `only-expected` allows others",
    )
    add(
        "--mlir-print-ir-before", metavar="PASS", action="append", default=[], help="print the IR before PASS"
    )
    add("--mlir-print-ir-after", metavar="PASS", action="append", default=[], help="print after PASS")
    add(
        _PLUGIN,
        metavar="FILE.py|MODULE",
        action="append",
        default=[],
        help="load a plugin, whose passes may then be named",
    )
    add("--mlir-elide-elementsattrs-if-larger", metavar="N", type=int, help="elide larger constants")
    add("--mlir-elide-resource-strings-if-larger", metavar="N", type=int, help="elide larger resources")
    reproducer = "write IR and pipeline to FILE when a pass fails, or the whole process dies"
    add("--mlir-pass-pipeline-crash-reproducer", metavar="FILE", type=Path, help=reproducer)
    add(
        "--mlir-generate-reproducer",
        metavar="FILE",
        type=Path,
        help="write IR and pipeline to FILE, then run",
    )
    return parser


def _options(known: argparse.Namespace, pipeline: str | None) -> Options:
    printing = Printing(
        debug_info=known.mlir_print_debuginfo,
        pretty_debug_info=known.mlir_pretty_debuginfo,
        generic=known.mlir_print_op_generic,
        local_scope=known.mlir_print_local_scope,
        elide_elements=known.mlir_elide_elementsattrs_if_larger,
        elide_resources=known.mlir_elide_resource_strings_if_larger,
    )
    dumps = Dumps(
        before_all=known.mlir_print_ir_before_all,
        after_all=known.mlir_print_ir_after_all,
        after_change=known.mlir_print_ir_after_change,
        after_failure=known.mlir_print_ir_after_failure,
        module_scope=known.mlir_print_ir_module_scope,
        before=_pass_names(known.mlir_print_ir_before),
        after=_pass_names(known.mlir_print_ir_after),
    )
    return Options(
        pipeline=pipeline,
        verify_each=known.verify_each,
        verify_diagnostics=known.verify_diagnostics != "none",
        only_expected=known.verify_diagnostics == "only-expected",
        implicit_module=not known.no_implicit_module,
        allow_unregistered=known.allow_unregistered_dialect,
        show_operation=known.mlir_print_op_on_diagnostic,
        run_reproducer=known.run_reproducer,
        crash_reproducer=known.mlir_pass_pipeline_crash_reproducer,
        generate_reproducer=known.mlir_generate_reproducer,
        dump_pipeline=known.dump_pass_pipeline,
        bytecode=known.emit_bytecode,
        printing=printing,
        dumps=dumps,
    )


def _with_values(argv: list[str]) -> list[str]:
    """Gives bare boolean flags the value `true`, and single-dash flags their other dash."""
    spelled = []
    for argument in argv:
        if re.match(r"-[A-Za-z][\w-]+", argument):
            argument = f"-{argument}"
        bare = argument.removeprefix("--")
        if argument.startswith("--") and bare in _FLAGS:
            argument += "=true"
        elif argument == "--verify-diagnostics":
            argument += "=all"
        spelled.append(argument)
    return spelled


def _separated(parser: argparse.ArgumentParser, argv: list[str]) -> tuple[list[str], list[str]]:
    """Arguments of the tool itself, and passes given as flags."""
    own = {option for action in parser._actions for option in action.option_strings}
    flags = [text for text in argv if text.startswith("--") and text.partition("=")[0] not in own]
    return [text for text in argv if text not in flags], flags


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "1", "false", "0"):
        raise argparse.ArgumentTypeError(f"expected true or false, found `{text}`")
    return text.lower() in ("true", "1")


def _pass_names(lists: list[str]) -> frozenset[str]:
    return frozenset(name for text in lists for name in text.split(",") if name)


def _pass_flag(argument: str) -> Node:
    """`--name=options` as a pipeline element; UsageError when no pass is called so."""
    match = re.fullmatch(r"--([A-Za-z][\w-]*)(?:=(.*))?", argument, flags=re.DOTALL)
    if not match:
        raise UsageError(f"unexpected argument `{argument}`; `--help` lists what there is")
    name, options = match[1], match[2] or ""
    if options.startswith("{") and options.endswith("}"):
        options = options[1:-1]
    if not registry.exists(name):
        try:
            check_leaf(Node(name), "any")
        except PipelineSyntaxError as error:
            if "is no pass of" in str(error):
                close = difflib.get_close_matches(name, [*_FLAGS, *registry.names()], n=1)
                hint = f"did you mean `--{close[0]}`?" if close else "`--help` lists the flags"
                raise UsageError(f"`--{name}` is neither a flag nor a pass; {hint}") from None
    return Node(name, options)


def _implicitly_nested(node: Node) -> str:
    """The pipeline text of a pass given as a flag: nested under the operation it is restricted to."""
    if registry.exists(node.name):
        pass_class = registry.load(node.name)
        assert pass_class is not None
        return str(node) if pass_class.anchor in ("builtin.module", "any") else f"{pass_class.anchor}({node})"
    try:
        check_leaf(node, "builtin.module")
    except PipelineSyntaxError as error:
        restricted = re.search(r"restricted to '([\w.]+)'", str(error))
        if restricted:
            return f"{restricted[1]}({node})"
        raise UsageError(f"`--{node.name}`: {error}") from None
    return str(node)


def list_passes() -> str:
    """One paragraph per pass of ours: name, what it runs on, first line of documentation, options."""
    paragraphs = []
    for name in registry.names():
        pass_class = registry.load(name)
        assert pass_class is not None
        lines = [f"{name}  (on {pass_class.anchor})", f"    {_summary(pass_class)}"]
        for option, kind, default in pass_class.options():
            shown = "required" if default is None else f"default {default}"
            lines.append(f"      {option}=<{kind}>  ({shown})")
        paragraphs.append("\n".join(lines))
    note = (
        "Upstream and torch-mlir passes may be mixed in: https://mlir.llvm.org/docs/Passes/ lists the former."
    )
    return "\n\n".join([*paragraphs, note]) + "\n"


def _summary(pass_class: type[Pass]) -> str:
    """The first line of the pass's file, which says what it does, without its name."""
    first = (sys.modules[pass_class.__module__].__doc__ or "").strip().partition("\n\n")[0]
    claim = " ".join(first.split()).removeprefix(f"{pass_class.name()}: ")
    return claim[:1].upper() + claim[1:]


def _read(file: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise UsageError(f"cannot open input file `{file}`: {error.strerror}") from None


def _decoded(data: bytes, name: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"`{name}` is neither UTF-8 text nor MLIR bytecode: byte {error.start}") from None


def _write(path: str, outputs: list[str | bytes]) -> None:
    texts = [output for output in outputs if isinstance(output, str)]
    data = b"".join(output for output in outputs if isinstance(output, bytes))
    if not data:
        data = f"{SPLIT_MARKER}\n".join(texts).encode()
    if path == "-":
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    try:
        Path(path).write_bytes(data)
    except OSError as error:
        raise UsageError(f"cannot write output file `{path}`: {error.strerror}") from None


if __name__ == "__main__":
    sys.exit(main())
