"""A sweep is checked completely before it starts: its file, its base run, and the two together."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpcflow.config.sweep import load_sweep
from hpcflow.documents.suggest import keys_of
from hpcflow.errors import InputError, SpecError
from hpcflow.launch.context import LaunchContext
from hpcflow.model.pruner import Pruner
from hpcflow.model.sampler import Sampler
from hpcflow.model.space_section import KEYS as SPACE_KEYS
from hpcflow.model.sweep import Budget, Objective, SweepSpec
from hpcflow.storage.sweeps import list_sweeps, read_sweep
from hpcflow.sweeps.starting import SweepPlan, plan_sweep, start_sweep
from tests.launch.desk import Desk
from tests.test_hostile_specs import NASTY, dumped
from tests.valid_specs import JSON

SWEEP = """\
name: search
base: config.yaml
space:
  lr: {low: 1e-4, high: 1.0, log: true}
objective: {metric: accuracy, direction: maximize}
budget: {trials: 8}
"""
OPTIMIZER = """\
space:
  optimizer: {choices: [adam, sgd]}
  momentum: {low: 0.5, high: 0.9, step: 0.1, when: {optimizer: sgd}}
"""
RUN = """\
name: small
command: ["true"]
launch: {framework: none, launcher: none}
resources: {time_limit: 10m, account: physics}
"""


class Starting(Desk):
    """A person who starts a sweep from the folder that it is in."""

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def plan(self, text: str = SWEEP, *overrides: str, file: str = "sweep.yaml") -> SweepPlan:
        self.write(file, text)
        context = LaunchContext(self.settings, self.site, self.slurm, self.clock)
        return plan_sweep(Path(file), context, overrides=overrides)

    def refusal(self, text: str = SWEEP, *overrides: str) -> InputError:
        with pytest.raises(InputError) as caught:
            self.plan(text, *overrides)
        assert caught.value.exit_code == 2
        assert caught.value.next_action
        assert list_sweeps(self.settings.home) == []
        return caught.value


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Starting:
    monkeypatch.chdir(tmp_path)
    desk = Starting(tmp_path)
    desk.write("config.yaml", RUN)
    return desk


def instead(old: str, new: str, text: str = SWEEP) -> str:
    assert old in text
    return text.replace(old, new)


# --- what is started ----------------------------------------------------------------------------


def test_a_plan_creates_nothing_and_a_start_keeps_what_was_said(desk: Starting) -> None:
    plan = desk.plan(SWEEP + "sampler: {type: tpe, seed: null}\npruner:\n")
    assert plan.example_params == {"lr": 0.0001}
    assert not desk.settings.home.sweeps.exists()
    sweep_dir = start_sweep(plan, desk.settings)
    kept = read_sweep(sweep_dir)
    assert kept.spec == plan.loaded.spec
    assert kept.said["base"] == str(desk.folder / "config.yaml")
    assert kept.base.resources.time_limit_min == 10


def test_null_is_the_default_and_below_space_it_is_a_value(desk: Starting) -> None:
    text = SWEEP + "sampler:\npruner: null\nparallel: null\nstart_from:\nrepeats:\nobjectives:\n"
    text = instead("trials: 8", "trials: 8, cost_usd: null", text)
    text = instead("space:\n", "space:\n  init: null\n", text)
    spec = desk.plan(text).loaded.spec
    assert spec.space.constants == {"init": None}
    assert (spec.parallel_or_default, spec.repeats, spec.start_from) == (1, 1, [])


def test_overrides_go_over_the_file(desk: Starting) -> None:
    (desk.folder / "below").mkdir()
    desk.write("below/sweep.yaml", "")
    desk.write("below/config.yaml", RUN)
    plan = desk.plan(SWEEP, "budget.trials=20", "space.lr.high=2.0", file="below/sweep.yaml")
    assert plan.loaded.spec.budget.trials == 20
    assert plan.loaded.spec.base == str(desk.folder / "below/config.yaml")
    plan = desk.plan(SWEEP, "base=config.yaml", "sampler=random", file="below/sweep.yaml")
    assert plan.loaded.spec.base == str(desk.folder / "config.yaml"), "seen from where it was typed"


# --- its own file -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "sweep.yaml: empty"),
        ("- a\n", "sweep.yaml:1: expected keys with values (key: value) at the top, got a list"),
        ("name: s\n", "sweep.yaml, space: is missing"),
        (instead("trials: 8", "trails: 8"), "sweep.yaml:6, budget.trails: unknown key 'trails'"),
        (instead("high: 1.0", "high: .nan"), "sweep.yaml:4, space.lr.high: expected a number"),
        (instead("8}", "8}\nsampler: bayes"), "sweep.yaml:7, sampler: expected one of grid"),
        (instead("space:\n", "space:\n  a b: 1\n"), "sweep.yaml:4, space.a b: not a name"),
    ],
)
def test_what_is_wrong_is_told_with_file_line_and_key(desk: Starting, text: str, said: str) -> None:
    error = desk.refusal(text)
    assert said in str(error)


def test_all_that_is_wrong_is_listed_for_people_and_for_scripts(desk: Starting) -> None:
    error = desk.refusal(
        instead("name: search", "name: 3")
        .replace("high: 1.0", "high: 0")
        .replace("space:\n", "space:\n  x: {choices: []}\n")
        .replace("trials: 8", "trials: 0")
    )
    assert error.message.startswith("4 problems:")
    assert error.next_action == (
        "correct it, then check it: hpcflow sweep start sweep.yaml --dry-run"
    )
    problems = error.details["problems"]
    assert isinstance(problems, list)
    assert [(each["line"], each["key"]) for each in problems] == [
        (1, "name"),
        (4, "space.x.choices"),
        (5, "space.lr.high"),
        (7, "budget.trials"),
    ]


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("budget.trials=0", "--set budget.trials: must be 1 or more"),
        ("budget.trails=4", "--set budget.trails: unknown key 'trails'"),
        ("space.lr.high=abc", "--set space.lr.high: expected a number, got the text 'abc'"),
        ("space=[]", "--set space: expected parameters, such as"),
        ("sampler=gridd", "--set sampler: expected one of grid"),
        ("base=nope.yaml", "--set base: there is no file"),
        ("start_from=[{x: 1}]", "--set start_from[0].x: not a parameter that varies"),
        ("budget", "--set: expected KEY=VALUE"),
    ],
)
def test_what_an_override_brought_is_blamed_on_it(desk: Starting, override: str, said: str) -> None:
    assert said in str(desk.refusal(SWEEP, override))


def test_a_file_whose_name_is_no_text(desk: Starting) -> None:
    name = os.fsdecode(b"sw\xff.yaml")
    (desk.folder / name).write_text(SWEEP)
    with pytest.raises(InputError, match="the path of this file is not UTF-8"):
        desk.plan(file=name)


# --- its base run -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "said"),
    [
        ("nope.yaml", "sweep.yaml:2, base: there is no file"),
        ("folder", "folder is not a file"),
        ("/dev/zero", "sweep.yaml:2, base: /dev/zero is not a file"),
        ("''", "sweep.yaml:2, base: must not be empty"),
        ("null", "sweep.yaml, base: is missing"),
        ("-x", "sweep.yaml:2, base: begins with '-'"),
        ('"a\\0b"', "sweep.yaml:2, base: a NUL byte"),
        ("x" * 300, "sweep.yaml:2, base: there is no file"),
        ("x" * 5000, "sweep.yaml:2, base: longer than 4096 characters"),
        ('"\\e[31m"', "\\x1b[31m"),
        ("empty.yaml", "empty.yaml"),
        ("wrong.yaml", "wrong.yaml"),
        ("circle.yaml", "these files extend each other in a circle"),
        ("sweep.yaml", "this is the file of a sweep"),
    ],
)
def test_a_base_that_is_no_run(desk: Starting, base: str, said: str) -> None:
    (desk.folder / "folder").mkdir()
    desk.write("empty.yaml", "")
    desk.write("wrong.yaml", RUN + "nods: 3\n")
    desk.write("circle.yaml", "extends: circle.yaml\n")
    error = desk.refusal(instead("config.yaml", base))
    assert said in str(error)
    assert "\x1b" not in str(error)


def test_all_that_is_wrong_with_the_base_is_told_of_its_file(desk: Starting) -> None:
    desk.write("lab.yaml", "resources:\n  nods: 3\n")
    desk.write("config.yaml", "extends: lab.yaml\nname: 3\ncommand: [x]\n")
    error = desk.refusal()
    assert "2 problems" in error.message
    assert "config.yaml:2, name: expected a text" in error.message
    assert "lab.yaml:2, resources.nods: unknown key" in error.message
    assert "hpcflow render" in str(error.next_action)


def test_what_the_site_does_not_have_is_told_where_the_base_says_it(desk: Starting) -> None:
    desk.write("config.yaml", RUN.replace("physics", "phyics"))
    error = desk.refusal()
    assert error.where is not None
    assert (error.where.line, error.where.key) == (4, "resources.account")


# --- the two together ---------------------------------------------------------------------------


def with_argument(name: str) -> str:
    return RUN + f'args: [--x, "{{{{ params.{name} }}}}"]\n'


def test_an_argument_that_no_trial_has(desk: Starting) -> None:
    desk.write("config.yaml", with_argument("momentum"))
    error = desk.refusal()
    assert "there is no params.momentum, in a trial with lr 0.0001" in error.message
    assert error.where is not None
    assert (error.where.line, error.where.key) == (5, "args[1]")


def test_an_argument_that_some_trials_lack(desk: Starting) -> None:
    desk.write("config.yaml", with_argument("momentum"))
    text = instead("space:\n  lr: {low: 1e-4, high: 1.0, log: true}\n", OPTIMIZER)
    error = desk.refusal(text)
    assert "there is no params.momentum, in a trial with optimizer adam" in error.message
    desk.write("config.yaml", with_argument("momentum") + "params: {momentum: 0}\n")
    assert desk.plan(text).example_params == {"optimizer": "adam"}


def test_an_argument_that_hardly_any_trial_lacks(desk: Starting) -> None:
    """Trying some trials by chance would not find it."""
    desk.write("config.yaml", with_argument("deep"))
    space = """\
space:
  kind: {low: 1, high: 1000000}
  more: {choices: [a, b], when: {kind: %s}}
  deep: {choices: [1, 2], when: {more: [a, b]}}
"""
    text = instead("space:\n  lr: {low: 1e-4, high: 1.0, log: true}\n", space)
    most = str(list(range(1, 5000)))
    error = desk.refusal(text % most)
    assert "there is no params.deep, in a trial with kind 5000" in error.message
    desk.write("config.yaml", with_argument("more"))
    assert "there is no params.more" in desk.refusal(text % "[7]").message


def test_an_argument_that_all_trials_have_though_it_has_a_condition(desk: Starting) -> None:
    desk.write("config.yaml", with_argument("momentum"))
    text = instead("space:\n  lr: {low: 1e-4, high: 1.0, log: true}\n", OPTIMIZER)
    plan = desk.plan(instead("optimizer: sgd}", "optimizer: [sgd, adam]}", text))
    assert plan.example_params == {"optimizer": "adam", "momentum": 0.5}


def test_a_budget_that_nothing_would_use_up(desk: Starting) -> None:
    error = desk.refusal(instead("trials: 8", "gpu_hours: 8"))
    assert str(error.where) == "sweep.yaml:6, budget.gpu_hours"
    assert "so it uses no GPU hours" in error.message


@pytest.mark.parametrize(
    ("sweep", "run", "where", "said"),
    [
        ("  seed: {choices: [1, 2]}\n", "", "space.seed", "`seed` is in the space"),
        ("  seed: x\n", "", "space.seed", "`seed` is not an integer"),
        ("", "params: {seed: 1.5}\n", "params.seed", "`seed` is not an integer"),
    ],
)
def test_repeats_have_seeds_of_their_own(
    desk: Starting, sweep: str, run: str, where: str, said: str
) -> None:
    desk.write("config.yaml", RUN + run)
    text = instead("space:\n", "space:\n" + sweep)
    assert desk.plan(text)
    error = desk.refusal(text + "repeats: 3\n")
    assert said in error.message
    assert error.where is not None
    assert (error.where.key, error.where.line) == (where, 5 if run else 4)


def test_a_constant_seed_takes_the_place_of_a_wrong_one(desk: Starting) -> None:
    desk.write("config.yaml", RUN + "params: {seed: x}\n")
    assert desk.plan(instead("space:\n", "space:\n  seed: 3\n") + "repeats: 3\n")


# --- anything -----------------------------------------------------------------------------------

ANY = settings(
    max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
MODELS = (SweepSpec, Objective, Sampler, Pruner, Budget)
KEYS = st.sampled_from([*SPACE_KEYS, *(key for model in MODELS for key in keys_of(model)), "lr"])
WORDS = st.sampled_from(["tpe", "grid", "asha", "patience", "config.yaml", "lr", "minimize", "2h"])
VALUES = st.recursive(
    JSON | NASTY | WORDS | st.floats(),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(KEYS, values, max_size=3),
    max_leaves=10,
)


def loaded_or_told(folder: Path, text: str) -> None:
    """Each file is a sweep or one clear error: never a traceback, never a control character."""
    (folder / "sweep.yaml").write_bytes(text.encode("utf-8", "replace"))
    try:
        loaded = load_sweep(folder / "sweep.yaml")
    except SpecError as error:
        said = str(error)
        assert error.next_action
        assert said.replace("\n", " ").isprintable()
        assert "Input should" not in said
        return
    kept = json.loads(json.dumps(loaded.document.data, allow_nan=False))
    assert type(loaded.spec).model_validate(kept, by_alias=True, by_name=False) == loaded.spec


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.yaml").write_text(RUN)
    return tmp_path


@ANY
@given(data=st.dictionaries(KEYS, VALUES, max_size=8))
def test_any_values_are_a_sweep_or_one_clear_error(folder: Path, data: dict[str, Any]) -> None:
    loaded_or_told(folder, dumped(data))


WHOLE: dict[str, Any] = {
    "name": "search",
    "base": "config.yaml",
    "space": {
        "lr": {"low": 0.1, "high": 1.0, "step": 0.1},
        "opt": {"choices": ["adam", "sgd"]},
        "mom": {"low": 1, "high": 9, "when": {"opt": "sgd"}},
    },
    "objective": {"metric": "loss", "direction": "minimize"},
    "sampler": {"type": "tpe", "seed": 1},
    "pruner": {"type": "asha", "min_resource": 5},
    "budget": {"trials": 3, "cost_usd": 2.5, "deadline": "2h"},
    "start_from": [{"lr": 0.5, "opt": "sgd", "mom": 3}],
    "parallel": 2,
}


@st.composite
def one_wrong_value(draw: st.DrawFn) -> Any:
    """A good sweep in which one value, at any depth, is something else."""
    whole = json.loads(json.dumps(WHOLE))
    at: Any = whole
    while True:
        key = draw(st.sampled_from(sorted(at) if isinstance(at, dict) else list(range(len(at)))))
        if isinstance(at[key], (dict, list)) and draw(st.booleans()):
            at = at[key]
            continue
        at[key] = draw(VALUES)
        return whole


@ANY
@given(data=one_wrong_value())
def test_one_value_that_is_something_else(folder: Path, data: Any) -> None:
    loaded_or_told(folder, dumped(data))
