"""Generate the reference page of a sweep's file."""

from __future__ import annotations

from typing import Final

from docs.generator.pages import tables
from hpcflow.model.space import MAX_POINTS
from hpcflow.model.space_section import MAX_CHOICES, MAX_PARAMETERS, MAX_TEXT_CHARS
from hpcflow.model.sweep import SweepSpec

_MADE: Final = (
    "<!-- Made by `python -m docs.generator` from hpcflow/model/sweep.py and "
    "docs/generator/sweeps.py; edit these. -->\n\n"
)

SWEEP_EXAMPLE: Final = """\
name: digits-tpe
base: config.yaml

space:
  lr: {low: 1e-5, high: 1e-1, log: true}
  layers: {low: 1, high: 4}
  dropout: {low: 0.0, high: 0.5, step: 0.1}
  optimizer: {choices: [adam, sgd]}
  momentum: {low: 0.5, high: 0.99, when: {optimizer: sgd}}
  epochs: 20

objective: {metric: accuracy, direction: maximize}
sampler: tpe
pruner: {type: asha, min_resource: 5}
parallel: 8
budget:
  trials: 60
  deadline: 2d
start_from:
  - {lr: 1e-3, optimizer: adam}
"""

_INTRO: Final = """\
# A sweep's YAML

One file describes one sweep: many runs of one program, each with other parameters. `hpcflow sweep
start sweep.yaml` starts it; with `--dry-run` it checks the sweep and its base run completely, and
creates nothing.

```yaml
{example}```

`name`, `base`, `space` and `objective` are required, and a `budget` that ends, unless the sampler
is `grid` or `pbt`, which end by themselves. A wrong key, type or unit is an error with its file and
line. All errors are listed at once, and nothing is created.

For how values are written (words, numbers, durations, `null`) and what `--set` does, see
[the reference of a run's YAML](configuration.md#how-values-are-written). `base` is relative to the
file that contains it. There is no `extends` here, but the base run may have one.

An editor checks the file against the [JSON Schema](schema/sweep.schema.json) when it begins with
`# yaml-language-server: $schema=PATH/TO/docs/schema/sweep.schema.json`.

## Keys at the top

`$schema` (for editors) is also allowed. `sampler: tpe` and `pruner: asha` are short for
`{{type: tpe}}` and `{{type: asha}}`.

"""

_SPACE: Final = """
## `space`

Names are as in `params` of a run's file: letters, digits and `_`. The value of each is one of:

{table}
`when` names other parameters that vary, each with a value or a list of values; all must match.
These have `choices` or whole numbers, and may have their own `when`, but not in a cycle. An
argument such as `{{{{ params.momentum }}}}` of the base run needs a parameter that every trial has,
or one of that name in the base run's `params`.

A space has at most {parameters:,} parameters, a choice {choices:,} values of {chars} characters, a
range with steps {points:,} values, and a grid as many combinations.

"""

_WRITTEN: Final = (
    ("`optimizer: {choices: [adam, sgd]}`",
     "one of these values, unordered. A value is a text, a number, `true`, `false` or "
     "`null`"),
    ("`dropout: {low: 0.0, high: 0.5}`", "any number from `low` to `high`, both included"),
    ("`lr: {low: 1e-5, high: 1e-1, log: true}`",
     "the same, as likely between 1e-5 and 1e-4 as between 1e-2 and 1e-1; also for whole numbers"),
    ("`layers: {low: 1, high: 4}`",
     "a whole number, because `low`, `high` and `step` have no decimal point"),
    ("`dropout: {low: 0.0, high: 0.5, step: 0.1}`",
     "`low`, and whole steps above it; not with `log`"),
    ("`momentum: {low: 0.5, high: 0.99, when: {optimizer: sgd}}`",
     "only if `optimizer` is `sgd`; other trials lack this parameter"),
    ("`epochs: 20`, or `epochs: {value: 20}`",
     "the same in all trials; overrides the base run"),
)  # fmt: skip


def sweep_page() -> str:
    rows = [("written as", "what it is"), ("---", "---"), *_WRITTEN]
    top, *sections = tables(SweepSpec).split("\n## ")
    space = _SPACE.format(
        table="".join(f"| {' | '.join(row)} |\n" for row in rows),
        parameters=MAX_PARAMETERS,
        choices=MAX_CHOICES,
        chars=MAX_TEXT_CHARS,
        points=MAX_POINTS,
    )
    rest = "\n".join(f"## {section}" for section in sections)
    return _MADE + _INTRO.format(example=SWEEP_EXAMPLE) + top + space + rest
