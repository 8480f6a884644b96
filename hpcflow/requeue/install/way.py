"""The interface of every way to keep the daemon running."""

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
        """Check within seconds that the user may install it on this machine.

        Raises:
            HpcflowError: why not.
        """
        ...

    def install(self) -> str:
        """Install it, replacing an earlier installation; return notes for the user.

        Raises:
            HpcflowError: it was not installed.
        """
        ...

    def uninstall(self) -> str | None:
        """Remove exactly what :meth:`install` wrote.

        Returns:
            What was removed; None if there was nothing.

        Raises:
            HpcflowError: it is still there.
        """
        ...

    def look(self) -> str | None:
        """Return within seconds what is installed, in a few words; None if nothing is.

        Raises:
            HpcflowError: this is unknown.
        """
        ...
