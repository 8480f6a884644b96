"""Make hpcflow's rules for known forms of secrets from the ones that gitleaks keeps.

    git clone https://github.com/gitleaks/gitleaks && git -C gitleaks checkout VERSION
    python -m tests.model.secret_rules VERSION gitleaks

It takes the rules that know a secret by its form alone. Those for "a long text near the name of a
service" are left out: hpcflow knows the names of options and variables, and refuses by them.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

TARGET: Final = Path(__file__).parents[2] / "hpcflow/model/secret_rules.json"

#: Why a rule of a fixed form is left out nevertheless.
LEFT_OUT: Final = {
    "curl-auth-header": "backtracks over many lines; hpcflow has its own",
    "curl-auth-user": "backtracks over many lines; hpcflow has its own",
    "flutterwave-public-key": "public",
    "freemius-secret-key": "for one kind of file",
    "kubernetes-secret-yaml": "for one kind of file",
    "nuget-config-password": "for one kind of file",
    "private-key": "needs the end of the key; hpcflow has its own",
    "sourcegraph-access-token": "takes every git commit near that name for one",
    "twilio-api-key": "takes TASK and a digest for one",
}
#: How a rule for a name that stands near a value begins.
_NEAR_A_NAME: Final = r"[\w.-]{0,50}?"
#: How most rules say that the secret ends there; it would miss one in a URL or before a comma.
_END: Final = re.compile(r"""\(\?:\[\\x60'"\\s;\]\|\\\\\[nr\]\|\$(?:\|\\b)?\)$""")
_OTHER_END: Final = r"""(?:$|[\\'"\x60\s<),])"""


def as_python(regex: str) -> str:
    """A regular expression of Go as one of Python."""
    regex = regex.removesuffix(_OTHER_END)
    regex = (
        _END.sub(r"(?![\\w-])", regex).replace(r"\z", r"\Z").replace("[[:alnum:]]", "[A-Za-z0-9]")
    )
    while (found := re.search(r"(?<!^)\(\?i\)", regex)) is not None:
        # To Go, the flag holds to the end of the group that it stands in.
        end = _end_of_group(regex, found.end())
        regex = f"{regex[: found.start()]}(?i:{regex[found.end() : end]}){regex[end:]}"
    return regex


def _end_of_group(regex: str, start: int) -> int:
    depth, position, in_class = 0, start, False
    while position < len(regex):
        char = regex[position]
        if char == "\\":
            position += 1
        elif in_class:
            in_class = char != "]"
        elif char == "[":
            in_class = True
        elif char == "(":
            depth += 1
        elif char == ")":
            if depth == 0:
                return position
            depth -= 1
        position += 1
    return position


def rules_of(config: dict[str, Any]) -> list[dict[str, Any]]:
    """The rules that hpcflow takes over, each with what it needs of it."""
    found = []
    for rule in config["rules"]:
        regex = rule.get("regex", "")
        if not regex or _NEAR_A_NAME in regex or rule["id"] in LEFT_OUT:
            continue
        entry = {"id": rule["id"], "keywords": rule["keywords"], "regex": as_python(regex)}
        if "entropy" in rule:
            entry["entropy"] = rule["entropy"]
        allowed = [each for a in rule.get("allowlists", ()) for each in a.get("regexes", ())]
        if allowed:
            entry["allowed"] = allowed
        re.compile(entry["regex"])
        found.append(entry)
    return found


def main(version: str, folder: Path) -> None:
    import tomllib  # type: ignore[import-not-found,unused-ignore]

    config = tomllib.loads((folder / "config/gitleaks.toml").read_text())
    ask = ["git", "-C", str(folder), "rev-parse", "HEAD"]
    commit = subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip()
    head = {
        "source": "https://github.com/gitleaks/gitleaks, config/gitleaks.toml",
        "version": f"{version}, commit {commit}",
        "changes": "A selection, as Python's re reads it; by python -m tests.model.secret_rules",
        "license": (folder / "LICENSE").read_text(),
    }
    rules = ",\n".join(json.dumps(each) for each in rules_of(config))
    TARGET.write_text(f'{json.dumps(head, indent=1)[:-2]},\n "rules": [\n{rules}\n]\n}}\n')


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
