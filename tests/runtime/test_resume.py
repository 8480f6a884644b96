"""A training that was ended anyhow, anywhere, goes on as if nothing had happened."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys

import pytest

from hpcflow.testing.cluster import poll
from tests.runtime import program
from tests.runtime.conftest import Undisturbed
from tests.runtime.harness import RunFolder, differing, run, start, weights
from tests.runtime.program import BATCHES, EPOCHS

LAST = EPOCHS * BATCHES


@pytest.mark.parametrize("how", ["KILL", "TERM", "USR2", "flag"])
@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_the_final_state_is_the_same_bit_for_bit(
    undisturbed: Undisturbed, folder: RunFolder, world_size: int, how: str
) -> None:
    chance = random.Random(f"{world_size} {how}")
    train_step = chance.randrange(1, LAST - 2)
    rank = 0 if how == "flag" else chance.randrange(world_size)
    every = chance.randrange(3, 15)
    hurt = f"{rank}:{train_step}:{how}"

    codes = run(folder, world_size, HURT=hurt, HPCFLOW_CHECKPOINT_EVERY_TRAIN_STEPS=every)

    if how == "KILL":  # the others are killed too, or fail for want of a peer
        assert codes[rank] == -9
        assert 0 not in codes
    else:
        assert codes == [75] * world_size
    assert folder.resubmit.exists() is (how != "KILL")
    folder.attempt = 2
    assert run(folder, world_size) == [0] * world_size
    assert differing(weights(folder, LAST), undisturbed(world_size)) == []


def test_so_it_is_after_many_interruptions(undisturbed: Undisturbed, folder: RunFolder) -> None:
    for attempt, hurt in enumerate(["1:3:TERM", "0:11:KILL", "0:20:USR2", "1:29:TERM"], start=1):
        folder.attempt = attempt
        assert run(folder, 2, HURT=hurt, HPCFLOW_CHECKPOINT_EVERY_TRAIN_STEPS=10) != [0, 0]
    folder.attempt = 5
    assert run(folder, 2) == [0, 0]

    assert differing(weights(folder, LAST), undisturbed(2)) == []


@pytest.mark.parametrize("every", [7, 10])
@pytest.mark.parametrize("variables", [{"WORKERS": "2"}, {"GENERATOR": "1"}])
def test_whatever_shuffles_the_data(
    folder: RunFolder, variables: dict[str, str], every: int
) -> None:
    """A DataLoader with worker processes, and one with a generator of its own, interrupted in the
    middle of an epoch and at its end."""
    whole = RunFolder(folder.path / "undisturbed", variables=variables)
    assert run(whole) == [0]
    folder.variables = variables

    assert run(folder, HURT="0:16:KILL", HPCFLOW_CHECKPOINT_EVERY_TRAIN_STEPS=every) == [-9]
    assert run(folder) == [0]

    assert differing(weights(folder, LAST), weights(whole, LAST)) == []


@pytest.mark.parametrize("moment", ["10:KILL", "10:after_epoch_KILL", "40:after_epoch_KILL"])
def test_what_follows_an_epoch_is_done_exactly_once(
    undisturbed: Undisturbed, folder: RunFolder, moment: str
) -> None:
    """Killed right after the last batch, or right after the scheduler's step."""
    run(folder, HURT=f"0:{moment}", HPCFLOW_CHECKPOINT_EVERY_TRAIN_STEPS=5)

    assert run(folder) == [0]

    final = weights(folder, LAST)
    assert final["count.epochs"] == undisturbed(1)["count.epochs"] == EPOCHS - 1
    assert differing(final, undisturbed(1)) == []


def test_all_ranks_save_at_the_same_train_step(folder: RunFolder) -> None:
    assert run(folder, 4, HURT="3:17:USR2") == [75] * 4

    (train_step,) = folder.complete()
    assert train_step in (17, 18, 19)
    ranks = [path.name for path in folder.checkpoint(train_step).glob("rank-*")]
    assert sorted(ranks) == [f"rank-{rank:05d}.json" for rank in range(4)]
    assert [event["signal"] for event in folder.events("notice")] == ["USR2"]
    assert folder.events("finished") == []
    kinds = [event["event"] for event in folder.events()]
    assert kinds[-2:] == ["notice", "checkpoint"]


def test_a_signal_is_told_from_the_flag(folder: RunFolder) -> None:
    run(folder, 2, HURT="1:5:TERM 1:5:USR2")

    assert [event["signal"] for event in folder.events("notice")] == ["TERM"]


def test_notices_in_every_train_step_disturb_nothing(folder: RunFolder) -> None:
    """Whoever sends TERM often sends it twice, also while a rank saves."""
    storm = " ".join(f"{rank}:{at}:TERM" for rank in range(2) for at in range(5, 9))

    assert run(folder, 2, HURT=storm) == [75, 75]

    assert len(folder.complete()) == 1


def test_a_notice_that_comes_while_the_program_ends_is_no_failure(folder: RunFolder) -> None:
    """Slurm tells the ranks, and so does the script; Python ends without handlers."""
    environ = {**os.environ, **folder.environ(), "HURT": "0:15:TERM"}
    with subprocess.Popen([sys.executable, program.__file__], env=environ) as process:
        poll(folder.resubmit.exists, 120, "it does not leave")
        while process.poll() is None:
            process.send_signal(signal.SIGUSR2)
    assert process.returncode == 75


def test_the_workers_of_a_data_loader_survive_the_notice(folder: RunFolder) -> None:
    """Slurm sends TERM to every process of a job step."""
    training = start(folder, WORKERS=2, HURT="0:5:TERM_ALL")

    assert training.exit_codes() == [75], training.log()
    assert folder.complete() in ([5], [6])


def test_they_do_so_whenever_it_reaches_them_first(folder: RunFolder) -> None:
    training = start(folder, WORKERS=2, HURT="0:2:TERM_WORKERS 0:22:TERM_WORKERS")

    assert training.exit_codes() == [0], training.log()


def test_with_the_training_they_end(folder: RunFolder) -> None:
    """At once, not after the five seconds for each that torch gives those it has lost sight of."""
    script = folder.path / "train.py"
    folder.attempt_dir.mkdir(parents=True)
    (folder.attempt_dir / "notice").touch()
    script.write_text(
        "import multiprocessing\n"
        "from torch.utils.data import DataLoader\n"
        "from hpcflow import runtime\n"
        "run = runtime.start()\n"
        "run.restore()\n"
        "try:\n"
        "    for batch in run.batches(DataLoader(range(100), num_workers=2)):\n"
        "        print(len(multiprocessing.active_children()), 'workers')\n"
        "finally:\n"
        "    print(len(multiprocessing.active_children()), 'workers')\n"
    )

    training = start(folder, PROGRAM=script)

    assert training.exit_codes() == [75]
    assert training.log().split("\n") == ["2 workers", "0 workers", ""]


def test_workers_that_nobody_ends_do_not_keep_a_dead_training_alive(folder: RunFolder) -> None:
    """Python ends them by TERM when it exits, which must not be taken for the notice."""
    script = folder.path / "train.py"
    folder.path.mkdir(parents=True)
    script.write_text(
        "from torch.utils.data import DataLoader\n"
        "from hpcflow import runtime\n"
        "run = runtime.start()\n"
        "run.restore()\n"
        "loader = DataLoader(range(100), num_workers=2, persistent_workers=True)\n"
        "for batch in run.batches(loader):\n"
        "    raise ZeroDivisionError\n"
    )

    training = start(folder, PROGRAM=script)

    assert training.exit_codes() == [1]
    assert "ZeroDivisionError" in training.log()


def test_a_notice_in_the_last_train_step_lets_the_training_finish(folder: RunFolder) -> None:
    assert run(folder, 2, HURT=f"0:{LAST}:TERM 1:{LAST - 1}:TERM") == [0, 0]

    assert not folder.resubmit.exists()
    (finished,) = folder.events("finished")
    assert finished["train_step"] == LAST


def test_a_finished_training_that_is_sent_again_only_finishes_again(folder: RunFolder) -> None:
    run(folder)
    folder.attempt = 2

    assert run(folder) == [0]

    assert folder.complete() == [LAST]
    (began,) = folder.events("train_started")
    assert began["train_step"] == LAST
    assert began["resumed_from"] == f"checkpoints/{LAST:09d}"


def test_more_epochs_go_on_from_the_end(folder: RunFolder) -> None:
    whole = RunFolder(folder.path / "whole")
    params = whole.path / "params.json"
    whole.path.mkdir(parents=True)
    params.write_text('{"epochs": 6}')
    whole.variables = {"HPCFLOW_PARAMS": str(params)}
    run(whole)
    run(folder)

    folder.variables = whole.variables
    assert run(folder) == [0]

    assert differing(weights(folder, 60), weights(whole, 60)) == []


def test_another_number_of_ranks_goes_on_from_the_same_place(folder: RunFolder) -> None:
    run(folder, 2, HURT="0:17:KILL", PATIENT=1, HPCFLOW_CHECKPOINT_EVERY_TRAIN_STEPS=12)

    training = start(folder, 4)

    assert training.exit_codes() == [0] * 4
    assert "saved by 2 ranks, resumed by 4" in training.log()
    assert folder.events("train_started")[-1]["train_step"] == 12


def test_an_exception_is_a_failure_and_ends_all_ranks(folder: RunFolder) -> None:
    training = start(
        folder, 2, HURT="1:15:raise", PATIENT=1, HPCFLOW_CHECKPOINT_EVERY_TRAIN_STEPS=10
    )

    assert training.exit_codes_by_themselves() == [1, 1]
    assert "ZeroDivisionError: a mistake in the program" in training.log()
    assert folder.events("finished") == []
    assert folder.complete() == [10]
    assert not folder.resubmit.exists()


def test_a_rank_that_dies_fails_the_others(folder: RunFolder) -> None:
    training = start(
        folder, 4, HURT="2:15:KILL", PATIENT=1, HPCFLOW_CHECKPOINT_EVERY_TRAIN_STEPS=10
    )

    assert training.exit_codes_by_themselves() == [1, 1, -9, 1]
    assert folder.complete() == [10]
