"""Sites and specs for the tests, from as few words as a test needs."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from hpcflow.documents import parse_document, validate
from hpcflow.errors import SiteError
from hpcflow.model.spec import RunSpec
from hpcflow.sites.schema import Site

MINIMAL = """
    name: {name}
    partitions:
      gpu: {{cpus_per_node: 8}}
    scratch: {{path: /scratch/$USER}}
"""


def site(text: str) -> Site:
    """The site in ``text``, YAML, read as a file is."""
    document = parse_document(textwrap.dedent(text), Path("site.yaml"), SiteError)
    return validate(Site, document, SiteError)


def minimal(name: str, extra: str = "") -> str:
    """The text of the shortest site file."""
    return textwrap.dedent(MINIMAL).format(name=name) + extra


def write_site(folder: Path, name: str, text: str | None = None) -> Path:
    """A site file in ``folder``; the shortest one by default."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.yaml"
    path.write_text(minimal(name) if text is None else text)
    return path


def spec(*, launch: dict[str, Any] | None = None, **resources: Any) -> RunSpec:
    """A run that asks for ``resources``, in the words of a config."""
    return RunSpec.model_validate(
        {
            "name": "training",
            "script": "train.py",
            "resources": resources,
            "launch": launch or {},
        }
    )
