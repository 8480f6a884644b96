"""For `make test` and `make test-slurm`: run tests, and those that failed once more, alone.

A busy machine can fail a test that tests nothing of it. So up to five failed tests get a second
try, and the run passes if all of them pass; the last lines name them, for they are to be mended.
More of them are a real breakage, and so are a crash and a file that cannot be imported.
"""

from __future__ import annotations

import sys

import pytest

MOST_TRIED_AGAIN = 5


class Outcomes:
    """The tests that passed and failed, and whether anything failed that is not a test."""

    def __init__(self) -> None:
        self.passed: set[str] = set()
        self.failed: set[str] = set()
        self.broken = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # xdist puts a test's group behind its name, and reports a crash as a phase of its own.
        group_at = report.nodeid.rfind("@")
        grouped = group_at > report.nodeid.rfind("]")
        name = report.nodeid[:group_at] if grouped else report.nodeid
        self.broken |= report.failed and report.when not in ("setup", "call", "teardown")
        if report.failed:
            self.failed.add(name)
        elif report.passed and report.when == "call":
            self.passed.add(name)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.broken |= report.failed


def main(options: list[str]) -> int:
    """Run pytest with these options, and what failed once more; return the exit code."""
    first = Outcomes()
    code = pytest.main(options, plugins=[first])
    failed = sorted(first.failed)
    if code != pytest.ExitCode.TESTS_FAILED or first.broken or len(failed) > MOST_TRIED_AGAIN:
        return int(code)
    print(f"\n{len(failed)} failed beside others; once more, alone:", flush=True)
    again = Outcomes()
    # A new process runs them: this one knows only their names.
    code = pytest.main([*options, "--numprocesses=1", *failed], plugins=[again])
    if code == pytest.ExitCode.OK and again.passed == first.failed:
        print("\nfailed beside others, passed alone: mend them")
        print("".join(f"  {name}\n" for name in failed), end="")
        return 0
    return int(code) or 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
