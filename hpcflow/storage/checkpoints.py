"""Which checkpoints lie in a run directory. Writing and verifying them is the runtime's."""

from __future__ import annotations

from hpcflow.storage.layout import RunDir


def newest_complete(run_dir: RunDir) -> str | None:
    """The complete checkpoint of the highest train step, relative to the run directory.

    Complete means that its manifest exists. Its checksums are compared in the job, before anything
    resumes from it.
    """
    try:
        steps = [path for path in run_dir.checkpoints.iterdir() if path.name.isdecimal()]
    except OSError:
        return None
    complete = [path for path in steps if (path / "manifest.json").is_file()]
    newest = max(complete, key=lambda path: int(path.name), default=None)
    return None if newest is None else str(newest.relative_to(run_dir.path))


def is_complete(run_dir: RunDir, path: str) -> bool:
    """Whether the checkpoint at ``path``, relative to the run directory, is complete at present."""
    try:
        return (run_dir.path / path / "manifest.json").is_file()
    except OSError:  # a folder that is closed to us
        return False
