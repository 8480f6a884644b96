"""``hpcflow sweep start FILE.py:FUNCTION``: the options that replace a sweep's file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hpcflow.errors import InputError, Where

if TYPE_CHECKING:
    from hpcflow.config.sweep import LoadedSweep


@dataclass(frozen=True)
class OfFunction:
    """The values of the options for a function's sweep."""

    space: str | None
    base: Path | None
    metrics: tuple[str, ...]
    directions: tuple[str, ...]
    name: str | None

    @property
    def given(self) -> str | None:
        """Return the first of these options that was given."""
        values = {
            "--space": self.space,
            "--base": self.base,
            "--metric": self.metrics,
            "--direction": self.directions,
            "--name": self.name,
        }
        return next((option for option, value in values.items() if value), None)


def function_options(command: Callable[..., Any]) -> Callable[..., Any]:
    options = (
        click.option(
            "--space",
            metavar="SPACE",
            help="With a function: its parameters, as a YAML file or YAML in braces.",
        ),
        click.option(
            "--base",
            type=click.Path(path_type=Path, readable=False),
            metavar="CONFIG",
            help="With a function: the config that gives resources and environment.",
        ),
        click.option(
            "--metric",
            "metrics",
            multiple=True,
            metavar="NAME",
            help="With a function: name of a value that it returns. Default: value.",
        ),
        click.option(
            "--direction",
            "directions",
            multiple=True,
            type=click.Choice(["minimize", "maximize"]),
            help="With a function: which value is better; one for each metric.",
        ),
        click.option("--name", metavar="NAME", help="With a function: the name of the sweep."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def loaded_function(
    file: Path, options: OfFunction, overrides: tuple[str, ...]
) -> tuple[Path, LoadedSweep] | None:
    """Return the sweep of the function that ``file`` names; None if it is a sweep's file.

    Raises:
        InputError: an option is wrong or missing.
    """
    from hpcflow.config.function_sweep import function_in, load_function_sweep

    function = function_in(str(file))
    if function is None:
        if options.given is not None:
            raise InputError(
                f"{options.given} needs a Python function, and {file} is a sweep's file",
                where=Where(key=options.given),
                next_action="write it into the file, or give a function: "
                f"hpcflow sweep start objective.py:objective {options.given} ...",
            )
        return None
    if options.space is None:
        raise InputError(
            "no parameter space is given",
            where=Where(key="--space"),
            next_action="add a YAML file, or: --space '{lr: {low: 1e-5, high: 0.1, log: true}}'",
        )
    path, name = function
    loaded = load_function_sweep(
        path,
        name,
        space=options.space,
        base=options.base,
        metrics=options.metrics,
        directions=options.directions,
        name=options.name,
        overrides=overrides,
    )
    return path, loaded
