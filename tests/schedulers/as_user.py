"""Use a scheduler as another Unix user: every call in a child process that has become this user.

Our users are not root, and Slurm treats root differently (it may see and cancel everything).
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn, TypeVar

from hpcflow.errors import HpcflowError
from hpcflow.schedulers.base import JobInfo, JobRef, Lookup, Scheduler, SubmitRequest
from hpcflow.schedulers.waiting import ClusterQueue, IdleNode, PredictedStart, WaitingJob
from hpcflow.sites.live import ClusterInfo
from hpcflow.sites.standing import Reservation, Standing
from hpcflow.testing.cluster import User

T = TypeVar("T")


class AsUser:
    """A :class:`Scheduler` whose every call is made by ``user``."""

    def __init__(
        self, scheduler: Scheduler, user: User, extra: Mapping[str, str] | None = None
    ) -> None:
        self.name = scheduler.name
        self.user = user
        self._scheduler = scheduler
        self._extra = extra

    def cluster(self) -> str | None:
        return self.call(self._scheduler.cluster)

    def submit(self, request: SubmitRequest) -> JobRef:
        return self.call(lambda: self._scheduler.submit(request))

    def most_tasks(self) -> int:
        return self.call(self._scheduler.most_tasks)

    def find(self, job_name: str, since: datetime) -> Lookup:
        return self.call(lambda: self._scheduler.find(job_name, since))

    def queue(self, job_ids: Sequence[str] = ()) -> list[JobInfo]:
        return self.call(lambda: self._scheduler.queue(job_ids))

    def accounting(
        self,
        job_ids: Sequence[str],
        since: datetime,
        *,
        job_names: Sequence[str] = (),
        is_named: Callable[[str], bool] | None = None,
    ) -> list[JobInfo]:
        return self.call(
            lambda: self._scheduler.accounting(
                job_ids, since, job_names=job_names, is_named=is_named
            )
        )

    def cancel(self, job_ids: Sequence[str]) -> None:
        return self.call(lambda: self._scheduler.cancel(job_ids))

    def start_now(self, job_ids: Sequence[str]) -> dict[str, str]:
        return self.call(lambda: self._scheduler.start_now(job_ids))

    def restart_delay_s(self) -> float:
        return self.call(self._scheduler.restart_delay_s)

    def cluster_info(self) -> ClusterInfo:
        return self.call(self._scheduler.cluster_info)

    def accounts(self, user: str) -> frozenset[str] | None:
        return self.call(lambda: self._scheduler.accounts(user))

    def standing(self, user: str) -> Standing | None:
        return self.call(lambda: self._scheduler.standing(user))

    def reservations(self) -> list[Reservation]:
        return self.call(self._scheduler.reservations)

    def waiting(self, job_ids: Sequence[str]) -> list[WaitingJob]:
        return self.call(lambda: self._scheduler.waiting(job_ids))

    def cluster_queue(self) -> ClusterQueue:
        return self.call(self._scheduler.cluster_queue)

    def idle_nodes(self) -> list[IdleNode]:
        return self.call(self._scheduler.idle_nodes)

    def predicted_start(self, request: SubmitRequest) -> PredictedStart | None:
        return self.call(lambda: self._scheduler.predicted_start(request))

    def call(self, function: Callable[[], T]) -> T:
        """What ``function`` gives, or raises, when the user calls it."""
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            self._child(function, writing)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            data = pipe.read()
        _, status = os.waitpid(pid, 0)
        assert data, f"the child ended with status {status} and said nothing"
        kind, value = pickle.loads(data)
        if kind == "error":
            error_type, message, where, next_action = value
            raise error_type(message, where=where, next_action=next_action)
        assert kind == "value", value
        result: T = value
        return result

    def _child(self, function: Callable[[], object], writing: int) -> NoReturn:
        try:
            entry = self.user.entry
            os.setgroups([])
            os.setgid(entry.pw_gid)
            os.setuid(entry.pw_uid)
            os.environ.clear()
            os.environ.update(self.user.environment(self._extra))
            answer: Any = ("value", function())
        except HpcflowError as error:
            answer = ("error", (type(error), error.message, error.where, error.next_action))
        except BaseException as error:  # it must not become a second pytest
            answer = ("crash", repr(error))
        with os.fdopen(writing, "wb") as pipe:
            pickle.dump(answer, pipe)
        os._exit(0)
