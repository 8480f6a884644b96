"""A time in a file that others may have written."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Final

from pydantic import AwareDatetime, Field

from hpcflow.clock import EARLIEST, LATEST

_MARGIN: Final = timedelta(days=9000)

#: Aware, and so far from the ends of time that years can be added or subtracted.
Moment = Annotated[AwareDatetime, Field(ge=EARLIEST + _MARGIN, le=LATEST - _MARGIN)]
