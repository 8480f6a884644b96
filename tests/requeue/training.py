"""Trainings that a daemon watches, on a cluster in memory: time moves by the minute, and in larger
steps where nothing can happen."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from hpcflow.clock import to_text
from hpcflow.launch.run import Launched
from hpcflow.model.journal import Stall
from hpcflow.requeue.stalls.watch import GAP_MAX_S
from hpcflow.storage import journal
from hpcflow.storage.layout import AttemptDir
from tests.requeue.watched import Watched

MINUTE = 60.0
#: What a look counts whole: rounds that are no rarer see the same as one a minute.
COUNTED_MIN = int(GAP_MAX_S / MINUTE)


class Training(Watched):
    """A desk with a training whose job's clock is wrong, if that is asked for."""

    skew_s = 0.0

    def launch_with(self, retry: str) -> Launched:
        """Launch a run with such a ``retry``."""
        self.config.write_text(self.config.read_text() + f"retry: {retry}\n")
        return self.launch()

    def event(self, launched: Launched, kind: str, *, attempt: int = 1, **facts: Any) -> None:
        at = to_text(self.clock.now() + timedelta(seconds=self.skew_s))
        with self.files(launched, attempt).events.open("a") as file:
            file.write(json.dumps({"at": at, "event": kind, **facts}) + "\n")

    def files(self, launched: Launched, attempt: int = 1) -> AttemptDir:
        return self.dir_of(launched).attempt(attempt)

    def trains(self, launched: Launched, minutes: int, *, attempt: int = 1) -> None:
        """A train step each minute, and now and then a tick."""
        self.event(launched, "started", attempt=attempt, job_id="1", nodes=["n1"])
        self.event(launched, "train_started", attempt=attempt, train_step=0)
        for step in range(1, minutes + 1):
            self.clock.advance(MINUTE)
            self.event(launched, "progress", attempt=attempt, train_step=step, metrics={})
            if step % COUNTED_MIN == 0 or step in (1, minutes):
                assert self.tick().stalls == {}

    def waits(self, minutes: int, *, each_min: int = COUNTED_MIN) -> list[str]:
        """What is done in so many minutes: a tick every five, or as often as is said; and one in
        the first minute, in the last ones, and in each after an act."""
        done: list[str] = []

        def steps_s() -> Iterator[float]:
            left = minutes
            while left:
                is_by_minute = done or left == minutes or left <= each_min
                step_min = 1 if is_by_minute else each_min
                yield step_min * MINUTE
                left -= step_min

        for report in self.ticks(steps_s()):
            done += [verdict.act.value for verdict in report.stalls.values()]
        return done

    def acts(self, launched: Launched) -> list[str]:
        """What the journal says of its stalls."""
        records = journal.read(self.dir_of(launched))
        return [record.action for record in records if isinstance(record, Stall)]

    def why(self, launched: Launched) -> str:
        """What the journal first says about its stall."""
        records = journal.read(self.dir_of(launched))
        return next((record.why for record in records if isinstance(record, Stall)), "")
