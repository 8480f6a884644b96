"""What lies outside the project: files that tell that they were read or written."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from pathlib import Path

#: The kernel sets the time of access when it is older than that of the last change.
_LONG_AGO_S = 1_000_000_000


class Outside:
    """A folder with private files, which no command has a reason to open."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.marker = f"canary-{secrets.token_hex(8)}"
        self.secret = folder / "secret"
        self.reference = folder / "reference.json"
        self.files = [self.secret, self.reference, folder / "journal.jsonl",
                      folder / "deep" / "manifest.json", folder / "deep" / "run.json"]  # fmt: skip
        self._make()
        self.tells_reads = self._tells_reads()
        self.arm()

    def _make(self) -> None:
        (self.folder / "deep").mkdir(parents=True)
        for path in self.files:
            path.write_text(f'{{"marker": "{self.marker}"}}\n')
            path.chmod(0o600)
        # What fsspec's reference file system executes, in the versions that do.
        code = f"{{{{ cycler.__init__.__globals__.os.mkdir('{self.folder}/executed') }}}}"
        self.reference.write_text(json.dumps({"version": 1, "templates": {"x": code},
                                              "refs": {"run.json": ["{{x}}"]}}))  # fmt: skip

    def arm(self) -> None:
        """From now on it is noticed."""
        for path in self.files:
            os.utime(path, (_LONG_AGO_S, path.stat().st_mtime))
        self._before = self._state()

    def complaints(self) -> list[str]:
        """What was done to it since; it is put back, and armed again."""
        if self._before == (now := self._state()):
            return []
        read, changed = [], []
        for path in sorted(self._before.keys() | now.keys()):
            was, is_now = self._before.get(path), now.get(path)
            name = str(path.relative_to(self.folder))
            if was is None or is_now is None or was[1:] != is_now[1:]:
                changed.append(name)
            elif was != is_now and self.tells_reads:
                read.append(name)
        shutil.rmtree(self.folder)
        self._make()
        self.arm()
        return [
            f"{names[0]} outside of the project {done}, and {len(names) - 1} more"
            for names, done in ((read, "was read"), (changed, "was changed"))
            if names
        ]

    def _state(self) -> dict[Path, tuple[object, ...]]:
        state: dict[Path, tuple[object, ...]] = {}
        for path in (self.folder, *self.folder.rglob("*")):
            seen = path.lstat()
            state[path] = (
                seen.st_atime_ns if path in self.files else 0,
                seen.st_mode,
                seen.st_uid,
                seen.st_size,
                seen.st_mtime_ns,
                seen.st_ino,
            )
        return state

    def _tells_reads(self) -> bool:
        """Not where the file system is mounted with ``noatime``."""
        os.utime(self.secret, (_LONG_AGO_S, self.secret.stat().st_mtime))
        self.secret.read_bytes()
        return self.secret.stat().st_atime > _LONG_AGO_S
