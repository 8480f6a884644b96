"""``python -m hpcflow.sweeps.call PICKLE SHA256 FOLDERS METRIC…``: in a job, call a function.

:mod:`hpcflow.sweeps.api` writes the file. It is unpickled only if its checksum is that of the
command line. ``FOLDERS``, separated by ``:``, hold the modules of the function. Other users may
have put files there, so all that unpickling needs is imported before.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import sys
from collections.abc import Sequence

import cloudpickle  # noqa: F401 - unpickling the function needs both
import submitit.core.utils  # noqa: F401 - as above

from hpcflow.runtime.calling import call, look_in
from hpcflow.runtime.job import job_from
from hpcflow.runtime.reading import MAX_LINES_FILE_BYTES, read_file
from hpcflow.runtime.warn import warn


def main(arguments: Sequence[str]) -> int:
    """Call the function and return the exit code: 1 if its file is missing or was changed."""
    path, checksum, folders, *metrics = arguments
    try:
        content = read_file(path, MAX_LINES_FILE_BYTES)
    except OSError as error:
        warn(f"cannot read the function of this sweep: {error}; start the sweep again")
        return 1
    if hashlib.sha256(content).hexdigest() != checksum:
        warn(f"{path} was changed after the sweep started; start the sweep again")
        return 1
    look_in([each for each in folders.split(":") if each])
    submission = pickle.loads(content)  # noqa: S301 - the checksum is right
    return call(submission.function, metrics, job_from(os.environ))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
