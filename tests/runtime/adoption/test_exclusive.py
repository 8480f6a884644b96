"""Where a run adopts what its program writes, hpcflow.runtime itself saves nothing."""

from __future__ import annotations

import pytest

from hpcflow import runtime
from hpcflow.runtime.__main__ import main
from tests.runtime.adoption.bench import Bench


@pytest.fixture(autouse=True)
def inside(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    for name, value in bench.environ().items():
        monkeypatch.setenv(name, value)
    return bench


def test_a_program_that_would_save_is_told_what_to_take_away() -> None:
    run = runtime.start()
    with pytest.raises(RuntimeError, match=r"remove checkpoint\.adopt from its config"):
        run.restore(state={})


def test_a_program_can_report_all_the_same(bench: Bench) -> None:
    run = runtime.start()
    for train_step in run.train_steps(3):
        run.log(loss=1 / train_step)
    run.finish(loss=0.3)
    assert bench.folder.events("finished")[0]["metrics"] == {"loss": 0.3}
    assert not bench.folder.checkpoints.exists()


def test_so_is_whoever_makes_one_from_a_shell(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["checkpoint", str(bench.out), "--train-step", "1"]) == 1
    assert "remove checkpoint.adopt from" in capsys.readouterr().err
    assert not bench.folder.checkpoints.exists()


@pytest.mark.parametrize("words", [["begin"], ["watch", "1"], ["end", "0"]])
def test_without_something_to_adopt_it_says_so(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("HPCFLOW_ADOPT")
    assert main(["adopt", *words]) == 1
    assert "adopts no checkpoints" in capsys.readouterr().err
    monkeypatch.setenv("HPCFLOW_ADOPT", '{"folder": "here"}')
    assert main(["adopt", *words]) == 1
    assert "HPCFLOW_ADOPT=" in capsys.readouterr().err
