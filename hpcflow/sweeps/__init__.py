"""Sweeps: many runs of one program with different parameters.

No process lives between two rounds. A round (``tick.py``) collects what the trials have reported,
tells the study, ends what is not worth its end, asks for as many new trials as there is room for,
and sends them.

================  ==================================================================================
state.py          what the journal of a sweep says: pure
study.py          that as an Optuna study in memory; asks for the next trial, judges the running
sampling.py       the sampler that the sweep's file names; ``pruning.py``: the pruner
population.py     population based training: who gives up, what is gone on with: pure
distributions.py  the space of the parameters in Optuna's words
reports.py        what the events of a trial's runs say
budget.py         whether another trial may begin: pure
trials.py         a trial's runs: planned, sent, ended
tick.py           one round, of which ``round.py`` keeps the books: ``collecting.py``,
                  ``judging.py``, ``closing.py``, ``asking.py``, ``sending.py``
rounds.py         a round of all sweeps
changing.py       letting one go on, with another budget; ``again.py``: its best trial, once more
api.py            ``hpcflow.sweep()``: a function instead of a program; ``call.py``: it, in a job
starting.py       a new sweep, checked completely
view.py           a sweep as people look at it; ``plots/``: its figures, as pictures and pages
install.py        the line in a crontab that makes the rounds
exporting.py      the study as a file that Optuna's tools open
================  ==================================================================================
"""
