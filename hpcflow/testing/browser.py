"""Render pages in a headless Chromium, without profile and network."""

from __future__ import annotations

import html
import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hpcflow.testing.cluster.packages import require_chromium

_TIMEOUT_S: Final = 120
_DARK, _LIGHT = "0", "1"  # Blink's values
#: Shows, when all of them are loaded, the documents of its frames as text.
_SHOW_FRAMES: Final = """
<script>
onload = () => {
  for (const frame of document.querySelectorAll("iframe")) {
    const shown = document.createElement("pre");
    shown.textContent = frame.contentDocument.documentElement.outerHTML;
    document.body.append(shown);
  }
};
</script>
"""


@dataclass(frozen=True)
class Seen:
    """A rendered page.

    Attributes:
        dom: after its scripts have run.
        console: errors of scripts, and files that could not be loaded.
    """

    dom: str
    console: list[str]


class Browser:
    """Open local files. No host name resolves, so pages have no network.

    Raises:
        InputError: there is no Chromium on this machine.
    """

    def __init__(self) -> None:
        self._program = require_chromium()

    def look(self, page: Path) -> Seen:
        return self._look(page)

    def _look(self, page: Path, *options: str) -> Seen:
        done = self._run(page, "--dump-dom", *options)
        lines = done.stderr.splitlines()
        return Seen(done.stdout, [line for line in lines if ":CONSOLE" in line])

    def look_at_all(self, pages: Sequence[Path]) -> tuple[list[str], list[str]]:
        """Return the DOM of each page, and the console of all: one start of Chromium takes longer
        than most pages."""
        with tempfile.TemporaryDirectory(prefix="hpcf-pages-") as folder:
            index = Path(folder, "index.html")
            frames = "".join(
                f'<iframe width="800" height="600" src="{html.escape(page.absolute().as_uri())}">'
                "</iframe>"
                for page in pages
            )
            index.write_text(f"<!DOCTYPE html><body>{frames}{_SHOW_FRAMES}")
            seen = self._look(index, "--allow-file-access-from-files")
        shown = re.findall(r"<pre>(.*?)</pre>", seen.dom, re.S)
        return [html.unescape(text) for text in shown], seen.console

    def picture(self, page: Path, to: Path, *, width: int, height: int, dark: bool = False) -> Path:
        """Write a PNG of the page in a window of this size."""
        scheme = f"--blink-settings=preferredColorScheme={_DARK if dark else _LIGHT}"
        self._run(page, f"--screenshot={to}", f"--window-size={width},{height}", scheme)
        return to

    def printed(self, page: Path, to: Path) -> Path:
        self._run(page, f"--print-to-pdf={to}", "--no-pdf-header-footer")
        return to

    def _run(self, page: Path, *options: str) -> subprocess.CompletedProcess[str]:
        with tempfile.TemporaryDirectory(prefix="hpcf-browser-") as profile:
            argv = [
                *(self._program, "--headless", "--disable-gpu", "--disable-dev-shm-usage"),
                *("--hide-scrollbars", "--no-first-run", "--disable-extensions"),
                *("--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={profile}"),
                *("--enable-logging=stderr", "--log-level=0"),
                # root cannot use the sandbox, and the pages are hpcflow's own.
                *(["--no-sandbox"] if os.geteuid() == 0 else []),
                *options,
                page.absolute().as_uri(),
            ]
            env = {**os.environ, "HOME": profile}
            return subprocess.run(
                argv, env=env, capture_output=True, text=True, timeout=_TIMEOUT_S, check=True
            )
