"""How a config describes the checkpoints of an unmodified program.

The job gets the description as JSON (:meth:`Adopt.rule`); :mod:`hpcflow.runtime.adoption` applies
it.
"""

from __future__ import annotations

import json
from enum import Enum
from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field, model_validator

from hpcflow.model.kinds import Kind, Matching, Path, Seconds, Section, WrongKey, without_nul


class Writer(str, Enum):
    """A program with known checkpoint files."""

    HUGGINGFACE = "huggingface"
    LIGHTNING = "lightning"
    NANOGPT = "nanogpt"


_DEFAULTS: Final[dict[str, Any]] = {
    "folder": ".",
    "marker": None,
    "renamed": False,
    "stable_s": 30,
    "train_step": "name",
    "put_back": False,
}

#: How the programs save. transformers' Trainer writes trainer_state.json after the other files of
#: rank 0; other ranks may still be writing their RNG states. Lightning moves a file from the node's
#: own /tmp, which is a copy, not a rename, if that is another file system. nanoGPT overwrites its
#: one file, and reads only that one.
WRITERS: Final[dict[Writer, dict[str, Any]]] = {
    Writer.HUGGINGFACE: {
        "folder": "trainer_output",
        "pattern": "checkpoint-*",
        "marker": "trainer_state.json",
        "stable_s": 10,
    },
    Writer.LIGHTNING: {
        "folder": "lightning_logs",
        "pattern": "*/checkpoints/*.ckpt",
        "stable_s": 10,
    },
    Writer.NANOGPT: {
        "folder": "out",
        "pattern": "ckpt.pt",
        "stable_s": 10,
        "train_step": "count",
        "put_back": True,
    },
}


def _check_below(path: str) -> str:
    without_nul(path)
    parts = path.split("/")
    if "" in parts or "." in parts or ".." in parts:
        raise ValueError("must be below the folder: no / at its ends, no //, no . and no ..")
    return path


def _check_pattern(pattern: str) -> str:
    _check_below(pattern)
    if any(part.startswith(".") for part in pattern.split("/")):
        raise ValueError("hidden names are never adopted: programs use them for incomplete files")
    if "**" in pattern:
        raise ValueError(
            "`**` is not supported; write a `*` for each folder, such as */checkpoints/*"
        )
    return pattern


def _check_folder(folder: str) -> str:
    if folder.startswith("~"):
        raise ValueError("`~` is not expanded; write the whole path")
    return folder


class Adopt(Section):
    """Checkpoints that the program writes in its own format, and that hpcflow adopts.

    hpcflow copies each complete one into the run's `checkpoints/`, with checksums. From then on, it
    is kept, mirrored and resumed from like any other. See [unmodified.md](unmodified.md#adopting).
    """

    like: Writer | None = Field(
        None,
        description="Set the other keys for a well-known program: the Trainer of `huggingface` "
        "transformers, PyTorch `lightning`, or `nanogpt`. Keys that you give override it.",
        examples=["huggingface"],
    )
    folder: Annotated[Path, AfterValidator(_check_folder)] | None = Field(
        None,
        description="Where the program saves, relative to its working directory, which is the "
        "config's folder. `{{ run.dir }}`, `{{ run.id }}` and `{{ params.NAME }}` are filled in. "
        "Runs that execute at the same time must not share it. Default: the working directory.",
        examples=["{{ run.dir }}/artifacts/out"],
    )
    pattern: (
        Annotated[str, AfterValidator(_check_pattern), Field(min_length=1), Kind("pattern")] | None
    ) = Field(
        None,
        description="The names of its checkpoints in `folder`, which are files or folders; `*`, "
        "`?` and `[…]` as in a shell. Hidden names, links, and names with a word such as `tmp` or "
        "`partial` are ignored.",
        examples=["step-*"],
    )
    marker: (
        Annotated[str, AfterValidator(_check_below), Field(min_length=1), Kind("file name")] | None
    ) = Field(
        None,
        description="A file that the program writes last. If a checkpoint is a folder, it is in "
        "the folder. If a checkpoint is a file, the marker is beside it, and has its name plus "
        "this suffix, such as `.done`.",
        examples=["trainer_state.json"],
    )
    stable_s: Seconds | None = Field(
        None,
        alias="stable",
        description="A checkpoint is complete when nothing in it has changed for this time, and "
        "its `marker`, if you name one, exists. Default: 30s.",
        examples=["1m"],
    )
    renamed: bool | None = Field(
        None,
        description="Whether the program writes a checkpoint under another name, renames it when "
        "it is complete, and never changes it afterwards. Such a checkpoint is complete at once, "
        "and needs no second copy on the same file system. Default: false.",
        examples=[True],
    )
    train_step: (
        Annotated[
            str,
            Matching(
                r"name|count|(?!/)[^:\x00]+:[^:\x00]+",
                "not `name`, `count`, or FILE:KEY such as trainer_state.json:global_step",
            ),
            Kind("`name`, `count` or FILE:KEY"),
        ]
        | None
    ) = Field(
        None,
        description="Where hpcflow finds the train step of a checkpoint. `name`: in its name, as "
        "the number after `step` or else the last whole number; a name without a number is "
        "ignored. `count`: nowhere; the checkpoints are numbered. `FILE:KEY`: in a JSON file in "
        "the checkpoint. Default: `name`.",
        examples=["trainer_state.json:global_step"],
    )
    put_back: bool | None = Field(
        None,
        description="Before the program starts, copy the newest checkpoint back to where the "
        "program wrote it, if the one there is missing, damaged or another. For programs that "
        "look only there. Default: false.",
        examples=[True],
    )

    @model_validator(mode="after")
    def _check_keys(self) -> Adopt:
        if self.like is None and self.pattern is None:
            raise ValueError(
                "`pattern` is missing; give it, or `like: huggingface`, `like: lightning` or "
                "`like: nanogpt`"
            )
        if self.renamed and self.marker is not None:
            raise WrongKey("give either `renamed` or `marker`, not both", "renamed")
        if self.stable_s == 0:
            raise WrongKey("must be longer than zero; write 10s or more", "stable")
        return self

    def get(self, key: str) -> Any:
        """Return the value of a key: the config's, else the known program's, else the default."""
        given = getattr(self, key)
        if given is not None:
            return given
        known = WRITERS[self.like] if self.like is not None else {}
        if key == "marker" and self.renamed:
            return None
        return known.get(key, _DEFAULTS.get(key))

    def rule(self, folder: str) -> str:
        """Return the rule for the job as JSON, see `hpcflow/runtime/adoption/rule.py`.

        Args:
            folder: where to search: absolute, with all variables filled in.
        """
        keys = ("pattern", "marker", "stable_s", "renamed", "train_step", "put_back")
        return json.dumps({"folder": folder, **{key: self.get(key) for key in keys}})
