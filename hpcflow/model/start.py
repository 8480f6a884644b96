"""The checkpoint of another run that a new run starts from, as a config names it. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from hpcflow.model.ids import check_name
from hpcflow.model.kinds import Kind, check_store_url, without_nul

#: The checkpoint in the directory of the new run, where it is train step 0.
START: Final = "start/000000000"
_WITH_STEP: Final = re.compile(r"(.+)@([0-9]{1,18})", re.ASCII | re.DOTALL)
#: The longest run id: a name, a day, and the random part.
_ID_CHARS: Final = 63 + 9 + 9


@dataclass(frozen=True)
class Wanted:
    """A parsed value of ``start_from``.

    Attributes:
        place: a run, a path, or a URL.
        train_step: None for the newest complete checkpoint.
    """

    place: str
    train_step: int | None = None

    @property
    def is_url(self) -> bool:
        return "://" in self.place

    @property
    def is_path(self) -> bool:
        return is_path(self.place)

    def __str__(self) -> str:
        return self.place if self.train_step is None else f"{self.place}@{self.train_step}"


def is_path(text: str) -> bool:
    """Return whether a value of ``start_from`` is a path, relative or absolute."""
    return "/" in text and "://" not in text


def wanted(text: str) -> Wanted:
    match = _WITH_STEP.fullmatch(text)
    return Wanted(match[1], int(match[2])) if match else Wanted(text)


def _check(text: str) -> str:
    start = wanted(without_nul(text))
    if start.is_url:
        check_store_url(start.place)
    elif not start.is_path:
        try:
            check_name(start.place[:63] if len(start.place) <= _ID_CHARS else start.place)
        except ValueError:
            raise ValueError(
                "not a run, a path or a URL: write RUN, RUN@TRAIN_STEP, a path with a '/' in it, "
                "or s3://BUCKET/PREFIX/RUN"
            ) from None
    return text


StartFrom = Annotated[
    str,
    StringConstraints(min_length=1, max_length=4096),
    AfterValidator(_check),
    Kind("run, path, or URL, with `@TRAIN_STEP` or without"),
]


class StartedFrom(BaseModel):
    """The checkpoint of another run that a run started from, as it was at that time."""

    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)

    place: str = Field(description="Its folder: a path or a URL.")
    run_id: str | None = Field(None, description="The run that made it, by its manifest.")
    train_step: int = Field(ge=0, description="In that run.")
    size_bytes: int = Field(ge=0)
    manifest_sha256: str

    def __str__(self) -> str:
        return f"train step {self.train_step} of {self.run_id or self.place}"
