"""The job executes the code of its snapshot, or nothing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from hpcflow.model.run import CodeSnapshot, Run
from hpcflow.model.spec import RunSpec
from hpcflow.storage.code_snapshot import CodeFile, CodeTree, add_code
from tests.rendering.executed import Bench
from tests.rendering.samples import a_local_site, a_spec
from tests.rendering.test_path_check import as_root
from tests.untrusted_paths import EVE

TREE = CodeTree(
    files={
        "it's/train.py": CodeFile(b"import helper, sys; print('code', helper.CODE, *sys.argv[1:])"),
        "it's/helper.py": CodeFile(b"CODE = 'first'"),
        "run": CodeFile(b"#!/bin/sh\necho executed $*\n", is_executable=True),
    },
    links={"data": "/nonexistent"},
    is_private=False,
)


class Frozen(Bench):
    """A bench whose runs have a snapshot."""

    def run(self, spec: RunSpec) -> Run:
        files = {"it's/train.py": "it's/train.py", "./run": "run", "-m train": "it's/train.py"}
        code = CodeSnapshot(digest=TREE.digest, root="/gone", folder="it's", files=files)
        return super().run(spec).model_copy(update={"code": code})

    @property
    def files(self) -> Path:
        (place,) = (self.folder / ".code").iterdir()
        return place / "files"


@pytest.fixture
def frozen(weird_tmp_path: Path) -> Frozen:
    bench = Frozen(weird_tmp_path)
    bench.run_dir.code.mkdir()
    add_code(bench.run_dir.code, bench.folder, TREE)
    return bench


def execute(bench: Bench, *command: str) -> tuple[int, str]:
    launch = {"framework": "none", "launcher": "none"}
    spec = a_spec(script=None, command=list(command), args=["{{ run.code }}"], launch=launch)
    bench.write(spec, a_local_site())
    code = bench.execute()
    return code, bench.attempt.log.read_text()


@pytest.mark.parametrize(
    "command",
    [["python3", "it's/train.py"], ["python3", "-u", "-m", "train"], ["./run"]],
    ids=["script", "module", "executable"],
)
def test_the_program_is_that_of_the_snapshot(frozen: Frozen, command: list[str]) -> None:
    code, said = execute(frozen, *command)
    begins = "executed" if command == ["./run"] else "code first"
    folder = str(frozen.files / "it's")
    assert code == 0, said
    assert begins in said
    assert folder.split()[-1] in said


def changed(files: Path) -> None:
    (files / "it's/helper.py").write_text("CODE = 'other'")


def of_eve(files: Path) -> None:
    os.chown(files / "it's/helper.py", EVE, EVE)


def in_a_folder_of_eve(files: Path) -> None:
    os.chown(files / "it's", EVE, EVE)


def open_to_all(files: Path) -> None:
    (files / "it's").chmod(0o777)


def on_an_open_path(files: Path) -> None:
    files.parents[1].chmod(0o777)


def with_another_index(files: Path) -> None:
    changed(files)
    index = files.parent / "index"
    index.write_bytes(b"# d .\n")


def without_a_file(files: Path) -> None:
    (files / "run").unlink()


def gone(files: Path) -> None:
    shutil.rmtree(files.parent)


DAMAGE = [changed, with_another_index, without_a_file, gone, open_to_all, on_an_open_path]
OF_OTHERS = [pytest.param(each, marks=as_root) for each in (of_eve, in_a_folder_of_eve)]


@pytest.mark.parametrize("damage", [*DAMAGE, *OF_OTHERS])
def test_other_code_is_not_executed(frozen: Frozen, damage: Callable[[Path], None]) -> None:
    files = frozen.files
    for path in (files, *files.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o700)
    damage(files)
    code, said = execute(frozen, "./run")
    assert code == 1
    assert "was removed or changed after this job was submitted" in said
    assert "executed" not in said
