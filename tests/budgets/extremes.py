"""Budget lines with extreme values in each of their fields."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

AT: Final = "2026-01-01T00:00:00.000Z"
KEY: Final = {"at": AT, "by": "ada", "run_id": "ada-20260101-abcdefgh", "attempt": 1}
AMOUNTS: Final = {"cost_usd": "1", "cost_su": "2", "gpu_hours": "3"}
SUMS: Final = {**AMOUNTS, "unpriced": {"cost_usd": 1, "cost_su": 2, "gpu_hours": 3}}
MONTHS: Final = {"2026-01": SUMS}
TERMS: Final = {
    "limits": {"cost_usd": {"hard": "1", "soft": "1"}, "gpu_hours": {"hard": "500"}},
    "per": "month",
    "on_exceeded": "save_and_stop",
}
OPENING: Final = {**SUMS, "months": MONTHS}
SET: Final = {
    **{"record": "set", "at": AT, "by": "ada", "how": "command", "why": "so"},
    **TERMS,
    "opening": OPENING,
}
COMMITTED: Final = {
    **{"record": "committed", **KEY},
    **{"amounts": AMOUNTS, "limit_s": 60, "home": "/home/ada"},
}
BEGAN: Final = {"record": "began", **KEY, "began_at": AT}
SETTLED: Final = {"record": "settled", **KEY, "amounts": AMOUNTS, "ended_at": AT, "is_final": True}
CARRIED: Final = {
    **{"record": "carried", "at": AT, "by": "ada", "at_byte": 0, "changes": [SET], "terms": TERMS},
    **{"opening": OPENING, "opened_at": AT, "months": MONTHS},
    "entries": [COMMITTED, BEGAN, {**SETTLED, "attempt": 2, "is_final": False}],
}
LINES: Final[dict[str, dict[str, Any]]] = {
    "set": SET,
    "removed": {"record": "removed", "at": AT, "by": "ada", "how": "command", "why": "so"},
    "committed": COMMITTED,
    "began": BEGAN,
    "released": {"record": "released", **KEY, "why": "so"},
    "settled": SETTLED,
    "carried": CARRIED,
}
#: As JSON, for some of them Python does not write.
EXTREME: Final = (
    "9" * 4300,
    "-" + "9" * 4300,
    "9" * 5000,
    *("-1", "0", "1e308", "1e999", "-0.0", "NaN", "-Infinity", "true", "null", "[]", "{}"),
    *('"NaN"', '"sNaN"', '"1e999"', '"1e-999"', '"-1"', '"-0"', '"1e15"', '"1E-40"', '"0E+40"'),
    *('""', '"\\u0000"', '"\\ud800"', '"\\u001b[2J"', '"\\u0663"', '"1_0"', '" 1 "'),
    json.dumps("9" * 39),
    json.dumps("x" * 5000),
    *('"1900-01-01T00:00:00Z"', '"8999-12-31T23:59:59-23:59"', '"0001-01-01T00:00:00Z"'),
    *('{"cost_usd": 1}', '["cost_usd"]', '{"hard": "x"}', '{"2026-01": {}}', '{"x": 1}'),
    "[" * 900 + "]" * 900,
    "[" * 10_000,
)
#: Stands where the extreme value is put.
HERE: Final = "@here@"


def fields(value: Any) -> Iterator[Any]:
    """``value``, with each field in it once replaced, and with each key."""
    if isinstance(value, dict):
        for key, inner in value.items():
            for changed in (HERE, *fields(inner)):
                yield {**value, key: changed}
            yield {**{k: v for k, v in value.items() if k != key}, "9" * 5000: inner}
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            for changed in (HERE, *fields(inner)):
                yield [*value[:index], changed, *value[index + 1 :]]


def extremes(line: dict[str, Any]) -> Iterator[bytes]:
    for changed in fields(line):
        text = json.dumps(changed)
        for value in EXTREME if HERE in text else ("",):
            yield text.replace(f'"{HERE}"', value).encode()


SOFT: Final = {**SET, "per": "ever", "limits": {"cost_usd": {"soft": "1"}}}
#: The first one printed a number of more than 4,300 digits after the job was sent.
ATTACKS: Final[dict[str, list[dict[str, Any]]]] = {
    "unpriced": [
        {**SOFT, "opening": {"unpriced": {"cost_usd": HERE}}},
        {**COMMITTED, "amounts": {}},
    ],
    "limit_s": [SOFT, {**COMMITTED, "limit_s": HERE}, BEGAN],
    "attempt": [SOFT, {**COMMITTED, "attempt": HERE}],
    "months": [{**SOFT, "opening": {**OPENING, "months": {"2026-01": {"unpriced": HERE}}}}],
    "amounts": [SOFT, {**COMMITTED, "amounts": {"cost_usd": HERE, "gpu_hours": HERE}}, BEGAN],
    "times": [SOFT, COMMITTED, {**BEGAN, "began_at": HERE}, {**SETTLED, "ended_at": HERE}],
    "texts": [{**SOFT, "by": HERE, "why": HERE}, {**COMMITTED, "by": HERE, "home": HERE}],
}


def attack(file: Path, lines: list[dict[str, Any]], value: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(line) + "\n" for line in lines)
    file.write_text(json.dumps(SOFT) + "\n")
    with file.open("a") as opened:
        opened.write(text.replace(f'"{HERE}"', value))
