"""Generate the page about the commands."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Final

import click

from docs.generator.outputs import OUTPUT, commands, schema_name
from hpcflow.cli.arguments import JsonOption
from hpcflow.launch.run import Launched, submit

_MADE: Final = "<!-- Made by `python -m docs.generator` from hpcflow/cli/; edit that. -->\n\n"

_INTRO: Final = """\
# Commands

`hpcflow COMMAND --help` says the same. With `--json`, a command prints one JSON document on stdout,
also for an error: see [json.md](json.md). Warnings, and errors as text, go to stderr.

RUN is a run id (`digits-20260101-abcdefgh`), a unique prefix of it, or a name. If several runs have
the name, commands that only read, such as `show`, `logs` and `ssh`, take the newest. Commands that
change a run, such as `cancel` and `resume`, refuse the name.
"""

_EXIT_CODES: Final = (
    ("0", "done; with `--wait` or `--follow`, and for `wait`: the run is completed"),
    ("1", "it failed. Also: a run that `wait`, `--wait` or `--follow` waited for is not completed; "
     "`site check` or `ledger check` found a difference; **the run was created, but not "
     "submitted**, because Slurm does not answer or a limit is reached: submit it with `hpcflow "
     "resume RUN`"),
    ("2", "your input was wrong; nothing was created"),
    ("130", "interrupted; submitted jobs continue"),
)  # fmt: skip

_SETTINGS: Final = """\
hpcflow stores your runs, the ledger, and your own `sites/` and `templates/` in `$HPCFLOW_HOME`.
`$HPCFLOW_HOME/config.yaml` can contain:

```yaml
site: perlmutter
ledger: postgresql://ada@db.example.org/hpcflow
```

"""

_KEYS: Final = (
    ("`site`", "the site of a run without `--site`. Default: the one that this machine belongs "
     "to ([sites.md](sites.md))"),
    ("`ledger`", "the URL of the ledger ([ledger.md](ledger.md)). Default: `ledger.sqlite` beside "
     "this file"),
)  # fmt: skip

_VARIABLES: Final = (
    ("`HPCFLOW_HOME`", "the directory of all this, an absolute path. Default: `~/.hpcflow`"),
    ("`HPCFLOW_SITE`", "overrides `site`; `--site` overrides both"),
    ("`HPCFLOW_LEDGER`", "overrides `ledger`"),
    ("`HPCFLOW_PYTHON`", "the Python of runs that are [submitted by hand](by_hand.md)"),
    ("`VIRTUAL_ENV`, `CONDA_PREFIX`", "the active environment, for a run whose config names none"),
)

_SHELLS: Final = (
    ("bash", "`~/.bashrc`", '`eval "$(hpcflow completion bash)"`'),
    ("zsh", "`~/.zshrc`", '`eval "$(hpcflow completion zsh)"`'),
    ("fish", "`~/.config/fish/config.fish`", "`hpcflow completion fish \\| source`"),
)

_PYTHON: Final = """\
## From Python

```python
import hpcflow

run = hpcflow.submit("config.yaml", overrides=["params.lr=0.1"], site="perlmutter")
print(run.run_id, run.job_id)
```

`hpcflow.submit({parameters})` submits a run as
`hpcflow run` does, and returns when Slurm has accepted it: {fields}.
It does not open the ledger: the next `hpcflow` command that does so adds the run. An error is an
`hpcflow.errors.HpcflowError` with `message`, `where`, `next_action`, `retryable` and `exit_code`.
"""


def commands_page() -> str:
    parts = [
        _INTRO,
        "## Exit codes\n\n" + _table(("code", "meaning"), *_EXIT_CODES),
        "## Settings\n\n" + _SETTINGS + _table(("key", "what it is"), *_KEYS),
        _table(("variable", "what it does"), *_VARIABLES),
        "## Shell completion\n\nCommands, options, runs and sites:\n\n"
        + _table(("shell", "where", "line"), *_SHELLS),
        *(_section(name, command) for name, command in commands()),
        _python(),
    ]
    return _MADE + "\n".join(parts)


def _table(*rows: tuple[str, ...]) -> str:
    lines = [rows[0], ("---",) * len(rows[0]), *rows[1:]]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _section(name: str, command: click.Command) -> str:
    arguments = [each for each in command.params if isinstance(each, click.Argument)]
    options = [
        each for each in command.params if isinstance(each, click.Option) and not each.hidden
    ]
    usage = " ".join(["hpcflow", name, "[OPTIONS]", *map(_argument, arguments)])
    lines = [f"## `hpcflow {name}`", "", f"    {usage}", "", *_help(command.help or "")]
    rows = [(_names(each), _what(each, name)) for each in options]
    table = _table(("option", "what it does"), *rows) if rows else ""
    pages = [Path(word).name for word in (command.epilog or "").split() if word.endswith(".md")]
    if pages:
        lines += ["", f"More in {' and '.join(f'[{page}]({page})' for page in pages)}."]
    return "\n".join(lines) + "\n" + (f"\n{table}" if table else "")


def _argument(argument: click.Argument) -> str:
    word = argument.metavar or str(argument.name).upper()
    if isinstance(argument.type, click.Choice):
        word = "|".join(argument.type.choices)
    return word if argument.required or word.startswith("[") else f"[{word}]"


def _help(text: str) -> Iterator[str]:
    """Yield the help as Markdown; a paragraph that click must not wrap is a listing."""
    for number, paragraph in enumerate(inspect.cleandoc(text).split("\n\n")):
        if number:
            yield ""
        if paragraph.startswith("\b"):
            yield from ["```", *paragraph.splitlines()[1:], "```"]
        else:
            yield paragraph


def _names(option: click.Option) -> str:
    names = ", ".join(f"`{name}`" for name in option.opts)
    value = option.metavar or option.opts[-1].lstrip("-").upper()
    return names if option.is_flag else f"{names} {value}".replace("|", r"\|")


def _what(option: click.Option, command: str) -> str:
    what = option.help or ""
    if isinstance(option, JsonOption):
        what += f" [Schema]({OUTPUT}/{schema_name(command)})."
    if isinstance(option.type, click.Choice):
        what += f" One of {', '.join(f'`{choice}`' for choice in option.type.choices)}."
    if option.multiple and "several times" not in what:
        what += " May be given several times."
    return what.replace("|", "\\|")


def _python() -> str:
    parameters = ", ".join(
        name if each.default is each.empty else f"{name}={each.default!r}"
        for name, each in inspect.signature(submit).parameters.items()
    )
    names = [f"`{field.name}`" for field in fields(Launched)]
    return _PYTHON.format(parameters=parameters, fields=f"{', '.join(names[:-1])} and {names[-1]}")
