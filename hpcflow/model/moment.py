"""A time in a file that other users may have written."""

from __future__ import annotations

from typing import Annotated

from pydantic import AwareDatetime, Field

from hpcflow.clock import EARLIEST, LATEST

#: With a zone, and in the range that :func:`hpcflow.clock.from_text` reads.
Moment = Annotated[AwareDatetime, Field(ge=EARLIEST, lt=LATEST)]
