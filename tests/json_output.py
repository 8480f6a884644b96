"""Holds what a command prints with ``--json`` against its schema in docs/schema/output."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, Final

import jsonschema

FOLDER: Final = Path(__file__).resolve().parents[1] / "docs" / "schema" / "output"

#: Test -> outputs that it holds against their schemas. That it does is checked after it,
#: by ``pytest_runtest_call`` in tests/conftest.py.
HELD_BY: Final[dict[str, tuple[str, ...]]] = {
    "cli/test_json.py::test_a_run_and_its_logs": (
        "run: Launched",
        "run: DryRun",
        "render",
        "wait",
        "logs",
        "ls",
    ),
    "cli/test_plan.py::test_the_first_place_is_where_run_goes": ("plan",),
    "cli/test_local_runs.py::test_a_checkpoint_that_is_gone_is_not_called_complete": ("show",),
    "cli/test_why.py::test_a_waiting_run_is_explained_for_people_and_for_scripts": (
        "why: Pending",
    ),
    "cli/test_why.py::test_a_run_that_runs_or_waits_for_hpcflow_says_so": ("why: NotPending",),
    "cli/test_why.py::test_limits_are_shown_with_what_is_used_and_what_it_means": ("limits",),
    "cli/test_local_runs.py::test_cancel_handles_every_run_by_itself": ("cancel",),
    "cli/test_json.py::test_a_run_that_is_sent_again": ("run: FollowedRun", "resume: Launched"),
    "cli/test_local_runs.py::test_a_failed_run_says_so_and_can_be_sent_again": (
        "resume: FollowedRun",
    ),
    "cli/test_local_runs.py::test_the_ledger_is_checked_and_rebuilt": (
        "ledger rebuild: Summary",
        "ledger check",
        "ledger upgrade",
    ),
    "cli/test_home_command.py::test_the_runs_of_an_older_home_are_moved": ("home upgrade",),
    "cli/test_daemon_command.py::test_hold_and_release": (
        "hold",
        "daemon: DaemonRound",
    ),
    "cli/test_daemon_command.py::test_what_is_completed_is_neither_held_nor_released": ("release",),
    "cli/test_daemon_command.py::test_round_by_round_a_run_comes_to_its_end": ("history",),
    "cli/test_daemon_command.py::test_scripts_read_first_what_the_daemon_supervises": (
        "daemon: DaemonStart",
    ),
    "cli/test_daemon_command.py::test_the_loop_says_who_it_is_and_ends_at_sigterm": (
        "daemon status",
    ),
    "cli/test_daemon_install.py::test_scripts_get_json": (
        "daemon install",
        "daemon uninstall",
    ),
    "cli/test_checkpoint_command.py::test_ls_says_what_is_there_and_why_each_is_kept": (
        "checkpoint ls",
    ),
    "cli/test_checkpoint_command.py::test_show_tells_everything_of_one": ("checkpoint show",),
    "cli/test_checkpoint_command.py::test_verify_reads_all_and_says_which_file": (
        "checkpoint verify",
    ),
    "cli/test_checkpoint_command.py::test_prune_does_what_the_dry_run_said_and_the_ledger_knows": (
        "checkpoint prune",
    ),
    "cli/test_checkpoint_export.py::test_the_newest_the_best_or_the_one_that_is_named_is_copied": (
        "checkpoint export",
    ),
    "cli/test_scratch_command.py::test_what_is_purged_first_stands_first": ("scratch",),
    "cli/test_mirror_command.py::test_a_damaged_one_is_said": (
        "mirror",
        "mirror status",
    ),
    "cli/test_mirror_command.py::test_what_changed_there_is_found_and_sent_again": (
        "mirror verify",
    ),
    "cli/test_restore_command.py::test_a_purged_run_is_fetched_and_goes_on": ("restore",),
    "cli/test_restore_command.py::test_the_ledger_is_made_from_the_bucket_alone": (
        "ledger rebuild: FromStore",
    ),
    "cli/test_json.py::test_a_sweep_that_is_stopped_and_resumed": (
        "sweep start: StartedSweep",
        "sweep start: SweepDryRun",
        "daemon: SweepRound",
        "sweep tick",
        "sweep stop",
        "sweep resume",
        "sweep status",
        "sweep trials",
        "sweep export",
    ),
    "cli/test_sweep_command.py::test_from_the_start_to_the_best_trial_trained_again": (
        "sweep ls",
        "sweep best: Trials",
        "sweep best: Launched",
    ),
    "cli/test_sweep_plot.py::test_a_script_gets_the_paths_and_the_reasons": ("sweep plot",),
    "cli/test_sweep_install.py::test_scripts_get_json": (
        "sweep install",
        "sweep uninstall",
    ),
    "cli/test_cost.py::test_a_report_for_people_for_scripts_and_for_spreadsheets": ("cost report",),
    "cli/test_cost.py::test_who_used_how_much_of_a_project": ("cost showback",),
    "cli/test_cost.py::test_what_wasted_the_most_and_what_to_do": ("cost wasted",),
    "cli/test_cost.py::test_nobody_can_audit_what_no_accounting_knows": ("cost audit",),
    "cli/test_efficiency.py::test_a_run_that_has_not_begun_has_used_nothing": (
        "efficiency: RunEfficiency",
    ),
    "cli/test_efficiency.py::test_sums_across_runs_are_by_user_project_or_partition": (
        "efficiency: EfficiencyBy",
    ),
    "cli/test_json.py::test_what_needs_no_run": (
        "version",
        "error",
        "estimate",
        "site list",
        "site show",
    ),
    "cli/test_json.py::test_budgets": (
        "budget set",
        "budget ls",
        "budget show",
        "budget remove",
    ),
    "cli/test_doctor.py::test_where_all_is_well_nothing_is_to_be_done": ("doctor",),
    "cli/test_nodes_command.py::test_a_bad_node_is_shown_with_its_reasons": ("nodes",),
    "cli/test_nodes_command.py::test_of_two_nodes_of_one_name_one_is_to_be_named": (
        "nodes forgive",
    ),
    "cli/test_json.py::test_a_site_that_is_detected_and_checked": (
        "site check",
        "site detect",
    ),
}

#: Outputs that were valid, in the test that runs now.
seen: Final[set[str]] = set()


def checked(args: Sequence[str | Path], output: str) -> Any:
    """Return the JSON document that ``hpcflow ARGS --json`` has printed, if it is valid.

    Raises:
        AssertionError: it is not as the published schema of the command says.
    """
    document = json.loads(output)
    command = "error" if set(document) == {"format", "error"} else _command(args)
    validators = outputs_of(command)
    valid = [name for name, each in validators.items() if each.is_valid(document)]
    errors = chain.from_iterable(each.iter_errors(document) for each in validators.values())
    wrong = None if valid else jsonschema.exceptions.best_match(errors)
    assert wrong is None, f"hpcflow {command}: {wrong.json_path}: {wrong.message[:2000]}"
    seen.update(valid)
    return document


@cache
def outputs_of(command: str) -> dict[str, jsonschema.Draft202012Validator]:
    """Name of each output of a command -> what holds a document against its published schema.

    The name is that of the command; of several outputs, each has its title, too.
    """
    from docs.generator.outputs import schema_name

    schema = json.loads((FOLDER / schema_name(command)).read_text(encoding="utf-8"))
    several = schema.pop("anyOf", None)
    named = {command: schema}
    if several is not None:
        named = {f"{command}: {each['title']}": {**schema, **each} for each in several}
    return {name: jsonschema.Draft202012Validator(each) for name, each in named.items()}


def _command(args: Sequence[str | Path]) -> str:
    """Return the words of the command that ``args`` call."""
    from docs.generator.outputs import commands

    names = {name for name, _ in commands()}
    two = " ".join(map(str, args[:2]))
    return two if two in names else str(args[0])
