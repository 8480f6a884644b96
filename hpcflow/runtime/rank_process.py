"""``python3 -I -S rank_process.py AFTER COMMAND…``: Slurm or torchrun starts this for a rank.

It executes COMMAND, forwards signals to it, labels its lines if there are several ranks, and at the
end becomes ``/bin/sh -c AFTER hpcflow CODE``, with the exit code as in a shell. It must run in
Python 3.6, for old images.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time

_READ_BYTES = 1 << 16
#: Writes of this size to a pipe are atomic (PIPE_BUF), so lines of ranks that share it do not mix.
_WRITE_BYTES = 1 << 12
_LONGEST_LINE = 1 << 20
#: Seconds that the start of a line waits for its end. A progress bar prints no line ends.
_LINE_WAITS_S = 5.0
#: Seconds in which processes that the program leaves behind may still print.
_DRAIN_S = 2.0
#: Seconds that a signal may take from the first process of a job step to the last.
_SIGNALLING_S = 0.5
#: Seconds between two looks for the notice.
_NOTICE_S = 5.0
_SHELLS = ("ash", "bash", "busybox", "dash", "ksh", "sh", "zsh")
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


class SignalProbe:
    """A child process that shows whether a signal was also sent to the other processes of the rank.

    Slurm's ``proctrack/cgroup`` sends signals other than KILL only to the processes that slurmstepd
    has started. ``proctrack/linuxproc`` and ``proctrack/pgid``, ``SignalChildrenProcesses=yes`` in
    cgroup.conf, and torchrun send them to all. A signal that ends the probe reaches the program.
    """

    def __init__(self) -> None:
        reads, self._writes = os.pipe()
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # until the child has default handlers
        self._pid = os.fork()
        if self._pid == 0:
            for number in _SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            os.close(self._writes)
            for descriptor in (0, 1, 2):
                os.close(descriptor)
            os.read(reads, 1)  # until the parent ends, or becomes another program
            os._exit(0)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        os.close(reads)
        self._status: int | None = None

    def is_signalled(self) -> bool:
        """Return whether a signal of :data:`_SIGNALS` has ended it; wait half a second for that."""
        deadline = time.monotonic() + _SIGNALLING_S
        while self._status is None and time.monotonic() < deadline:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                self._status = status
            else:
                time.sleep(0.01)
        return self._status is not None and os.WTERMSIG(self._status) in _SIGNALS


class Labels:
    """Puts a label before each line, unless it has one already.

    Args:
        label: such as ``[rank3]: ``, as torch labels lines.
    """

    def __init__(self, label: str) -> None:
        self._label = label.encode()
        self._open = b""

    @property
    def has_open_line(self) -> bool:
        """Return whether the start of a line waits for its end."""
        return bool(self._open)

    def add(self, chunk: bytes) -> "list[bytes]":
        """Return the lines that are complete with ``chunk``."""
        *lines, self._open = (self._open + chunk).split(b"\n")
        if len(self._open) > _LONGEST_LINE:
            lines.append(self._open)
            self._open = b""
        return [self._labelled(line) for line in lines]

    def close(self) -> "list[bytes]":
        """Return the open line, if there is one, as a complete line."""
        line, self._open = self._open, b""
        return [self._labelled(line)] if line else []

    def _labelled(self, line: bytes) -> bytes:
        return (line if line.startswith(self._label) else self._label + line) + b"\n"


class Program:
    """The program of a rank. It ignores the signals that this process ignored at its start.

    Attributes:
        output: the descriptor of its output, if lines are to be labelled; None when all processes
            have closed it.
    """

    def __init__(self, argv: "list[str]", *, has_labels: bool) -> None:
        # torchrun does not forward USR2.
        is_under_torchrun = "TORCHELASTIC_RUN_ID" in os.environ
        self._notice = os.environ.get("HPCFLOW_NOTICE") if is_under_torchrun else None
        self._looks_at = time.monotonic()
        ignored = [each for each in _SIGNALS if signal.getsignal(each) == signal.SIG_IGN]
        woken, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake)
        for number in (*_SIGNALS, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])  # the launcher may have blocked some
        self._woken = woken
        shell = "".join(f"trap '' {each.name[3:]}; " for each in ignored) + 'exec "$@"'
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", shell, "sh"] + argv,  # noqa: RUF005 - for the oldest Python
            stdout=subprocess.PIPE if has_labels else None,
            stderr=subprocess.STDOUT if has_labels else None,
            close_fds=False,  # MPI libraries use one of them, PMI_FD
        )
        self._probe = SignalProbe()  # after the program: a signal that ends the probe reached both
        self.output = None if self._process.stdout is None else self._process.stdout.fileno()

    def has_ended(self) -> bool:
        """Return whether the program has ended; processes that it started may still print."""
        return self._process.poll() is not None

    def code(self) -> int:
        """Wait for the end; return the exit code, or 128 + the number of the signal."""
        code = self._process.wait()
        return 128 - code if code < 0 else code

    def wait(self, wait_s: "float | None") -> bool:
        """Wait for output, a signal or the end; forward signals. Return if there is output."""
        watched = [self._woken] if self.output is None else [self._woken, self.output]
        if self._notice is not None:
            wait_s = _NOTICE_S if wait_s is None else min(wait_s, _NOTICE_S)
        ready = select.select(watched, [], [], wait_s)[0]
        if self._notice is not None and time.monotonic() >= self._looks_at:
            self._look(self._notice)
        if self._woken in ready:
            numbers = [each for each in os.read(self._woken, _READ_BYTES) if each != signal.SIGCHLD]
            if signal.SIGUSR2 in numbers:
                self._notice = None
            if numbers and not self._probe.is_signalled():
                for number in numbers:
                    self._send(number)
        return self.output in ready

    def _look(self, notice: str) -> None:
        """Send USR2 if the notice says that the job script got USR2."""
        self._looks_at = time.monotonic() + _NOTICE_S
        try:
            file = os.open(notice, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return
        try:
            has_usr2 = os.read(file, 16).strip() == b"USR2"
        except OSError:
            return
        finally:
            os.close(file)
        if has_usr2:
            self._notice = None
            self._send(signal.SIGUSR2)

    def _send(self, number: int) -> None:
        for pid in [] if self.has_ended() else _receivers(self._process.pid, number):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


def _receivers(pid: int, number: int) -> "list[int]":
    """Return the processes that get a signal for ``pid``: for a shell without a trap, its children.

    TERM would end the shell and with it the rank, and the training could not save.
    """
    try:
        shell = os.path.basename(os.readlink(f"/proc/{pid}/exe"))  # noqa: PTH115, PTH119 - as below
        if shell not in _SHELLS or _catches(pid, number):
            return [pid]
        with open(f"/proc/{pid}/task/{pid}/children") as file:  # noqa: PTH123 - as below
            children = [int(word) for word in file.read().split()]
    except OSError:
        return [pid]
    return [each for child in children for each in _receivers(child, number)] or [pid]


def _catches(pid: int, number: int) -> bool:
    with open(f"/proc/{pid}/status") as file:  # noqa: PTH123 - pathlib is slow to import
        caught = next(line.split()[1] for line in file if line.startswith("SigCgt:"))
    return bool(int(caught, 16) >> (number - 1) & 1)


def main(argv: "list[str]") -> None:
    """Run the command ``argv[1:]``; then execute ``argv[0]`` as a shell script."""
    program = Program(argv[1:], has_labels=os.environ.get("WORLD_SIZE", "1") != "1")
    if program.output is not None:
        _copy(program, program.output)
    while not program.has_ended():
        program.wait(None)
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    words = ["/bin/sh", "-c", argv[0], "hpcflow", str(program.code())]
    os.execv(words[0], words)  # noqa: S606 - no shell parses these words


def _copy(program: Program, output: int) -> None:
    """Write what the program prints, with labels, until it has ended or closes its output."""
    labels = Labels(f"[rank{os.environ.get('RANK', '0')}]: ")
    opened_at = 0.0
    ends_at = None
    while True:
        now = time.monotonic()
        if ends_at is None and program.has_ended():
            ends_at = now + _DRAIN_S
        if ends_at is not None:
            wait_s = 0.0  # its output can be read at once
        else:
            wait_s = max(0.0, opened_at + _LINE_WAITS_S - now) if labels.has_open_line else 3600.0
        has_output = program.wait(wait_s)
        if has_output:
            chunk = os.read(output, _READ_BYTES)
            was_open = labels.has_open_line
            lines = labels.add(chunk)
            if lines or not was_open:
                opened_at = time.monotonic()
            _write(lines)
            if not chunk:
                program.output = None  # the program has redirected its output
                break
        elif ends_at is not None:
            break
        if ends_at is not None and time.monotonic() > ends_at:
            break
        if labels.has_open_line and time.monotonic() >= opened_at + _LINE_WAITS_S:
            _write(labels.close())
    _write(labels.close())


def _write(lines: "list[bytes]") -> None:
    """Write to the log. A full disk, or a launcher that is gone, does not stop the program."""
    block = b""
    try:
        for line in lines:
            if len(block) + len(line) > _WRITE_BYTES:
                _write_all(block)
                block = b""
            block += line
        _write_all(block)
    except OSError:
        pass


def _write_all(block: bytes) -> None:
    while block:
        block = block[os.write(1, block) :]


if __name__ == "__main__":
    main(sys.argv[1:])
