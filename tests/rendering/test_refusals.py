"""What no script can do is said before; and the user's own templates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpcflow.errors import InputError, SpecError
from hpcflow.sites.schema import Site
from tests.rendering.executed import NONE, Bench, kinds
from tests.rendering.samples import a_local_site, a_run, a_site, a_spec, script_of


@pytest.mark.parametrize(
    ("changes", "site", "message"),
    [
        ({"environment": {"variables": {"UID": "1"}}}, a_site(), r"variables\.UID.*belongs to"),
        ({"environment": {"secrets": {"BASH_ENV": "/x"}}}, a_site(), r"secrets\.BASH_ENV"),
        ({}, a_site(variables={"RANDOM": "1"}), "RANDOM of site here"),
        (
            {"environment": {"container": {"image": "/x", "runtime": "pyxis"}}},
            a_local_site(),
            "pyxis is a part of srun",
        ),
    ],
)
def test_what_no_script_can_do_is_said_before(
    changes: dict[str, Any], site: Site, message: str
) -> None:
    with pytest.raises(SpecError, match=message):
        script_of(a_run(a_spec(**changes)), site)


def test_a_folder_that_cannot_be_mounted_is_said_before() -> None:
    spec = a_spec(environment={"container": {"image": "/x.sif"}})
    with pytest.raises(SpecError, match="cannot mount"):
        script_of(a_run(spec, working_dir="/home/a:b"), a_site())


def test_a_users_own_part_replaces_the_shipped_one(bench: Bench, tmp_path: Path) -> None:
    own = tmp_path / "templates"
    (own / "parts").mkdir(parents=True)
    (own / "parts" / "started.j2").write_text("echo mine {{ run.spec.name | sh }}\n")
    spec = a_spec(script=None, command=["true"], launch=NONE)
    script = script_of(bench.run(spec), a_local_site(), template_dirs=[tmp_path / "none", own])
    bench.attempt.script.write_text(script)
    assert bench.execute() == 0
    assert "mine digits" in bench.log()
    assert kinds(bench) == ["exited"]


def test_a_wrong_template_of_a_user_is_named(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "header.j2").write_text("#SBATCH --nodes={{ placement.partition }}\n")
    with pytest.raises(InputError, match=r"parts/header\.j2:1: .*directive"):
        script_of(a_run(a_spec()), a_site(), template_dirs=[tmp_path])
