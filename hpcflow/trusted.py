"""Which users the site files trust on the paths to existing runs.

A submission knows its site. A command about all runs reads it from the ``run.json`` of each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Final

from hpcflow.documents.reader import read_text
from hpcflow.errors import InputError
from hpcflow.ownership import Trust
from hpcflow.runtime.reading import read_object
from hpcflow.sites.loader import is_site_file, load_site, search_path, site_files
from hpcflow.sites.schema import Site
from hpcflow.sites.scratch import trusted_users
from hpcflow.storage.layout import Home

_KEY: Final = "trusted_users"


def trust_of(
    run_id: str | None, *, home: Home, environ: Mapping[str, str], user: str, site: str | None
) -> Trust:
    """Return the users whom the site files trust; for a run, those of its own site.

    Args:
        run_id: None for all site files that are found by name, with their default accounts.
        site: the one in the settings, a name or a path.
    """
    named, account = (site, None) if run_id is None else _site_and_account(home, run_id)
    return Trust(
        frozenset(
            uid
            for each in _sites(home, named, with_all=run_id is None)
            for uid in trusted_users(
                each, environ, user=user, account=account or each.default_account
            )
        )
    )


def _site_and_account(home: Home, run_id: str) -> tuple[str | None, str | None]:
    """Return the site of a run, a name or a path, and its account; None if it is unknown."""
    try:
        said = read_object(home.run_dir(run_id).run_json)
        return _text(said["site"]), _text(said["spec"]["resources"]["account"])
    except (OSError, ValueError, LookupError, TypeError):
        return None, None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _sites(home: Home, named: str | None, *, with_all: bool) -> Iterator[Site]:
    """Yield ``named``, and with ``with_all`` all found by name, if they have trusted users.

    An invalid file trusts none.
    """
    search = search_path(home.path)
    files: dict[str, Path] = {}
    with suppress(InputError):
        files = site_files(search)
    wanted = dict(files) if with_all else {}
    if named is not None and (named in files or is_site_file(named)):
        wanted[named] = files.get(named, Path(named))
    for name, path in wanted.items():
        with suppress(InputError):
            text = read_text(path, InputError)
            if _KEY in text:  # parsing is slow, and few files have the key
                yield _parsed(name, tuple(search), text)


@lru_cache(maxsize=8)
def _parsed(name: str, search: tuple[Path, ...], _text: str) -> Site:
    return load_site(name, search=search)
