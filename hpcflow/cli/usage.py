"""Suggest what to type instead of arguments that a command does not accept."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Final

import click

from hpcflow.errors import shell_word
from hpcflow.model.ids import is_run_id

_NO_COMMAND: Final = re.compile(r"No such command '(.*)'\.", re.DOTALL)
_EXTRA: Final = re.compile(r"Got unexpected extra arguments? \((.*)\)", re.DOTALL)
#: Group -> name in other tools -> command.
_ELSEWHERE: Final[dict[str, dict[str, str]]] = {
    "sweep": dict.fromkeys(("run", "submit", "launch", "create"), "start"),
    "daemon": {
        **dict.fromkeys(("start", "enable", "run"), "install"),
        **dict.fromkeys(("stop", "disable", "remove"), "uninstall"),
    },
}
#: Option of other tools -> option, for commands that have it.
_OPTIONS: Final = {"-n": "--tail", "--lines": "--tail"}
#: Group -> its command for one RUN.
_OF_RUN: Final = {"checkpoint": "ls", "mirror": "status"}


def next_step(error: click.ClickException, args: Sequence[str]) -> str | None:
    """Return a command, or an option of it, that was probably meant; None if nothing is near."""
    ctx = getattr(error, "ctx", None)
    if ctx is None:
        return None
    if isinstance(error, click.NoSuchOption):
        step = _option(error.option_name, ctx, args)
        if step is not None:
            # Else click suggests options that only resemble it. It declares the attribute Final.
            error.possibilities = None  # type: ignore[misc]
        return step
    if (found := _NO_COMMAND.fullmatch(error.message)) is not None:
        return _command(found[1], ctx)
    if (found := _EXTRA.fullmatch(error.message)) is not None and _takes_set(ctx):
        return _extra(found[1].strip("= ").split(" ")[0], args)
    return None


def _option(option: str, ctx: click.Context, args: Sequence[str]) -> str | None:
    """Return what to type for an option that is a key of the config, such as ``--nodes``."""
    if ctx.parent is None:  # before the command
        name = next((word for word in args if not word.startswith("-")), None)
        return None if name is None else f"options come after the command: hpcflow {name} {option}"
    meant = _OPTIONS.get(option)
    if meant is not None and any(meant in parameter.opts for parameter in ctx.command.params):
        return f"did you mean {meant}?"
    name = option.lstrip("-").partition("=")[0].replace("-", "_")
    if not option.startswith("--") or not _takes_set(ctx):
        return None
    key = _key(name)
    return None if key is None else f"--set {shell_word(f'{key}={_value(option, args)}')}"


def _value(option: str, args: Sequence[str]) -> str:
    """Return the value that was typed for an option; VALUE if there was none."""
    for word, following in zip(args, [*args[1:], "-"], strict=True):
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
        if word == option and not following.startswith("-"):
            return following
    return "VALUE"


def _takes_set(ctx: click.Context) -> bool:
    return any("--set" in parameter.opts for parameter in ctx.command.params)


def _key(name: str) -> str | None:
    """Return the dotted key of a config whose last part is ``name``."""
    from hpcflow.documents.suggest import place_of
    from hpcflow.model.spec import RunSpec

    return name if "." in name else place_of(RunSpec, name)


def _command(name: str, ctx: click.Context) -> str | None:
    group = str(ctx.command.name)
    typed = f"hpcflow {group}"
    if meant := _ELSEWHERE.get(group, {}).get(name):
        return f"{typed} {meant}"
    if group == "sweep" and os.path.isfile(name):  # noqa: PTH113 - Path raises for a long name
        return f"{typed} start {shell_word(name)}"
    if group in _OF_RUN and is_run_id(name):
        return f"{typed} {_OF_RUN[group]} {name}"
    return None


def _extra(word: str, args: Sequence[str]) -> str | None:
    """Return what to type for ``--set KEY VALUE``, ``KEY=VALUE`` alone, or a program."""
    if found := re.search(rf"--set ([\w.-]+)[ :=]+{re.escape(word)}", " ".join(args)):
        return f"--set {shell_word(f'{found[1]}={word}')}"
    if "=" in word:
        return f"--set {shell_word(word)}"
    from hpcflow.config.chain import PROGRAMS

    return f"hpcflow run {shell_word(word)}" if word.endswith(tuple(PROGRAMS)) else None
