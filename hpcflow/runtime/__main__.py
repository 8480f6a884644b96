"""``python3 -m hpcflow.runtime``: the runtime for programs in other languages.

docs/unmodified.md has its commands.

A program that has saved on notice exits by itself, with the code in
``$HPCFLOW_RESUBMIT_EXIT_CODE``. Reports of ranks other than 0 do nothing. ``adopt`` is for the job
script; see hpcflow/runtime/adoption. Imports that only one command needs are inside it, because
each job waits for ``resume-path`` at its start.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from hpcflow.runtime.events import EventLog
from hpcflow.runtime.files import (
    NewFile,
    Written,
    opened_folder,
    random_bits,
    remove_opened,
    remove_tree,
    sizes_below,
)
from hpcflow.runtime.job import Job, job_from
from hpcflow.runtime.manifest import NAME, Checkpoint, CheckpointError, finite, verify
from hpcflow.runtime.notice import Notice
from hpcflow.runtime.reading import open_file, opened_place
from hpcflow.runtime.store import CheckpointStore
from hpcflow.runtime.successor import require_no_successor
from hpcflow.runtime.warn import warn

#: Exit code for "there is none"; no crash of Python or of this program has it.
_NONE = 3
#: Exit code for "there may be one, but it cannot be read now".
_UNREAD = 4


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code: 2 for wrong arguments, 1 for other errors."""
    given = _parse(arguments)
    try:
        job = job_from(os.environ)
        if given.command != "call":
            return _run(given, job)
    except (CheckpointError, OSError, ValueError) as error:
        warn(str(error))
        return 1
    from hpcflow.runtime.calling import call_in_file

    return call_in_file(given.function, given.names, job)  # its exceptions show a traceback


def _run(given: argparse.Namespace, job: Job) -> int:
    if given.command == "resume-path":
        return _resume_path(job)
    if given.command == "noticed":
        has_notice = job.notice is not None and job.notice.exists()
        return 0 if has_notice or Notice(None, cancel=job.cancel).is_pruned() else 1
    if given.command == "adopt":
        return _adopt(given, job)
    if job.rank != 0:
        return 0
    from hpcflow.runtime.metrics import add_metrics

    events, metrics = EventLog(job.events), dict(given.metrics)
    add_metrics(job, events, given.train_step, metrics)
    if given.command == "checkpoint":
        return _checkpoint(given, job, events, metrics)
    facts = {"train_step": given.train_step, "metrics": metrics}
    if given.command == "progress":
        total = given.total_train_steps
        events.append("progress", **facts, epoch=given.epoch, total_train_steps=total)
    else:
        if job.adopt is None:
            _tidy(job, events, given.train_step, is_over=True)
        model = job.relative(given.model.absolute()) if given.model else None
        events.append("finished", **facts, model=model)
    return 1 if events.lost else 0


def _resume_path(job: Job) -> int:
    store = _store(job)
    try:
        newest = store.newest()
        if newest is not None and store.damaged and job.rank == 0:
            from hpcflow.runtime.retention import set_aside

            set_aside(store.folder, store.damaged, job)
        if newest is None and job.resume_from is not None:
            newest = verify(job.resume_from)
    except (CheckpointError, OSError) as error:
        warn(str(error))
        return _UNREAD
    if newest is None:
        return _NONE
    print(newest.path)
    return 0


def _adopt(given: argparse.Namespace, job: Job) -> int:
    from hpcflow.runtime.adoption import adopter

    if given.what == "begin":
        newest = adopter.begin(job)
        if newest is None:
            return _NONE
        print(newest)
    elif given.what == "watch":
        adopter.watch(job, given.script)
    else:
        adopter.end(job, given.exit_code)
    return 0


def _checkpoint(
    given: argparse.Namespace, job: Job, events: EventLog, metrics: dict[str, float]
) -> int:
    if job.adopt is not None:
        raise ValueError(
            "this run adopts the checkpoints that its program writes: remove checkpoint.adopt from "
            "its config"
        )
    store = _store(job)
    if not store.has(given.train_step):
        facts = {"epoch": given.epoch, "world_size": 1, "metrics": finite(metrics)}
        facts.update(run_id=job.run_id, attempt=job.attempt)
        try:
            require_no_successor(job)
            before = given.folder.lstat()
            made = _make(store, given, facts, job)
        except OSError as error:
            events.append("checkpoint_failed", train_step=given.train_step, why=str(error))
            raise
        events.append(
            "checkpoint",
            train_step=made.train_step,
            path=job.relative(made.path),
            size_bytes=made.size_bytes,
            epoch=given.epoch,
            metrics=metrics,
        )
        _tidy(job, events, made.train_step)
        if given.move:
            _remove(given.folder, before)
    print(store.path(given.train_step))
    return 0


def _tidy(job: Job, events: EventLog, train_step: int, *, is_over: bool = False) -> None:
    from hpcflow.runtime.retention import Keeper

    keeper = Keeper(job, events)
    keeper.tidy(train_step, is_over=is_over)
    keeper.print_warnings()


def _remove(folder: Path, before: os.stat_result) -> None:
    """Remove ``folder``, unless another user has replaced it meanwhile."""
    with suppress(OSError), opened_folder(folder) as opened:
        if os.path.samestat(opened.stat(), before):
            remove_opened(folder, opened)


def _make(
    store: CheckpointStore, given: argparse.Namespace, facts: dict[str, Any], job: Job
) -> Checkpoint:
    sizes = sizes_below(given.folder)
    staged = store.stage(given.train_step, random_bits(62), sum(sizes.values()))
    try:
        files = _fill(staged, given.folder, sorted(sizes))
        return store.publish(
            staged, given.train_step, files, lambda: require_no_successor(job), **facts
        )
    except OSError:
        remove_tree(staged)
        raise


def _fill(staged: Path, folder: Path, names: list[str]) -> dict[str, Written]:
    files = {}
    with opened_place(folder.absolute()) as place:
        for name in names:
            if name == NAME:
                raise OSError(f"{folder / name}: this name is reserved; rename the file")
            target = staged / name
            target.parent.mkdir(parents=True, exist_ok=True)
            copy = NewFile(target)
            try:
                with open_file(name, within=place) as source:
                    shutil.copyfileobj(source, copy, 1 << 20)
            finally:
                files[name] = copy.close()
    return files


def _store(job: Job) -> CheckpointStore:
    if job.checkpoint_dir is None:
        raise ValueError("HPCFLOW_CHECKPOINT_DIR is not set: this process is not inside a job")
    return CheckpointStore(job.checkpoint_dir)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = _parser()
    given, rest = parser.parse_known_args(arguments)
    # argparse accepts NAME=NUMBER only before the options; users write it at the end.
    if not hasattr(given, "metrics") and rest:
        parser.error(f"unknown argument {rest[0]!r}")
    try:
        given.metrics = [*getattr(given, "metrics", ()), *map(_metric, rest)]
    except argparse.ArgumentTypeError as error:
        parser.error(str(error))
    return given


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python3 -m hpcflow.runtime", description="Report and resume from inside a job."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser(
        "resume-path",
        help="print the newest intact checkpoint; exit 3: none; 4: it cannot be read",
    )
    commands.add_parser("noticed", help="exit 0 once the job has the notice to save and exit")
    adopt = commands.add_parser("adopt", help="for the job script: checkpoints of other programs")
    whats = adopt.add_subparsers(dest="what", required=True)
    whats.add_parser("begin", help="adopt what an earlier attempt left; print the newest")
    watch = whats.add_parser("watch", help="adopt new checkpoints until the job script ends")
    watch.add_argument("script", type=int)
    whats.add_parser("end", help="adopt what the program left").add_argument("exit_code", type=int)
    call = commands.add_parser("call", help="call a function with the run's parameters")
    call.add_argument("function", type=_function, metavar="FILE:FUNCTION")
    call.add_argument("names", nargs="*", metavar="METRIC", help="names of its results, in order")
    progress = commands.add_parser("progress", help="report metrics")
    progress.add_argument("--total-train-steps", type=_count)
    checkpoint = commands.add_parser("checkpoint", help="make a checkpoint of a folder of files")
    checkpoint.add_argument("folder", type=_folder)
    checkpoint.add_argument("--move", action="store_true", help="remove the folder afterwards")
    finish = commands.add_parser("finish", help="report that the training is complete")
    finish.add_argument("--model", type=Path, help="the final model")
    for command in (progress, checkpoint, finish):
        command.add_argument("--train-step", type=_count, required=True)
        command.add_argument("metrics", nargs="*", type=_metric, metavar="NAME=NUMBER")
    for command in (progress, checkpoint):
        command.add_argument("--epoch", type=float)
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or len(text) > 18:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of train steps")
    return int(text)


def _folder(text: str) -> Path:
    if not Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is not a folder")
    return Path(text)


def _function(text: str) -> str:
    file, _, name = text.rpartition(":")
    if not file.endswith(".py") or not Path(file).is_file() or not name.isidentifier():
        raise argparse.ArgumentTypeError(f"{text!r} is not FILE.py:FUNCTION")
    return text


def _metric(text: str) -> tuple[str, float]:
    name, _, number = text.partition("=")
    try:
        return name, float(number)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=NUMBER") from None


if __name__ == "__main__":
    sys.exit(main())
