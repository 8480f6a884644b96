"""Paths of a run: its directory, templates and store; and the variables of a site file's paths."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from hpcflow.errors import InputError
from hpcflow.model.spec import RunSpec
from hpcflow.ownership import Trust, weak_point
from hpcflow.settings import Settings
from hpcflow.sites.mirror import mirror_of
from hpcflow.sites.placement import Placement
from hpcflow.sites.schema import Site
from hpcflow.sites.scratch import expand_scratch, scratch_trust


def run_dir_on(
    site: Site, settings: Settings, placement: Placement, project: str, run_id: str
) -> Path:
    """Return the directory of a run on ``site``.

    Raises:
        SiteError: the site's scratch has an unset variable.
    """
    known = variables(settings)
    scratch = expand_scratch(site, known, user=settings.user, account=placement.account)
    return runs_folder(scratch, settings.user) / project / run_id


def trust_on(site: Site, settings: Settings, account: str | None) -> Trust:
    """Return the users and groups that ``site`` trusts on the path to a run directory.

    Raises:
        SiteError: a trusted user or group does not exist here.
    """
    known = variables(settings)
    return scratch_trust(site, known, user=settings.user, account=account)


def variables(settings: Settings) -> dict[str, str]:
    """Return the variables for paths and URLs of a site file."""
    return {**settings.environ, "HPCFLOW_HOME": str(settings.home.path)}


def require_plain(run_dir: Path, working_dir: Path) -> None:
    """Check that a job can use these directories.

    Raises:
        InputError: a name is not UTF-8, or PYTHONPATH would split the run directory.
    """
    for folder in (str(run_dir), str(working_dir)):
        if folder.encode("utf-8", "replace").decode() != folder:
            raise InputError(
                f"the name of this directory is not UTF-8: {folder!r}",
                next_action="rename it, or work in another one",
            )
    if ":" in str(run_dir):
        raise InputError(
            f"a run directory cannot be below a directory with ':' in its name: {run_dir}",
            next_action="name another scratch directory, or another HPCFLOW_HOME",
        )


def runs_folder(scratch: Path, user: str) -> Path:
    """Return the folder for a user's runs; with the user's name if ``scratch`` is shared."""
    try:
        is_shared = scratch.stat().st_uid != os.geteuid()
    except OSError:
        is_shared = False  # hpcflow creates it, or refuses it, with the run directory
    return scratch / (f"hpcflow-{user}" if is_shared else "hpcflow")


def template_dirs(settings: Settings) -> list[Path]:
    """Return the folders of the user's own templates, which override the shipped ones.

    Raises:
        InputError: another user can write there, and so add shell code to the jobs.
    """
    own = settings.home.templates
    if not own.is_dir():
        return []
    for path in _below(own):
        weak = weak_point(path)
        if weak is not None:
            raise InputError(
                f"{weak}, and so could change what your jobs run: {path} becomes shell code",
                next_action=weak.remedy,
            )
    return [own]


def _below(top: Path) -> Iterator[Path]:
    """Yield everything that can be opened below a folder, also behind links, as Jinja does."""
    seen = set()
    for folder, folders, files in os.walk(top, followlinks=True):
        yield from (Path(folder), *(Path(folder, name) for name in files))
        if (real := os.path.realpath(folder)) in seen:  # a link that leads back
            folders.clear()
        seen.add(real)


def endpoint_of(url: str, site: Site | None, settings: Settings) -> str | None:
    """Return the S3 endpoint for ``url``, if no endpoint is given.

    That is the site's, unless ``url`` has another bucket than the site's: it may be anywhere, and
    the wrong server would see signed requests. Then None: the environment or ``~/.aws/config``
    names the endpoint.
    """
    if site is None or site.mirror is None or site.mirror.endpoint_url is None:
        return None
    spec = RunSpec(name="any", command=["true"])
    try:
        of_site = mirror_of(spec, site, variables(settings), user=settings.user, account=None)
    except InputError:  # an unset variable
        of_site = None
    own = _bucket(of_site.url) if of_site is not None else None
    return site.mirror.endpoint_url if own in (None, _bucket(url)) else None


def _bucket(url: str) -> str | None:
    """Return the bucket of an S3 URL; None for another kind of store."""
    kind, _, rest = url.partition("://")
    return rest.partition("/")[0] if kind in ("s3", "s3a") else None
