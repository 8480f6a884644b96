"""Scratch is a path with variables in it, and never a piece of shell."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcflow.errors import SiteError
from hpcflow.sites.schema import Site
from hpcflow.sites.scratch import expand_scratch
from tests.sites.build import site


def on(path: str) -> Site:
    """A site with that scratch."""
    return site(
        f"name: alpha\npartitions: {{p: {{cpus_per_node: 1}}}}\nscratch: {{path: '{path}'}}"
    )


def test_variables_come_from_the_environment_given() -> None:
    assert expand_scratch(on("$SCRATCH"), {"SCRATCH": "/s/ada"}, user="ada") == Path("/s/ada")
    assert expand_scratch(on("${BASE}2/x"), {"BASE": "/s"}, user="ada") == Path("/s2/x")


def test_the_user_is_who_runs_this_whatever_the_environment_claims() -> None:
    found = expand_scratch(on("/lustre/$USER"), {"USER": "root"}, user="ada")
    assert found == Path("/lustre/ada")


def test_a_projects_scratch_takes_the_account() -> None:
    lumi = on("/scratch/$ACCOUNT/$USER")
    found = expand_scratch(lumi, {}, user="ada", account="project_465000001")
    assert found == Path("/scratch/project_465000001/ada")
    with pytest.raises(SiteError, match=r"\$ACCOUNT is not set") as caught:
        expand_scratch(lumi, {}, user="ada")
    assert "resources.account" in str(caught.value)


@pytest.mark.parametrize("environ", [{}, {"SCRATCH": ""}])
def test_an_unset_variable_says_what_to_export(environ: dict[str, str]) -> None:
    with pytest.raises(SiteError, match=r"\$SCRATCH is not set") as caught:
        expand_scratch(on("$SCRATCH/runs"), environ, user="ada")
    assert "export SCRATCH=" in str(caught.value)


@pytest.mark.parametrize(
    "path", ["relative", "~/x", "/a/../b", "/a/$", "/a/$(id)", "/a/${X:-y}", "/a/`id`$1"]
)
def test_what_is_no_plain_absolute_path_is_refused(path: str) -> None:
    with pytest.raises(SiteError, match="not an absolute path"):
        expand_scratch(on(path), {"X": "x"}, user="ada")


@pytest.mark.parametrize("value", ["relative", "/a/..", "/a\nb", "/$HOME", "/a\x1b[0m"])
def test_a_variable_cannot_smuggle_one_in(value: str) -> None:
    with pytest.raises(SiteError, match="not an absolute path"):
        expand_scratch(on("$SCRATCH"), {"SCRATCH": value, "HOME": "/h"}, user="ada")


def test_nothing_is_executed(tmp_path: Path) -> None:
    folder = f"/s/`touch {tmp_path}/owned`;x"
    found = expand_scratch(on("$SCRATCH"), {"SCRATCH": folder}, user="ada")
    assert str(found) == folder
    assert not (tmp_path / "owned").exists()
