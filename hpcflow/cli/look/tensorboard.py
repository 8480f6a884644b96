"""``hpcflow tensorboard``: TensorBoard behind a socket that only its user can open."""

from __future__ import annotations

import getpass
import signal
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from hpcflow.cli.arguments import runs_argument
from hpcflow.cli.session import Session
from hpcflow.errors import InputError, NotFoundError
from hpcflow.ownership import temporary_folder
from hpcflow.terminal import echo

if TYPE_CHECKING:
    from hpcflow.storage.layout import RunDir

#: The port on the user's own machine.
_PORT: Final = 6006
#: The address of a socket takes 107 bytes.
_MAX_PATH_BYTES: Final = 107


@click.command("tensorboard", short_help="Start TensorBoard on the logs of runs.")
@runs_argument
def command(runs: tuple[str, ...]) -> int:
    """Start TensorBoard on the logs of each RUN, until Ctrl-C.

    It prints the ssh command that forwards TensorBoard to the browser of your own machine.
    TensorBoard has no password, and every user of a login node can connect to its ports. So this
    command opens no port: TensorBoard listens on a Unix socket in a directory of mode 0700.
    """
    session = Session()
    found = [session.run_dir(text, newest=True) for text in dict.fromkeys(runs)]
    for run_dir in found:
        if not run_dir.path.is_dir():  # its job makes tensorboard/, and may still be in the queue
            raise NotFoundError(
                f"run {run_dir.path.name} has no directory {run_dir.path}",
                next_action=f"see whether it was purged: hpcflow show {run_dir.path.name}",
            )
    with temporary_folder() as folder:
        _serve(Path(folder), found)
    return 0


def _serve(folder: Path, found: list[RunDir]) -> None:
    """Serve the runs until a signal."""
    path = folder / "socket"
    if len(str(path).encode()) > _MAX_PATH_BYTES:
        raise InputError(
            f"{path} is too long for a socket",
            next_action="set TMPDIR to a short path, such as /tmp",
        )
    logs = folder / "logs"
    logs.mkdir()
    for run_dir in found:
        (logs / run_dir.path.name).symlink_to(run_dir.tensorboard)
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: ended.set())
    _launch(path, logs)
    echo(", ".join(run_dir.path.name for run_dir in found), bold=True)
    place = f"{getpass.getuser()}@{socket.getfqdn()}"
    echo(f"  on your own machine  ssh -N -L {_PORT}:{path} {place}")
    echo(f"  then open            http://localhost:{_PORT}")
    echo("  stop it              Ctrl-C")
    ended.wait()


def _launch(path: Path, logs: Path) -> None:
    try:
        from tensorboard import program
    except ImportError as error:
        raise InputError(
            f"TensorBoard cannot be imported: {error}", next_action="pip install tensorboard"
        ) from error

    class OnSocket(program.WerkzeugServer):  # type: ignore[misc]  # it has no types
        def get_url(self) -> str:
            return f"http://localhost:{_PORT}"

    board: Any = program.TensorBoard(server_class=OnSocket)
    # Its fast loader is a process of its own, which listens on a port.
    board.configure(logdir=str(logs), host=f"unix://{path}", port=0, load_fast="false")
    board.launch()
