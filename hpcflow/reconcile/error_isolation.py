"""Isolate the errors of one run from the other runs of a round."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TypeAlias

from hpcflow.errors import HpcflowError, words_for
from hpcflow.storage.layout import RunDir

Errors: TypeAlias = type[Exception] | tuple[type[Exception], ...]
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Isolated:
    """Turn an error of one run into a warning, so that it does not affect the others.

    Attributes:
        quiet: errors without a warning.
    """

    run_dir: RunDir
    warnings: list[str]
    quiet: Errors

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        if not isinstance(error, Exception):
            return False
        run_id, words = self.run_dir.path.name, words_for(error)
        _log.debug("run %s", run_id, exc_info=error)
        # If the run is being submitted, the next look knows more.
        if words is not None and not isinstance(error, self.quiet):
            self.warnings.append(words if isinstance(error, HpcflowError) else f"{run_id}: {words}")
        return True
