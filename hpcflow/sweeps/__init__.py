"""Sweeps: many runs of one program with different parameters.

No process runs between two rounds. A round (``tick.py``) collects the reports of the trials, tells
the study, prunes trials, asks for as many new trials as the budget and ``parallel`` allow, and
submits them.

================  ==================================================================================
state.py          folds the journal of a sweep into its state: pure
study.py          the state as an Optuna study: asks for trials, judges running ones, is exported
sampling.py       the sampler and the pruner that the sweep's file names
population.py     population based training: which trial is replaced, and by what: pure
budget.py         whether another trial may begin: pure
trials.py         plans, submits and ends a trial's runs
tick.py           one round, with its context in ``round.py``: ``collecting.py``, ``closing.py``,
                  ``asking.py``
rounds.py         a round of all sweeps
changing.py       resumes a sweep, with another budget; ``again.py``: reruns its best trial
api.py            ``hpcflow.sweep()``: a function instead of a program; ``call.py``: the job side
starting.py       checks and creates a new sweep
view.py           a sweep as it is shown; ``plots/``: its figures, as PNG and HTML
install.py        the crontab entry that runs the rounds
================  ==================================================================================
"""
