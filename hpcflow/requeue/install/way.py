"""The interface of every way to keep the daemon running."""

from __future__ import annotations

from typing import ClassVar, Protocol


class Way(Protocol):
    """One way. Nothing is asked or written before a method is called."""

    #: The option that chooses it, without its dashes.
    name: ClassVar[str]

    def plan(self) -> str:
        """For people: exactly what :meth:`install` would write, and where.

        Raises:
            InputError: it would not work here.
        """
        ...

    def require_allowed(self) -> None:
        """Return if this machine lets the user install it. Answers within seconds.

        Raises:
            HpcflowError: it does not; says why.
        """
        ...

    def install(self) -> str:
        """Write it, in place of what an earlier call wrote; returns what to know from now on.

        Raises:
            HpcflowError: it was not written.
        """
        ...

    def uninstall(self) -> str | None:
        """Take away what :meth:`install` wrote, and nothing else.

        Returns:
            What was taken away; None if there was nothing.

        Raises:
            HpcflowError: it is still there.
        """
        ...

    def look(self) -> str | None:
        """What is installed, in a few words; None if nothing is. Answers within seconds.

        Raises:
            HpcflowError: nobody knows.
        """
        ...
