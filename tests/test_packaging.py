"""A wheel has everything in it, and works from another directory than the source tree."""

from __future__ import annotations

import configparser
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TREE = Path(__file__).resolve().parents[1]


def test_every_package_is_listed() -> None:
    config = configparser.ConfigParser()
    config.read(TREE / "setup.cfg")
    listed = set(config["options"]["packages"].split())
    code = {
        ".".join(path.parent.relative_to(TREE).parts) for path in (TREE / "hpcflow").rglob("*.py")
    }
    assert listed == code | {"hpcflow.templates", "hpcflow.site_configs", "hpcflow.sbatch"}


def test_an_editable_installation_imports_nothing_from_the_working_directory() -> None:
    """As `make demo` makes it. A stranger's folder of that name would be imported from."""
    code = "import json, sys; print(json.dumps(sys.path[1:]))"  # without the '' of -c
    environ = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    found = subprocess.run(
        [sys.executable, "-c", code], cwd="/", env=environ, capture_output=True, check=True
    )
    assert [entry for entry in json.loads(found.stdout) if not entry.startswith("/")] == []
    config = configparser.ConfigParser()
    config.read(TREE / "setup.cfg")
    for line in config["options"]["package_dir"].split("\n")[1:]:
        assert (TREE / line.partition("=")[2].strip() / "__init__.py").is_file(), line


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the wheel, and nothing else of this tree, is installed."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    source = folder / "source"
    copy = ["git", "-C", str(TREE), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(copy, check=True, capture_output=True).stdout.split(b"\0"):
        origin = TREE / name.decode()
        if name and origin.is_file():
            target = source / name.decode()
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(origin.read_bytes())
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", str(folder), str(source)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    target = folder / "site-packages"
    subprocess.run([*pip, "install", "--no-deps", "--target", str(target), str(wheel)], check=True)
    return target


def hpcflow(installed: Path, *args: str) -> str:
    code = (
        f"import sys; sys.path.insert(0, {str(installed)!r});"
        "from hpcflow.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *args],
        cwd=installed,
        env={"PATH": "/usr/bin:/bin", "HOME": str(installed)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_an_installed_wheel_knows_sites_and_templates(installed: Path) -> None:
    assert "perlmutter" in hpcflow(installed, "site", "list")
    config = installed / "config.yaml"
    config.write_text("name: small\ncommand: ['true']\nlaunch: {framework: none}\n")
    script = hpcflow(installed, "render", str(config), "--site", "local")
    assert script.startswith("#!/bin/bash")


def test_an_installed_wheel_has_the_wrappers_and_the_migrations(installed: Path) -> None:
    assert (installed / "hpcflow" / "sbatch" / "train.sbatch").is_file()
    assert any((installed / "hpcflow" / "ledger" / "migrations" / "versions").glob("*.py"))
    assert (installed / "hpcflow" / "py.typed").is_file()
