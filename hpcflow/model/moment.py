"""A time in a file that others may have written."""

from __future__ import annotations

from typing import Annotated

from pydantic import AwareDatetime, Field

from hpcflow.clock import EARLIEST, LATEST

#: Aware, and so far from the ends of time that a few years can be added or subtracted.
Moment = Annotated[AwareDatetime, Field(ge=EARLIEST, le=LATEST)]
