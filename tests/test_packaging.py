"""The source distribution is the repository; its wheel works, installed for a whole cluster."""

from __future__ import annotations

import ast
import configparser
import json
import os
import re
import shlex
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hpcflow import __version__
from tests.fenced import blocks_of

# One process runs all tests of this file, so their common set-up is made once.
pytestmark = pytest.mark.xdist_group("packaging")

TREE = Path(__file__).resolve().parents[1]
RECIPES = TREE / "docs" / "installation"
PAGE = (TREE / "docs" / "installation.md").read_text()
LMOD = Path("/usr/share/lmod/lmod/init/bash")
#: Where each package has its files, if not below its own name.
AT_THE_TOP = ("templates", "site_configs", "sbatch", "docs", "examples")


def setup_cfg() -> configparser.ConfigParser:
    config = configparser.ConfigParser()
    config.read(TREE / "setup.cfg")
    return config


def repository() -> set[str]:
    """What git has of this tree, or would add."""
    ls_files = ["git", "-C", str(TREE), "ls-files", "-z", "--cached", "--others"]
    done = subprocess.run([*ls_files, "--exclude-standard"], check=True, capture_output=True)
    names = done.stdout.decode().split("\0")
    return {name for name in names if name and (TREE / name).is_file()}


def easyconfig() -> dict[str, Any]:
    """The recipe of EasyBuild, which is Python."""
    known: dict[str, Any] = {"SYSTEM": "system"}
    exec((RECIPES / f"hpcflow-{__version__}.eb").read_text(), known)
    return known


def test_every_package_is_listed() -> None:
    listed = set(setup_cfg()["options"]["packages"].split())
    code = {
        ".".join(path.parent.relative_to(TREE).parts) for path in (TREE / "hpcflow").rglob("*.py")
    }
    assert listed == code | {f"hpcflow.{name}" for name in AT_THE_TOP}


def test_an_editable_installation_imports_nothing_from_the_working_directory() -> None:
    """As `make demo` makes it. A stranger's folder of that name would be imported from."""
    code = "import json, sys; print(json.dumps(sys.path[1:]))"  # without the '' of -c
    environ = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    found = subprocess.run(
        [sys.executable, "-c", code], cwd="/", env=environ, capture_output=True, check=True
    )
    assert [entry for entry in json.loads(found.stdout) if not entry.startswith("/")] == []
    for line in setup_cfg()["options"]["package_dir"].split("\n")[1:]:
        assert (TREE / line.partition("=")[2].strip() / "__init__.py").is_file(), line


@dataclass(frozen=True)
class Built:
    """What was built from a copy of the repository, each from the one before."""

    sdist: Path
    wheel: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Built without network, in a copy: setuptools leaves files behind."""
    folder = tmp_path_factory.mktemp("built")
    for name in repository():
        target = folder / "source" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((TREE / name).read_bytes())
    build = "from setuptools import build_meta; build_meta.build_sdist('..')"
    python = [sys.executable, "-c", build]
    subprocess.run(python, cwd=folder / "source", check=True, capture_output=True)
    (sdist,) = folder.glob("*.tar.gz")
    wheels = folder / f"hpcflow-{__version__}-wheels"
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--wheel-dir", wheels, sdist], check=True, capture_output=True)
    (wheel,) = wheels.glob("*.whl")
    return Built(sdist, wheel)


def test_the_source_distribution_is_the_repository(built: Built) -> None:
    with tarfile.open(built.sdist) as archive:
        names = [Path(each.name) for each in archive.getmembers() if each.isfile()]
    found = {str(name.relative_to(f"hpcflow-{__version__}")) for name in names}
    made = {"PKG-INFO"} | {name for name in found if name.startswith("hpcflow.egg-info/")}
    assert found - made == repository()


def test_the_wheel_has_every_file_of_its_packages(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as archive:
        found = {name for name in archive.namelist() if ".dist-info/" not in name}
    tops = {name: f"hpcflow/{name}" for name in AT_THE_TOP} | {"hpcflow": "hpcflow"}
    names = (name for name in repository() if not name.startswith("docs/generator/"))
    split = (name.partition("/") for name in names)
    assert found == {f"{tops[top]}/{rest}" for top, _, rest in split if rest and top in tops}


@dataclass(frozen=True)
class Shared:
    """An installation for all users of a cluster, and a user in an empty folder."""

    apps: Path
    user: Path

    @property
    def prefix(self) -> Path:
        return self.apps / "hpcflow" / __version__

    @property
    def package(self) -> Path:
        (found,) = self.prefix.glob("venv/lib/python3*/site-packages/hpcflow")
        return found

    def bash(self, script: str, **variables: str) -> str:
        environ = {"PATH": "/usr/bin:/bin", "HOME": str(self.user), "USER": "ada", **variables}
        argv = ["bash", "--noprofile", "--norc", "-euc", script]
        done = subprocess.run(argv, cwd=self.user, env=environ, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def hpcflow(self, *args: str) -> str:
        program = self.prefix / "bin" / "hpcflow"
        return self.bash(shlex.join([str(program), *args]), HPCFLOW_SITE="local")


@pytest.fixture(scope="module")
def shared(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Shared:
    """Installed by the commands of EasyBuild's recipe. hpcflow comes from the wheel alone; what it
    depends on is that of the tests, for there may be no network."""
    apps, user = tmp_path_factory.mktemp("apps"), tmp_path_factory.mktemp("user")
    shared = Shared(apps, user)
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    environ = {"PATH": path, "HOME": str(user), "PIP_NO_DEPS": "1"}
    for command in easyconfig()["install_cmds"]:
        argv = ["bash", "-c", command % {"installdir": shared.prefix}]
        subprocess.run(argv, cwd=built.wheel.parent, env=environ, check=True, capture_output=True)
    # A .pth file adds the folder to sys.path, without the .pth files in it: no editable hpcflow.
    libraries = shared.package.parent / "libraries_of_the_tests.pth"
    libraries.write_text(sysconfig.get_path("purelib") + "\n")
    return shared


def test_an_installation_is_the_one_of_the_wheel(shared: Shared) -> None:
    assert shared.hpcflow("--version") == f"hpcflow {__version__}\n"
    code = "import hpcflow; print(hpcflow.__file__)"
    found = shared.bash(f"{shared.prefix}/venv/bin/python -c {shlex.quote(code)}")
    assert Path(found.strip()) == shared.package / "__init__.py"
    assert [path.name for path in (shared.prefix / "bin").iterdir()] == ["hpcflow"]


def test_the_first_config_of_the_readme_can_be_run(shared: Shared) -> None:
    (config,) = re.findall(r"^```yaml\n(.*?)^```$", (TREE / "README.md").read_text(), re.S | re.M)
    training = shared.package / "docs" / "training.md"
    (script,) = re.findall(r"^```python\n(.*?)^```$", training.read_text(), re.S | re.M)
    (shared.user / "config.yaml").write_text(config)
    (shared.user / "train.py").write_text(script)
    assert "digits" in shared.hpcflow("run", "config.yaml", "--dry-run")
    assert shared.hpcflow("render", "config.yaml").startswith("#!/bin/bash\n")
    assert "perlmutter" in shared.hpcflow("site", "list")


def test_help_leads_to_the_documentation(shared: Shared) -> None:
    docs = Path(shared.hpcflow("--help").splitlines()[-1].partition("Documentation: ")[2])
    assert (docs / "installation" / "hpcflow.lua").is_file()
    named = re.findall(r"\S+/docs/\S+", shared.hpcflow("daemon", "--help"))
    assert named
    assert {Path(page).parent for page in named} == {docs}
    assert all(Path(page).is_file() for page in named)


def test_no_link_in_the_documentation_is_dead_in_an_installation(shared: Shared) -> None:
    dead = [
        f"{page.name}: {target}"
        for page in sorted((shared.package / "docs").glob("*.md"))
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text())
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert dead == []


@pytest.mark.parametrize(
    ("source", "name"), [("hpcflow.lua", f"{__version__}.lua"), ("hpcflow.tcl", __version__)]
)
def test_the_module_adds_hpcflow_and_leaves_python_alone(
    shared: Shared, tmp_path: Path, source: str, name: str
) -> None:
    file = tmp_path / "hpcflow" / name
    file.parent.mkdir()
    file.write_text((RECIPES / source).read_text().replace("/apps", str(shared.apps)))
    said = shared.bash(
        f"""
        set +u; source {LMOD}
        python=$(command -v python3 python || :)
        module use {shlex.quote(str(tmp_path))}
        module load hpcflow
        command -v hpcflow
        hpcflow --version
        [ "$(command -v python3 python || :)" = "$python" ]
        [ -z "${{PYTHONPATH-}}" ]
        "$HPCFLOW_PYTHON" -c 'import hpcflow; print(hpcflow.__version__)'
        module unload hpcflow
        command -v hpcflow || echo "HPCFLOW_PYTHON=${{HPCFLOW_PYTHON-}}"
        """
    )
    program = f"{shared.prefix}/bin/hpcflow"
    version = f"hpcflow {__version__}"
    assert said.splitlines() == [program, version, __version__, "HPCFLOW_PYTHON="]


def test_page_and_recipes_install_in_the_same_way() -> None:
    (block,) = [
        each.text for each in blocks_of("docs/installation.md") if each.text.startswith("umask 022")
    ]
    by_hand = [shlex.split(line) for line in block.splitlines()[2:]]
    prefix = {"installdir": f"/apps/hpcflow/{__version__}"}
    recipe = [shlex.split(command % prefix) for command in easyconfig()["install_cmds"]]
    assert by_hand == recipe
    spack = ast.parse((RECIPES / "package.py").read_text())
    words = {each.value for each in ast.walk(spack) if isinstance(each, ast.Constant)}
    in_shell_alone = {"python3", "mkdir", "-p", "ln", "-s"}
    assert {Path(word).name for line in recipe for word in line} - words == in_shell_alone


def test_the_recipes_are_those_of_this_version() -> None:
    """They name no dependency: pip reads these, and the Python that is needed, in the wheel."""
    options = setup_cfg()["options"]
    assert easyconfig()["version"] == __version__
    assert [path.name for path in RECIPES.glob("*.eb")] == [f"hpcflow-{__version__}.eb"]
    spack = (RECIPES / "package.py").read_text()
    assert f'version("{__version__}")' in spack
    python = options["python_requires"].removeprefix(">=")
    assert f'depends_on("python@{python}:"' in spack
    assert f"Python {python} or newer" in PAGE
    for text in (PAGE, spack, *(path.read_text() for path in RECIPES.glob("hpcflow*"))):
        assert set(re.findall(r"hpcflow[-/](\d[\d.]*\d)", text)) <= {__version__}
    extras = setup_cfg()["options.extras_require"].keys() - {"dev"}
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE, re.M)) == extras
    installed = set(re.findall(r"hpcflow\[([\w,]+)\]", spack + str(easyconfig()["install_cmds"])))
    assert {extra for each in installed for extra in each.split(",")} <= extras
