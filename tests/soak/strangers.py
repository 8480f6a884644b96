"""Another user on the node, who plants and exchanges what he can reach while the victim works.

He owns, or may write in, what the victim shares with others: the parents of scratch, the folder of
budgets, TMPDIR, the working directory. What must hold: none of his code is
executed, the victim's private files are neither read nor changed, no job's files lie where he could
exchange them, and no command falls over what he does. This needs root, which plays the victim.
"""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Final

from hpcflow.resources import resource_dir
from tests.soak.findings import Findings
from tests.soak.outside import Outside
from tests.soak.project import Project, shared_project
from tests.soak.typed import Try, warm_up

STRANGER: Final = 54321
TEAM: Final = 54000
#: Python imports these early, if it finds them.
_MODULES: Final = ("json", "click", "sitecustomize", "usercustomize", "hpcflow", "yaml", "tests")
_COMMANDS: Final = (
    "run", "run", "ls --all", "daemon --once", "mirror --once", "purge and restore RUN",
    "restore RUN", "resume RUN", "cancel RUN", "budget ls", "budget set project:vision --hard 900",
    "scratch", "checkpoint ls RUN", "ledger rebuild", "sweep tick", "history RUN",
)  # fmt: skip
_WORKING_DIR: Final = "code"
Planted = Mapping[str, str]
Plant = Callable[[Path, Try], Planted]


def run_user(folder: Path, findings: Findings, numbers: Sequence[int]) -> None:
    """Each try: a stranger without any rights."""
    _run(folder, findings, numbers, mode=0o1777, group=STRANGER)


def run_project(folder: Path, findings: Findings, numbers: Sequence[int]) -> None:
    """Each try: a teammate, who may write in the project's folder."""
    _run(folder, findings, numbers, mode=0o2770, group=TEAM)


def _run(
    folder: Path, findings: Findings, numbers: Sequence[int], *, mode: int, group: int
) -> None:
    if os.geteuid() != 0:
        print(f"{findings.part}: this needs root, to be two users", file=sys.stderr)
        return
    memory = folder.parent  # only its owner may look into it
    area = memory.with_name(f"{memory.name}-shared")
    project, outside = shared_project(folder.parent), Outside(folder / "outside")
    warm_up(project)
    for number in numbers:
        this = Try(project, outside, findings.dice(number), findings)
        area.mkdir(mode=0o755)
        shared = area / "shared"
        shared.mkdir()
        os.chown(shared, 0, group)
        shared.chmod(mode)
        try:
            _one(this, shared, group)
        finally:
            shutil.rmtree(area)
        project.reset()
        findings.progress(len(numbers))


def _one(this: Try, shared: Path, group: int) -> None:
    project = this.project
    (project.folder / "new.yaml").write_text(
        (project.folder / "queued.yaml").read_text().replace("name: queued", "name: new")
    )
    plant = this.dice.choice(_PLANTS)
    this.story.append(f"a stranger: {plant.__doc__}")
    with _as_stranger(group):
        environ = dict(plant(shared, this))
    if "HPCFLOW_HOME" not in environ and this.dice.random() < 0.5:
        _share_budgets(project, shared)
    working_dir = Path(environ.pop("cwd", project.folder))
    with _exchanging(shared, this, group):
        for command in this.dice.sample(_COMMANDS, 3):
            this.type(command, environ=environ, working_dir=working_dir)
        _as_a_program(this, environ, working_dir)
    executed = [path for path in (shared.parent / "executed", shared / "executed") if path.exists()]
    if executed:
        this.found("a stranger's code is executed", f"{executed[0].read_text()}")
    _jobs_are_safe(this, shared)


def _share_budgets(project: Project, shared: Path) -> None:
    site = (resource_dir("site_configs") / "devcluster.yaml").read_text()
    (project.home.path / "sites").mkdir(exist_ok=True)
    folder = shared / "budgets"
    folder.mkdir(exist_ok=True)
    with suppress(OSError):
        folder.chmod(0o1777)
    (project.home.path / "sites" / "devcluster.yaml").write_text(f"{site}\nbudgets_dir: {folder}\n")


def _as_a_program(this: Try, environ: Mapping[str, str], working_dir: Path) -> None:
    """In a process of its own, which imports what it finds."""
    command = [str(Path(sys.executable).with_name("hpcflow")), "version"]
    subprocess.run(
        command,
        env=this.project.environ | dict(environ),
        cwd=working_dir,
        check=False,
        capture_output=True,
        timeout=60,
    )


def _jobs_are_safe(this: Try, shared: Path) -> None:
    """Nobody could exchange the files of a job that was sent in this try."""
    before = {job.job_id for job in this.project.jobs}
    for job in this.project.slurm.jobs():
        link = this.project.home.scratch_link(job.run_id)
        if job.job_id in before or not link.is_symlink():
            continue
        path = link.readlink()
        if not path.is_relative_to(shared):
            continue
        for folder in (path, *path.parents):
            seen = folder.lstat()
            others_write = seen.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
            if seen.st_uid not in (0, os.geteuid()) or (
                others_write and not seen.st_mode & stat.S_ISVTX
            ):
                this.found("a job was sent whose files a stranger can exchange", f"{folder}")


@contextmanager
def _as_stranger(group: int) -> Iterator[None]:
    os.setegid(group)
    os.seteuid(STRANGER)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


@contextmanager
def _exchanging(shared: Path, this: Try, group: int) -> Iterator[None]:
    """The stranger puts links and folders in the place of whatever appears, as fast as he can."""
    seed, targets = this.dice.random(), (this.outside.folder, this.outside.secret)
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([group])
            os.setresgid(group, group, group)
            os.setresuid(STRANGER, STRANGER, STRANGER)
            _exchange(shared, Random(seed), targets)
        finally:
            os._exit(0)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _exchange(shared: Path, dice: Random, targets: Sequence[Path]) -> None:
    while True:
        for root, folders, files in os.walk(shared):
            for name in (*folders, *files):
                if name == _WORKING_DIR:  # where nobody could begin a command
                    continue
                path = f"{root}/{name}"
                with suppress(OSError):
                    os.rename(path, f"{path}~")  # noqa: PTH104 - fast
                    if dice.random() < 0.8:
                        os.symlink(dice.choice(targets), path)  # noqa: PTH211
                    else:
                        os.mkfifo(path, 0o666)
        time.sleep(dice.random() / 500)


def _code(shared: Path) -> str:
    return f"import pathlib\npathlib.Path({str(shared / 'executed')!r}).write_text(__file__)\n"


def _open_parent(shared: Path, _: Try) -> Planted:
    """makes the folder of scratch first, open to all"""
    scratch = shared / "scratch"
    scratch.mkdir()
    scratch.chmod(0o777)
    return {"SCRATCH": str(scratch)}


def _closed_parent(shared: Path, _: Try) -> Planted:
    """makes the folder of scratch first, as if it were well"""
    scratch = shared / "scratch"
    scratch.mkdir(mode=0o755)
    return {"SCRATCH": str(scratch)}


def _names_below(shared: Path, this: Try) -> Planted:
    """takes the names that hpcflow uses below scratch"""
    name = this.dice.choice(("hpcflow", "hpcflow-root", "hpcflow/vision", "hpcflow-root/vision",
                             "hpcflow/.runtime", "hpcflow-root/.runtime"))  # fmt: skip
    path = shared / name
    path.parent.mkdir(exist_ok=True, parents=True)
    kind = this.dice.choice(("folder", "open folder", "link", "file", "pipe"))
    if kind == "link":
        path.symlink_to(this.outside.folder)
    elif kind == "file":
        path.write_text("x")
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
        path.chmod(0o777 if kind == "open folder" else 0o755)
    return {"SCRATCH": str(shared)}


def _sticky(shared: Path, _: Try) -> Planted:
    """waits in a scratch that is as /tmp is"""
    return {"SCRATCH": str(shared)}


def _link_parent(shared: Path, this: Try) -> Planted:
    """makes the folder of scratch a link to the victim's private folder"""
    (shared / "scratch").symlink_to(this.outside.folder)
    return {"SCRATCH": str(shared / "scratch")}


def _home(shared: Path, _: Try) -> Planted:
    """has a home of hpcflow ready, with templates and sites of his own"""
    home = shared / "home"
    (home / "templates").mkdir(parents=True)
    (home / "sites").mkdir()
    code = "{{ ''.__class__.__mro__[1].__subclasses__() }}"
    for name in ("job.sbatch.j2", "job.j2", "claim.j2"):
        (home / "templates" / name).write_text(code)
    (home / "config.yaml").write_text("site: evil\nledger: sqlite:////tmp/evil.sqlite\n")
    home.chmod(0o777)
    return {"HPCFLOW_HOME": str(home)}


def _tmp(shared: Path, this: Try) -> Planted:
    """fills TMPDIR with links"""
    for name in ("hpcflow", "job.sbatch", "hpcflow-root", "pymp"):
        (shared / name).symlink_to(this.outside.secret)
    return {"TMPDIR": str(shared)}


def _working_dir(shared: Path, _: Try) -> Planted:
    """has modules and a repository in the working directory"""
    place = shared / _WORKING_DIR
    (place / ".git").mkdir(parents=True)
    for name in _MODULES:
        (place / f"{name}.py").write_text(_code(shared))
    hook = shared / "hook"
    hook.write_text(f"#!/bin/sh\necho git > {shared}/executed\n")
    hook.chmod(0o755)
    (place / ".git" / "config").write_text(
        f"[core]\n repositoryformatversion = 0\n fsmonitor = {hook}\n sshCommand = {hook}\n"
        f' pager = {hook}\n[diff]\n external = {hook}\n[filter "x"]\n clean = {hook}\n'
    )
    (place / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (place / ".git" / "objects").mkdir()
    (place / ".git" / "refs").mkdir()
    place.chmod(0o777)
    return {"cwd": str(place)}


_PLANTS: Final[tuple[Plant, ...]] = (
    _open_parent, _closed_parent, _names_below, _names_below, _sticky, _sticky, _link_parent, _home,
    _tmp, _working_dir,
)  # fmt: skip
