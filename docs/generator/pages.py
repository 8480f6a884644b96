"""Generate the reference pages of a run's file and of a site's file."""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel

from docs.generator.tables import sections, table
from hpcflow.model.spec import RunSpec
from hpcflow.sites.schema import Site

_MADE: Final = "<!-- Made by `python -m docs.generator` from {source}; edit that. -->\n\n"

EXAMPLE: Final = """\
name: digits
project: vision
script: train.py
args: ["--data", /data/digits, "--lr", "{{ params.lr }}"]
params:
  lr: 1e-3
  layers: [64, 64]

resources:
  nodes: 2
  gpus_per_node: 4
  gpu_type: a100
  mem: 200G
  time_limit: 4h

environment:
  modules: [cuda/12.4]
  venv: ./.venv
  variables:
    OMP_NUM_THREADS: 8

checkpoint:
  interval: 10m

tags: [baseline]
"""

_RUN_INTRO: Final = """\
# A run's YAML

One file describes one run. `hpcflow run config.yaml` submits it; `hpcflow render config.yaml`
checks it and prints the script that `run` would submit.

```yaml
{example}```

Only `name` and either `script` or `command` are required. A wrong key, type or unit is an error
with its file and line. All errors are listed at once, and nothing is created.

## How values are written

- **Plain words** are read as in YAML 1.2. `true` and `false` are the only booleans: `no`, `on` and
  `yes` are text. `1e-3` is a number. `1:30:00`, `0755` and `1_000` are text. Numbers in arguments
  of a program and in environment variables stay as you wrote them: `3.10` stays `3.10`.
- **Durations** have a unit: `90s`, `30m`, `4h`, `2d`, `1w`, together `1d12h`; or Slurm's format:
  `1-12:00:00`, `04:00:00`. Time limits are rounded up to minutes.
- **Memory** has a unit: `500M`, `200G`, `1.5T`, in powers of 1024 as in Slurm.
- **Paths** (`script`, `venv`, `conda` with a `/`, image files, sources of mounts, `secrets`) are
  relative to the file that contains them, or to the current directory with `--set`. `~` is your
  home directory; other variables are not expanded.
- **`null`** means the default, as if the key were missing; only below `params` it is a value.
- **Secrets** are rejected in every key, names and tags included. hpcflow recognizes a secret by the
  name of its variable, option or parameter (`DB_PASS`, `--token X`, `api_key`), or by its format
  (`hf_…`, a JWT, a private key, a URL with a password). `$VAR`, paths, `<…>` and words such as
  `changeme` are accepted. Put the value into a file, `chmod 600` it, and name the file under
  `environment.secrets`. A value that only looks random is recorded, with a warning.
- Text that begins with `{{{{` or another special character needs quotes. Duplicate keys are errors.
  Anchors and aliases work; tags and merge keys (`<<`) do not.

## `extends`: building on another file

```yaml
extends: ../base.yaml
name: digits-large
resources:
  nodes: 8          # the other keys of `resources` come from base.yaml
  constraint: null  # back to the default, instead of base.yaml's value
```

The path is relative to the file that contains it, and that file may extend another one. Sections
are merged key by key; lists and single values are replaced. A file that others extend may be
incomplete.

## `--set`: changing a value once

`hpcflow run config.yaml --set resources.nodes=2 --set 'args=[--lr, 0.1]' --set name=try`

The key is dotted. The value is read as YAML if it is a word, a list, a mapping or a quoted text;
otherwise it is plain text. `--set resources.mem=null` restores the default. A later `--set`
overrides earlier ones, and all override the files.

## What is checked before a submission

`hpcflow run` (also with `--dry-run`), `hpcflow resume`, `hpcflow sweep start` and `hpcflow.submit`
check on the login node what the job will need. A shell loads the modules, activates the environment
and starts its Python, as the job script does. It does not run your program, and imports none of its
packages. This takes a tenth of a second, plus the time of the modules and of conda. If the shell
does not finish within 10 seconds, hpcflow warns and submits without this check.

hpcflow refuses, with file, line and key,

- a missing path on the file system of the config's folder, of scratch or of your home directory:
  the job needs these anyway. On the root file system, hpcflow refuses only paths below the same top
  directory as one of them. It checks `environment.venv`, `conda` with a `/`, an image file, the
  sources of mounts, and a program or a Python script in `command`;
- a variable whose value refers to itself, such as `PATH: $HOME/bin:$PATH`: no shell expands it;
- a Python of the environment that fails, or that has no torch if the launcher is `torchrun`;
- a module of `environment.modules` that `module is-avail` does not know, after the modules before
  it are loaded;
- a conda environment that conda cannot activate;
- a script that does not compile with the Python of the environment;
- with `--dry-run`, a job that `sbatch --test-only` refuses, for example because of its account.
  Without `--dry-run`, `sbatch` itself refuses it.

hpcflow warns of

- a missing path on another file system, such as a node's own disk;
- a Python that this machine cannot execute, and a program that is not on PATH here;
- a module that exists but cannot be loaded here; a missing module that the site file loads; a
  missing module after one of these; a login node without `module` or conda. Then a problem of
  conda, Python or the script, such as a missing torch, is only a warning, too;
- a package that the script imports at its top level and that Python does not find: the script may
  extend `sys.path`;
- a missing torch, or a script that does not compile, if the Python is the system's, such as
  `/usr/bin/python3`: compute nodes may have another version. A virtual environment is for one
  version, so there hpcflow refuses both;
- what is missing in your shell alone, such as after `module purge`: a job starts with a new
  environment, so hpcflow asks a new shell before it refuses.

hpcflow does not look inside containers. If login nodes have other modules, file systems or CPUs
than compute nodes, set `login_nodes_differ: true` in the site file: then hpcflow only warns of what
the login node lacks. It also only warns if you have job templates of your own
(`$HPCFLOW_HOME/templates`), because they may set up another environment.

## In an editor

An editor with the YAML language server completes and checks the keys when the file begins with

```yaml
# yaml-language-server: $schema=PATH/TO/docs/schema/run.schema.json
```

The last line of `hpcflow --help` names the folder `docs`.

The JSON Schemas are [run.schema.json](schema/run.schema.json) and
[site.schema.json](schema/site.schema.json).

## Keys at the top

`extends` (see above) and `$schema` (for editors) are also allowed.

"""

_SITE_INTRO: Final = """\
# A site's YAML

One file describes one cluster: `site_configs/NAME.yaml` in hpcflow, or `~/.hpcflow/sites/NAME.yaml`
of your own. `hpcflow site detect` writes a first version on a login node, `hpcflow site check NAME`
compares it with the live cluster. For how values are written, see
[the reference of a run's YAML](configuration.md#how-values-are-written).

An editor checks the file against the [JSON Schema](schema/site.schema.json) when it begins with
`# yaml-language-server: $schema=PATH/TO/docs/schema/site.schema.json`.

## Keys at the top

"""


def configuration_page() -> str:
    made = _MADE.format(source="hpcflow/model/spec.py")
    return made + _RUN_INTRO.format(example=EXAMPLE) + tables(RunSpec)


def site_page() -> str:
    return _MADE.format(source="hpcflow/sites/schema.py") + _SITE_INTRO + tables(Site)


def tables(model: type[BaseModel]) -> str:
    """Return a table of the top-level keys, and one for each section."""
    top, *rest = sections(model)
    parts = [table(top[1])]
    parts += [f"## `{path}`\n\n{description}\n\n{table(part)}" for path, part, description in rest]
    return "\n".join(parts)
