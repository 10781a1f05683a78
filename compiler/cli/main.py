"""`tilewright`: compile, run, benchmark and explain models from the shell."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

try:
    import click
    import rich  # noqa: F401 (asked for here, so that one message names the extra)
except ModuleNotFoundError as missing:
    sys.exit(f"tilewright: the tool needs `{missing.name}`; install it with: pip install 'tilewright[cli]'")

from tilewright.compiler.errors import TilewrightError
from tilewright.compiler.settings import settings
from tilewright.compiler.targets.target import UnknownTargetError
from tilewright.runtime.errors import TilewrightError as RuntimeRefusal

COMMANDS = ("compile", "tune", "run", "bench", "explain", "db", "targets")
"""In the order of the help text; each lives in `cli/<name>.py` and is imported when it is used."""


class _Commands(click.Group):
    """Loads a command's module when it is asked for, and turns refusals into one line and exit code 1."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        return import_module(f"tilewright.compiler.cli.{cmd_name}").command

    def invoke(self, ctx: click.Context):
        try:
            return super().invoke(ctx)
        except (TilewrightError, RuntimeRefusal, UnknownTargetError) as refusal:
            if settings().debug:
                raise
            raise click.ClickException(str(refusal)) from None


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tilewright")
@click.option(
    "--load-plugin",
    "named",
    metavar="FILE.py|MODULE",
    multiple=True,
    help="Load a plugin before the command; see docs/plugins.md.",
)
def main(named: Sequence[str]) -> None:
    """Compile, run, benchmark and explain models.

    MODEL is a name of the model zoo (resnet18, bert_tiny, ...), module:function giving (module, inputs), or the
    path of an .onnx, .mlir or .pt2 file. TILEWRIGHT_DEBUG=1 shows tracebacks and what the compiler does.
    """
    from tilewright.compiler import collector, plugins

    collector.uncollected_at_exit()
    plugins.load_installed()
    for plugin in named:
        plugins.load(plugin)


def run(arguments: Sequence[str]) -> int:
    """Runs the tool on `arguments`; returns its exit code."""
    try:
        main.main(list(arguments), prog_name="tilewright", standalone_mode=False)
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.ClickException as refusal:
        refusal.show()
        return refusal.exit_code
    except click.Abort:
        return 130
    return 0


if __name__ == "__main__":
    main(prog_name="tilewright")
