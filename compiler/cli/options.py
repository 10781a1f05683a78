"""Which options of a command line were given: those that a command could not obey are refused, not passed over."""

from __future__ import annotations

import click
from click.core import ParameterSource


def given_options(*names: str) -> str:
    """The first of the running command's options, by parameter name, that was given, as it is written; "" for none."""
    context = click.get_current_context()
    for parameter in context.command.params:
        if (
            parameter.name in names
            and context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE
        ):
            return max(parameter.opts, key=len)
    return ""


def refuse_for_artifacts(*names: str) -> None:
    """Raises UsageError for an option that only compiling obeys, where an artifact is given."""
    if given := given_options(*names):
        raise click.UsageError(f"{given} is of models: what an artifact holds is compiled; leave it out")
