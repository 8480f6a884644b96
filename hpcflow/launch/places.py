"""Where things of a run go, and what may stand in the paths of a site file."""

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
    """Where the directory of a run goes on ``site``.

    Raises:
        SiteError: the site's scratch cannot be named in this environment.
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
    """What may stand in the paths and URLs of a site file."""
    return {**settings.environ, "HPCFLOW_HOME": str(settings.home.path)}


def require_plain(run_dir: Path, working_dir: Path) -> None:
    """Refuse folders that a job could not use, before anything is made.

    Raises:
        InputError: a name that is no UTF-8 text, or a run directory that PYTHONPATH would split.
    """
    for folder in (str(run_dir), str(working_dir)):
        if folder.encode("utf-8", "replace").decode() != folder:
            raise InputError(
                f"the name of this folder is no UTF-8 text: {folder!r}",
                next_action="rename it, or work in another one",
            )
    if ":" in str(run_dir):
        raise InputError(
            f"a run directory cannot lie below a folder with ':' in its name: {run_dir}",
            next_action="name another scratch folder, or another HPCFLOW_HOME",
        )


def runs_folder(scratch: Path, user: str) -> Path:
    """Where a user's runs go on ``scratch``: a folder of their own, where it is a project's."""
    try:
        is_shared = scratch.stat().st_uid != os.geteuid()
    except OSError:
        is_shared = False  # it is made by us, or refused, when the run directory is made
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
    """The server of the store at ``url``, which somebody names without a word about its server.

    That of the site, unless ``url`` is of another bucket than the site's: it may be anywhere, and
    a server that is asked by mistake gets to see signed requests. Then None: the environment, or
    ``~/.aws/config``, says it.
    """
    if site is None or site.mirror is None or site.mirror.endpoint_url is None:
        return None
    spec = RunSpec(name="any", command=["true"])
    try:
        of_site = mirror_of(spec, site, variables(settings), user=settings.user, account=None)
    except InputError:  # a variable that nobody has set here
        of_site = None
    own = _bucket(of_site.url) if of_site is not None else None
    return site.mirror.endpoint_url if own in (None, _bucket(url)) else None


def _bucket(url: str) -> str | None:
    """The bucket of a URL on S3; None where it is of another kind of store."""
    kind, _, rest = url.partition("://")
    return rest.partition("/")[0] if kind in ("s3", "s3a") else None
