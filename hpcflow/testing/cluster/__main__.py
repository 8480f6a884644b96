"""The command line of the development cluster: up, down, restart, status, env, run-as."""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
from pathlib import Path

from hpcflow.errors import HpcflowError
from hpcflow.testing.cluster import packages
from hpcflow.testing.cluster.accounting import USERS
from hpcflow.testing.cluster.cluster import Cluster
from hpcflow.testing.cluster.layouts import LAYOUTS, Size
from hpcflow.testing.cluster.progress import Progress
from hpcflow.testing.cluster.settings import DIRECTORY_VARIABLE, Settings, cluster_directory

_PROGRAM = "python -m hpcflow.testing.cluster"
_TREE = Path(__file__).resolve().parents[3]


def main(argv: list[str] | None = None) -> int:
    """Run a command; return the exit code: 0, 1 for a failure, 2 for wrong input."""
    arguments = _parser().parse_args(argv)
    try:
        return int(arguments.act(arguments))
    except HpcflowError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except subprocess.TimeoutExpired as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except PermissionError as error:
        print(
            f"error: {error}\n  → the cluster belongs to root: sudo {_PROGRAM} …", file=sys.stderr
        )
        return 2
    except KeyboardInterrupt:
        print("interrupted; continue with `up` or `down`", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=_PROGRAM, description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--dir", help=f"the cluster's folder (default: ${DIRECTORY_VARIABLE}, or"
                        f" {cluster_directory()})")  # fmt: skip
    size = argparse.ArgumentParser(add_help=False)
    default = Size()
    size.add_argument("--nodes", type=int, help=f"default: as before, or {default.nodes}")
    size.add_argument("--cpus", type=int, help=f"per node; default: as before, or {default.cpus}")
    size.add_argument("--gpus", type=int, help=f"per node; default: as before, or {default.gpus}")
    size.add_argument("--slurm", metavar="VERSION", help="for a new cluster, such as 26.05;"
                      " default: the one installed here")  # fmt: skip
    size.add_argument("--layout", choices=LAYOUTS, help="for a new cluster: nodes and partitions"
                      " unlike the usual ones")  # fmt: skip

    def add(
        name: str, act: object, text: str, *parents: argparse.ArgumentParser
    ) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=text, parents=[common, *parents])
        command.set_defaults(act=act)
        return command

    add("up", _up, "start the cluster, or those of its daemons that do not run", size)
    down = add("down", _down, "stop everything that runs in the folder")
    down.add_argument("--purge", action="store_true", help="also delete the folder and the users")
    add("destroy", _destroy, "the same as down --purge")
    add("restart", _restart, "down, then up", size)
    add("status", _status, "show what runs; exit code 1 unless all of it does")
    add("env", _env, "print shell exports, for eval")
    software = add("software", _software, "install hpcflow from a tree where the users can run it")
    software.add_argument("--tree", type=Path, default=_TREE, help="default: %(default)s")
    lacking = add("packages", _packages, "print the Debian packages that are missing; exit code 2")
    lacking.add_argument("--install", action="store_true", help="install them, as root")
    run_as = add("run-as", _run_as, "run a command as one of the cluster's users, in its scratch")
    run_as.add_argument("user", choices=USERS)
    run_as.add_argument("command", nargs=argparse.REMAINDER, help="after --, the command")
    return parser


def _cluster(arguments: argparse.Namespace) -> Cluster:
    return Cluster(arguments.dir, progress=Progress(sys.stderr))


def _up(arguments: argparse.Namespace) -> int:
    cluster = _cluster(arguments)
    size = _size(arguments, cluster.directory)
    cluster.up(size, version=arguments.slurm, layout=arguments.layout)
    _summary(cluster)
    return 0


def _size(arguments: argparse.Namespace, folder: Path) -> Size:
    settings = Settings.load(folder)
    before = settings.size if settings else Size()
    given = {name: getattr(arguments, name) for name in ("nodes", "cpus", "gpus")}
    chosen = {
        name: getattr(before, name) if value is None else value for name, value in given.items()
    }
    return Size(**chosen)


def _summary(cluster: Cluster) -> None:
    layout = cluster.settings.layout
    rows = [
        ("nodes", ", ".join(layout.nodes)),
        ("partitions", ", ".join(words.partition(" ")[0] for words in layout.partitions)),
        *((f"user {user}", f"account {account}") for user, account in USERS.items()),
        ("logs", f"{cluster.directory}/log"),
        ("run as a user", f"{_PROGRAM} run-as --dir {cluster.directory} hpcf-ada -- sinfo"),
    ]
    for label, value in rows:
        print(f"  {label:<16} {value}")
    for name, value in cluster.env().items():
        print(f"  {'to use it':<16} export {name}={shlex.quote(value)}")


def _down(arguments: argparse.Namespace) -> int:
    _cluster(arguments).down(purge=arguments.purge)
    return 0


def _destroy(arguments: argparse.Namespace) -> int:
    _cluster(arguments).down(purge=True)
    return 0


def _restart(arguments: argparse.Namespace) -> int:
    _cluster(arguments).down()
    return _up(arguments)


def _status(arguments: argparse.Namespace) -> int:
    cluster = _cluster(arguments)
    if Settings.load(cluster.directory) is None:
        print(f"no cluster in {cluster.directory}")
        return 1
    for name, daemon in cluster.daemons().items():
        pid = daemon.pid
        answers = "answers" if pid and daemon.is_ready() else "does not answer"
        print(f"  {name:<14} {f'pid {pid}, {answers}' if pid else 'stopped'}")
    states = cluster.node_states()
    print("  nodes          " + (", ".join(f"{n} {s}" for n, s in states.items()) or "unknown"))
    return 0 if cluster.healthy() else 1


def _env(arguments: argparse.Namespace) -> int:
    for name, value in _cluster(arguments).env().items():
        print(f"export {name}={shlex.quote(value)}")
    return 0


def _software(arguments: argparse.Namespace) -> int:
    software = _cluster(arguments).software(arguments.tree.resolve())
    for label, path in (("programs", software.bin), ("examples", software.examples)):
        print(f"  {label:<16} {path}")
    return 0


def _packages(arguments: argparse.Namespace) -> int:
    lacking = packages.missing()
    if lacking and arguments.install and os.geteuid() == 0:
        packages.install(lacking)
        lacking = packages.missing()
    if lacking:
        print(f"missing: {' '.join(lacking)}")
        print(f"  → as root: {' '.join(packages.install_command(lacking))}")
    return 2 if lacking else 0


def _run_as(arguments: argparse.Namespace) -> int:
    words = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    user = _cluster(arguments).user(arguments.user)
    process = user.popen(words or ["bash", "-l"], stdin=None, stdout=None, stderr=None)
    return process.wait()


if __name__ == "__main__":
    sys.exit(main())
