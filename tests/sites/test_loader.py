"""Site files are found by name, in the user's folder before the cluster's before hpcflow's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcflow.errors import SiteError
from hpcflow.sites.loader import list_sites, load_site, search_path
from tests.sites.build import minimal, write_site


def test_the_users_file_wins_over_the_shipped_one(tmp_path: Path) -> None:
    own, shipped = tmp_path / "own", tmp_path / "shipped"
    write_site(own, "alpha", minimal("alpha", "description: mine\n"))
    write_site(shipped, "alpha", minimal("alpha", "description: theirs\n"))
    assert load_site("alpha", search=[own, shipped]).description == "mine"
    assert [entry.path.parent for entry in list_sites([own, shipped])] == [own]


def test_the_search_path_goes_from_the_user_to_hpcflow_itself(tmp_path: Path) -> None:
    own, system, shipped = search_path(tmp_path)
    assert own == tmp_path / "sites"
    assert system == Path("/etc/hpcflow/sites")
    assert (shipped / "local.yaml").is_file()


def test_a_site_is_also_found_by_its_path(tmp_path: Path) -> None:
    path = write_site(tmp_path, "alpha")
    assert load_site(str(path), search=[]).name == "alpha"


def test_an_unknown_name_brings_the_nearest_one(tmp_path: Path) -> None:
    write_site(tmp_path, "perlmutter")
    write_site(tmp_path, "frontier")
    with pytest.raises(SiteError, match="no site 'perlmuter'") as caught:
        load_site("perlmuter", search=[tmp_path])
    assert "did you mean perlmutter?" in str(caught.value)
    assert "hpcflow site list" in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("name", ["", "a\nb", "$(id)", "x" * 5000, "..", "\0"])
def test_a_hostile_name_is_just_unknown(tmp_path: Path, name: str) -> None:
    write_site(tmp_path, "alpha")
    with pytest.raises(SiteError) as caught:
        load_site(name, search=[tmp_path])
    assert "\n" not in caught.value.message
    assert len(str(caught.value)) < 500


def test_an_unknown_key_is_named_with_file_and_line(tmp_path: Path) -> None:
    path = write_site(tmp_path, "alpha", minimal("alpha", "fabrics: {}\n"))
    with pytest.raises(SiteError, match=r"fabrics.*did you mean 'fabric'") as caught:
        load_site("alpha", search=[tmp_path])
    assert f"{path}:6" in str(caught.value)


def test_the_file_must_be_called_as_the_site(tmp_path: Path) -> None:
    path = write_site(tmp_path, "alpha", minimal("beta"))
    with pytest.raises(SiteError, match=r"named beta, but its file alpha\.yaml") as caught:
        load_site("alpha", search=[tmp_path])
    assert f"mv {path}" in str(caught.value)


def test_a_file_that_is_given_by_its_path_may_be_called_anything(tmp_path: Path) -> None:
    path = write_site(tmp_path, "mycluster", minimal("alpha"))
    found = load_site(str(path), search=[])
    assert (found.name, found.file) == ("alpha", str(path))


def test_listing_shows_a_broken_file_with_its_problem_and_the_others_whole(tmp_path: Path) -> None:
    write_site(tmp_path, "good", minimal("good", "description: fine\n"))
    write_site(tmp_path, "bad", "name: [")
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / "notes.txt").write_text("not a site")
    bad, folder, good = list_sites([tmp_path])
    assert (good.name, good.description, good.problem) == ("good", "fine", None)
    assert bad.site is None
    assert bad.problem is not None
    assert "bad.yaml" in bad.problem
    assert "folder" in (folder.problem or "")


def test_missing_folders_are_passed_over(tmp_path: Path) -> None:
    assert list_sites([tmp_path / "nowhere"]) == []


def test_a_folder_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    folder = tmp_path / "loop"
    folder.symlink_to(folder)
    with pytest.raises(SiteError, match="cannot be read"):
        list_sites([folder])


@pytest.mark.parametrize(
    ("partition", "complaint"),
    [
        ("{cpus_per_node: 8, gpus_per_node: 4, gpu_type: a100}", "a100 is not among gpu_types"),
        ("{cpus_per_node: 8, gpu_type: a100}", "gpus_per_node is 0"),
        (
            "{cpus_per_node: 8, price: {gpu_hour_usd: '1', gpu_type_hour_usd: {h1OO: '6'}}}",
            "h1OO is not among gpu_types",
        ),
        ("{cpus_per_node: 8, nodes_min: 3, nodes_max: 2}", "more than nodes_max"),
        (
            "{cpus_per_node: 8, time_limit_max: 1h, time_limit_default: 2h}",
            "longer than time_limit_max",
        ),
        (
            "{cpus_per_node: 8, time_limit_bins: ["
            "{nodes_max: 4, time_limit_max: 2h}, {nodes_max: 2, time_limit_max: 1h}]}",
            "from the smallest",
        ),
        ("{cpus_per_node: machine}", "whole number"),
        ("{cpus_per_node: 0}", "1 or more"),
    ],
)
def test_a_file_that_contradicts_itself_is_refused_at_its_line(
    tmp_path: Path, partition: str, complaint: str
) -> None:
    path = write_site(
        tmp_path,
        "alpha",
        f"name: alpha\nscratch: {{path: /s}}\npartitions:\n  odd: {partition}\n",
    )
    with pytest.raises(SiteError, match=complaint) as caught:
        load_site("alpha", search=[tmp_path])
    assert f"{path}:4" in str(caught.value)


@pytest.mark.parametrize(
    "option", ["-N2", "--x; rm -rf /", "--x=$(id)", "--x\n#SBATCH --y", "--x=`id`", "--X"]
)
def test_no_option_can_become_shell_or_another_line(tmp_path: Path, option: str) -> None:
    write_site(tmp_path, "alpha", minimal("alpha", f"dialect: {{options: [{option!r}]}}\n"))
    with pytest.raises(SiteError, match="dialect"):
        load_site("alpha", search=[tmp_path])


@pytest.mark.parametrize(
    ("key", "option"),
    [
        ("dialect: {options: [%s]}", "--array=0-9"),
        ("dialect: {options: [%s]}", "--arr=0-9"),
        ("dialect: {options: [%s]}", "--wrap=true"),
        ("dialect: {options: [%s]}", "--test-only"),
        ("dialect: {options: [%s]}", "--requeue"),
        ("launch: {srun_options: [%s]}", "--multi-prog"),
        ("launch: {srun_options: [%s]}", "--ntasks=1"),
    ],
)
def test_no_option_can_make_another_thing_of_a_job(tmp_path: Path, key: str, option: str) -> None:
    path = write_site(tmp_path, "alpha", minimal("alpha", key.replace("%s", f'"{option}"') + "\n"))
    with pytest.raises(SiteError, match="a site may not set --") as caught:
        load_site("alpha", search=[tmp_path])
    assert f"{path}:6" in str(caught.value)


def test_options_that_sites_need(tmp_path: Path) -> None:
    text = (
        'dialect: {options: ["--hint=nomultithread", "--reservation=x", "--wait-all-nodes=1"]}\n'
        'launch: {srun_options: ["--cpu-bind=cores", "--nodelist=n1", "--mem-bind=local"]}\n'
    )
    write_site(tmp_path, "alpha", minimal("alpha", text))
    assert len(load_site("alpha", search=[tmp_path]).dialect.options) == 3
