"""A time in a file that others may have written."""

from __future__ import annotations

from typing import Annotated

from pydantic import AwareDatetime, Field

from hpcflow.clock import EARLIEST, LATEST

#: Aware, and what :func:`hpcflow.clock.from_text` reads; :func:`hpcflow.clock.later` adds to it.
Moment = Annotated[AwareDatetime, Field(ge=EARLIEST, lt=LATEST)]
