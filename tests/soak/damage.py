"""Damage: what disks, purges, crashes and other people make of a file, a folder or a link."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any, Final

from tests.hostile import put
from tests.soak.outside import Outside

#: Sparse: it takes no room on the disk.
_HUGE_BYTES: Final = 5 << 30
#: A larger file is not read to be changed.
_READ_BYTES: Final = 64 << 20
_STRANGER: Final = 54321
ESCAPES: Final = (
    "\x1b]0;owned\x07\x1b[2J",
    "\u202eevil\u2066",
    "\x9b2J\x85\x90owned",
    "\r\x08\x7f",
)
#: In place of any value of a JSON file.
VALUES: Final[tuple[Any, ...]] = (
    *ESCAPES, None, True, [], {}, [[]], {"a": {}}, "", -1, 0, 2**63, 10**400, -1e308, float("nan"),
    float("inf"), "NaN", "\ud800", "a\0b", "../../../outside/secret", "/dev/zero", "/", "..",
    "9999-12-31T23:59:59Z", "0001-01-01T00:00:00+23:59", "2036-01-01T00:00:00+00:00",
    "reference://x::file:///tmp/ref.json", "-rf", "$(touch owned)", "{{ 7*7 }}", "x" * 100_000,
)  # fmt: skip

Damage = Callable[[Path, Random, Outside], str]


def hurt(path: Path, dice: Random, outside: Outside) -> str:
    """Damage what lies at ``path``; returns how."""
    if path.is_symlink():
        choices: Mapping[str, Damage] = _OF_LINKS
    elif path.is_dir():
        choices = _OF_FOLDERS
    elif path.stat().st_size > _READ_BYTES:  # what was here before has changed places with it
        choices = {"deleted": _delete}
    else:
        choices = _OF_FILES
    name = dice.choice(sorted(choices))
    told = choices[name](path, dice, outside)
    return f"{name} {told}".strip()


def _flip(path: Path, dice: Random, _: Outside) -> str:
    data = bytearray(path.read_bytes())
    places = (
        sorted(dice.randrange(len(data)) for _ in range(dice.choice((1, 1, 1, 5)))) if data else []
    )
    for place in places:
        data[place] ^= 1 << dice.randrange(8)
    path.write_bytes(data)
    return f"at {places}"


def _truncate(path: Path, dice: Random, _: Outside) -> str:
    size = path.stat().st_size
    to = dice.choice((0, 1, size // 2, max(0, size - 1), dice.randrange(size + 1)))
    os.truncate(path, to)
    return f"to {to} of {size}"


def _delete(path: Path, _: Random, __: Outside) -> str:
    _remove(path)
    return ""


def _garbage(path: Path, dice: Random, _: Outside) -> str:
    path.write_bytes(dice.randbytes(dice.choice((1, 100, 70_000))))
    return ""


def _append_garbage(path: Path, dice: Random, _: Outside) -> str:
    data = dice.choice((b"\0" * 4096, b"\xff\xfe\n", b"{}\n", b"[]\n", b"null\n", b"1\n", b'"x"\n'))
    with path.open("ab") as file:
        file.write(data)
    return repr(data[:8])


def _nul_bytes(path: Path, dice: Random, _: Outside) -> str:
    data = path.read_bytes()
    begin = dice.randrange(len(data) + 1)
    length = min(dice.choice((1, 16, 4096)), len(data) - begin)
    path.write_bytes(data[:begin] + b"\0" * length + data[begin + length :])
    return f"{length} at {begin}"


def _huge(path: Path, _: Random, __: Outside) -> str:
    os.truncate(path, _HUGE_BYTES)
    return ""


def _long_line(path: Path, dice: Random, _: Outside) -> str:
    with path.open("ab") as file:
        file.write(b'{"a": "' + b"x" * (50 << 20) + dice.choice((b'"}\n', b"")))
    return ""


def _deep_json(path: Path, dice: Random, _: Outside) -> str:
    depth = dice.choice((900, 5000, 200_000))
    text = dice.choice((b"[" * depth + b"]" * depth, b'{"a":' * depth + b"1" + b"}" * depth))
    path.write_bytes(dice.choice((b"", path.read_bytes())) + text + b"\n")
    return f"{depth}"


def _lines(path: Path, dice: Random, _: Outside) -> str:
    lines = path.read_bytes().splitlines(keepends=True)
    how = dice.choice(("twice", "one twice", "one lost", "shuffled", "backwards"))
    number = dice.randrange(len(lines)) if lines else 0
    if how == "twice":
        lines *= 2
    elif how == "one twice":
        lines[number:number] = lines[number : number + 1]
    elif how == "one lost":
        del lines[number : number + 1]
    elif how == "shuffled":
        dice.shuffle(lines)
    else:
        lines.reverse()
    path.write_bytes(b"".join(lines))
    return f"{how} {number}"


def _other_years(path: Path, dice: Random, _: Outside) -> str:
    year = dice.choice((b"1970", b"2036", b"9999", b"0001"))
    data = path.read_bytes()
    path.write_bytes(re.sub(rb"20\d\d(?=-\d\d-\d\dT)", year, data))
    return year.decode()


def _other_time(path: Path, dice: Random, _: Outside) -> str:
    at = dice.choice((0, 2**31, 2**33, -(2**31)))
    os.utime(path, (at, at), follow_symlinks=False)
    return str(at)


def _value(path: Path, dice: Random, _: Outside) -> str:
    """One value of a JSON file, or of a line of it, is something else."""
    lines = path.read_bytes().splitlines()
    whole = len(lines) != 1 and path.suffix == ".json"
    number = 0 if whole or not lines else dice.randrange(len(lines))
    value = dice.choice(VALUES)
    try:
        data = json.loads(path.read_bytes() if whole else lines[number])
    except (ValueError, IndexError):
        data = [data := 0]
    where = _replace(data, dice, value)
    text = json.dumps(data).encode()
    if whole or not lines:
        path.write_bytes(text)
    else:
        lines[number] = text
        path.write_bytes(b"\n".join(lines) + b"\n")
    return f"line {number} {where} = {repr(value)[:60]}"


def _replace(data: Any, dice: Random, value: Any) -> str:
    """Replace a leaf, or now and then a branch; returns its path."""
    where = ""
    while isinstance(data, (dict, list)) and data:
        key: Any = dice.choice(list(data)) if isinstance(data, dict) else dice.randrange(len(data))
        where += f".{key}"
        if isinstance(data[key], (dict, list)) and data[key] and dice.random() < 0.8:
            data = data[key]
            continue
        if isinstance(data, dict) and dice.random() < 0.15:
            data[str(value)[:2000]] = data.pop(key)
            return f"{where} renamed"
        data[key] = value
        break
    return where


def _hostile_name(path: Path, dice: Random, _: Outside) -> str:
    """A file with a hostile name lies beside it."""
    name = dice.choice(
        (*ESCAPES, "a\nb", "-rf", "$(touch owned)", "x" * 250, "999999999999", "...")
    )
    beside = path.parent / name.replace("/", "_")
    if dice.random() < 0.5 or beside.exists():
        beside.write_bytes(b"{}")
    else:
        beside.mkdir()
    return repr(name[:40])


def _pipe(path: Path, _: Random, __: Outside) -> str:
    put("pipe", path)
    return ""


def _socket(path: Path, _: Random, __: Outside) -> str:
    put("socket", path)
    return ""


def _folder(path: Path, dice: Random, _: Outside) -> str:
    _remove(path)
    path.mkdir()
    if dice.random() < 0.5:
        (path / "journal.jsonl").write_bytes(b"{}\n")
    return ""


def _link(path: Path, dice: Random, outside: Outside) -> str:
    targets = ["/dev/zero", "/etc/passwd", "..", ".", "/", path.name,
               "missing", "/proc/self/environ"]  # fmt: skip
    if path.name != "ledger.sqlite":  # a user may keep it elsewhere
        targets.insert(0, str(outside.secret))
    target = dice.choice(targets)
    _remove(path)
    path.symlink_to(target)
    return f"to {target}"


def _folder_link(path: Path, dice: Random, outside: Outside) -> str:
    targets = ["/proc", "/proc/self", "/sys", "..", ".", path.name, "missing"]
    if path.parent.name != "home":  # a user may keep a folder of their home elsewhere
        targets += [str(outside.folder), str(outside.folder / "deep")]
    target = dice.choice(targets)
    _remove(path)
    path.symlink_to(target)
    return f"to {target}"


def _plain_file(path: Path, _: Random, __: Outside) -> str:
    _remove(path)
    path.write_bytes(b"x\n")
    return ""


def _empty_folder(path: Path, _: Random, __: Outside) -> str:
    _remove(path)
    path.mkdir()
    return ""


def _other_owner(path: Path, _: Random, __: Outside) -> str:
    if os.geteuid() != 0:
        return "(not: this needs root)"
    os.chown(path, _STRANGER, _STRANGER, follow_symlinks=False)
    return ""


def _mode(path: Path, dice: Random, _: Outside) -> str:
    mode = dice.choice((0o000, 0o200, 0o777))
    path.chmod(mode)
    return f"{mode:o}"


def _swap(path: Path, dice: Random, _: Outside) -> str:
    """It and another of its kind, in this folder or the same of another run, change places."""
    others = sorted(
        each
        for each in {*path.parent.iterdir(), *path.parent.parent.glob(f"*/{path.name}")}
        if each != path and each.is_file() == path.is_file()
    )
    if not others:
        return "with none"
    other = dice.choice(others)
    between = path.with_name(".swapped")
    path.rename(between)
    other.rename(path)
    between.rename(other)
    return f"with {other.parent.name}/{other.name}"


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


_OF_FILES: Final[Mapping[str, Damage]] = {
    "bit flips": _flip, "truncated": _truncate, "deleted": _delete, "garbage": _garbage,
    "garbage appended": _append_garbage, "NUL bytes": _nul_bytes, "huge": _huge,
    "long line": _long_line, "deep JSON": _deep_json, "lines": _lines, "lines again": _lines,
    "other years": _other_years, "other time": _other_time, "value": _value, "value too": _value,
    "hostile value": _value, "hostile name beside": _hostile_name, "pipe": _pipe,
    "socket": _socket, "folder": _folder, "link": _link, "link instead": _link,
    "other owner": _other_owner, "mode": _mode, "swapped": _swap, "plain file": _plain_file,
}  # fmt: skip
_OF_FOLDERS: Final[Mapping[str, Damage]] = {
    "deleted": _delete, "pipe": _pipe, "link": _folder_link, "plain file": _plain_file,
    "empty folder": _empty_folder, "other owner": _other_owner, "mode": _mode, "swapped": _swap,
    "hostile name beside": _hostile_name, "other time": _other_time,
}  # fmt: skip
_OF_LINKS: Final[Mapping[str, Damage]] = {
    "deleted": _delete, "pipe": _pipe, "socket": _socket, "link": _folder_link, "link too": _link,
    "plain file": _plain_file, "empty folder": _empty_folder, "swapped": _swap,
    "other owner": _other_owner, "hostile name beside": _hostile_name,
}  # fmt: skip
