"""Whether a run counts against a budget. Most do not, and budgets are slow to import."""

from __future__ import annotations

from hpcflow.budgets.folder import budgets_of
from hpcflow.budgets.scope import Scope, scopes_of
from hpcflow.model.run import Run
from hpcflow.sites.schema import Site
from hpcflow.storage.layout import Home


def scopes_of_run(run: Run) -> tuple[Scope, ...]:
    """Return the scopes of the budgets that a run counts against, set or not."""
    return scopes_of(
        project=run.spec.project, user=run.user, sweep=run.parent_sweep, run_id=run.run_id
    )


def has_budget(run: Run, site: Site, home: Home) -> bool:
    """Return whether a run counts against any budget."""
    folder = budgets_of(site, home)
    return run.spec.budget is not None or any(folder.has(each) for each in scopes_of_run(run))
