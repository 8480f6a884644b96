"""Which users the site files trust on the paths to existing runs.

A submission knows its site. A command about all runs does not: ``run.json``, which names the site
of a run, may itself be behind an untrusted path.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Final

from hpcflow.documents.source import read_text
from hpcflow.errors import InputError
from hpcflow.ownership import Trust
from hpcflow.sites.loader import is_site_file, load_site, search_path, site_files
from hpcflow.sites.schema import Site
from hpcflow.sites.scratch import trusted_users
from hpcflow.storage.frozen import frozen_site
from hpcflow.storage.layout import Home

_KEY: Final = "trusted_users"


def trust_of(
    run_id: str | None, *, home: Home, environ: Mapping[str, str], user: str, site: str | None
) -> Trust:
    """Return the users whom the site files trust; for a run, those of the file that its site names.

    Args:
        run_id: None for all site files that are found by name.
        site: the one in the settings, a name or a path.
    """
    named = site if run_id is None else frozen_site(home, run_id)
    own = [named] if named is not None and is_site_file(named) else []
    sites = [*_sites(own, []), *(_all_sites(home) if run_id is None else ())]
    return Trust(
        frozenset(uid for each in sites for uid in trusted_users(each, environ, user=user))
    )


def _all_sites(home: Home) -> Iterator[Site]:
    search = search_path(home.path)
    with suppress(InputError):
        yield from _sites(list(site_files(search)), search)


def _sites(names: list[str], search: list[Path]) -> Iterator[Site]:
    """Yield the sites with trusted users. An invalid file trusts none."""
    files = site_files(search)
    for name in names:
        with suppress(InputError):
            text = read_text(files.get(name, Path(name)), InputError)
            if _KEY in text:  # parsing takes long, and most have none
                yield _parsed(name, tuple(search), text)


@lru_cache(maxsize=8)
def _parsed(name: str, search: tuple[Path, ...], _text: str) -> Site:
    return load_site(name, search=search)
