"""What is found under the names of checkpoints, and which train steps these names say."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcflow.model.adopt import Adopt
from hpcflow.runtime.adoption.foreign import find, look, number_in
from hpcflow.runtime.adoption.rule import AdoptRule, parse_adopt_rule

#: As the programs call them; see src/transformers/trainer.py (PREFIX_CHECKPOINT_DIR),
#: lightning/pytorch/callbacks/model_checkpoint.py and train.py of nanoGPT.
NAMES = [
    ("checkpoint-500", 500),
    ("epoch=3-step=100.ckpt", 100),
    ("epoch=3-step=100-v1.ckpt", 100),
    ("step=100-epoch=3.ckpt", 100),
    ("epoch=02-val_loss=0.32.ckpt", 2),
    ("sample-mnist-epoch=02-val_loss=0.32.ckpt", 2),
    ("step-100", 100),
    ("step_000100.pt", 100),
    ("global_step12", 12),
    ("iter_0000500", 500),
    ("model.100.pt2", 100),
    ("model-100.pt2", 100),
    ("ckpt.pt", None),
    ("last.ckpt", None),
    ("last-v1.ckpt", None),
    ("best", None),
    ("step-" + "9" * 18, 10**18 - 1),
    ("step-" + "9" * 19, None),
    ("step-٣", None),
]


@pytest.mark.parametrize(("name", "number"), NAMES)
def test_the_number_in_a_name(name: str, number: int | None) -> None:
    assert number_in(name) == number


def found(folder: Path, pattern: str) -> list[str]:
    rule = AdoptRule(folder, pattern)
    return [path.relative_to(folder).as_posix() for path in find(rule, print)]


def made(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def test_patterns_go_through_folders(tmp_path: Path) -> None:
    made(tmp_path, "a/checkpoints/1.ckpt", "b/checkpoints/2.ckpt", "b/other/3.ckpt", "4.ckpt")
    assert found(tmp_path, "*/checkpoints/*.ckpt") == [
        "a/checkpoints/1.ckpt",
        "b/checkpoints/2.ckpt",
    ]
    assert found(tmp_path, "b/*/[23].ckpt") == ["b/checkpoints/2.ckpt", "b/other/3.ckpt"]
    assert found(tmp_path, "4.ckpt") == ["4.ckpt"]
    assert found(tmp_path, "5.ckpt") == []
    assert found(tmp_path / "none", "*/*") == []


def test_what_is_hidden_unfinished_or_a_link_is_passed_over(tmp_path: Path) -> None:
    unfinished = ["step-1.tmp", "step-2.tmp-77", "step-3_tmp", "tmp-step-4", "step-5.part"]
    unfinished += ["step-6.partial", "step-7.incomplete", "step-8~", "step-9.TMP", "step-10.temp3"]
    fine = ["step-11", "step-12-temperature", "step-13.partly", "attempt-step-14"]
    made(tmp_path, ".step-15", *unfinished, *fine)
    (tmp_path / "step-16").symlink_to("step-11")
    (tmp_path / "latest").symlink_to(tmp_path)
    assert found(tmp_path, "*step-*") == sorted(fine)
    assert found(tmp_path, "*/step-11") == []
    assert found(tmp_path, "latest/step-11") == ["latest/step-11"], "a way that the config names"
    assert found(tmp_path, "step-16") == []


def test_any_change_is_seen(tmp_path: Path) -> None:
    rule = AdoptRule(tmp_path, "*")
    made(tmp_path, "x/a", "x/sub/b")
    path = tmp_path / "x"
    states = {look(path, rule).state}

    def changed() -> bool:
        before = len(states)
        states.add(look(path, rule).state)
        return len(states) > before

    assert not changed()
    (path / "a").write_bytes(b"1")
    assert changed()
    (path / "new").write_bytes(b"")
    assert changed()
    (path / "new").rename(path / "newer")
    assert changed()
    other = tmp_path / "other"
    other.write_bytes(b"2")
    other.replace(path / "a")
    assert changed(), "another file of the same size"
    (path / "sub" / "b").unlink()
    assert changed()


def test_the_known_programs_write_what_their_rules_find(tmp_path: Path) -> None:
    written = {
        "huggingface": ["checkpoint-500/trainer_state.json", "runs/x", "tmp-checkpoint-600/y"],
        "lightning": [
            "version_0/checkpoints/epoch=0-step=10.ckpt",
            "version_0/hparams.yaml",
            "version_0/metrics.csv",
        ],
        "nanogpt": ["ckpt.pt"],
    }
    expected = ["checkpoint-500", "version_0/checkpoints/epoch=0-step=10.ckpt", "ckpt.pt"]
    for (name, files), checkpoint in zip(written.items(), expected, strict=True):
        folder = tmp_path / name
        made(folder, *files)
        said = Adopt.model_validate({"like": name}).rule(str(folder))
        assert [
            path.relative_to(folder).as_posix() for path in find(parse_adopt_rule(said), print)
        ] == [checkpoint]
