"""Record the state of the user's code: the git commit, and uncommitted changes."""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from hpcflow import __version__
from hpcflow.errors import shell_word
from hpcflow.model.run import Provenance
from hpcflow.model.secret import redact
from hpcflow.provenance.git import GitError, difference, find_repository
from hpcflow.provenance.redaction import without_secrets

#: A larger diff is usually data that git should ignore; the commit is recorded all the same.
MAX_DIFF_BYTES = 1 << 20
#: The file with the difference in the run directory's ``code/``.
DIFF_FILE: Final = "uncommitted.diff"


#: git's message about a repository of another user.
_REPOSITORY: Final = re.compile("repository at '([^\n]+)'\n")


@dataclass(frozen=True)
class CodeState:
    """The git state of a folder; empty outside a work tree.

    Attributes:
        diff: the diff, with secrets redacted.
        warnings: what is not recorded, and why.
    """

    commit: str | None = None
    is_dirty: bool | None = None
    diff: bytes | None = None
    warnings: tuple[str, ...] = ()


@lru_cache(maxsize=64)
def code_state(folder: Path, _digest: str | None = None) -> CodeState:
    """Return the commit of ``folder``, and the diff of tracked files.

    Cached by folder and digest of its code: a program may submit a thousand runs.
    """
    try:
        repository = find_repository(folder)
    except GitError as error:
        warning = f"the git commit of {folder} is not recorded: {why_no_git(folder, error)}"
        return CodeState(warnings=(warning,))
    if repository is None:
        return CodeState()
    try:
        diff = difference(repository, folder, MAX_DIFF_BYTES)
    except GitError as error:
        warning = f"uncommitted changes in {folder} are not recorded: {error}"
        return CodeState(repository.commit, warnings=(warning,))
    if len(diff) > MAX_DIFF_BYTES:
        return CodeState(repository.commit, is_dirty=True)
    recorded = without_secrets(diff)
    warnings = (recorded.warning,) if recorded.warning else ()
    return CodeState(repository.commit, bool(diff), recorded.diff or None, warnings)


def why_no_git(folder: Path, error: GitError) -> str:
    """Return why git did not answer in ``folder``, and what to do if that is about its owner."""
    if "dubious ownership" not in str(error):
        return str(error)
    named = _REPOSITORY.search(str(error))
    repository = named[1] if named else folder
    return (
        "the repository belongs to another user; if you trust it: "
        f"git config --global --add safe.directory {shell_word(repository)}"
    )


def provenance(config: Path | None, overrides: Sequence[str], state: CodeState) -> Provenance:
    return Provenance(
        hpcflow_version=__version__,
        python_version=".".join(map(str, sys.version_info[:3])),
        submit_host=socket.gethostname(),
        config_path=str(config) if config else None,
        overrides=[redact(each) for each in overrides],
        git_commit=state.commit,
        git_dirty=state.is_dirty,
    )
