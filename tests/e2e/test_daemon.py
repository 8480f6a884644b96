"""The requeue daemon on a real cluster: a run that is preempted, again and again, finishes."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from hpcflow.testing.cluster import User, poll
from tests.e2e.conftest import Hpcflow
from tests.e2e.preempted import assert_survives

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]


@pytest.fixture
def daemon(hpcflow: Hpcflow) -> Iterator[subprocess.Popen[str]]:
    """``hpcflow daemon`` of the same user, until the test is over."""
    process = hpcflow.user.popen(
        ["hpcflow", "daemon", "--interval", "1"],
        env=hpcflow.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    yield process
    process.terminate()
    process.communicate(timeout=120)


# test_cron.py has the same with one preemption, test_every_slurm.py with a daemon.
@pytest.mark.soak
@pytest.mark.parametrize("preemptions", [2, 10])
def test_a_run_that_is_preempted_at_random_moments_finishes_by_itself(
    hpcflow: Hpcflow, grace: User, daemon: subprocess.Popen[str], preemptions: int
) -> None:
    assert_survives(hpcflow, grace, preemptions)
    assert daemon.poll() is None


def test_what_a_daemon_sends_has_the_limits_and_the_umask_of_the_first_attempt(
    hpcflow: Hpcflow,
) -> None:
    """The run is asked for in a login shell that has raised its limits, the daemon is cron's."""
    said = hpcflow.home.parent / "limits"
    program = (
        f"echo $(ulimit -Sn) $(ulimit -Ss) $(ulimit -Sl) $(umask) >> {said}; "
        f"test $(wc -l < {said}) = 2"
    )
    config = hpcflow.write_config(
        "limits.yaml",
        f"""
name: limits
command: [sh, -c, "{program}"]
launch: {{framework: none, launcher: none}}
resources: {{time_limit: 5m}}
retry: {{backoff: 1s}}
""",
    )

    def types(shell: str) -> None:
        hpcflow.user.run(["sh", "-c", shell], env=hpcflow.env, timeout=100)

    types(
        "umask 002; ulimit -Sn 8000; ulimit -Ss unlimited; "
        f"exec hpcflow run --site devcluster {config}"
    )

    def twice() -> bool:
        types("umask 022; ulimit -Sn 1024; ulimit -Ss 8192; exec hpcflow daemon --once")
        return said.exists() and len(said.read_text().splitlines()) == 2

    poll(twice, 300, "it is not sent again")
    first, second = said.read_text().splitlines()
    assert first == second
    assert first.endswith(" 0002")
