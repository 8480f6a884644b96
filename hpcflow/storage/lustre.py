"""What only Lustre has: stripes for the files of a directory, and quotas.

Lustre is known by what the kernel says of the file system, never by a path. All of it is advice:
where ``lfs`` is missing, old, or does not answer, nothing is set and nothing is known.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from hpcflow.filesystem import LUSTRE, is_supported, kind_of

if TYPE_CHECKING:
    from hpcflow.runtime.quota import Quota

#: A progressive layout: how many storage targets a file is spread over grows with the file, so
#: nobody has to know beforehand how large it will be. Up to 1 GiB one, up to 16 GiB four, beyond
#: eight, which is what https://wiki.lustre.org/Lustre_Striping_Best_Practices recommends for files
#: of these sizes that one client writes. The options are those of "Managing File Layout (Striping)
#: and Free Space" in the Lustre Operations Manual, https://doc.lustre.org/lustre_manual.xhtml.
LAYOUT: Final = (
    *("-E", "1G", "-c", "1", "-S", "4M"),
    *("-E", "16G", "-c", "4", "-S", "4M"),
    *("-E", "-1", "-c", "8", "-S", "4M"),
)


def is_lustre(path: Path) -> bool:
    """Whether ``path`` lies on Lustre."""
    return is_supported(LUSTRE) and kind_of(path) == LUSTRE


def set_layout(folder: Path) -> bool:
    """Let files and folders that are made in ``folder`` from now on have :data:`LAYOUT`.

    Where the site has set a progressive layout itself, that one stays: it knows its targets.

    Returns:
        Whether it was set.
    """
    if not is_lustre(folder):
        return False
    from hpcflow.runtime.quota import lfs

    current = lfs("getstripe", "-d", str(folder))
    if current is None or "lcm_entry_count" in current:
        return False
    return lfs("setstripe", *LAYOUT, str(folder)) is not None


def quotas(path: Path, user: str) -> list[Quota]:
    """The quotas for what ``user`` writes at ``path``, as far as they have limits."""
    if not is_lustre(path):
        return []
    from hpcflow.runtime.quota import quotas as ask

    return ask(path, user)
