"""``hpcflow``: find the command, and turn errors into one message and an exit code.

Commands are named here and imported only when they are called, so that ``hpcflow --help`` costs
little more than importing click.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Final

import click

from hpcflow import __version__
from hpcflow.child_exit_codes import keep_exit_codes
from hpcflow.errors import HpcflowError, UsageError
from hpcflow.resources import docs_dir
from hpcflow.terminal import echo, echo_lines, escape_stderr, safe

# Otherwise pydantic reads the metadata of every installed package, in search of plugins.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")

#: Folder here -> title of its section in ``hpcflow --help``, and its commands, a file for each.
_SECTIONS: Final = {
    "submit": ("Submit runs", "run render plan estimate"),
    "look": ("Look at runs", "ls show why logs history wait ssh tensorboard"),
    "control": ("Stop and continue runs", "cancel resume hold release daemon nodes"),
    "checkpoints": ("Keep and recover checkpoints", "checkpoint mirror restore scratch"),
    "sweeps": ("Search hyperparameters", "sweep"),
    "costs": ("Costs, limits and efficiency", "cost budget limits efficiency"),
    "clusters": (
        "Clusters and this installation",
        "setup doctor site ledger home version completion",
    ),
}
_FOLDERS: Final = {
    name: folder for folder, (_, names) in _SECTIONS.items() for name in names.split()
}
#: Command -> short help. A test compares it with the command's own.
_SHORT_HELP: Final = {
    "run": "Submit a run.",
    "render": "Print the job script that `run` would submit.",
    "plan": "Show where a run could go, at what cost, and when.",
    "ls": "List runs.",
    "show": "Show one run: attempts, checkpoints, metrics.",
    "why": "Show why a run is pending or stopped, and what to type.",
    "logs": "Print the log of a run.",
    "ssh": "Open a shell inside the running job of a run.",
    "tensorboard": "Start TensorBoard on the logs of runs.",
    "wait": "Wait until no attempt of a run is pending or running.",
    "cancel": "Cancel runs. Their checkpoints stay.",
    "resume": "Resubmit a run from its last complete checkpoint.",
    "hold": "Do not resubmit runs until they are released.",
    "release": "Continue held or stopped runs.",
    "history": "Show the attempts and decisions of a run, in order.",
    "checkpoint": "List, verify, prune and export the checkpoints of a run.",
    "scratch": "Show the space of your runs, and what is purged when.",
    "mirror": "Copy checkpoints to the object store; show the progress.",
    "restore": "Fetch a run, or what it lacks, from its mirror.",
    "sweep": "Search hyperparameters: many runs of one program.",
    "cost": "Show what runs cost, and what was wasted.",
    "limits": "Show your accounts, QOS, limits, use and fair share.",
    "efficiency": "Compare resources requested with resources used.",
    "estimate": "Estimate how much GPU memory a training takes.",
    "budget": "Set spending limits; show what is left.",
    "nodes": "Show which nodes failed runs, and which are excluded.",
    "daemon": "Supervise your runs; resubmit those that stopped early.",
    "setup": "Prepare this cluster for hpcflow. Run it once.",
    "doctor": "Check this machine: what is wrong, and what to type.",
    "site": "List, show, check and detect clusters.",
    "ledger": "Rebuild, check or upgrade the ledger.",
    "home": "Move the runs of an older hpcflow.",
    "version": "Print versions.",
    "completion": "Print the shell's completion script.",
}
#: Command -> (module, short help). The function in the module is called ``command``.
COMMANDS: Final[dict[str, tuple[str, str]]] = {
    name: (f"hpcflow.cli.{_FOLDERS[name]}.{name}", text) for name, text in _SHORT_HELP.items()
}

#: Name in other tools -> command. By its letters alone, `delete` would be near `release`.
_ELSEWHERE: Final = {
    **dict.fromkeys(("delete", "rm", "kill", "stop", "scancel"), "cancel"),
    **dict.fromkeys(("submit", "sbatch", "start", "launch", "train"), "run"),
    **dict.fromkeys(("list", "ps", "squeue", "queue"), "ls"),
    **dict.fromkeys(("status", "describe", "info"), "show"),
    **dict.fromkeys(("tail", "follow"), "logs -f"),
    **dict.fromkeys(("requeue", "restart", "retry"), "resume"),
}
#: With a lower cutoff, difflib matches words that have only some letters in common.
_ALIKE: Final = 0.7


class LazyGroup(click.Group):
    """A group whose commands are imported when they are needed."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = import_module(COMMANDS[cmd_name][0]).command
        escape_stderr()
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = click.utils.make_str(args[0]) if args else ""
        if name not in COMMANDS and not ctx.resilient_parsing:
            from difflib import get_close_matches

            known = [*COMMANDS, *_ELSEWHERE]
            near = get_close_matches(name, known, n=1, cutoff=_ALIKE) or [
                each for each in known if sorted(each) == sorted(name)
            ]
            meant = _ELSEWHERE.get(near[0], near[0]) if near else None
            hint = f" Did you mean {meant!r}?" if meant else " See: hpcflow --help"
            raise click.UsageError(f"No command {name!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        widest = max(map(len, COMMANDS))
        for title, names in _SECTIONS.values():
            with formatter.section(title):
                # The names have the same width in all sections.
                formatter.write_dl(
                    [(name.ljust(widest), COMMANDS[name][1]) for name in names.split()]
                )


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Once on each cluster: hpcflow setup. "
    "Begin with: hpcflow site show; then hpcflow run CONFIG --dry-run"
    f"\n\n\b\nDocumentation: {docs_dir()}",
)
@click.version_option(__version__, prog_name="hpcflow", message="%(prog)s %(version)s")
def cli() -> None:
    """Supervise training runs on Slurm.

    Exit codes: 0 success, 1 failure, 2 wrong input, 130 interrupted.
    """


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit code.

    Errors go to stderr. With ``--json`` they are also an object on stdout, so that scripts always
    read JSON there.
    """
    args = sys.argv[1:] if argv is None else argv
    # Imports and rows create tens of thousands of objects, few of them in cycles. With the default
    # threshold of 700, the garbage collector runs a hundred times before a command prints anything.
    gc.set_threshold(100_000, 20, 20)
    # Else it runs once more at exit, for a tenth of a command's time.
    atexit.register(gc.freeze)
    keep_exit_codes()
    _replace_closed_streams()
    try:
        outcome = cli.main(args=args, prog_name="hpcflow", standalone_mode=False)
        if sys.__stdout__ is not None:
            sys.__stdout__.flush()  # raises write errors here, not at exit
        return outcome if isinstance(outcome, int) else 0
    except HpcflowError as error:
        _report(error, as_json="--json" in args)
        return error.exit_code
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.ClickException as error:
        from hpcflow.cli.usage import next_step

        step = next_step(error, args)
        if "--json" in args:
            _print_json(UsageError(error.format_message()))
        shown = StringIO()
        # Input must not forge a line of output; click's own list of choices keeps its lines.
        error.message = safe(error.message)  # type: ignore[misc]  # click declares it Final
        error.show(shown)
        echo_lines(shown.getvalue(), nl=False, err=True)
        if step is not None:
            echo(f"  → {step}", err=True)
        return 2
    except BrokenPipeError:
        # The reader, such as `head`, closed the pipe. Python would print an error at exit.
        sys.stderr.close()
        return 0
    except OSError as error:  # such as a forbidden folder or a full disk
        # Without a file name it is about stdout: errors of hpcflow's files have their own messages.
        place = f"{error.filename}: " if error.filename else "the output cannot be written: "
        _drop_output()
        _report(HpcflowError(f"{place}{error.strerror or error}"), as_json="--json" in args)
        return 1
    except (click.Abort, KeyboardInterrupt):
        echo("interrupted; submitted jobs continue", err=True)
        return 130


def _replace_closed_streams() -> None:
    """Send streams that the caller closed, as by ``2>&-``, to /dev/null; Python has None there."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115 - it stays open


def _report(error: HpcflowError, *, as_json: bool) -> None:
    from hpcflow.cli.output import print_error

    if as_json:
        _print_json(error)
    print_error(error)


def _print_json(error: HpcflowError) -> None:
    """Print the error as JSON, unless stdout fails; the caller also prints it on stderr."""
    from hpcflow.cli.output import error_json, print_json

    try:
        print_json({"error": error_json(error)}, indent=None)
    except OSError:
        _drop_output()


def _drop_output() -> None:
    """If stdout fails, send the rest to /dev/null: Python would fail on it at exit."""
    stdout = sys.__stdout__
    if stdout is None:
        return
    try:
        stdout.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stdout.fileno())
        os.close(nowhere)


if __name__ == "__main__":
    sys.exit(main())
