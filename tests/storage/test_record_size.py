"""A home has a quota of bytes and of files: the record of a run takes little of both."""

from __future__ import annotations

import stat
from pathlib import Path

from hpcflow.model.journal import Accounted
from hpcflow.storage import journal
from tests.launch.desk import CONFIG
from tests.requeue.watched import Watched

ATTEMPTS = 25
#: With a hundred attempts, 200 kB.
MOST_BYTES = 5_000 + ATTEMPTS * 1_950
MOST_FILES = 6


def test_a_run_of_many_attempts_rests_in_a_handful_of_files(tmp_path: Path) -> None:
    desk = Watched(tmp_path)
    more = "time_limit: 4h, partition: spot, nodes: 2, gpus_per_node: 4,"
    text = CONFIG.replace("launcher: none", "launcher: srun").replace("time_limit: 10m,", more)
    desk.config.write_text(text)
    launched = desk.launch()
    for attempt in range(1, ATTEMPTS + 1):
        desk.tick()
        desk.clock.advance(3600)
        (job_id,) = desk.alive()
        if attempt < ATTEMPTS:
            desk.end(job_id, "PREEMPTED", checkpoint=100 * attempt)
        else:
            desk.end(job_id, "COMPLETED", exit_code=0)
        desk.tick()
        desk.clock.advance(60)
    desk.clock.advance(3600)
    desk.tick()

    run_dir = desk.dir_of(launched)
    bills = [each for each in journal.read(run_dir) if isinstance(each, Accounted)]
    assert {each.attempt for each in bills} == set(range(1, ATTEMPTS + 1))
    assert all(line.begin and line.hours for bill in bills for line in bill.charges)
    text = run_dir.journal.read_text()
    assert text.count('"begin"') == 0, "all charges are of the whole time of their bills"
    kept = [path.lstat() for path in run_dir.journal.parent.iterdir()]
    assert sum(each.st_size for each in kept if stat.S_ISREG(each.st_mode)) <= MOST_BYTES
    assert len(kept) <= MOST_FILES
