"""Configure Sphinx, with which `make docs` builds a site from these pages.

The pages are plain Markdown, which a Git host shows, too. So the lists in index.md make the
navigation of the site.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from sphinx.application import Sphinx

import hpcflow

project = "hpcflow"
release = hpcflow.__version__
extensions = ["myst_parser"]
html_theme = "furo"
html_title = f"hpcflow {release}"
html_copy_source = False
myst_heading_anchors = 6

README: Final = Path(__file__).resolve().parent.parent / "README.md"


def prepare(_: Sphinx, page: str, source: list[str]) -> None:
    """Change the Markdown of a page before it is parsed."""
    if page == "index":
        source[0] = start_page(source[0])
    # A link that shows the name of a file shows the title of the page instead.
    source[0] = re.sub(r"\[[\w/]+\.md\](?=\([\w/]+\.md)", "[]", source[0])


def start_page(index: str) -> str:
    """Return README, and the lists of index.md as its last section."""
    readme, *_ = README.read_text(encoding="utf-8").partition("\n## Documentation\n")
    readme = re.sub(r"\[([^]]+)\]\((?!docs/|https?:)[^)]+\)", r"`\1`", readme)  # not a page
    readme = readme.replace("](docs/", "](")
    return f"{readme}\n{re.sub('^#', '##', index, flags=re.M)}\n{navigation(index)}"


def navigation(index: str) -> str:
    """Return a hidden table of contents for each section of index.md."""
    trees = []
    for section in index.split("\n## ")[1:]:
        pages = "\n".join(re.findall(r"^- \[.*?\]\((\w+)\.md\)", section, re.M))
        caption = section.partition("\n")[0]
        trees.append(f"```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{pages}\n```\n")
    return "\n".join(trees)


def setup(app: Sphinx) -> None:
    app.connect("source-read", prepare)
