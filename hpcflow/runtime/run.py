"""The interface of a training script: :class:`Run`."""

from __future__ import annotations

import operator
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from hpcflow.runtime.data_order import DataOrder
from hpcflow.runtime.events import EventLog
from hpcflow.runtime.job import Job
from hpcflow.runtime.manifest import CheckpointError, finite
from hpcflow.runtime.metrics import Metrics, add_metrics, held, number
from hpcflow.runtime.notice import FLAG, NAMES, NOTHING, SAVE, Notice
from hpcflow.runtime.parameters import Params
from hpcflow.runtime.ranks import Ranks, exit_on_notice
from hpcflow.runtime.retention import Keeper
from hpcflow.runtime.saving import Made, Saving
from hpcflow.runtime.schedule import AutoInterval, Schedule
from hpcflow.runtime.successor import successor
from hpcflow.runtime.torch_setup import settle_buckets, spare_workers
from hpcflow.runtime.warn import warn


class Run:
    """One training, from :func:`hpcflow.runtime.start`, which creates it, to :meth:`finish`.

    All ranks call every method; only rank 0 reports.

    Attributes:
        params: the run's parameters, over the defaults given to ``start``.
        rank: index of this process, from 0.
        world_size: number of processes.
        train_step: number of train steps done, including the current one; counted from 1.
    """

    def __init__(self, job: Job, params: Params, ranks: Ranks) -> None:
        self.params = params
        self.rank = ranks.rank
        self.world_size = ranks.world_size
        self.train_step = 0
        self._job = job
        self._ranks = ranks
        is_first = self.rank == 0
        self._events = EventLog(job.events if is_first else None)
        self._keeper = Keeper(job, self._events)
        self._metrics = Metrics(self._events, job.tensorboard_dir if is_first else None)
        flag = job.notice if is_first else None
        self._notice = Notice(flag, cancel=job.cancel if is_first else None)
        # Only rank 0 measures: the ranks agree on each save.
        self._auto = AutoInterval(job.mtbf_s) if is_first and job.mtbf_s is not None else None
        interval_s = job.interval_s if self._auto is None else self._auto.interval_s
        self._schedule = Schedule(interval_s if is_first else None, job.every_train_steps)
        self._order = DataOrder()
        self._saving: Saving | None = None
        if job.checkpoint_dir is not None and job.adopt is None:
            callbacks = (self._report, self._add_metrics, self._report_failed)
            self._saving = Saving(job, job.checkpoint_dir, ranks, *callbacks)
            self._notice.listen()
        self._epochs: int | None = None
        self._total: int | None = None
        self._resumed_from: str | None = None
        self._loader_workers: int | None = None
        self._data_wait_s = 0.0
        self._is_restored = self._has_begun = self._is_finished = False

    def restore(self, **objects: Any) -> int:
        """Register the objects to checkpoint, and load the newest intact checkpoint into them.

        Call it once, before the loop, with everything that training changes: the model (also
        inside DistributedDataParallel), the optimizer, a scheduler, a GradScaler, and any other
        object with ``state_dict`` and ``load_state_dict``; dicts of JSON values; objects with
        ``save(folder)`` and ``load(folder)``. Random number generators and the position in the
        data are saved without being named.

        Returns:
            The number of train steps done; 0 in a new training.

        Raises:
            TypeError: an object is of none of these kinds.
            CheckpointError: the checkpoint holds other objects than these.
            RuntimeError: the run's config has ``checkpoint.adopt``: the program saves by itself.
        """
        if self._job.adopt is not None:
            raise RuntimeError(
                "run.restore() saves and resumes, but this run adopts the checkpoints that its "
                "program writes: remove checkpoint.adopt from its config, or this call from the "
                "program"
            )
        if self._has_begun or self._is_restored:
            raise RuntimeError("call run.restore() once, before the training loop")
        self._is_restored = True
        if self._saving is None:
            return 0
        self._saving.register(objects)
        restored = self._saving.restore()
        for obj in objects.values():
            settle_buckets(obj)
        if restored is not None:
            self.train_step = restored.train_step
            self._resumed_from = self._job.relative(restored.path)
            self._metrics.resume(restored.metrics)
            self._order.resume(restored.shared_state, restored.rank_state, restored.placed)
        return self.train_step

    def train_steps(self, total: int) -> Iterator[int]:
        """Yield the train steps left to do: ``1 … total``, without those done before.

        For a script that finds its data by the number of the train step. Between two train steps
        the runtime saves if a save is due, and on notice saves and exits.
        """
        total = _count(total)
        self._begin(total)
        if self.train_step <= total:
            self._order.enter_loop()
        while self.train_step < total:
            self._begin_train_step()
            yield self.train_step
            self._after_train_step()

    def epochs(self, count: int) -> Iterator[int]:
        """Yield the epochs left to do, from 0, including the interrupted one.

        In that one, :meth:`batches` skips the batches done. Code after the batches, such as
        ``scheduler.step()``, runs exactly once per epoch.
        """
        self._epochs = count = _count(count)
        while self._order.position.epoch < count:
            self._order.enter_epoch()
            yield self._order.position.epoch
            self._add_late_metrics()
            self._order.leave_epoch()
        self._order.enter_loop()

    def batches(self, loader: Iterable[Any]) -> Iterator[Any]:
        """Yield the batches of ``loader`` left to do in this epoch; each is one train step.

        After a resume in the middle of an epoch, the batches done before are read again and
        dropped, with the random state of the first time, so that every shuffle is the same.

        Raises:
            RuntimeError: it was called before in this epoch.
        """
        spare_workers(loader)
        workers = getattr(loader, "num_workers", None)
        self._loader_workers = workers if isinstance(workers, int) else None
        batches = self._order.open(loader)
        self._begin(self._total_train_steps())
        try:
            for batch in self._timed(batches):
                self._begin_train_step()
                yield batch
                self._after_train_step()
        finally:
            batches.close()  # ends the loader's workers now, without a wait for each at exit

    def _timed(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield ``batches``, and add up the time waited for them."""
        begin = time.monotonic()
        for batch in batches:
            self._data_wait_s += time.monotonic() - begin
            yield batch
            begin = time.monotonic()

    def log(self, **metrics: Any) -> None:
        """Report metrics of this train step. A tensor is fetched only when it is written.

        They belong to the checkpoint of this train step, even if logged after its save. An event
        gets the latest values about once a second; TensorBoard gets all. NaN is recorded without a
        value. Ranks other than 0 do nothing.

        Raises:
            TypeError: a value is not one number.
        """
        if self.rank == 0:
            self._metrics.log(self.train_step, metrics, **self._progress())

    def finish(self, **metrics: Any) -> None:
        """Save the final state, and report that the training is complete, with its last metrics.

        Raises:
            CheckpointError: the final state could not be saved.
        """
        if self._is_finished:
            return
        self._begin(None)
        self._ranks.finish_exchange()
        self._save_at_end()
        if self._saving is not None:
            self._saving.close()
        self._is_finished = True
        self._notice.stop_listening()
        if self.rank == 0:
            values = {name: number(held(name, value)) for name, value in metrics.items()}
            if values:
                self._metrics.log(self.train_step, values, **self._progress())
            self._add_late_metrics()
            if self._saving is not None:
                self._keeper.tidy(self.train_step, is_over=True)
                self._keeper.print_warnings()
            self._metrics.close()
            self._events.append(
                "finished", train_step=self.train_step, metrics=values, model=self._model()
            )

    def _begin(self, total: int | None) -> None:
        if total is not None:
            self._total = total
        if self._has_begun:
            return
        if self._saving is not None and not self._is_restored:
            raise RuntimeError(
                "nothing would be saved: call run.restore(model=model, optimizer=optimizer, …) "
                "before the training loop (run.restore(), if there is nothing to save)"
            )
        self._has_begun = True
        self._schedule.restart()
        self._events.append(
            "train_started",
            world_size=self.world_size,
            framework="pytorch" if "torch" in sys.modules else "none",
            total_train_steps=self._total,
            resumed_from=self._resumed_from,
            train_step=self.train_step,
            loader_workers=self._loader_workers,
        )

    def _total_train_steps(self) -> int | None:
        position = self._order.position
        if self._epochs is None or position.batches is None:
            return position.batches
        epochs_left = max(0, self._epochs - position.epoch)
        return self.train_step - position.batch + position.batches * epochs_left

    def _begin_train_step(self) -> None:
        self._add_late_metrics()
        self.train_step += 1

    def _add_late_metrics(self) -> None:
        """Add the metrics logged since the save of this train step to its checkpoint."""
        saving = self._saving
        if saving is not None and saving.has(self.train_step) and self._metrics.is_news:
            saving.add_metrics(self.train_step, self._metrics.latest())

    def _add_metrics(self, train_step: int, metrics: dict[str, float]) -> None:
        add_metrics(self._job, self._events, train_step, metrics)

    def _progress(self) -> dict[str, Any]:
        epoch = self._order.position.as_epochs if self._order.is_used else None
        wait_s = round(self._data_wait_s, 2) if self._order.is_used else None
        return {"epoch": epoch, "total_train_steps": self._total, "data_wait_s": wait_s}

    def _after_train_step(self) -> None:
        """Save or exit if due: ranks do both only here, between two train steps."""
        if self._saving is None:
            return
        if self._auto is not None:
            self._auto.train_step_ends(is_writing=self._saving.is_under_way)
        self._end_train_step()
        if self._auto is not None:
            self._auto.train_step_begins()

    def _end_train_step(self) -> None:
        assert self._saving is not None
        self._keeper.print_warnings()
        if self.train_step == self._total:
            # A notice from now on is ignored: the training is complete, and needs no resubmission.
            self._ranks.finish_exchange()
            self._try(self._save)
            return
        agreed = self._ranks.agree(self._own_signal())
        self._saving.advance(agreed)
        if agreed >= FLAG:
            self._exit(agreed)
        elif self._is_due(agreed):
            self._try(self._begin_save)

    def _is_due(self, agreed: int) -> bool:
        """Return whether to save after this train step; the same on all ranks.

        While another checkpoint is being written, a save by time is not due; one by count is,
        unless the config skips it.
        """
        assert self._saving is not None
        by_count = self._schedule.is_due_by_count(self.train_step)
        if self._saving.is_under_way:
            return by_count and not self._job.skip_when_busy
        return by_count or agreed == SAVE

    def _own_signal(self) -> int:
        seen = self._notice.seen()
        if seen != NOTHING:
            return seen
        if self._saving is not None and self._saving.is_under_way:
            return self._saving.status()
        return SAVE if self._schedule.is_due_by_time() else NOTHING

    def _exit(self, notice: int) -> None:
        self._metrics.flush()
        self._events.append("notice", signal=NAMES[notice])
        self._ranks.finish_exchange()
        if not self._ranks.max(int(self._notice.is_pruned())):
            self._save_on_notice()
        self._metrics.close()
        exit_on_notice(self._job, self._ranks)

    def _try(self, save: Callable[[], None]) -> None:
        """Save; report a failure and continue: the run can resume from an older checkpoint."""
        try:
            save()
        except CheckpointError as error:
            if self._has_successor():
                self._append_failed(self.train_step, str(error))
                raise
            self._report_failed(self.train_step, str(error))
            self._schedule.restart()

    def _save_on_notice(self) -> None:
        """Save on notice; report a failure, since the run can resume from an older checkpoint.

        If a later attempt executes the run, raise: this attempt must not be resubmitted.
        """
        try:
            self._save()
        except CheckpointError as error:
            self._append_failed(self.train_step, str(error))
            if self._has_successor():
                raise
            if self.rank == 0:
                warn(f"no checkpoint at train step {self.train_step}, exiting anyway: {error}")

    def _has_successor(self) -> bool:
        """Return whether any rank sees a later attempt. All ranks call it together."""
        return bool(self._ranks.max(int(successor(self._job) is not None)))

    def _save_at_end(self) -> None:
        """Save at the end; a failure raises, because the result of the training would be lost."""
        try:
            self._save()
        except CheckpointError as error:
            self._append_failed(self.train_step, str(error))
            raise

    def _begin_save(self) -> None:
        """Copy the state, and write the copy while training continues."""
        if self._saving is not None:
            self._saving.begin(self.train_step, self._order.state(), self._facts)
            self._schedule.restart()

    def _save(self) -> None:
        """Save the state before returning."""
        if self._saving is not None:
            self._saving.save(self.train_step, self._order.state(), self._facts)
            self._keeper.print_warnings()
            self._schedule.restart()

    def _facts(self) -> dict[str, Any]:
        return {"epoch": self._progress()["epoch"], "metrics": finite(self._metrics.latest())}

    def _report(self, made: Made) -> None:
        """Report a published checkpoint. Called by the thread that published it."""
        checkpoint = made.checkpoint
        self._events.append(
            "checkpoint",
            train_step=checkpoint.train_step,
            path=self._job.relative(checkpoint.path),
            size_bytes=checkpoint.size_bytes,
            epoch=checkpoint.epoch,
            metrics=checkpoint.metrics,
            held_s=round(made.held_s, 3),
            write_s=round(made.write_s, 3),
            interval_s=self._next_interval_s(made),
        )
        self._keeper.tidy(checkpoint.train_step)

    def _next_interval_s(self, made: Made) -> float | None:
        """Adapt and return the interval from the cost of a save; None if the config sets it."""
        if self._auto is None:
            return None
        self._auto.measured(made.held_s, made.write_s)
        self._schedule.change_interval(self._auto.interval_s)
        return round(self._auto.interval_s, 1)

    def _report_failed(self, train_step: int, why: str) -> None:
        """Report that saving ``train_step`` failed. Called by the thread that trains."""
        if self.rank == 0:
            warn(f"no checkpoint at train step {train_step}, training continues: {why}")
        self._append_failed(train_step, why)

    def _append_failed(self, train_step: int, why: str) -> None:
        self._events.append("checkpoint_failed", train_step=train_step, why=why)

    def _model(self) -> str | None:
        if self._saving is None:
            return None
        return self._job.relative(self._saving.model_path(self.train_step))


def _count(given: int) -> int:
    """Convert an integer to Python's ``int``, because small NumPy integers overflow."""
    try:
        return operator.index(given)
    except TypeError:
        return given
