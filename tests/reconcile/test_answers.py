"""Which answer of a scheduler is about which attempt."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from hpcflow.reconcile.answers import by_job_id, newest_answer
from tests.reconcile.test_classify_end import NOW, RUNNING, answer


def test_a_renamed_job_is_still_ours() -> None:
    renamed = replace(answer("RUNNING"), job_name="mytraining")
    assert newest_answer(RUNNING, by_job_id([renamed])) is renamed


def test_an_id_that_is_used_again_is_somebody_elses() -> None:
    other = replace(answer("RUNNING"), job_name="other", submitted_at=NOW)
    assert newest_answer(RUNNING, by_job_id([other])) is None
    before = replace(RUNNING, submitted_at=None)
    assert newest_answer(before, by_job_id([replace(other, submitted_at=None)])) is None


def test_an_id_under_the_name_of_another_run_is_that_ones_restarted_or_not() -> None:
    other = replace(
        answer("RUNNING"),
        job_name="other-20260301-abcdefgh:1",
        submitted_at=NOW,
        restarts=1,
    )
    assert newest_answer(RUNNING, by_job_id([other])) is None
    assert newest_answer(RUNNING, by_job_id([replace(other, job_name="renamed")])) is not None


@pytest.mark.parametrize("name", [" by hand ", "by hand"])
def test_blanks_around_a_name_do_not_count(name: str) -> None:
    job = replace(answer("RUNNING"), job_name="by hand", submitted_at=NOW + timedelta(days=1))
    assert newest_answer(replace(RUNNING, job_name=name), by_job_id([job])) is job


def test_of_several_answers_the_newest_counts() -> None:
    first, second = answer("PREEMPTED"), answer("RUNNING")
    assert newest_answer(RUNNING, by_job_id([first, second])) is second
