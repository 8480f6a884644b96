"""``hpcflow site``."""

from __future__ import annotations

import grp
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypedDict

import click

from hpcflow.cli.arguments import json_option, site_argument
from hpcflow.cli.clusters.site_words import one_line, partition_words, site_lines
from hpcflow.cli.output import LEVEL_COLOURS, picked, print_json
from hpcflow.cli.session import Session
from hpcflow.errors import InputError, StorageError
from hpcflow.filesystem import existing_parent, mount_of
from hpcflow.sites.check import Finding, Level, check
from hpcflow.sites.detect import detect, site_name
from hpcflow.sites.loader import list_sites, search_path
from hpcflow.storage.files import write_durably
from hpcflow.storage.locks import has_locks
from hpcflow.terminal import Styled, echo, echo_as_is, echo_message

if TYPE_CHECKING:
    from hpcflow.schedulers.slurm.commands import SlurmCommands
    from hpcflow.sites.schema import Site


class SiteLine(TypedDict):
    """A site, and what is wrong with its file."""

    name: str
    description: str | None
    path: Path
    problem: str | None


class Sites(TypedDict):
    """All sites."""

    sites: list[SiteLine]


class ShownSite(TypedDict):
    """All values of a site."""

    file: str | None
    site: Site


class SiteFindings(TypedDict):
    """The differences of a site file from the live cluster."""

    site: str
    findings: list[Finding]


class DetectedSite(TypedDict):
    """A site file; `path` is null if it was not written."""

    name: str
    path: Path | None
    text: str


@click.group("site", short_help="List, show, check and detect clusters.")
def command() -> None:
    """List, show and check the site files of clusters, and write one for a new cluster."""


@command.command("list")
@json_option(Sites)
def list_command(as_json: bool) -> int:
    """List all sites, and what is wrong with broken files."""
    session = Session()
    entries = list_sites(search_path(session.settings.home.path))
    if as_json:
        lines = [
            picked(SiteLine, entry, description=entry.site.description if entry.site else None)
            for entry in entries
        ]
        print_json({"sites": lines})
        return 0
    for entry in entries:
        echo(f"{entry.name:<14}", bold=True, nl=False)
        if entry.site is not None:
            echo(entry.site.description)
        else:
            echo_message(f"broken: {entry.problem}", fg="red")
    return 0


@command.command("show")
@site_argument
@json_option(ShownSite)
def show_command(name: str | None, as_json: bool) -> int:
    """Show all values of the site NAME; without NAME, of the site of this machine."""
    site = Session().site(name)
    if as_json:
        print_json(ShownSite(file=site.file, site=site))
        return 0
    echo(site.name, bold=True, nl=False)
    echo(f"  {one_line(site.description)}")
    for key, value in site_lines(site):
        if value:
            echo(f"  {key:<17} {one_line(value)}")
    for partition, options in site.partitions.items():
        echo()
        echo(
            Styled(f"  {partition}", bold=True), f"  {one_line(options.description or '')}".rstrip()
        )
        echo(f"    {one_line(partition_words(site, partition))}")
    return 0


@command.command("check")
@site_argument
@json_option(SiteFindings)
def check_command(name: str | None, as_json: bool) -> int:
    """Compare the site NAME with the live cluster; exit 1 if jobs would fail.

    It also checks the file system of HPCFLOW_HOME, which needs locks.
    """
    session = Session()
    site = session.site(name)
    findings = check(site, session.connect(site).cluster_info())
    findings += check_home(session.settings.home.path)
    if as_json:
        print_json(SiteFindings(site=site.name, findings=findings))
    else:
        for finding in findings:
            echo(f"{finding.level.value:<8}", fg=LEVEL_COLOURS[finding.level.value], nl=False)
            echo(f"{finding.key}: {finding.message}")
    return 1 if any(finding.level is Level.ERROR for finding in findings) else 0


@command.command("detect")
@click.option("--write", is_flag=True, help="Write it to the folder where hpcflow finds it.")
@json_option(DetectedSite)
def detect_command(write: bool, as_json: bool) -> int:
    """Print a site file for the cluster that this machine belongs to."""
    path, text = detected(Session())
    if write:
        write_site(path, text)
    if as_json:
        print_json(DetectedSite(name=path.stem, path=path if write else None, text=text))
    elif write:
        echo(f"wrote {path}; read its comments, then: hpcflow site check {path.stem}")
    else:
        echo_as_is(text)
    return 0


def detected(session: Session) -> tuple[Path, str]:
    """Return a site file for the cluster of this machine, and its path.

    Raises:
        InputError: there is no Slurm here.
        SchedulerUnavailable: Slurm does not answer.
    """
    slurm = _slurm(session)
    info = slurm.cluster_info()
    text = detect(
        info,
        host=socket.getfqdn(),
        environ=os.environ,
        standing=slurm.standing(session.settings.user),
        groups=_groups(),
    )
    return session.settings.home.sites / f"{site_name(info)}.yaml", text


def write_site(path: Path, text: str) -> None:
    """Write a new site file. Raise InputError if there is one already."""
    if path.exists():
        raise InputError(
            f"{path} exists already",
            next_action=f"compare it with the cluster: hpcflow site check {path.stem}",
        )
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_durably(path, text.encode())


def _slurm(session: Session) -> SlurmCommands:
    from hpcflow.schedulers.slurm.commands import SlurmCommands

    if shutil.which("sinfo") is None:
        raise InputError(
            "there is no Slurm on this machine's PATH to detect",
            next_action="log in to the cluster, or load its Slurm module",
        )
    return SlurmCommands(clock=session.clock)


def _groups() -> frozenset[str]:
    found = set()
    for gid in {os.getegid(), *os.getgroups()}:
        with suppress(KeyError):
            found.add(grp.getgrgid(gid).gr_name)
    return frozenset(found)


_KEY: Final = "HPCFLOW_HOME"
_KERBEROS: Final = "sec=krb5"
#: Mount options of NFS and Lustre with which a lock counts on one host alone.
_OF_ONE_HOST: Final = frozenset({"nolock", "local_lock=flock", "local_lock=all", "localflock"})


def check_home(home: Path) -> list[Finding]:
    """Return findings about the file system of ``home``; nothing is left there."""
    return [*_locks(home), *_tickets(home)]


def _locks(home: Path) -> Iterator[Finding]:
    folder = home if home.is_dir() else existing_parent(home)
    mount = mount_of(folder)
    kind = mount.kind or "unknown file system"
    try:
        works = has_locks(folder)
    except StorageError as error:
        yield Finding(Level.ERROR, _KEY, error.message)
        return
    if local := sorted(_OF_ONE_HOST & mount.options):
        yield Finding(
            Level.WARNING,
            _KEY,
            f"{home} ({kind}) is mounted with {', '.join(local)}: another login node does not see "
            "its locks; type hpcflow on one login node only, or set HPCFLOW_HOME to another file "
            "system",
        )
    elif works:
        yield Finding(Level.OK, _KEY, f"{home} ({kind}) has locks")
    else:
        yield Finding(
            Level.WARNING,
            _KEY,
            f"{home} ({kind}) has no locks: two processes may submit the same run at once, and "
            "only one of its jobs trains; ask for the mount option flock, or set HPCFLOW_HOME to "
            "another file system",
        )


def _tickets(home: Path) -> Iterator[Finding]:
    mount = mount_of(home)
    if any(option.startswith(_KERBEROS) for option in mount.options):
        yield Finding(
            Level.WARNING,
            _KEY,
            f"{home} needs a Kerberos ticket: a daemon in cron cannot read it once yours has "
            "expired; run it where tickets are renewed",
        )
