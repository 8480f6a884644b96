"""Write values as YAML that :mod:`~hpcflow.documents.reader` reads back unchanged."""

from __future__ import annotations

from typing import Any

import yaml

from hpcflow.model.scalars import read_plain


class _Writer(yaml.SafeDumper):
    """Quote a text that YAML 1.2 reads as a number, such as ``1e3``."""

    def represent_text(self, text: str) -> yaml.ScalarNode:
        try:
            is_text = isinstance(read_plain(text), str)
        except ValueError:
            is_text = False
        style = None if is_text else "'"
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Writer.add_representer(str, _Writer.represent_text)


def written(value: Any, **style: Any) -> str:
    """Return ``value`` as YAML.

    Args:
        style: as for :func:`yaml.dump`.
    """
    text: str = yaml.dump(value, Dumper=_Writer, sort_keys=False, **style)
    return text


def on_one_line(value: dict[Any, Any] | list[Any]) -> str:
    """Return ``value`` as YAML on one line, without the brackets around it."""
    return written(value, default_flow_style=True, width=10_000).strip()[1:-1]
