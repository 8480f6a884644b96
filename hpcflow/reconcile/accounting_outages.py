"""Remember, across commands, which site's accounting did not answer.

A sacct that hangs costs every command its whole time limit. So the time of the last failure is kept
in ``HPCFLOW_HOME/silent/``, and accounting is not queried for a while.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

from hpcflow.storage.files import FOLDER_MODE
from hpcflow.storage.layout import Home

#: How long accounting is not queried after a failure.
LASTS: Final = timedelta(minutes=2)


class Silence:
    def __init__(self, home: Home, site: str) -> None:
        """``site``: a name, or the path of a site file."""
        self._mark = home.silent / hashlib.sha256(site.encode()).hexdigest()[:16]

    def is_fresh(self, now: datetime) -> bool:
        try:
            age_s = now.timestamp() - self._mark.stat().st_mtime
        except OSError:
            return False
        return 0 <= age_s < LASTS.total_seconds()

    def remember(self, now: datetime) -> None:
        """Record a failure at ``now``, if the home can be written."""
        with suppress(OSError):
            self._mark.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
            self._mark.touch(mode=0o600)
            os.utime(self._mark, (now.timestamp(), now.timestamp()))
