"""Find and read site files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hpcflow.documents import read_document, require_purpose, validate
from hpcflow.errors import InputError, SiteError, Where, in_one_line, shell_word
from hpcflow.model.ids import check_name
from hpcflow.model.scalars import shortened
from hpcflow.ownership import weak_point
from hpcflow.resources import doc_page, resource_dir
from hpcflow.sites.names import suggestion
from hpcflow.sites.schema import SchedulerKind, Site

#: The folder for site files of the cluster's staff.
SYSTEM_SITES: Final = Path("/etc/hpcflow/sites")
SUFFIX: Final = ".yaml"


@dataclass(frozen=True)
class SiteEntry:
    """One site file.

    Attributes:
        site: None if the file is broken.
        problem: why the file is broken, as text for the user; None if it is not.
    """

    name: str
    path: Path
    site: Site | None
    problem: str | None

    @property
    def description(self) -> str:
        """Return the site's description; empty for a broken file."""
        return self.site.description if self.site else ""


def search_path(home: Path) -> list[Path]:
    """Return the folders with site files: the user's, the cluster's, hpcflow's. The first wins.

    Args:
        home: ``$HPCFLOW_HOME``.
    """
    return [home / "sites", SYSTEM_SITES, resource_dir("site_configs")]


def load_site(name_or_path: str, *, search: Sequence[Path], named_in: Where | None = None) -> Site:
    """Load the site of this name, or from this file.

    Args:
        name_or_path: a path if it has a slash or ends with ``.yaml``; else a name.
        search: folders, as from :func:`search_path`.
        named_in: the place of the name, for errors.

    Raises:
        SiteError: there is none, or its file is invalid.
    """
    if is_site_file(name_or_path):
        return read_site(Path(name_or_path))
    files = site_files(search)
    if name_or_path in files:
        return _read_named(files[name_or_path])
    raise SiteError(
        f"there is no site {shortened(name_or_path)}",
        where=named_in,
        next_action=f"{suggestion(name_or_path, files)}; list them: hpcflow site list",
    )


def is_site_file(name_or_path: str) -> bool:
    """Return whether ``name_or_path`` is the path of a site file, not the name of a site."""
    return "/" in name_or_path or name_or_path.endswith(SUFFIX)


def list_sites(search: Sequence[Path]) -> list[SiteEntry]:
    """Return all sites, sorted by name, including broken files with their problems."""
    return [_entry(name, path) for name, path in sorted(site_files(search).items())]


def site_files(search: Sequence[Path]) -> dict[str, Path]:
    """Return site name -> file; if two files have the same name, the first folder wins."""
    found: dict[str, Path] = {}
    for folder in search:
        for path in _yaml_files(folder):
            found.setdefault(path.stem, path)
    return found


def read_site(path: Path) -> Site:
    """Read the site in the file ``path``, whose name may differ from the site's.

    Raises:
        SiteError: it cannot be read or is not a site file.
    """
    document = read_document(path, SiteError)
    require_purpose(document, "site", SiteError)
    if document.data.get("scheduler") == SchedulerKind.LOCAL.value:
        fill_in(document.data, this_machine())
    keys = f"the keys of a site file: {doc_page('site_reference')}"
    site = validate(Site, document, SiteError, next_action=keys)
    return site.read_from(document)


def _read_named(path: Path) -> Site:
    """Read a site file whose name must be the site's, and that no other user can write."""
    if path.parent != resource_dir("site_configs"):  # shipped files are as safe as this code
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
            f"the site is named {site.name}, but its file {path.name}: both must agree",
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
            next_action=f"see its owner and mode: ls -ld {shell_word(folder)}",
        ) from None
    for path in entries:
        if path.suffix == SUFFIX and _is_name(path.stem):
            yield path


def _is_name(text: str) -> bool:
    try:
        return bool(check_name(text))
    except ValueError:
        return False


#: A value of the shipped ``local`` site, which must fit a laptop and a GPU server.
MACHINE: Final = "machine"


@dataclass(frozen=True)
class Machine:
    """The resources of one machine that this process may use."""

    cpus: int
    mem_mb: int
    gpus: int


def this_machine(environ: Mapping[str, str] = os.environ, devices: Path = Path("/dev")) -> Machine:
    pages, page_bytes = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return Machine(
        cpus=len(os.sched_getaffinity(0)),
        mem_mb=max(1, pages * page_bytes >> 20),
        gpus=_gpus(environ, devices),
    )


def _gpus(environ: Mapping[str, str], devices: Path) -> int:
    """Count GPUs by their device files: a driver's tool takes up to a second."""
    found = len(list(devices.glob("nvidia[0-9]*")))
    if not found and (devices / "kfd").exists():
        found = len(list(devices.glob("dri/renderD*")))
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return found
    return min(found, len([each for each in visible.split(",") if each.strip() not in ("", "-1")]))


def fill_in(data: dict[str, Any], machine: Machine) -> None:
    """Replace the values ``machine`` in a local site's file by numbers."""
    numbers = {
        "cpus_per_node": machine.cpus,
        "mem_per_node": f"{machine.mem_mb}M",
        "gpus_per_node": machine.gpus,
    }
    partitions = data.get("partitions")
    for partition in partitions.values() if isinstance(partitions, dict) else ():
        if isinstance(partition, dict):
            for key, number in numbers.items():
                if partition.get(key) == MACHINE:
                    partition[key] = number
