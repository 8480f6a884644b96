"""A real Chromium that looks at a page as a person would; without screen, profile and network."""

from __future__ import annotations

import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hpcflow.testing.cluster.packages import require_chromium

_TIMEOUT_S: Final = 120
_DARK, _LIGHT = "0", "1"  # Blink's own numbers


@dataclass(frozen=True)
class Seen:
    """What came of a page.

    Attributes:
        dom: as the browser understood it, and its scripts left it.
        console: what it complained of: scripts that failed, files that it could not load.
    """

    dom: str
    console: list[str]


class Browser:
    """Looks at files of this machine; no name is resolved meanwhile, so none has a network.

    Raises:
        InputError: there is no Chromium on this machine.
    """

    def __init__(self) -> None:
        self._program = require_chromium()

    def look(self, page: Path) -> Seen:
        """Open a page, and let its scripts do what they do at once."""
        done = self._run(page, "--dump-dom")
        lines = done.stderr.splitlines()
        return Seen(done.stdout, [line for line in lines if ":CONSOLE" in line])

    def picture(self, page: Path, to: Path, *, width: int, height: int, dark: bool = False) -> Path:
        """What one sees of a page in a window of this size, as PNG."""
        scheme = f"--blink-settings=preferredColorScheme={_DARK if dark else _LIGHT}"
        self._run(page, f"--screenshot={to}", f"--window-size={width},{height}", scheme)
        return to

    def printed(self, page: Path, to: Path) -> Path:
        """The page on paper, as PDF."""
        self._run(page, f"--print-to-pdf={to}", "--no-pdf-header-footer")
        return to

    def _run(self, page: Path, *options: str) -> subprocess.CompletedProcess[str]:
        with tempfile.TemporaryDirectory(prefix="hpcf-browser-") as profile:
            argv = [
                *(self._program, "--headless", "--disable-gpu", "--disable-dev-shm-usage"),
                *("--hide-scrollbars", "--no-first-run", "--disable-extensions"),
                *("--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={profile}"),
                *("--enable-logging=stderr", "--log-level=0"),
                # Its sandbox is for pages of strangers, and root cannot have it.
                *(["--no-sandbox"] if os.geteuid() == 0 else []),
                *options,
                page.absolute().as_uri(),
            ]
            env = {**os.environ, "HOME": profile}
            return subprocess.run(
                argv, env=env, capture_output=True, text=True, timeout=_TIMEOUT_S, check=True
            )
