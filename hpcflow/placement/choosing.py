"""Choose a partition if the config says `auto`: compare every partition that the run fits.

The site file says what fits and what it costs. The live cluster says when the job would start, and
the fair share of the account. What cannot be queried is left out, with a warning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from hpcflow.clock import Clock
from hpcflow.documents import Document
from hpcflow.errors import SpecError, SubmissionDelayed, SubmissionRefused
from hpcflow.model.kinds import AUTO
from hpcflow.model.spec import RunSpec
from hpcflow.placement.mtbf import seen_in
from hpcflow.schedulers.base import Scheduler
from hpcflow.settings import Settings
from hpcflow.sites.placement import Placement, place, placements
from hpcflow.sites.schema import Site

# A run with a named partition needs none of these.
if TYPE_CHECKING:
    from hpcflow.ledger.ends import Observed
    from hpcflow.placement.choice import Candidate, Ranked
    from hpcflow.placement.forecast import Forecast

#: A partition, and the account that would be charged; None if unknown.
Place = tuple[str, str | None]


@dataclass(frozen=True)
class Survey:
    """All places for a run.

    Attributes:
        ranked: where it can run, the best first.
        refused: place -> why it cannot run there.
        later: refused places that are only full now, for an unknown time; the best first.
    """

    ranked: Sequence[Ranked] = ()
    refused: Mapping[Place, str] = field(default_factory=dict)
    later: Sequence[Ranked] = ()


class Chooser:
    """Choose the place of runs on one site.

    Args:
        site_reference: as the runs of this site name it.
        connect: connects to the scheduler of ``site``, when it is first needed.
        ignored_jobs: ids of jobs that will be cancelled before the run is submitted.

    Attributes:
        warnings: about the choice.
    """

    def __init__(
        self,
        site: Site,
        site_reference: str,
        connect: Callable[[], Scheduler],
        *,
        settings: Settings,
        clock: Clock,
        ignored_jobs: Sequence[str] = (),
    ) -> None:
        self._site, self._reference, self._connect = site, site_reference, connect
        self._settings, self._clock, self._ignored_jobs = settings, clock, ignored_jobs
        self._seen: dict[str, Observed] = {}
        self.warnings: list[str] = []

    @cached_property
    def forecast(self) -> Forecast:
        from hpcflow.placement.forecast import Forecast

        return Forecast(
            self._site,
            self._connect,
            settings=self._settings,
            clock=self._clock,
            ignored_jobs=self._ignored_jobs,
        )

    def choose(self, spec: RunSpec, document: Document | None = None) -> tuple[RunSpec, Placement]:
        """Return the run with its account, and the best place for it.

        The cluster is queried only if there is a choice, and only about places that could be the
        best if they started at once.

        Raises:
            SpecError: there is no place; with file, line, key and what would be right.
        """
        if AUTO not in (spec.resources.partition, spec.resources.account):
            return spec, place(spec, self._site, document)
        fits, refused = self._fitting(spec, document)
        if len(fits) > 1:
            survey = self._survey(fits, refused, spec, ask_all=False)
            if not survey.ranked:
                reasons = "; ".join(f"{name}: {why}" for (name, _), why in refused.items())
                none = "hpcflow knows no partition where this run could start now"
                self.warnings.append(f"{none}: {reasons}")
            known = survey.ranked or survey.later
            fits = [each.candidate.placement for each in known] or fits
        if fits:
            return charged_to(spec, fits[0].account), fits[0]
        spec = charged_to(spec, self._accounts(spec)[0])
        return spec, place(spec, self._site, document)

    def partitions(self, spec: RunSpec) -> list[str]:
        resources = spec.resources.model_copy(update={"partition": AUTO})
        try:
            found, _ = self._fitting(spec.model_copy(update={"resources": resources}), None)
        except SpecError:
            return []
        return list(dict.fromkeys(each.partition for each in found))

    def best(self, spec: RunSpec, document: Document | None = None) -> Ranked | None:
        """Return the best place, with the expected start; None if it can run nowhere now.

        Raises:
            SpecError: the run can run nowhere on this site.
        """
        fits, refused = self._fitting(spec, document)
        return next(iter(self._survey(fits, refused, spec, ask_all=False).ranked), None)

    def survey(self, spec: RunSpec, document: Document | None = None) -> Survey:
        """Return what is known of every place.

        Raises:
            SpecError: the run can run nowhere on this site.
        """
        fits, refused = self._fitting(spec, document)
        return self._survey(fits, refused, spec, ask_all=True)

    def _fitting(
        self, spec: RunSpec, document: Document | None
    ) -> tuple[list[Placement], dict[Place, str]]:
        """Return where the run fits by the site file, and why it does not elsewhere."""
        fits: list[Placement] = []
        refused: dict[Place, str] = {}
        for account in self._accounts(spec):
            charged = charged_to(spec, account)
            for name, each in placements(charged, self._site, document).items():
                if isinstance(each, Placement):
                    fits.append(each)
                else:
                    refused[name, account] = each.message
        without = [each for each in fits if not each.options.gpus_per_node]
        if spec.resources.partition != AUTO or spec.resources.gpus_per_node or not without:
            return fits, refused
        for each in fits:
            if each.options.gpus_per_node:
                refused[each.partition, each.account] = "it has GPUs, and the run requests none"
        return without, refused

    def _accounts(self, spec: RunSpec) -> list[str | None]:
        """Return the accounts that may be charged, the site's default first."""
        asked = spec.resources.account
        if asked != AUTO:
            return [asked]
        default = self._site.default_account
        usable = [
            each
            for each in self.forecast.accounts
            if self._site.accounts is None or each in self._site.accounts
        ]
        return sorted(usable, key=lambda each: each != default) or [default]

    def _candidates(self, fits: list[Placement], spec: RunSpec) -> list[Candidate]:
        from hpcflow.placement.choice import candidates

        now = self._clock.now()
        names = {each.partition for each in fits} - self._seen.keys()
        self._seen |= seen_in(sorted(names), self._reference, self._settings, now)
        return [
            replace(
                each,
                account=self.forecast.account(each.placement),
                fair_share=self.forecast.fair_share(each.placement),
            )
            for each in candidates(fits, spec, observed=self._seen, now=now)
        ]

    def _survey(
        self, fits: list[Placement], refused: dict[Place, str], spec: RunSpec, *, ask_all: bool
    ) -> Survey:
        """Query the best place that was not queried yet, until the best one is certain.

        A place that was not queried is ranked as if it started at once, so a query can only lower
        its rank. If the start of the best one is unknown, the others are queried too.
        """
        from hpcflow.placement.choice import rank

        weights, now = self._site.weights, self._clock.now()
        small = []
        for each in fits:
            if (limit := self.forecast.limit(each)) is not None:
                refused[each.partition, each.account] = limit
            else:
                small.append(each)
        unasked = [replace(each, waits_s=0.0) for each in self._candidates(small, spec)]
        asked: list[Candidate] = []
        later: list[Candidate] = []
        while unasked:
            best = rank([*asked, *unasked], weights)[0].candidate
            if best in asked and best.waits_s is not None and not ask_all:
                break
            following = best if best in unasked else rank(unasked, weights)[0].candidate
            unasked.remove(following)
            where = following.placement.partition, following.placement.account
            try:
                start = self.forecast.start(spec, following.placement)
            except SubmissionRefused as error:
                refused[where] = error.message
            except SubmissionDelayed as error:
                refused[where] = f"full now: {error.message}"
                later.append(replace(following, waits_s=None))
            else:
                waits_s = None if start is None else max(0.0, (start.at - now).total_seconds())
                asked.append(replace(following, start=start, waits_s=waits_s))
        return Survey(rank(asked, weights), refused, rank(later, weights))


def charged_to(spec: RunSpec, account: str | None) -> RunSpec:
    resources = spec.resources.model_copy(update={"account": account})
    return spec.model_copy(update={"resources": resources})
