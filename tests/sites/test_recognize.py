"""Which site is this machine? Slurm's word first, then the host's name; never a guess."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcflow.errors import SiteError
from hpcflow.sites.recognize import MachineFacts, cluster_name, look_around, match, recognize
from hpcflow.sites.schema import Site
from tests.sites.build import minimal, site, write_site

LOCAL = site(minimal("local", "scheduler: local\n"))


def cluster(name: str, *, slurm: str | None = None, hosts: str = "[]") -> Site:
    """A Slurm site, known by what is given."""
    line = f"cluster_name: {slurm}\n" if slurm else ""
    return site(minimal(name, f"{line}hosts: {hosts}\n"))


def here(slurm: str | None = None, host: str = "vm", *, has_slurm: bool = True) -> MachineFacts:
    """What can be seen from here."""
    return MachineFacts(has_slurm, slurm, host)


def test_slurms_cluster_name_decides() -> None:
    alpha, beta = cluster("alpha", slurm="alpha"), cluster("beta", slurm="Beta", hosts="['vm']")
    assert match([LOCAL, alpha, beta], here("alpha")) is alpha
    assert match([LOCAL, alpha, beta], here("beta")) is beta


def test_the_host_name_decides_where_the_file_names_no_cluster() -> None:
    alpha = cluster("alpha", hosts="['login*.alpha.org']")
    beta = cluster("beta", hosts="['login*.beta.org']")
    assert match([LOCAL, alpha, beta], here("x", "Login3.Beta.org")) is beta


def test_the_host_name_also_helps_while_slurm_is_down() -> None:
    alpha = cluster("alpha", slurm="alpha", hosts="['login*']")
    assert match([LOCAL, alpha], here(None, "login1")) is alpha
    assert match([LOCAL, alpha], here(None, "login1", has_slurm=False)) is alpha


def test_a_site_of_another_cluster_is_not_meant_although_the_host_fits() -> None:
    alpha = cluster("alpha", slurm="alpha", hosts="['login*']")
    with pytest.raises(SiteError, match="no site file fits host login1 of the cluster beta"):
        match([LOCAL, alpha], here("beta", "login1"))


def test_two_files_for_one_cluster_are_told_apart_by_the_host() -> None:
    gpu = cluster("alpha-gpu", slurm="alpha", hosts="['gpu-login*']")
    cpu = cluster("alpha-cpu", slurm="alpha", hosts="['cpu-login*']")
    assert match([gpu, cpu], here("alpha", "cpu-login2")) is cpu


def test_without_slurm_it_is_the_local_site() -> None:
    alpha = cluster("alpha", slurm="alpha")
    assert match([alpha, LOCAL], here(has_slurm=False)) is LOCAL


def test_a_cluster_is_never_taken_for_a_lonely_machine() -> None:
    with pytest.raises(SiteError, match="Slurm does not answer") as caught:
        match([LOCAL], here(None))
    assert "--site" in str(caught.value)


def test_an_unknown_cluster_says_how_to_go_on() -> None:
    with pytest.raises(SiteError) as caught:
        match([LOCAL], here("gamma"))
    assert "hpcflow site detect" in str(caught.value)


def test_what_is_ambiguous_is_asked_back() -> None:
    sites = [cluster("alpha", slurm="x"), cluster("beta", slurm="x")]
    with pytest.raises(SiteError, match="any of the sites alpha, beta") as caught:
        match(sites, here("x"))
    assert "--site alpha" in str(caught.value)


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (
            "Configuration data as of 2026-01-01T00:00:00\n"
            "ClusterName             = devcluster\nX = y\n",
            "devcluster",
        ),
        ("SomeClusterName = no\n", None),
        ("", None),
        (None, None),
    ],
)
def test_the_cluster_name_is_read_from_scontrol(config: str | None, name: str | None) -> None:
    assert cluster_name(config) == name


def commands(folder: Path, scontrol: str | None) -> dict[str, str]:
    """An environment whose PATH has an sbatch and, if its text is given, a scontrol."""
    folder.mkdir()
    scripts = {"sbatch": "exit 1"} | ({"scontrol": scontrol} if scontrol else {})
    for name, text in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    return {"PATH": str(folder), "SLURM_CLUSTERS": "elsewhere"}


def test_scontrol_is_asked_about_this_cluster_only(tmp_path: Path) -> None:
    environ = commands(tmp_path / "bin", 'echo "ClusterName = alpha$SLURM_CLUSTERS"')
    assert look_around(environ).cluster_name == "alpha"


DOWN = 'echo "Unable to contact slurm controller (connect failure)" >&2; exit 1'


def test_slurm_that_does_not_answer_is_slurm_all_the_same(tmp_path: Path) -> None:
    environ = commands(tmp_path / "bin", DOWN)
    around = look_around({**environ, "SLURM_CONF": str(tmp_path / "nowhere")})
    assert (around.has_slurm, around.cluster_name) == (True, None)


@pytest.mark.parametrize(
    ("conf", "name"),
    [
        ("SlurmctldHost=ctl\nClusterName=alpha\n", "alpha"),
        ("# ClusterName=old\n  clustername = Alpha # ours\n", "Alpha"),
        ('ClusterName="alpha"', "alpha"),
        ("Include other.conf\n", None),
        ("ClusterName=\n\xff", None),
        ("", None),
    ],
)
def test_while_slurm_does_not_answer_its_configuration_names_the_cluster(
    tmp_path: Path, conf: str, name: str | None
) -> None:
    path = tmp_path / "slurm.conf"
    path.write_text(conf, encoding="latin-1")
    environ = {**commands(tmp_path / "bin", DOWN), "SLURM_CONF": str(path)}
    assert look_around(environ).cluster_name == name


def test_a_configuration_that_cannot_be_read_tells_nothing(tmp_path: Path) -> None:
    environ = {**commands(tmp_path / "bin", DOWN), "SLURM_CONF": str(tmp_path)}
    assert look_around(environ).cluster_name is None


def test_commands_that_belong_to_no_cluster_are_not_slurm(tmp_path: Path) -> None:
    lonely = 'echo "scontrol: fatal: Could not establish a configuration source" >&2; exit 1'
    assert not look_around(commands(tmp_path / "bin", lonely)).has_slurm
    assert not look_around({"PATH": str(tmp_path)}).has_slurm


def test_a_broken_file_does_not_hide_in_the_error(tmp_path: Path) -> None:
    write_site(tmp_path, "alpha", "name: alpha\ncluster_name: [")
    environ = commands(tmp_path / "bin", "echo ClusterName = alpha")
    with pytest.raises(SiteError, match="broken site files were skipped: alpha") as caught:
        recognize([tmp_path], environ=environ)
    assert "hpcflow site list" in str(caught.value)
