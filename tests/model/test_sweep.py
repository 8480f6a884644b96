"""What a sweep is asked for: what is refused, and that sweep.json gives back the same."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcflow.documents import parse_document, validate
from hpcflow.errors import SpecError
from hpcflow.model.numbers import MAX_TRIALS
from hpcflow.model.pruner import Per, Pruner, PrunerKind
from hpcflow.model.run import Provenance
from hpcflow.model.sampler import SamplerKind
from hpcflow.model.spec import RunSpec
from hpcflow.model.sweep import MAX_NAME_CHARS, Budget, SweepSpec, trial_params
from hpcflow.model.sweep_records import Sweep

HEAD = """\
name: digits
base: config.yaml
"""
SPACE = "space: {lr: {low: 1e-3, high: 1.0}, layers: {low: 1, high: 4}}\n"
OBJECTIVE = "objective: {metric: accuracy, direction: maximize}\n"
BUDGET = "budget: {trials: 60}\n"
PLAIN = HEAD + SPACE + OBJECTIVE + BUDGET


def spec_of(text: str) -> SweepSpec:
    return validate(SweepSpec, parse_document(text, Path("sweep.yaml"), SpecError), SpecError)


def refusal(text: str) -> str:
    with pytest.raises(SpecError) as caught:
        spec_of(text)
    assert caught.value.next_action
    return str(caught.value)


def with_pruner(text: str) -> str:
    return PLAIN + f"pruner: {text}\n"


def with_budget(text: str) -> str:
    return HEAD + SPACE + OBJECTIVE + f"budget: {text}\n"


# --- what is meant ------------------------------------------------------------------------------


def test_a_word_is_short_for_a_type() -> None:
    spec = spec_of(PLAIN + "sampler: gp\npruner: asha\n")
    assert spec.sampler.kind is SamplerKind.GP
    assert spec.pruner.kind is PrunerKind.ASHA
    assert spec_of(PLAIN).sampler.kind is SamplerKind.TPE
    assert spec_of(PLAIN).pruner.kind is PrunerKind.NONE


def test_a_trial_has_the_constants_and_what_was_chosen() -> None:
    spec = spec_of(PLAIN.replace("layers: {low: 1, high: 4}", "epochs: 3"))
    assert trial_params(spec, {"lr": 0.5}) == {"epochs": 3, "lr": 0.5}


def most(text: str) -> int | None:
    """How many trials there are at most."""
    spec = spec_of(text)
    return spec.most_trials(spec.budget)


def test_a_grid_ends_by_itself_and_a_budget_may_end_it_before() -> None:
    grid = HEAD + OBJECTIVE + "sampler: grid\nspace: {a: {low: 1, high: 4}, b: {choices: [x, y]}}\n"
    assert most(grid) == 8
    assert most(grid + "budget: {trials: 5}\n") == 5
    assert most(grid + "budget: {trials: 50}\n") == 8
    assert most(with_budget("{deadline: 2d}")) is None


@pytest.mark.parametrize(
    ("asked", "lowest", "highest"),
    [
        ({"type": "asha"}, 10, 100),
        ({"type": "asha", "min_resource": 3}, 3, 100),
        ({"type": "asha", "per": "epoch"}, 1, None),
        ({"type": "asha", "per": "train_step", "every": 500}, 500, None),
        ({"type": "hyperband", "per": "epoch", "max_resource": 20}, 1, 20),
    ],
)
def test_the_rungs_of_halving(asked: dict[str, Any], lowest: int, highest: int | None) -> None:
    pruner = Pruner.model_validate(asked)
    assert (pruner.lowest, pruner.highest) == (lowest, highest)


# --- what is refused ----------------------------------------------------------------------------


def test_wrong_values_are_told_at_once_with_their_lines() -> None:
    said = refusal(
        "name: 3\n"
        "base: [x]\n"
        "space: {a: {low: 2, high: 1}, b: {choices: x}}\n"
        "objective: loss\n"
        "sampler: bayes\n"
        "pruner: {type: asha, every: 0}\n"
        "budget: {trials: 0, cost_usd: free}\n"
    )
    for each in (
        "9 problems",
        "sweep.yaml:1, name: expected a text, got the number 3; write it like `name: '3'`",
        "sweep.yaml:2, base: expected a text, got a list",
        "sweep.yaml:3, space.a.high: must be more than `low`, the number 2",
        "sweep.yaml:3, space.b.choices: expected a list such as [adam, sgd]",
        "sweep.yaml:4, objective: expected keys with values (key: value), got the text 'loss'",
        "sweep.yaml:5, sampler: expected one of grid, random, tpe, gp, cmaes, qmc, nsga2",
        "sweep.yaml:6, pruner.every: must be 1 or more, got the number 0",
        "sweep.yaml:7, budget.trials: must be 1 or more, got the number 0",
        "sweep.yaml:7, budget.cost_usd: expected a number; got the text 'free'",
    ):
        assert each in said


def test_what_does_not_go_together_is_told_at_once() -> None:
    said = refusal(
        f"name: {'a' * (MAX_NAME_CHARS + 1)}\n"
        "base: config.yaml\n"
        "space: {lr: {low: 0.0, high: 1.0}, on: {choices: [true]}}\n"
        "sampler: grid\n"
        "objectives:\n"
        "  - {metric: a, direction: minimize}\n"
        "  - {metric: a, direction: maximize}\n"
        "pruner: asha\n"
        "budget: {target: 3}\n"
        "start_from:\n"
        "  - {lr: 3}\n"
        "  - {nobody: 1}\n"
    )
    for each in (
        "sweep.yaml:1, name: longer than 50 characters",
        "sweep.yaml:3, space.lr: a grid needs values that can be counted: give a `step`",
        "sweep.yaml:7, objectives[1].metric: the same metric twice",
        "sweep.yaml:8, pruner: not allowed with several objectives",
        "sweep.yaml:9, budget.target: not allowed with several objectives",
        "sweep.yaml:10, start_from: not needed: a grid tries every combination",
        "sweep.yaml:11, start_from[0].lr: the number 3 is not from 0.0 to 1.0",
        "sweep.yaml:12, start_from[1].nobody: not a parameter that varies; there are: lr, on",
    ):
        assert each in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (HEAD + SPACE + BUDGET, "objective: is missing; write it like `objective: {metric"),
        (PLAIN + "objectives: []\n", "objectives: give either `objective` or `objectives`"),
        (
            HEAD + SPACE + BUDGET + "objectives: [{metric: a, direction: minimize}]\n",
            "objectives: give at least two",
        ),
        (HEAD + SPACE + OBJECTIVE, "budget: needs a limit: `trials`, `gpu_hours`"),
        (with_budget("{target: 1}"), "budget: needs a limit"),
        (PLAIN + "prunner: asha\n", "prunner: unknown key 'prunner'; did you mean 'pruner'?"),
        (PLAIN + "metric: loss\n", "metric: unknown key 'metric' here; 'metric' belongs under"),
        (PLAIN + "sampler: {population: 4}\n", "sampler.population: does not apply to tpe"),
        (PLAIN + "sampler: {type: qmc, startup_trials: 4}\n", "does not apply to qmc"),
        (PLAIN + "parallel: true\n", "parallel: expected a whole number, got true"),
        (PLAIN + "repeats: 100\n", "repeats: must be 99 or less"),
        (PLAIN + "retries: -1\n", "retries: must be 0 or more"),
    ],
)
def test_a_sweep_that_means_nothing(text: str, said: str) -> None:
    assert said in refusal(text)


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        ("{gpu_hours: 0}", "budget.gpu_hours: must be more than 0; got the number 0"),
        ("{gpu_hours: '3'}", "budget.gpu_hours: expected a number; got the text '3'"),
        ("{cost_usd: -1}", "budget.cost_usd: must be more than 0; got the number -1"),
        ("{cost_usd: true}", "budget.cost_usd: expected a number; got true"),
        ("{cost_usd: .nan}", "budget.cost_usd: expected a number; got the number .nan"),
        ("{gpu_hours: 1e301}", "budget.gpu_hours: too large a number"),
        ("{trials: 1, target: .inf}", "budget.target: too large a number"),
        ("{trials: 1, target: high}", "budget.target: expected a number; got the text 'high'"),
        ("{trials: 1e9}", "budget.trials: expected a whole number, got the number 1e9"),
        ("{trials: 100001}", "budget.trials: must be 100000 or less"),
        ("{deadline: 90}", "budget.deadline: a number without a unit; write a duration like 30m"),
        ("{deadline: 0s}", "budget.deadline: must be longer than zero"),
        ("{deadline: -1h}", "budget.deadline: not a duration"),
    ],
)
def test_a_budget_that_is_none(budget: str, said: str) -> None:
    assert said in refusal(with_budget(budget))


@pytest.mark.parametrize(
    ("pruner", "said"),
    [
        ("{per: epoch}", "pruner.type: is missing; write it like `type: asha`"),
        ("{type: median, min_resource: 3}", "pruner.min_resource: does not apply to median"),
        ("patience", "pruner.patience: is missing; write it like `patience: 10`"),
        ("threshold", "pruner.type: needs `lower`, `upper`, or both"),
        ("{type: threshold, lower: 3, upper: 3}", "pruner.upper: must be more than `lower`, 3.0"),
        ("{type: threshold, lower: .nan}", "pruner.lower: expected a number"),
        ("{type: hyperband, per: epoch}", "max_resource: is missing; give the number of epochs"),
        (
            "{type: hyperband, max_resource: 101}",
            "pruner.max_resource: must be at most 100 percent",
        ),
        ("{type: hyperband, max_resource: 10}", "must be more than min_resource, 10"),
        ("{type: asha, min_resource: 100}", "pruner.min_resource: must be less than 100 percent"),
        ("{type: median, every: 100}", "pruner.every: must be less than 100 percent"),
        ("{type: median, warmup: 100}", "pruner.warmup: must be less than 100 percent"),
        ("{type: patience, patience: 20, every: 5}", "must be less than a whole training"),
        ("{type: patience, patience: 2, min_delta: -1}", "pruner.min_delta: must be 0 or more"),
        ("{type: percentile, percentile: 0}", "must be more than 0 and less than 100"),
        ("{type: percentile, percentile: 100}", "must be more than 0 and less than 100"),
        ("{type: percentile, percentile: '50'}", "expected a number; got the text '50'"),
        ("{type: percentile, percentile: true}", "expected a number; got true"),
        ("{type: asha, reduction_factor: 1}", "reduction_factor: must be 2 or more"),
    ],
)
def test_a_pruner_that_would_not_prune(pruner: str, said: str) -> None:
    assert said in refusal(with_pruner(pruner))


@pytest.mark.parametrize(
    ("sampler", "space", "said"),
    [
        ("grid", "{a: {low: 1, high: 100001}}", "space: more than 100,000 combinations"),
        ("grid", "{a: {low: 0, high: 9007199254740992}}", "space: more than 100,000 combinations"),
        ("cmaes", "{a: {choices: [1, 2]}, b: {low: 1, high: 2}}", "only numbers, but a has"),
        ("cmaes", "{a: {low: 1, high: 2}}", "cmaes needs at least two parameters"),
        (
            "qmc",
            "{a: {low: 1, high: 2}, b: {low: 1, high: 2, when: {a: 1}}}",
            "qmc supports no conditions; use tpe",
        ),
    ],
)
def test_a_sampler_that_cannot_search_this_space(sampler: str, space: str, said: str) -> None:
    text = HEAD + OBJECTIVE + BUDGET + f"sampler: {sampler}\nspace: {space}\n"
    assert said in refusal(text)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("parallel: 1\n", "parallel: pbt trains in parallel"),
        ("repeats: 2\n", "repeats: must be 1 with pbt"),
        ("start_from: [{lr: 0.5}]\n", "start_from: not allowed with pbt"),
        ("submit: array\n", "submit: pbt submits each run on its own"),
        ("pruner: asha\n", "pruner: pbt itself decides which trials end"),
    ],
)
def test_what_cannot_go_with_a_population(more: str, said: str) -> None:
    assert said in refusal(PLAIN + "sampler: pbt\n" + more)


def test_a_population_is_trained_side_by_side_by_itself() -> None:
    assert spec_of(PLAIN).parallel_or_default == 1
    assert spec_of(PLAIN + "sampler: pbt\n").parallel_or_default == 8
    population = PLAIN + "sampler: {type: pbt, population: 20}\n"
    assert spec_of(population).parallel_or_default == 20
    assert spec_of(population + "parallel: 5\n").parallel_or_default == 5


def test_a_grid_with_conditions_is_counted_as_it_is() -> None:
    parts = [f"p{i}: {{low: 1, high: 20, when: {{m: {'ab'[i % 2]}}}}}" for i in range(4)]
    space = f"space: {{m: {{choices: [a, b]}}, {', '.join(parts)}}}\n"
    spec = spec_of(HEAD + OBJECTIVE + "sampler: grid\n" + space)
    assert spec.most_trials(spec.budget) == 800, "and not the 320,000 that it would be without them"


OPTIMIZER = """\
space:
  opt: {choices: [adam, sgd]}
  mom: {low: 0, high: 5, when: {opt: sgd}}
  lr: {low: 0.1, high: 1.0, step: 0.1}
"""


@pytest.mark.parametrize(
    ("start", "said"),
    [
        ("{opt: rms}", "start_from[0].opt: the text 'rms' is not one of its choices"),
        ("{opt: adam, mom: 3}", "start_from[0].mom: does not exist if opt is the text 'adam'"),
        ("{mom: 6}", "start_from[0].mom: the number 6 is not from 0 to 5"),
        ("{mom: 1.0}", "start_from[0].mom: expected a whole number, got the number 1.0"),
        (
            "{lr: 0.35}",
            "start_from[0].lr: the number 0.35 is not a whole number of steps above 0.1",
        ),
        ("{lr: null}", "start_from[0].lr: expected a number, got nothing (null)"),
        ("{lr: .nan}", "start_from[0].lr: the number .nan is not from 0.1 to 1.0"),
        ("{lr: '0.1'}", "start_from[0].lr: expected a number, got the text '0.1'"),
        ("[lr, 0.1]", "start_from[0]: expected keys with values"),
        ("null", "start_from[0]: expected keys with values"),
    ],
)
def test_a_first_trial_that_is_no_point(start: str, said: str) -> None:
    assert said in refusal(HEAD + OPTIMIZER + OBJECTIVE + BUDGET + f"start_from: [{start}]\n")


def test_first_trials_may_name_some_values_or_none() -> None:
    text = HEAD + OPTIMIZER + OBJECTIVE + BUDGET
    starts = "start_from: [{}, {mom: 3}, {opt: sgd, mom: 3, lr: 0.30000000000000004}]\n"
    assert len(spec_of(text + starts).start_from) == 3


def test_too_many_first_trials() -> None:
    text = PLAIN + "start_from: [" + "{}, " * (MAX_TRIALS + 1) + "]\n"
    assert "start_from: more than 100,000" in refusal(text)


TOKEN = "hf_" + "a1B2" * 9


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (
            HEAD + OPTIMIZER + OBJECTIVE + BUDGET + f"start_from: [{{opt: {TOKEN}}}]",
            "start_from[0].opt",
        ),
        (PLAIN + f"start_from: [{{x: {TOKEN}}}]", "start_from[0].x"),
        *(
            (HEAD + f"space: {{{space}}}\n" + OBJECTIVE + BUDGET, key)
            for space, key in (
                (f"x: {{choices: [a, {TOKEN}]}}", "space.x.choices[1]"),
                (f"x: {TOKEN}, y: {{choices: [1, 2]}}", "space.x"),
                (f"x: {{value: {TOKEN}}}, y: {{choices: [1, 2]}}", "space.x.value"),
                ("token: {choices: ['', hunter2]}", "space.token.choices[1]"),
                (
                    f"x: {{choices: [1], when: {{y: {TOKEN}}}}}, y: {{choices: [a]}}",
                    "space.x.when.y",
                ),
            )
        ),
    ],
)
def test_a_secret_is_refused_and_not_repeated(text: str, key: str) -> None:
    said = refusal(text + "\n")
    assert f"{key}: looks like a secret" in said
    assert TOKEN not in said
    assert "hunter2" not in said


# --- sweep.json ---------------------------------------------------------------------------------


def again(text: str) -> tuple[SweepSpec, Sweep]:
    """The spec in ``text``, and the sweep as sweep.json gives it back."""
    document = parse_document(text, Path("sweep.yaml"), SpecError)
    spec = validate(SweepSpec, document, SpecError)
    sweep = Sweep(
        sweep_id="digits-20260301-abcdefgh",
        user="ada",
        site="local",
        created_at=datetime(2026, 3, 1, tzinfo=timezone.utc),
        sweep_path=None,
        working_dir="/",
        umask="0022",
        said=document.data,
        base=RunSpec(name="digits", command=["true"]),
        provenance=Provenance(hpcflow_version="1", python_version="3", submit_host="login"),
    )
    kept = json.dumps(sweep.model_dump(mode="json"), ensure_ascii=False, allow_nan=False)
    return spec, Sweep.model_validate(json.loads(kept.encode()))


@pytest.mark.parametrize(
    "text",
    [
        PLAIN,
        PLAIN + "sampler: {type: gp, seed: +7}\n",
        PLAIN + "sampler: tpe\npruner: {type: patience, patience: 3, min_delta: 1e-3}\n",
        PLAIN + "start_from: [{lr: 3.10e-1}, {lr: 5e-1, layers: +2}, {}]\n",
        with_budget("{gpu_hours: 0.1, cost_usd: 3.10, deadline: 1d12h, target: 1e-3}"),
        with_budget("{gpu_hours: 123456789.123456789, cost_usd: 1e-3}"),
        with_budget("{gpu_hours: 1000000000000000000000000000000, trials: +3}"),
        HEAD + OBJECTIVE + BUDGET + "space: {a: {low: 1e0, high: 2}, b: {low: +1, high: 0x10}}\n",
        HEAD
        + OBJECTIVE
        + BUDGET
        + "space: {a: {choices: [null, true, 1e-3, 3.10, 2, '3', ä💩]}}\n",
        HEAD
        + OBJECTIVE
        + BUDGET
        + "space: {a: {choices: [1, 2]}, b: null, c: '\\e[31m', d: 1.0}\n",
        HEAD + OPTIMIZER + OBJECTIVE.replace("accuracy", "'größe/%  μ'") + BUDGET,
    ],
)
def test_sweep_json_gives_back_what_was_asked_for(text: str) -> None:
    spec, kept = again(text)
    assert kept.spec == spec
    assert repr(kept.spec) == repr(spec), "1 is equal to 1.0 and to true, and is not the same"


def test_money_is_as_exact_as_it_was_written() -> None:
    _, kept = again(with_budget("{cost_usd: 0.10, gpu_hours: 3.3}"))
    assert kept.spec.budget.cost_usd == Decimal("0.1")
    assert kept.spec.budget.gpu_hours == Decimal("3.3")


NUMBERS = st.floats(1e-300, 1e300) | st.integers(1, 10**30)


@settings(max_examples=200)
@given(
    budget=st.fixed_dictionaries(
        {"trials": st.integers(1, MAX_TRIALS)},
        optional={"gpu_hours": NUMBERS, "cost_usd": NUMBERS, "target": NUMBERS},
    )
)
def test_any_budget_is_the_same_after_json(budget: dict[str, Any]) -> None:
    spec = Budget.model_validate(budget)
    kept = Budget.model_validate_json(json.dumps(budget))
    assert kept == spec
    assert (kept.gpu_hours, kept.cost_usd) == (spec.gpu_hours, spec.cost_usd)
    assert spec.ends


def test_percent_is_what_trials_are_compared_by_unless_told_otherwise() -> None:
    assert Pruner().per is Per.PERCENT
