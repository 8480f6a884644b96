"""Set Lustre stripes for the files of a directory, and read Lustre quotas.

The kernel's file system type identifies Lustre, never a path. If ``lfs`` is missing, old, or does
not answer, nothing is set and no quota is known.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from hpcflow.filesystem import LUSTRE, is_supported, kind_of

if TYPE_CHECKING:
    from hpcflow.runtime.disk_quota import Quota

#: A progressive layout: the number of storage targets grows with the file. Up to 1 GiB one, up to
#: 16 GiB four, beyond eight, which https://wiki.lustre.org/Lustre_Striping_Best_Practices
#: recommends for files of these sizes that one client writes. The options are from "Managing File
#: Layout (Striping) and Free Space" in the Lustre Operations Manual,
#: https://doc.lustre.org/lustre_manual.xhtml.
LAYOUT: Final = (
    *("-E", "1G", "-c", "1", "-S", "4M"),
    *("-E", "16G", "-c", "4", "-S", "4M"),
    *("-E", "-1", "-c", "8", "-S", "4M"),
)


def is_lustre(path: Path) -> bool:
    return is_supported(LUSTRE) and kind_of(path) == LUSTRE


def set_layout(folder: Path) -> bool:
    """Set :data:`LAYOUT` for new files and folders in ``folder``; return whether it was set.

    A progressive layout of the site stays: the site knows its storage targets.
    """
    if not is_lustre(folder):
        return False
    from hpcflow.runtime.disk_quota import lfs

    current = lfs("getstripe", "-d", str(folder))
    if current is None or "lcm_entry_count" in current:
        return False
    return lfs("setstripe", *LAYOUT, str(folder)) is not None


def quotas(path: Path, user: str) -> list[Quota]:
    """Return the quotas with limits that apply to ``user`` at ``path``."""
    if not is_lustre(path):
        return []
    from hpcflow.runtime.disk_quota import quotas as ask

    return ask(path, user)
