"""When the absence of a job proves that there is none. The clock is moved, Slurm's programs are
stand-ins: on the real cluster this would take the five minutes of MinJobAge."""

from __future__ import annotations

import shlex
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from hpcflow.costs.audit import is_of_hpcflow
from hpcflow.errors import SchedulerError, SchedulerUnavailable
from hpcflow.schedulers.base import Lookup
from hpcflow.schedulers.slurm.commands import SlurmCommands
from hpcflow.sites.live import NodeKind
from hpcflow.testing.clock import FakeClock
from tests.schedulers.programs import arguments, install
from tests.schedulers.test_parse_jobs import (
    ACCOUNTING_ROW,
    QUEUE_ROW,
    _accounting_text,
    _queue_text,
)

NAME = QUEUE_ROW["Name"]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """An empty cluster with MinJobAge=300."""
    install(monkeypatch, tmp_path, "squeue")
    install(monkeypatch, tmp_path, "sacct")
    install(monkeypatch, tmp_path, "scontrol", stdout="MinJobAge               = 300 sec\n")
    return monkeypatch


def _silence_sacct(slurm: pytest.MonkeyPatch, folder: Path) -> None:
    install(slurm, folder, "sacct", stderr="sacct: error: Connection refused\n", exit_code=1)


def test_shortly_after_a_submission_the_queue_alone_is_proof(
    slurm: pytest.MonkeyPatch, tmp_path: Path, clock: FakeClock
) -> None:
    _silence_sacct(slurm, tmp_path)
    lookup = SlurmCommands(clock=clock).find(NAME, clock.now() - timedelta(seconds=200))
    assert (lookup.jobs, lookup.is_certain) == ((), True)


@pytest.mark.parametrize(
    "strange",
    [
        "5_[:]",
        "5_[0-999999999]",
        "1" * 10_000,
        "4294967296",
        "5_" + "1" * 10_000,
        "٣",
        "-M x",
        "5,6",
    ],
)
def test_an_id_that_sacct_may_refuse_hides_no_other_job(
    slurm: pytest.MonkeyPatch, tmp_path: Path, clock: FakeClock, strange: str
) -> None:
    """Ids come from journals, which may come from a store where others write."""
    sacct = install(slurm, tmp_path, "sacct")
    SlurmCommands(clock=clock).accounting([strange, "123", "9_1", "7+1"], clock.now())
    asked = arguments(sacct)
    assert asked[asked.index("--jobs") + 1] == "123,9_1,7+1"
    sacct.unlink()
    assert SlurmCommands(clock=clock).accounting([strange], clock.now()) == []
    assert not sacct.exists(), "it was not asked about all jobs of the user"


def test_later_silence_of_accounting_is_a_doubt(
    slurm: pytest.MonkeyPatch, tmp_path: Path, clock: FakeClock
) -> None:
    since = clock.now()
    clock.advance(400)
    assert SlurmCommands(clock=clock).find(NAME, since).is_certain
    _silence_sacct(slurm, tmp_path)
    assert not SlurmCommands(clock=clock).find(NAME, since).is_certain
    assert SlurmCommands(clock=clock, has_accounting=False).find(NAME, since).is_certain


@pytest.mark.parametrize("age", ["10 sec", "N/A"])
def test_a_queue_that_forgets_quickly_is_no_proof(
    slurm: pytest.MonkeyPatch, tmp_path: Path, clock: FakeClock, age: str
) -> None:
    install(slurm, tmp_path, "scontrol", stdout=f"MinJobAge               = {age}\n")
    _silence_sacct(slurm, tmp_path)
    assert not SlurmCommands(clock=clock).find(NAME, clock.now()).is_certain


def test_a_queue_that_never_forgets_is_always_proof(
    slurm: pytest.MonkeyPatch, tmp_path: Path, clock: FakeClock
) -> None:
    install(slurm, tmp_path, "scontrol", stdout="MinJobAge               = 0 sec\n")
    _silence_sacct(slurm, tmp_path)
    assert SlurmCommands(clock=clock).find(NAME, clock.now() - timedelta(days=9)).is_certain


def test_an_old_job_is_found_in_accounting(
    slurm: pytest.MonkeyPatch, tmp_path: Path, clock: FakeClock
) -> None:
    since = clock.now()
    row = {**ACCOUNTING_ROW, "Submit": "2026-01-01T00:00:05"}
    sacct = install(slurm, tmp_path, "sacct", stdout=_accounting_text(row))
    clock.advance(86_400)
    lookup = SlurmCommands(clock=clock).find(NAME, since)
    assert [job.job_id for job in lookup.jobs] == ["123"]
    asked = arguments(sacct)
    assert "--duplicates" in asked
    assert "--starttime=2025-12-31T23:50:00" in asked
    assert asked[-2:] == ["--name", NAME]


#: Refuses a question by name about more than a day, as MaxQueryTimeRange=1-00:00:00 does; else
#: tells of the job that ran from the first to the last day but one.
_NARROW = """
begin=; end=NOW
for each in "$@"; do case $each in
    --starttime=*) begin=${each#*=};;
    --endtime=*) end=${each#*=};;
    --jobs) exit 0;;
esac; done
echo "$begin $end" >> "$0.calls"
if [ $(($(date -ud "$end" +%s) - $(date -ud "$begin" +%s))) -gt 86400 ]; then
    echo "sacct: error: slurmdb_jobs_get: Too wide of a date range in query" >&2; exit 1
fi
cat ROW
"""


def _narrow_sacct(slurm: pytest.MonkeyPatch, folder: Path, now: datetime, *rows: str) -> Path:
    (folder / "row").write_text("".join(rows))
    then = _NARROW.replace("NOW", f"{now:%Y-%m-%dT%H:%M:%S}")
    return install(
        slurm, folder, "sacct", then=then.replace("ROW", shlex.quote(str(folder / "row")))
    )


def test_where_slurmdbd_limits_the_time_it_is_asked_in_parts(
    slurm: pytest.MonkeyPatch, tmp_path: Path, clock: FakeClock
) -> None:
    since = clock.now()
    clock.advance(10 * 86_400)
    commands = SlurmCommands(clock=clock)
    sacct = _narrow_sacct(slurm, tmp_path, clock.now())
    assert commands.find(NAME, since) == Lookup((), is_certain=True)
    parts = [line.split() for line in sacct.with_suffix(".calls").read_text().splitlines()]
    refused = [part for part in parts if part[0] == parts[0][0]][:-1]
    asked = parts[len(refused) :]
    assert asked[0][0] == f"{since - timedelta(minutes=10):%Y-%m-%dT%H:%M:%S}"
    assert [end for _, end in asked[:-1]] == [begin for begin, _ in asked[1:]], (
        "no time is left out"
    )
    assert asked[-1][1] == f"{clock.now():%Y-%m-%dT%H:%M:%S}"

    row = {**ACCOUNTING_ROW, "Submit": "2026-01-01T00:00:05"}
    _narrow_sacct(slurm, tmp_path, clock.now(), _accounting_text(row))
    lookup = commands.find(NAME, since)
    assert ([job.job_id for job in lookup.jobs], lookup.is_certain) == (["123"], True)
    told = commands.accounting([], since, job_names=[NAME, "other"])
    assert [job.job_id for job in told] == ["123"]
    assert arguments(sacct)[-2:] == ["--name", f"{NAME},other"]


def test_so_many_parts_are_a_doubt(
    slurm: pytest.MonkeyPatch, tmp_path: Path, clock: FakeClock
) -> None:
    since = clock.now()
    clock.advance(1000 * 86_400)
    sacct = _narrow_sacct(slurm, tmp_path, clock.now())
    assert not SlurmCommands(clock=clock).find(NAME, since).is_certain
    assert len(sacct.with_suffix(".calls").read_text().splitlines()) < 10


def test_what_both_know_is_told_once_as_the_queue_sees_it(
    slurm: pytest.MonkeyPatch, tmp_path: Path, clock: FakeClock
) -> None:
    late = {**ACCOUNTING_ROW, "State": "PENDING"}
    install(slurm, tmp_path, "sacct", stdout=_accounting_text(late))
    install(slurm, tmp_path, "squeue", stdout=_queue_text(QUEUE_ROW))
    clock.advance(400)
    lookup = SlurmCommands(clock=clock).find(NAME, clock.now() - timedelta(hours=1))
    assert [(job.job_id, job.raw_state) for job in lookup.jobs] == [("123", "RUNNING")]


def test_a_job_id_that_was_used_before_is_another_job(
    slurm: pytest.MonkeyPatch, tmp_path: Path, clock: FakeClock
) -> None:
    before = {**ACCOUNTING_ROW, "Submit": "2019-01-01T00:00:00", "JobName": "of long ago"}
    before["DBIndex"] = "1"
    now = {**ACCOUNTING_ROW, "Submit": "2026-01-01T00:00:05"}
    install(slurm, tmp_path, "sacct", stdout=_accounting_text(before, now))
    jobs = SlurmCommands(clock=clock).accounting(["123"], clock.now())
    assert [job.job_name for job in jobs] == [NAME]


def test_all_jobs_of_hpcflow_are_told_of_with_one_question(
    slurm: pytest.MonkeyPatch, tmp_path: Path, clock: FakeClock
) -> None:
    rows = [
        {**ACCOUNTING_ROW, "JobID": job_id, "JobName": name, "DBIndex": job_id.replace("_", "")}
        for job_id, name in (
            ("7", "mine"),
            ("8", "hpcflow-by-hand"),
            ("9_0", NAME),
            ("9_1", "y-20260301-aaaaaaaa:1"),
        )
    ]
    rows[1]["Submit"] = "2019-01-01T00:00:00"  # and it ran since then, or it were not told of
    sacct = install(
        slurm, tmp_path, "sacct", stdout=_accounting_text(*rows), then='echo x >> "$0.calls"'
    )
    commands = SlurmCommands(clock=clock)
    jobs = commands.accounting(["9_1"], clock.now(), is_named=is_of_hpcflow)
    assert sorted(job.job_id for job in jobs) == ["8", "9_0", "9_1"]
    assert "--jobs" not in arguments(sacct)
    assert sacct.with_suffix(".calls").read_text() == "x\n"


def test_the_first_component_of_a_heterogeneous_job_has_its_number(
    slurm: pytest.MonkeyPatch, tmp_path: Path, clock: FakeClock
) -> None:
    """As Slurm 22.05 prints it: a row for each component."""
    rows = [
        {**ACCOUNTING_ROW, "JobID": f"123+{number}", "DBIndex": f"{7 + number}"}
        for number in range(3)
    ]
    install(slurm, tmp_path, "sacct", stdout=_accounting_text(*rows))
    install(slurm, tmp_path, "squeue", stdout=_queue_text({**QUEUE_ROW, "JobArrayID": "123+0"}))
    commands = SlurmCommands(clock=clock)
    told = commands.accounting(["123"], clock.now())
    assert [job.job_id for job in told] == ["123", "123+1", "123+2"]
    assert [job.job_id for job in commands.queue(["123"])] == ["123"]


@pytest.mark.parametrize("begin", ["2026-03-29T00:30:00", "2026-10-25T00:30:00"])
def test_a_job_across_a_change_of_daylight_saving_ran_as_long_as_it_ran(
    slurm: pytest.MonkeyPatch, tmp_path: Path, clock: FakeClock, begin: str
) -> None:
    """In Berlin clocks jump at 01:00 UTC, and Slurm's programs tell the time of whoever asks."""
    began = datetime.fromisoformat(begin).replace(tzinfo=timezone.utc)
    ended = began + timedelta(hours=3)
    words = {
        **{**ACCOUNTING_ROW, "ElapsedRaw": "10800"},
        **{"Submit": f"@{began.timestamp():.0f}", "Start": f"@{began.timestamp():.0f}"},
        "End": f"@{ended.timestamp():.0f}",
    }
    row = _accounting_text(words).rstrip("\n")
    local = f"sed -E 's/@[0-9]+/\\n&\\n/g' <<<{shlex.quote(row)} | while IFS= read -r part; do"
    local += ' case $part in @*) printf %s "$(date -d "$part" +%Y-%m-%dT%H:%M:%S)";;'
    local += ' *) printf %s "$part";; esac; done; echo'
    install(slurm, tmp_path, "sacct", then=local)
    slurm.setenv("TZ", "Europe/Berlin")
    (job,) = SlurmCommands(clock=clock).accounting(["123"], began)
    assert (job.started_at, job.ended_at) == (began, ended)
    assert job.elapsed_s == (ended - began).total_seconds()


def test_a_silent_controller_is_never_an_empty_queue(
    slurm: pytest.MonkeyPatch, tmp_path: Path, clock: FakeClock
) -> None:
    install(slurm, tmp_path, "squeue", stderr="squeue: error: down\n", exit_code=1)
    commands = SlurmCommands(clock=clock)
    with pytest.raises(SchedulerUnavailable):
        commands.find(NAME, clock.now())
    with pytest.raises(SchedulerUnavailable):
        commands.queue(["1"])


def test_one_question_however_many_jobs(
    slurm: pytest.MonkeyPatch, tmp_path: Path, clock: FakeClock
) -> None:
    count = 'echo x >> "$0.calls"'
    squeue = install(slurm, tmp_path, "squeue", stdout=_queue_text(QUEUE_ROW), then=count)
    sacct = install(slurm, tmp_path, "sacct", then=count)
    ids = [str(number) for number in range(1, 20_001)]
    commands = SlurmCommands(clock=clock)
    assert len(commands.queue(ids)) == 1
    assert commands.accounting(ids, clock.now()) == []
    assert squeue.with_suffix(".calls").read_text() == "x\n"
    assert sacct.with_suffix(".calls").read_text() == "x\n"
    assert "--jobs" not in arguments(sacct)  # as many would not fit


def test_pending_tasks_of_an_array_are_told_apart(
    slurm: pytest.MonkeyPatch, tmp_path: Path, clock: FakeClock
) -> None:
    rows = [
        {**QUEUE_ROW, "JobArrayID": "50_[3-9%2]", "State": "PENDING", "NodeList": ""},
        {**QUEUE_ROW, "JobArrayID": "50_2"},
    ]
    install(slurm, tmp_path, "squeue", stdout=_queue_text(*rows))
    jobs = SlurmCommands(clock=clock).queue(["50_2", "50_5", "50_12"])
    assert [(job.job_id, job.raw_state) for job in jobs] == [
        ("50_5", "PENDING"),
        ("50_2", "RUNNING"),
    ]


def test_scancel_is_told_ids_and_nothing_else(
    slurm: pytest.MonkeyPatch, tmp_path: Path, clock: FakeClock
) -> None:
    over = "scancel: error: Kill job error on job id 5: Invalid job id specified\n"
    scancel = install(slurm, tmp_path, "scancel", stderr=over, exit_code=1)
    SlurmCommands(clock=clock).cancel(["5", "--user=root", "x", "7_3"])
    assert arguments(scancel) == ["5", "7_3"]
    denied = "scancel: error: Kill job error on job id 5: Access/permission denied\n"
    install(slurm, tmp_path, "scancel", stderr=over + denied, exit_code=1)
    with pytest.raises(SchedulerError, match="permission denied") as error:
        SlurmCommands(clock=clock).cancel(["5"])
    assert not error.value.retryable


def test_accounts_are_asked_for_once(
    slurm: pytest.MonkeyPatch, tmp_path: Path, clock: FakeClock
) -> None:
    install(slurm, tmp_path, "scontrol", stdout="ClusterName             = big\n")
    count = 'echo x >> "$0.calls"'
    asked = install(slurm, tmp_path, "sacctmgr", stdout="big|a\nsmall|b\n", then=count)
    commands = SlurmCommands(clock=clock)
    assert commands.accounts("me") == commands.accounts("me") == frozenset({"a"})
    assert asked.with_suffix(".calls").read_text() == "x\n"
    assert SlurmCommands(clock=clock, has_accounting=False).accounts("me") is None
    install(slurm, tmp_path, "sacctmgr", exit_code=1)
    assert SlurmCommands(clock=clock).accounts("me") is None


def test_the_qos_are_names_or_unknown(
    slurm: pytest.MonkeyPatch, tmp_path: Path, clock: FakeClock
) -> None:
    accounting = "AccountingStorageType   = accounting_storage/slurmdbd\n"
    install(slurm, tmp_path, "scontrol", stdout=accounting)
    install(slurm, tmp_path, "sinfo")
    install(slurm, tmp_path, "sacctmgr", stdout="normal\ndebug\n")
    assert SlurmCommands(clock=clock).cluster_info().qos == frozenset({"normal", "debug"})
    assert SlurmCommands(clock=clock, has_accounting=False).cluster_info().qos is None
    install(slurm, tmp_path, "sacctmgr", exit_code=1)
    assert SlurmCommands(clock=clock).cluster_info().qos is None


def test_where_a_user_may_see_no_nodes_the_partitions_tell_of_them(
    slurm: pytest.MonkeyPatch, tmp_path: Path, clock: FakeClock
) -> None:
    partition = "PartitionName=gpu State=UP TotalCPUs=16 TotalNodes=2 TRES=cpu=16,mem=8G,node=2\n"
    install(slurm, tmp_path, "scontrol", stdout=partition)
    denied = "slurm_load_node error: Access/permission denied\n"
    install(slurm, tmp_path, "sinfo", stderr=denied, exit_code=1)
    info = SlurmCommands(clock=clock).cluster_info()
    assert info.hides_nodes
    assert info.partitions[0].kinds == (NodeKind(2, 8, 4096),)
    install(slurm, tmp_path, "sinfo", stderr="Unable to contact slurm controller\n", exit_code=1)
    with pytest.raises(SchedulerUnavailable, match="Unable to contact"):
        SlurmCommands(clock=clock).cluster_info()


def test_where_slurm_keeps_cpus_each_node_is_asked_for(
    slurm: pytest.MonkeyPatch, tmp_path: Path, clock: FakeClock
) -> None:
    told = (
        "PartitionName=gpu State=UP TotalCPUs=16 TotalNodes=1 TRES=cpu=14,mem=8G,node=1\n"
        "NodeName=n1 CPUEfctv=14 CPUTot=16 RealMemory=8192 Partitions=gpu\n"
    )
    install(slurm, tmp_path, "scontrol", stdout=told)
    asked = install(slurm, tmp_path, "sinfo", exit_code=1)
    info = SlurmCommands(clock=clock).cluster_info()
    assert info.partitions[0].kinds == (NodeKind(1, 14, 8192),)
    assert not asked.exists()


def test_slurm_conf_is_believed_only_where_it_says_what_is_expected(
    slurm: pytest.MonkeyPatch, tmp_path: Path, clock: FakeClock
) -> None:
    """A wrapper around Slurm's commands may name another file than the shell does."""
    (tmp_path / "slurm.conf").write_text("ClusterName=leftover\n")
    slurm.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    install(slurm, tmp_path, "scontrol", stdout="ClusterName             = alpha\n")
    assert SlurmCommands(clock=clock, cluster_name="alpha").cluster() == "alpha"
    assert SlurmCommands(clock=clock).cluster() == "alpha"
    assert SlurmCommands(clock=clock, cluster_name="leftover").cluster() == "leftover"
    install(slurm, tmp_path, "scontrol", stderr="no answer", exit_code=1)
    assert SlurmCommands(clock=clock, cluster_name="alpha").cluster() == "leftover"


def test_a_cluster_that_did_not_say_its_name_is_asked_again(
    slurm: pytest.MonkeyPatch, tmp_path: Path, clock: FakeClock
) -> None:
    """A daemon lives for weeks: to it, a minute without slurmctld is no answer."""
    slurm.setenv("SLURM_CONF", str(tmp_path / "none"))
    count = 'echo x >> "$0.calls"'
    asked = install(slurm, tmp_path, "scontrol", stderr="no answer", exit_code=1, then=count)
    commands = SlurmCommands(clock=clock, cluster_name="alpha")
    assert [commands.cluster() for _ in range(3)] == [None] * 3
    assert asked.with_suffix(".calls").read_text() == "x\n", "one command waits in vain once"
    install(slurm, tmp_path, "scontrol", stdout="ClusterName             = beta\n")
    clock.advance(61)
    assert commands.cluster() == "beta"
