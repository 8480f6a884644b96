"""The fenced blocks of README and docs/, and a shell that runs their commands as they stand there.

- ``console``: commands behind ``$ ``, and below each the output, if the page shows it;
- ``bash``: commands alone, one a line; a block that begins with ``#!`` is a program instead;
- a block of any language whose first line is a comment with the name of a file is that file;
- ``notest`` behind the language: not run, for the reason in the HTML comment above the block.
"""

from __future__ import annotations

import os
import re
import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
INDEX: Final = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")

_FENCE: Final = re.compile(
    r"(?:^<!-- notest: (?P<why>[^\n]+?) -->\n\n?)?"
    r"^(?P<indent> *)```(?P<info>[^\n`]*)\n(?P<text>.*?)^(?P=indent)```$",
    re.S | re.M,
)
_FILE: Final = re.compile(r"# ([\w-]+\.\w+)\n")
#: Such a command is repeated until it prints what the page shows, as a reader would repeat it.
_LOOKS: Final = re.compile(r"hpcflow (ls|show|history|checkpoint ls|sweep (ls|status|trials)) ?")
_LOOK_FOR_S: Final = 120
_COMMAND_S: Final = 300
#: Prints the exit code of the command before, between two characters that no command prints.
_END: Final = "printf '\\036%d\\036' $?"
#: What differs from one run of a command to the next, and what stands for it.
_VARIES: Final = (
    (re.compile(r"\x1b\[[\d;]*m"), ""),
    (re.compile(r"[█▒.·]{10,}"), "BAR"),
    (re.compile(r"-\d{8}-[a-z0-9]{8}\b"), "-ID"),
    (re.compile(r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d(?:\.\d+)?)?Z?)?"), "TIME"),
    (re.compile(r"\b\d\d:\d\d(?::\d\d)?\b"), "TIME"),
    (re.compile(r"(?<![\w.~])(?:/[\w.@%+~-]+)+/?"), "PATH"),
    (re.compile(r"\b\d+(?:\.\d+)?(?:e[-+]?\d+)?"), "N"),
    (re.compile(r"N(?:ms|[smhd])(?: N(?:ms|[smhd]))*\b"), "DURATION"),
    (re.compile(r"N [KMGT]?i?B\b"), "SIZE"),
    (re.compile(r" +"), " "),
)


@dataclass(frozen=True)
class Block:
    """A fenced block, and the line of its page on which its text begins."""

    page: str
    line: int
    language: str
    words: tuple[str, ...]
    text: str
    why_not: str | None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def file(self) -> str | None:
        """Return the name of the file that this block is."""
        named = _FILE.match(self.text)
        return named[1] if named else None

    @property
    def has_commands(self) -> bool:
        """Whether the block is for a shell, line by line."""
        is_program = self.text.startswith("#!") or self.file is not None
        return self.language in ("bash", "console") and not is_program

    @property
    def is_run(self) -> bool:
        return self.has_commands and "notest" not in self.words

    def commands(self) -> Iterator[tuple[str, str]]:
        """Yield each command, and the output that the page shows."""
        command, output = "", ""
        for line in self.text.splitlines(keepends=True):
            if _is_incomplete(command):
                command += line
            elif self.language == "bash" or line.startswith("$ "):
                if command.strip():
                    yield command.strip(), output
                command, output = line.removeprefix("$ "), ""
            else:
                output += line
        if command.strip():
            yield command.strip(), output


def _is_incomplete(command: str) -> bool:
    try:
        shlex.split(command, comments=True)
    except ValueError:
        return True
    return command.endswith("\\\n")


def blocks_of(page: str) -> list[Block]:
    """Return the blocks of README or of a page of docs/, by its path from the root."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [
        Block(
            page,
            text.count("\n", 0, match.start("text")) + 1,
            *_info(match["info"]),
            re.sub(f"^{match['indent']}", "", match["text"], flags=re.M),
            match["why"],
        )
        for match in _FENCE.finditer(text)
    ]


def _info(info: str) -> tuple[str, tuple[str, ...]]:
    language, *words = info.split() or [""]
    return language, tuple(words)


def pages_of(section: str) -> list[str]:
    """Return the pages that docs/index.md lists in a section, by their paths from the root."""
    (text,) = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", INDEX, re.S | re.M)
    return [f"docs/{name}" for name in re.findall(r"^- \[.*?\]\((\w+\.md)\)", text, re.M)]


def alike(shown: str, printed: str) -> bool:
    """Whether a command has printed what the page shows.

    Ids, numbers, times, sizes and paths may be others; ``...`` stands for any text, and alone on a
    line for any lines.
    """
    pattern = ""
    for line in _constant(shown).splitlines():
        words = ".*".join(re.escape(part) for part in line.strip().split("..."))
        pattern += r"(?:.*\n)*" if line.strip() == "..." else f" ?{words} ?\n"
    return re.fullmatch(pattern, _constant(printed)) is not None


def _constant(text: str) -> str:
    for varies, stands_for in _VARIES:
        text = varies.sub(stands_for, text)
    return text if text.endswith("\n") else f"{text}\n"


class Shell:
    """One bash for all commands of a page: ``cd``, ``export`` and ``$!`` work as for a reader.

    Args:
        process: a bash that reads commands from a pipe, in a session of its own.
        folder: where files that the page shows are written.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.transcript = ""

    def __enter__(self) -> Shell:
        return self

    def __exit__(self, *_: object) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()

    def follow(self, block: Block) -> None:
        """Do what a reader does with a block: write the file, or type the commands."""
        if block.file is not None:
            self.run(f"cat > {block.file} <<'END OF THE BLOCK'\n{block.text}END OF THE BLOCK")
        elif block.is_run:
            for command, shown in block.commands():
                self._type(block, command, shown)

    def _type(self, block: Block, command: str, shown: str) -> None:
        deadline = time.monotonic() + _LOOK_FOR_S
        while True:
            code, printed = self.run(command)
            is_expected = (code == 0) is not shown.startswith("error: ")
            if is_expected and (not shown or alike(shown, printed)):
                return
            if not _LOOKS.match(command) or time.monotonic() > deadline:
                break
            time.sleep(2)
        raise AssertionError(
            f"{block}: not what the page shows; exit code {code}\n$ {command}\n{printed}\n"
            f"the page has:\n{shown}\nbefore:\n{self.transcript}"
        )

    def must(self, command: str) -> str:
        """Return what a command prints; it has to succeed."""
        code, printed = self.run(command)
        assert code == 0, self.transcript
        return printed

    def run(self, command: str) -> tuple[int, str]:
        """Return the exit code of a command, and all that it prints."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self.transcript += f"$ {command}\n"
        self._process.stdin.write(f"eval {shlex.quote(command)} </dev/null\n{_END}\n")
        self._process.stdin.flush()
        deadline = time.monotonic() + _COMMAND_S
        printed = b""
        while not (end := re.search(rb"\x1e(\d+)\x1e\Z", printed)):
            left_s = max(0, deadline - time.monotonic())
            ready, _, _ = select.select([self._process.stdout], [], [], left_s)
            chunk = os.read(self._process.stdout.fileno(), 1 << 16) if ready else b""
            assert chunk, f"it does not end:\n{self.transcript}{printed.decode()}"
            printed += chunk
        text = printed[: end.start()].decode()
        self.transcript += text
        return int(end[1]), text


def shell(folder: Path, **variables: str) -> Shell:
    """Return the shell of a reader who has hpcflow of this tree."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environ: Mapping[str, Any] = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), **variables}
    process = subprocess.Popen(
        ["/bin/bash", "--noprofile", "--norc"],
        cwd=folder,
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    return Shell(process)
