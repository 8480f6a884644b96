"""docs/operations.md tells how to read every message of the daemon: it is held against the code.

The messages are gathered from the source. Of each one its longest constant part has to stand on the
page, word for word. So a message that is new or reworded turns this red. What stands between the
constant parts, the words of Slurm and of the operating system, and whether the page explains a
message well, it does not see.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import hpcflow
from docs.generator.decisions import EXAMPLES
from hpcflow import errors
from hpcflow.requeue.policy import Action

SOURCE: Final = Path(hpcflow.__file__).parent
PAGE: Final = " ".join((SOURCE.parent / "docs/operations.md").read_text(encoding="utf-8").split())

#: Whatever is prose in these is said by the daemon. The other modules of requeue/ hold the reasons
#: of decisions, which stand behind a rule that the page has, or what other commands print.
SAYS: Final = (
    "requeue/begin_time.py", "requeue/facts.py", "requeue/daemon/loop.py", "requeue/job.py",
    "requeue/round_warnings.py", "requeue/restores.py",
    "requeue/stalls/checking.py", "requeue/standbys.py", "requeue/stalls/suspects.py",
    "requeue/tick.py", "requeue/run_errors.py", "requeue/stalls/watch.py", "reconcile/attempts.py",
    "reconcile/refresh.py", "projection/gone.py", "storage/own_runs.py",
)  # fmt: skip
#: Of these, what they raise: a trouble of a run, of the ledger or of Slurm, or a refusal.
INSTALL: Final = sorted(
    str(path.relative_to(SOURCE)) for path in SOURCE.glob("requeue/install/*.py")
)
RAISE: Final = (
    *INSTALL,
    "launch/jobs.py", "launch/submission.py", "ledger/connection.py", "ledger/upgrade.py",
    "projection/reading.py", "schedulers/slurm/commands.py", "schedulers/slurm/run_command.py",
    "schedulers/slurm/submit.py",
)  # fmt: skip
#: Of these, all that is said within the functions and classes of these names.
WITHIN: Final = {
    "cli/control/daemon.py": {"status_command", "_Log", "_decisions"},
    "storage/rundir.py": {"read_run"},
    **{each: {"look"} for each in INSTALL},
}
#: Said where a run is made, by people's commands only.
_NOT_OF_THE_DAEMON: Final = {"ScratchError", "NotFoundError"}
_ERRORS: Final = {
    name
    for name, value in vars(errors).items()
    if isinstance(value, type) and issubclass(value, errors.HpcflowError)
} - _NOT_OF_THE_DAEMON


def _texts(root: ast.AST, skipped: set[ast.AST]) -> Iterator[str]:
    """The longest constant part of every text of several words below a node."""
    for node in ast.walk(root):
        if node in skipped:
            continue
        parts: list[object] = []
        if isinstance(node, ast.JoinedStr):
            skipped.update(node.values)
            parts = [part.value for part in node.values if isinstance(part, ast.Constant)]
        elif isinstance(node, ast.Constant):
            parts = [node.value]
        longest = max(
            (part.strip() for part in parts if isinstance(part, str)), key=len, default=""
        )
        if " " in longest:
            yield longest.removeprefix(": ")  # behind the run that it is about


def _no_messages(tree: ast.AST) -> set[ast.AST]:
    """Docstrings, formats, what is logged for debugging, and the next thing to type."""
    found: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            found.add(node.value)
        elif isinstance(node, ast.keyword) and node.arg == "next_action":
            found.update(ast.walk(node.value))
        elif isinstance(node, ast.FormattedValue) and node.format_spec is not None:
            found.update(ast.walk(node.format_spec))
        elif isinstance(node, ast.Call) and ast.unparse(node.func).startswith("_log."):
            found.update(ast.walk(node))
    return found


def _messages() -> Iterator[tuple[str, str]]:
    for name in {*SAYS, *RAISE, *WITHIN}:
        tree = ast.parse((SOURCE / name).read_text(encoding="utf-8"))
        skipped = _no_messages(tree)
        roots: list[ast.AST] = []
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in _ERRORS and name in RAISE:
                roots += node.args
            elif isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name in WITHIN.get(
                name, ()
            ):
                roots += node.body
        for root in [tree] if name in SAYS else roots:
            yield from ((name, text) for text in _texts(root, skipped))


def test_the_page_has_every_message() -> None:
    missing = {(name, text) for name, text in _messages() if " ".join(text.split()) not in PAGE}
    assert missing == set(), "these files can say it"


def test_messages_are_found_at_all() -> None:
    texts = {text for _, text in _messages()}
    assert len(texts) > 50
    assert {"; showing the last known state", "you may not cancel these jobs:"} <= texts
    assert "was the last daemon" in texts


def _rules_of_stalls() -> set[tuple[str, str]]:
    """Every Verdict that is written down in patience.py, and the rules that a notice has."""
    tree = ast.parse((SOURCE / "requeue/stalls/policy.py").read_text(encoding="utf-8"))
    found = set()
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call):
            continue
        words = [each.value for each in call.args if isinstance(each, ast.Constant)]
        rules = [each for each in words if isinstance(each, str) and each.isidentifier()]
        what = ast.unparse(call.func)
        if what == "Verdict" and rules:
            found.add((ast.unparse(call.args[0]).rpartition(".")[2].lower(), rules[0]))
        elif what in ("Patience", "_once") and rules:
            found.add(("notice", rules[0]))
    return found


def test_the_page_has_every_rule_of_decisions_and_of_stalls() -> None:
    decided = {
        (each.action.value, each.rule) for each in EXAMPLES if each.action is not Action.NONE
    }
    # Of what is held nothing is decided: it does not come before decide() (`undecided`).
    decided -= {("wait", "held")}
    # Without a journal no decision is written down: it is a problem of the run.
    decided -= {("stop", "lost_journal")}
    assert "`cannot continue run …: its journal.jsonl is missing" in PAGE
    stalls = _rules_of_stalls()
    assert {rule for _, rule in stalls} == {
        "floor", "rhythm", "longest", "start_up", "moved", "silent",
    }  # fmt: skip
    for action, rule in sorted({*decided, *stalls, ("stop", "refused")}):
        # Only an event ends the wait of a trial, or for a budget.
        is_timed = action == "wait" and rule not in ("trial", "over_budget")
        head = f"`{action} until … ({rule}: " if is_timed else f"`{action} ({rule}: "
        assert head in PAGE, f"{action} by the rule {rule}"
    assert "(held:" not in PAGE
