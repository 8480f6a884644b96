"""Death at any moment: before and after each of some calls."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


class Killed(BaseException):
    """As kill -9: nobody catches it."""


class Killer:
    """Kills at one moment, while it is armed. The moments are before and after each call."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch
        self._left = 0
        self._is_armed = False
        self.has_struck = False

    def watch(self, owner: Any, name: str) -> None:
        """From now on, the calls of this function are two moments each."""
        function = getattr(owner, name)

        def watched(*args: Any, **options: Any) -> Any:
            self._moment()
            result = function(*args, **options)
            self._moment()
            return result

        self._patch.setattr(owner, name, watched)

    def aim_at(self, moment: int) -> None:
        """At this one, counted from 1, and only while armed."""
        self._left, self.has_struck = moment, False

    @contextmanager
    def armed(self) -> Iterator[None]:
        self._is_armed = True
        try:
            yield
        except Killed:
            pass
        finally:
            self._is_armed = False

    def _moment(self) -> None:
        if not self._is_armed or self.has_struck:
            return
        self._left -= 1
        if self._left == 0:
            self.has_struck = True
            raise Killed
