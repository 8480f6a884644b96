"""A training that has never heard of hpcflow: ``writer.py STYLE FOLDER COUNT [--resume PATH]``.

As nanoGPT does, with ``--init_from=resume`` it looks for its one file itself. With ``--rest-at N``
it is busy with something else for a while once it has saved N: who kills it then kills no save.

It counts, and saves each number, slowly: in the style of nanoGPT (one archive, overwritten), of
transformers (a folder, a marker last), or under another name that is then changed. What it resumes
from has to be exactly what it wrote, or it fails.
"""

from __future__ import annotations

import argparse
import io
import sys
import time
import zipfile
from pathlib import Path

PAUSE_S = 0.02
BETWEEN_S = 0.2
PIECES = 6
SIZE_BYTES = 200_000
REST_S = 120


def content(number: int) -> bytes:
    return (b"%09d " % number) * (SIZE_BYTES // 10)


def archive(number: int) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr(zipfile.ZipInfo("archive/data"), content(number))
    return buffer.getvalue()


def write_slowly(path: Path, data: bytes) -> None:
    piece = -(-len(data) // PIECES)
    with path.open("wb", buffering=0) as file:
        for begin in range(0, len(data), piece):
            file.write(data[begin : begin + piece])
            time.sleep(PAUSE_S)


def save(style: str, folder: Path, number: int) -> None:
    if style == "overwritten":
        write_slowly(folder / "ckpt.pt", archive(number))
    elif style == "marked":
        path = folder / f"checkpoint-{number}"
        path.mkdir(exist_ok=True)
        write_slowly(path / "model.safetensors", content(number))
        (path / "trainer_state.json").write_text(f'{{"global_step": {number}}}')
    else:
        write_slowly(folder / f"step-{number}.tmp", content(number))
        (folder / f"step-{number}.tmp").rename(folder / f"step-{number}")


def load(style: str, path: Path) -> int:
    if style == "overwritten":
        with zipfile.ZipFile(path) as file:
            data = file.read("archive/data")
    else:
        data = (path / "model.safetensors" if style == "marked" else path).read_bytes()
    number = int(data[:9])
    assert data == content(number), f"{path} is half"
    return number


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("style")
    parser.add_argument("folder", type=Path)
    parser.add_argument("count", type=int)
    parser.add_argument("--resume", type=Path)
    parser.add_argument("--init_from")
    parser.add_argument("--rest-at", type=int)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    if given.init_from == "resume":
        given.resume = given.folder / "ckpt.pt"
    begin = load(given.style, given.resume) if given.resume else 0
    print(f"begins at {begin}", flush=True)
    for number in range(begin + 1, given.count + 1):
        time.sleep(BETWEEN_S)
        save(given.style, given.folder, number)
        print(f"saved {number}", flush=True)
        if number == given.rest_at:
            time.sleep(REST_S)
    sys.exit(0)


if __name__ == "__main__":
    main()
