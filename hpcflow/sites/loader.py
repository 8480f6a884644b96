"""Find and read site files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hpcflow.errors import InputError, SiteError, Where, in_one_line, shell_word
from hpcflow.model.ids import check_name
from hpcflow.ownership import weak_point
from hpcflow.resources import doc_page, resource_dir
from hpcflow.sites.machine import fill_in, this_machine
from hpcflow.sites.names import suggestion
from hpcflow.sites.schema import SchedulerKind, Site

#: Where a cluster's support staff put the file of their cluster.
SYSTEM_SITES: Final = Path("/etc/hpcflow/sites")
SUFFIX: Final = ".yaml"


@dataclass(frozen=True)
class SiteEntry:
    """One site file that was found.

    Attributes:
        site: what it says; None when it is broken.
        problem: why it is broken, for people; None when it is not.
    """

    name: str
    path: Path
    site: Site | None
    problem: str | None

    @property
    def description(self) -> str:
        """The site's own line for people; empty for a broken file."""
        return self.site.description if self.site else ""


def search_path(home: Path) -> list[Path]:
    """Folders with site files: the user's, the cluster's, hpcflow's own. The first one wins.

    Args:
        home: where hpcflow keeps what is this user's (``$HPCFLOW_HOME``).
    """
    return [home / "sites", SYSTEM_SITES, resource_dir("site_configs")]


def load_site(name_or_path: str, *, search: Sequence[Path], named_in: Where | None = None) -> Site:
    """The site of that name, or in that file.

    Args:
        name_or_path: a path when it has a slash or ends with ``.yaml``; else a name.
        search: folders, as from :func:`search_path`.
        named_in: where somebody wrote the name, for an error about it.

    Raises:
        SiteError: there is none, or its file is wrong.
    """
    if is_site_file(name_or_path):
        return read_site(Path(name_or_path))
    files = site_files(search)
    if name_or_path in files:
        return _read_named(files[name_or_path])
    raise SiteError(
        f"there is no site {_shown(name_or_path)}",
        where=named_in,
        next_action=f"{suggestion(name_or_path, files)}; more about them: hpcflow site list",
    )


def is_site_file(name_or_path: str) -> bool:
    """Return whether this is the path of a site file, not the name of a site."""
    return "/" in name_or_path or name_or_path.endswith(SUFFIX)


def list_sites(search: Sequence[Path]) -> list[SiteEntry]:
    """Every site there is, by name; a broken file is listed with its problem."""
    return [_entry(name, path) for name, path in sorted(site_files(search).items())]


def site_files(search: Sequence[Path]) -> dict[str, Path]:
    """Name to file, of all site files; where two have one name, the first folder wins."""
    found: dict[str, Path] = {}
    for folder in search:
        for path in _yaml_files(folder):
            found.setdefault(path.stem, path)
    return found


def read_site(path: Path) -> Site:
    """The site in the file ``path``, whatever the file is called.

    Raises:
        SiteError: it cannot be read or is not a site file.
    """
    from hpcflow.documents import read_document, require_purpose, validate

    document = read_document(path, SiteError)
    require_purpose(document, "site", SiteError)
    if document.data.get("scheduler") == SchedulerKind.LOCAL.value:
        fill_in(document.data, this_machine())
    keys = f"the keys of a site file: {doc_page('site_reference')}"
    site = validate(Site, document, SiteError, next_action=keys)
    return site.read_from(document)


def _read_named(path: Path) -> Site:
    """The site that is known by the name of its file, which must be its own.

    Raises:
        SiteError: it is not, or the file is wrong; or others may write it, who could name a script
            that jobs execute.
    """
    if path.parent != resource_dir("site_configs"):  # that came with this very code
        weak = weak_point(path)
        if weak is not None:
            raise SiteError(
                f"{weak}, and so could change what your jobs run",
                where=Where(file=str(path)),
                next_action=weak.remedy,
            )
    site = read_site(path)
    if path.name != site.name + SUFFIX:
        raise SiteError(
            f"the site is called {site.name} and its file {path.name}: they must agree",
            where=site.where("name"),
            next_action=f"mv {shell_word(path)} {shell_word(path.with_name(site.name + SUFFIX))}",
        )
    return site


def _entry(name: str, path: Path) -> SiteEntry:
    try:
        return SiteEntry(name, path, _read_named(path), None)
    except InputError as error:
        return SiteEntry(name, path, None, in_one_line(error))


def _yaml_files(folder: Path) -> Iterator[Path]:
    try:
        entries = sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise SiteError(
            f"cannot be read: {error.strerror}",
            where=Where(file=str(folder)),
            next_action=f"look at it: ls -ld {shell_word(folder)}",
        ) from None
    for path in entries:
        if path.suffix == SUFFIX and _is_name(path.stem):
            yield path


def _is_name(text: str) -> bool:
    try:
        return bool(check_name(text))
    except ValueError:
        return False


def _shown(name: str) -> str:
    from hpcflow.model.scalars import shortened

    return shortened(name)
