"""Run ids and job names, and the characters that names may have."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

#: A name is used as a folder on scratch, in job names and as an argument. 63 characters leave room
#: for the rest of a run id within the 255 that Slurm's accounting keeps of a job name.
NAME_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}"
_NAME: Final = re.compile(NAME_PATTERN, re.ASCII)
_RUN_ID: Final = re.compile(rf"{NAME_PATTERN}-\d{{8}}-[a-z2-7]{{8}}", re.ASCII)
#: Until 2026-11 job names began with ``hpcflow:``, array names with ``hpcflow-array:``.
_JOB_NAME: Final = re.compile(rf"(?:hpcflow:)?({_RUN_ID.pattern}):(\d{{1,6}})", re.ASCII)
_ARRAY_NAME: Final = re.compile(
    rf"{_RUN_ID.pattern}:array:\d{{1,6}}|hpcflow-array:{_RUN_ID.pattern}:\d{{1,6}}", re.ASCII
)

#: A SLUID, such as ``sEKNKTV3WPV500``: an s, and Crockford's base32.
_SLUID: Final = re.compile(r"s([0-9A-HJKMNP-TV-Z]{13})", re.ASCII)
_IN_PYTHON: Final = str.maketrans("JKMNPQRSTVWXYZ", "IJKLMNOPQRSTUV")

#: Characters of the random part of a run id: RFC 4648 base32 in lower case, five bits each.
ID_ALPHABET: Final = "abcdefghijklmnopqrstuvwxyz234567"
ID_RANDOM_CHARS: Final = 8


def check_name(text: str) -> str:
    """Return ``text`` if it can be a name, else raise ValueError with the reason."""
    if _NAME.fullmatch(text) and ".." not in text:
        return text
    raise ValueError(
        "not a name: use 1 to 63 letters, digits, '.', '_' and '-', "
        "beginning with a letter or digit, without '..'"
    )


def is_run_id(text: str) -> bool:
    return _RUN_ID.fullmatch(text) is not None


def make_run_id(name: str, created_at: datetime, random_bytes: bytes) -> str:
    """Return ``<name>-<yyyymmdd>-<8 random characters>``: 40 random bits; sorts well in a listing.

    Args:
        name: a valid name.
        created_at: aware; its UTC day is used.
        random_bytes: at least 8 bytes from a good source.
    """
    tail = "".join(ID_ALPHABET[byte % 32] for byte in random_bytes[:ID_RANDOM_CHARS])
    return f"{name}-{created_at:%Y%m%d}-{tail}"


def job_name(run_id: str, attempt: int) -> str:
    """Return the Slurm job name of an attempt: unique for all time, so that its job can be found.

    It begins with the run's name, because squeue shows only its first characters.
    """
    return f"{run_id}:{attempt}"


def parse_job_name(text: str) -> tuple[str, int] | None:
    """Return run id and attempt from a job name; None if hpcflow did not make it."""
    match = _JOB_NAME.fullmatch(text)
    return (match[1], int(match[2])) if match else None


def array_name(sweep_id: str, number: int) -> str:
    """Return the Slurm job name of an array of runs: unique, and never an attempt's."""
    return f"{sweep_id}:array:{number}"


def is_array_name(text: str) -> bool:
    return _ARRAY_NAME.fullmatch(text) is not None


def sluid_number(text: object) -> int | None:
    """Return the number that a SLUID of Slurm stands for; None if ``text`` is not one.

    sacct calls this number the ``DBIndex`` of a record, from Slurm 24.11 on.
    """
    match = _SLUID.fullmatch(text) if isinstance(text, str) else None
    return int(match[1].translate(_IN_PYTHON), 32) if match else None
