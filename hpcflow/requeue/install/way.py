"""The interface of every way to keep the daemon running. Methods raise HpcflowError on failure."""

from __future__ import annotations

from typing import ClassVar, Protocol


class Way(Protocol):
    """One way. Creating it reads and writes nothing."""

    #: The option that selects it, without its dashes.
    name: ClassVar[str]

    def plan(self) -> str:
        """Return exactly what :meth:`install` would write, and where.

        Raises:
            InputError: it would not work here.
        """
        ...

    def require_allowed(self) -> None:
        """Check within seconds that the user may install it on this machine."""
        ...

    def install(self) -> str:
        """Install it, replacing an earlier installation; return notes for the user."""
        ...

    def uninstall(self) -> str | None:
        """Remove exactly what :meth:`install` wrote; return what that was, None if nothing."""
        ...

    def look(self) -> str | None:
        """Return within seconds what is installed, in a few words; None if nothing is."""
        ...
