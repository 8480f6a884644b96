"""Find the site of this machine: by Slurm's ClusterName, else by the host's name, else local."""

from __future__ import annotations

import os
import re
import shutil
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from hpcflow.errors import SiteError
from hpcflow.programs import run_program
from hpcflow.sites.loader import list_sites
from hpcflow.sites.schema import SchedulerKind, Site
from hpcflow.sites.slurm_conf import configured_name

_CLUSTER_NAME: Final = re.compile(r"^ClusterName\s*=\s*(\S+)\s*$", re.MULTILINE)
_SCONTROL_TIMEOUT_S: Final = 20
#: The error of Slurm's commands on a machine without slurm.conf, in all versions since 20.02.
_NO_CLUSTER: Final = "Could not establish a configuration source"


@dataclass(frozen=True)
class MachineFacts:
    """The facts about this machine that identify its site.

    Attributes:
        has_slurm: whether Slurm's commands exist and belong to a cluster.
        cluster_name: Slurm's ClusterName; None if unknown.
        host: this host's full name.
    """

    has_slurm: bool
    cluster_name: str | None
    host: str


def recognize(search: Sequence[Path], *, environ: Mapping[str, str] = os.environ) -> Site:
    """Return the site of this machine. Raise SiteError if none fits, or more than one."""
    entries = list_sites(search)
    sites = [entry.site for entry in entries if entry.site is not None]
    try:
        return match(sites, look_around(environ))
    except SiteError as error:
        broken = [entry.name for entry in entries if entry.problem]
        if not broken:
            raise
        raise SiteError(
            f"{error.message}; broken site files were skipped: {', '.join(broken)}",
            next_action=f"{error.next_action}; see their errors: hpcflow site list",
        ) from None


def match(sites: Sequence[Site], around: MachineFacts) -> Site:
    """Return the site that fits; Slurm's cluster name outweighs the host's name.

    Raises:
        SiteError: none fits, or more than one.
    """
    clusters = [site for site in sites if site.scheduler is SchedulerKind.SLURM]
    named = [site for site in clusters if _same(site.cluster_name, around.cluster_name)]
    if len(named) == 1:
        return named[0]
    # A site with another cluster name does not match, whatever its host patterns are.
    unnamed = [site for site in clusters if not (site.cluster_name and around.cluster_name)]
    found = [site for site in named or unnamed if _has_host(site, around.host)]
    if not (found or named or around.has_slurm):
        found = [site for site in sites if site.scheduler is SchedulerKind.LOCAL]
    if len(found) == 1:
        return found[0]
    raise _undecided(found or named, around)


def look_around(environ: Mapping[str, str] = os.environ) -> MachineFacts:
    """Return the facts about this machine, with at most one query of Slurm."""
    path = environ.get("PATH")
    has_slurm = shutil.which("sbatch", path=path) is not None
    name: str | None = None
    if scontrol := shutil.which("scontrol", path=path):
        config, problem = _show_config(scontrol, environ)
        # The commands may be installed on a machine that belongs to no cluster.
        has_slurm = _NO_CLUSTER not in problem
        name = cluster_name(config)
        if has_slurm and config is None:  # while slurmctld is down, slurm.conf has the name
            name = configured_name(environ)
    return MachineFacts(has_slurm, name, _host_name(has_slurm))


def _host_name(has_slurm: bool) -> str:
    """Return the host's name, in full only on a cluster: without DNS, the query takes a timeout."""
    short = socket.gethostname()
    full = socket.getfqdn() if has_slurm else short
    return short if full.startswith("localhost") else full


def cluster_name(config: str | None) -> str | None:
    """Return ClusterName from the output of ``scontrol show config``; None without one."""
    found = _CLUSTER_NAME.search(config or "")
    return found[1] if found else None


def _show_config(scontrol: str, environ: Mapping[str, str]) -> tuple[str | None, str]:
    """Return the output, None if it failed, and the error."""
    # SLURM_CLUSTERS would select other clusters than that of this host.
    environment = {key: value for key, value in environ.items() if key != "SLURM_CLUSTERS"}
    try:
        answer = run_program(
            [scontrol, "show", "config"], environment=environment, timeout_s=_SCONTROL_TIMEOUT_S
        )
    except OSError as problem:
        return None, str(problem)
    if answer.exit_code is None:
        return None, f"it did not answer within {_SCONTROL_TIMEOUT_S:g} s"
    return (answer.stdout if answer.exit_code == 0 else None), answer.stderr


def _same(one: str | None, other: str | None) -> bool:
    # Slurm writes the name in lower case in accounting, but not in its configuration.
    return one is not None and other is not None and one.lower() == other.lower()


def _has_host(site: Site, host: str) -> bool:
    return any(fnmatchcase(host.lower(), pattern.lower()) for pattern in site.hosts)


def _undecided(found: Sequence[Site], around: MachineFacts) -> SiteError:
    here = f"host {around.host}"
    if around.cluster_name:
        here += f" of the cluster {around.cluster_name}"
    elif around.has_slurm:
        here += ", where Slurm does not answer"
    if found:
        names = ", ".join(site.name for site in found)
        return SiteError(
            f"{here} may be any of the sites {names}",
            next_action=f"name one: --site {found[0].name}, or export HPCFLOW_SITE",
        )
    if around.has_slurm and around.cluster_name is None:
        action = "name the site: --site NAME (list them: hpcflow site list)"
    else:
        action = (
            "name a site: --site NAME (list them: hpcflow site list); or write a site file for "
            "this cluster: hpcflow site detect"
        )
    return SiteError(f"no site file fits {here}", next_action=action)
