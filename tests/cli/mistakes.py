"""A hundred mistakes that people make on their first day: what they write, and what they are told.

A mistake of a file is one change of a good one. Its answer names the file, the line and the key,
and a next step. The next step is a :class:`Step` that the test takes by the words of the answer
alone, or else the words in place of the wrong ones that a person would write after reading it.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

CONFIG: Final = """\
name: small
script: train.py
args: ["--lr", "{{ params.lr }}"]
params:
  lr: 0.1
resources:
  nodes: 1
  gpus_per_node: 1
  time_limit: 10m
  account: physics
checkpoint:
  interval: 10m
"""
SWEEP: Final = """\
name: search
base: config.yaml
space:
  lr: {low: 1e-4, high: 0.1, log: true}
objective: {metric: loss, direction: minimize}
budget: {trials: 4}
"""
SITE: Final = """\
name: mine
partitions:
  gpu:
    gpu_type: a100
    gpus_per_node: 4
    cpus_per_node: 8
    mem_per_node: 8G
    time_limit_max: 24h
    price: {gpu_hour_usd: "3.00"}
gpu_types:
  a100: {mem: 80G}
accounts: [physics, biology]
scratch:
  path: $SCRATCH
"""


class Step(Enum):
    """What an answer tells to do."""

    RENAME = "did you mean 'KEY'? or 'KEY' belongs under 'SECTION': the key is called so, and there"
    CHOOSE = "did you mean 'VALUE'?: that value"
    WRITE = "write it like `LINE`: that line instead; or like VALUE: that value"
    QUOTE = "put it in quotes"
    SET = "set KEY=VALUE: that value"
    MOST = "ask for VALUE or less: that value"
    TYPE = "a command: typed as it stands, it succeeds"


class Wrong(NamedTuple):
    """A change of a good file, and the answer to it.

    Attributes:
        old, new: the words of the file, and what somebody wrote instead.
        place: line and key that are named.
        said: words of the answer.
        step: what is done next; a text stands in place of ``old``.
    """

    old: str
    new: str
    place: str
    said: str
    step: Step | str


class Typed(NamedTuple):
    """A command that is wrong; {live} is a pending run, {done} a completed one.

    Attributes:
        step: the command that is typed next, as it stands in the answer or as the answer leads to.
    """

    words: str
    said: str
    step: str


END = "  interval: 10m\n"
NODES = "nodes: 1"


def more(text: str) -> str:
    """The end of the config, with more below it."""
    return f"{END}{text}\n"


CONFIGS: Final = [
    # Keys: misspelled, in the wrong place, or as another tool calls them.
    Wrong("nodes:", "nodse:", "7, resources.nodse", "unknown key", Step.RENAME),
    Wrong("script:", "Script:", "2, Script", "unknown key", Step.RENAME),
    Wrong("params:", "hyperparameters:", "4, hyperparameters", "unknown key", Step.RENAME),
    Wrong("script:", "entrypoint:", "2, entrypoint", "unknown key", Step.RENAME),
    Wrong(END, more("nodes: 2"), "13, nodes", "'nodes' belongs under 'resources'", END),
    Wrong(END, more("modules: [cuda]"), "13, modules", "unknown key", Step.RENAME),
    Wrong(END, more("learning_rate: 0.1"), "13, learning_rate", "'params.learning_rate'", END),
    Wrong("gpus_per_node:", "gpus:", "8, resources.gpus", "unknown key", Step.RENAME),
    Wrong(NODES, "ntasks: 4", "7, resources.ntasks", "'tasks_per_node'", Step.RENAME),
    Wrong(NODES, "cpus_per_node: 4", "7, resources.cpus_per_node", "'cpus_per_task'", Step.RENAME),
    Wrong("time_limit:", "walltime:", "9, resources.walltime", "'time_limit'", Step.RENAME),
    Wrong(NODES, "queue: gpu", "7, resources.queue", "'partition'", Step.RENAME),
    Wrong(NODES, "memory: 4G", "7, resources.memory", "unknown key", Step.RENAME),
    Wrong(NODES, "exclusive: true", "7, resources.exclusive", "'sbatch.exclusive'",
          "sbatch: {exclusive: true}"),
    Wrong(NODES, "sbatch: {time: '10:00'}", "7, resources.sbatch.time",
          "write `resources.time_limit`", NODES),
    Wrong(NODES, "sbatch: {--licenses: matlab}", "7, resources.sbatch.--licenses",
          "without its dashes", "sbatch: {licenses: matlab}"),
    Wrong("interval: 10m", "save_every: 1000", "12, checkpoint.save_every",
          "'every_train_steps'", Step.RENAME),
    Wrong(END, more("retry: {max_retries: 3}"), "13, retry.max_retries", "'failures'", Step.RENAME),
    Wrong(END, more("resume_from: ./start"), "13, resume_from", "'start_from'", END),
    Wrong(END, more("budget: {usd: 50}"), "13, budget.usd", "'cost_usd'", Step.RENAME),
    Wrong(NODES, "nodelist: n1", "7, resources.nodelist", "'sbatch.nodelist'",
          "sbatch: {nodelist: n1}"),
    Wrong(END, more("environment: {env: {A: 1}}"), "13, environment.env", "'variables'",
          Step.RENAME),
    Wrong(END, more("env: {A: 1}"), "13, env", "under 'environment'", Step.RENAME),
    Wrong(END, more("description: [first]"), "13, description", "'tags'", Step.RENAME),
    Wrong(END, more("site: devcluster"), "13, site", "--site NAME", END),
    # Values of the wrong kind.
    Wrong("name: small\n", "", ", name", "is missing", "name: small\n"),
    Wrong(NODES, "nodes: two", "7, resources.nodes", "expected a whole number", Step.WRITE),
    Wrong(NODES, "nodes: '2'", "7, resources.nodes", "write it like `nodes: 2`", Step.WRITE),
    Wrong(NODES, "nodes: 1,", "7, resources.nodes", "got the text '1,'", Step.WRITE),
    Wrong(NODES, "nodes: 0", "7, resources.nodes", "must be 1 or more", NODES),
    Wrong("name: small", "name: my run", "1, name", "letters, digits", "name: my-run"),
    Wrong("name: small", "name: 2026", "1, name", "expected a text", Step.WRITE),
    Wrong("name: small", "name: 1e3", "1, name", "write it like `name: '1e3'`", "name: '1e3'"),
    Wrong('args: ["--lr", "{{ params.lr }}"]', "args: --lr 0.1", "3, args", "expected a list",
          Step.WRITE),
    Wrong('args: ["--lr", "{{ params.lr }}"]', "args: {lr: 0.1}", "3, args", "got a mapping",
          Step.WRITE),
    Wrong('"{{ params.lr }}"', "true", "3, args[1]", "expected a text, got true", Step.QUOTE),
    Wrong(END, more("tags: baseline"), "13, tags", "expected a list", Step.WRITE),
    Wrong(END, more("environment: {modules: cuda nccl}"), "13, environment.modules",
          "write it like `modules: [cuda, nccl]`", Step.WRITE),
    Wrong(END, more("environment: {setup: source x.sh}"), "13, environment.setup",
          "write it like `setup: [source x.sh]`", Step.WRITE),
    Wrong(END, more("environment: {variables: [OMP_NUM_THREADS=8]}"), "13, environment.variables",
          "got a list", Step.WRITE),
    Wrong(END, more("environment: {variables: {OMP-NUM: 8}}"),
          "13, environment.variables.OMP-NUM", "not the name of an environment variable",
          more("environment: {variables: {OMP_NUM: 8}}")),
    Wrong(END, more("retry: false"), "13, retry", "write it like `retry: {failures: 0}`",
          Step.WRITE),
    Wrong(END, more("retry: {failures: unlimited}"), "13, retry.failures", "`failures: 10`",
          Step.WRITE),
    Wrong(END, more("launch: srun"), "13, launch", "got the text 'srun'", Step.WRITE),
    Wrong(END, more("launch: {launcher: torchrum}"), "13, launch.launcher",
          "expected 'torchrun', 'srun' or 'none'", Step.CHOOSE),
    Wrong(END, more("launch: {framework: torch}"), "13, launch.framework", "got the text 'torch'",
          Step.CHOOSE),
    Wrong(END, more("before: python prep.py"), "13, before", "expected a list", Step.WRITE),
    # Units.
    Wrong("10m\n  account", "10\n  account", "9, resources.time_limit", "without a unit",
          Step.WRITE),
    Wrong("10m\n  account", "1:30\n  account", "9, resources.time_limit", "not a duration",
          Step.WRITE),
    Wrong(NODES, "mem: 16", "7, resources.mem", "without a unit", "mem: 4G"),
    Wrong("interval: 10m", "interval: 1000 steps", "12, checkpoint.interval", "or `never`",
          Step.WRITE),
    Wrong("interval: 10m", "interval: false", "12, checkpoint.interval", "or `never`",
          "interval: never"),
    Wrong(END, more("retry: {backoff: 30}"), "13, retry.backoff", "without a unit", Step.WRITE),
    Wrong(END, more("budget: {cost_usd: $50}"), "13, budget.cost_usd", "an amount like 50",
          more("budget: {cost_usd: 50}")),
    # YAML.
    Wrong("  nodes: 1", "\tnodes: 1", "7", "a tab", "  nodes: 1"),
    Wrong("nodes: 1", "nodes 1", "7", "no key and value", Step.WRITE),
    Wrong("nodes: 1", "nodes:1", "7", "no key and value", Step.WRITE),
    Wrong("nodes: 1", "nodes = 1", "7", "no key and value", Step.WRITE),
    Wrong("  nodes: 1", "\u00a0\u00a0nodes: 1", "7", "U+00A0, which is not a space", "  nodes: 1"),
    Wrong("  gpus_per", "    gpus_per", "8", "indent it like line 7", "  gpus_per"),
    Wrong("name: small", "name: small: big", "1", "': ' a second time", "name: 'small-big'"),
    Wrong('lr }}"]', 'lr }}"', "3", "close the list with ]", 'lr }}"]'),
    Wrong('lr }}"]', "lr }}]", "3", "close the quote", 'lr }}"]'),
    Wrong("lr: 0.1", 'path: "C:\\data"', "5", "into single quotes", "lr: 0.1\n  path: 'C:\\data'"),
    Wrong("params:\n  lr: 0.1", "params: {lr: 0.1 bs: 2}", "4", "separate the items with commas",
          "params: {lr: 0.1, bs: 2}"),
    Wrong("params:\n  lr: 0.1", "params: {lr: 0.1", "4", "close the mapping with }",
          "params: {lr: 0.1}"),
    Wrong('"--lr", "', '"--lr" "', "3", "separate the items with commas", '"--lr", "'),
    Wrong("name: small", '"name": "small",', "1", "remove the comma", '"name": "small"'),
    Wrong("nodes: 1", '"nodes": "a",', "7", "remove the comma", '"nodes": 1'),
    Wrong('"{{ params.lr }}"', "{{ params.lr }}", "3", 'must be in quotes: "{{ params.lr }}"',
          '"{{ params.lr }}"'),
    Wrong(END, more("environment:\n  variables:\n    RUN: {{ run.id }}"), "15",
          'must be in quotes: "{{ run.id }}"',
          more('environment:\n  variables:\n    RUN: "{{ run.id }}"')),
    Wrong(NODES, "nodes: 1\n  nodes: 2", "8", "a second time, first on line 7", NODES),
    Wrong(END, f"---\n{END}", "12", "a second document", END),
    # Templates, secrets, paths and commands.
    Wrong("params.lr }}", "param.lr }}", "3, args[1]", "did you mean {{ params.lr }}?",
          "params.lr }}"),
    Wrong("params.lr }}", "params.lr", "3, args[1]", "write {{ params.lr }}", "params.lr }}"),
    Wrong("params.lr }}", "params.lr }", "3, args[1]", "write {{ params.lr }}", "params.lr }}"),
    Wrong("params.lr }}", "params.learning_rate }}", "3, args[1]", "write one of: lr",
          "params.lr }}"),
    Wrong("params.lr }}", "resume.path }}", "3, args[1]", "only known in resume_args",
          "params.lr }}"),
    Wrong(END, more("environment: {variables: {WANDB_API_KEY: 0123456789abcdef}}"),
          "13, environment.variables.WANDB_API_KEY", "looks like a secret",
          more("environment: {secrets: {WANDB_API_KEY: ./key}}")),
    Wrong(END, more("environment: {secrets: {WANDB_API_KEY: 0123456789abcdef01234567}}"),
          "13, environment.secrets.WANDB_API_KEY", "is it the value itself?",
          more("environment: {secrets: {WANDB_API_KEY: ./key}}")),
    Wrong("train.py", "trian.py", "2, script", "No such file", Step.CHOOSE),
    Wrong("script: train.py", "script: train.py --lr 0.1", "2, script",
          "`args: [--lr, '0.1']`", "script: train.py"),
    Wrong("script: train.py", "script: python train.py", "2, script",
          "`command: python train.py`", "command: python train.py"),
    Wrong("script: train.py", "command: python train.py | tee log", "2, command",
          "no shell runs this command", "command: [sh, -c, 'python train.py | tee log']"),
    Wrong("script: train.py", "command: LR=1 python train.py", "2, command",
          "set LR in environment.variables",
          "command: python train.py\nenvironment: {variables: {LR: 1}}"),
    Wrong("name: small\n", "extends: bse.yaml\nname: small\n", "1, extends", "'base.yaml'",
          "extends: base.yaml\nname: small\n"),
    # What the cluster has not.
    Wrong(NODES, "partition: gpuu", "7, resources.partition", "no partition 'gpuu'", Step.CHOOSE),
    Wrong("physics", "phyics", "10, resources.account", "no account 'phyics'", Step.CHOOSE),
    Wrong(NODES, "gpu_type: A100", "7, resources.gpu_type", "no GPU type 'A100'", Step.CHOOSE),
    Wrong("gpus_per_node: 1", "gpus_per_node: 5", "8, resources.gpus_per_node", "has 4", Step.MOST),
    Wrong(NODES, "nodes: 9", "7, resources.nodes", "allows at most 4", Step.MOST),
    Wrong(NODES, "mem: 900G", "7, resources.mem", "has 8G", Step.MOST),
    Wrong("10m\n  account", "2d\n  account", "9, resources.time_limit", "at most 1d 0h", Step.SET),
    Wrong(NODES, "cpus_per_task: 64", "7, resources.cpus_per_task", "64 CPU cores", Step.SET),
    Wrong(NODES, "tasks_per_node: 16", "7, resources.tasks_per_node", "16 ranks", Step.SET),
    # When it starts, from what, and where its checkpoints go.
    Wrong(NODES, "dependency: 1234", "7, resources.dependency", "got the number 1234", Step.WRITE),
    Wrong(NODES, "dependency: afterokay:1234", "7, resources.dependency", "like afterok:1234",
          "dependency: afterok:1234"),
    Wrong(NODES, "begin: 2h", "7, resources.begin", "like now+2hours", "begin: now+2hours"),
    Wrong(END, more("start_from: pretrain"), "13, start_from", "no run 'pretrain'", Step.TYPE),
    Wrong(END, more("start_from: ./ckpt"), "13, start_from", "No such file", END),
    Wrong(END, more("mirror: my-bucket/x"), "13, mirror", "such as s3://bucket/prefix",
          more("mirror: s3://my-bucket/x")),
    Wrong(END, more("mirror: s3://lab/$USRE"), "13, mirror", "$USRE is not set",
          more("mirror: s3://lab/$USER")),
    Wrong(END, "  keep_best: val_loss\n", "12, checkpoint.keep_best", "got the text", Step.WRITE),
    Wrong(END, "  keep_best: {metric: loss, mode: minimize}\n", "12, checkpoint.keep_best.mode",
          "expected 'min' or 'max'", Step.CHOOSE),
    Wrong(END, "  adopt: {folder: out}\n", "12, checkpoint.adopt", "`like: huggingface`",
          "  adopt: {folder: out, like: huggingface}\n"),
]  # fmt: skip

#: Those that only a look at this machine finds, before a submission.
ON_LOGIN_NODE: Final = [
    Wrong("script: train.py", "command: python trian.py", "2, command[1]", "did you mean",
          "command: python train.py"),
    Wrong(END, more("environment: {venv: ./venv}"), "13, environment.venv", "python3 -m venv", END),
    Wrong(END, more("environment: {variables: {PATH: $HOME/bin:$PATH}}"),
          "13, environment.variables.PATH",
          "environment.setup: ['export PATH=$HOME/bin:$PATH']",
          more("environment: {setup: ['export PATH=$HOME/bin:$PATH']}")),
    Wrong(END, more("environment: {variables: {LIB: '/x:${LIB}'}}"),
          "13, environment.variables.LIB", "['export LIB=/x:${LIB}']",
          more("environment: {setup: ['export LIB=/x:${LIB}']}")),
]  # fmt: skip

SWEEPS: Final = [
    Wrong("config.yaml", "confg.yaml", "2, base", "did you mean 'config.yaml'?", Step.CHOOSE),
    Wrong("budget: {trials", "budget: {n_trials", "6, budget.n_trials", "'trials'", Step.RENAME),
    Wrong("budget: {trials: 4}\n", "", ", budget", "write it like `budget: {trials: 60}`",
          "budget: {trials: 60}\n"),
    Wrong("minimize", "min", "5, objective.direction", "'minimize' or 'maximize'", Step.CHOOSE),
    Wrong("{metric: loss, direction: minimize}", "loss", "5, objective", "got the text 'loss'",
          Step.WRITE),
    Wrong("{low: 1e-4, high: 0.1, log: true}", "[0.1, 0.01]", "4, space.lr", "`choices: […]`",
          "{choices: [0.1, 0.01]}"),
    Wrong("{low: 1e-4, high: 0.1", "{min: 1e-4, max: 0.1", "4, space.lr.min", "low, high",
          "{low: 1e-4, high: 0.1"),
    Wrong("low: 1e-4, high: 0.1", "low: 0.1, high: 1e-4", "4, space.lr.high", "more than `low`",
          "low: 1e-4, high: 0.1"),
    Wrong("budget:", "sampler: baysian\nbudget:", "6, sampler", "expected one of grid, random, tpe",
          "sampler: tpe\nbudget:"),
]  # fmt: skip

SITES: Final = [
    Wrong("gpus_per_node", "gpu_per_node", "5, partitions.gpu.gpu_per_node", "unknown key",
          Step.RENAME),
    Wrong("    cpus_per_node: 8\n", "", "3, partitions.gpu.cpus_per_node", "is missing",
          "    cpus_per_node: 64\n"),
    Wrong("mem_per_node: 8G", "mem_per_node: 8192", "7, partitions.gpu.mem_per_node",
          "without a unit", Step.WRITE),
    Wrong("gpu_type: a100", "gpu_type: h100", "4, partitions.gpu.gpu_type",
          "h100 is not among gpu_types", "gpu_type: a100"),
    Wrong('{gpu_hour_usd: "3.00"}', "3.00", "9, partitions.gpu.price", "got the number 3.00",
          Step.WRITE),
    Wrong("scratch:\n  path: $SCRATCH", "scratch: /scratch", "13, scratch", "expected keys",
          Step.WRITE),
    Wrong("accounts: [physics, biology]", "accounts: physics", "12, accounts", "expected a list",
          Step.WRITE),
]  # fmt: skip

COMMANDS: Final = [
    Typed("run config.yaml --set lr=0.1", "'params.lr'", "run config.yaml --set params.lr=0.1"),
    Typed("run config.yaml --set resources.nodse=2", "did you mean 'nodes'?",
          "run config.yaml --set resources.nodes=2"),
    Typed("run config.yaml --set params.lr 0.1", "→ --set params.lr=0.1",
          "run config.yaml --set params.lr=0.1"),
    Typed("run config.yaml --set resources.nodes: 2", "→ --set resources.nodes=2",
          "run config.yaml --set resources.nodes=2"),
    Typed("run config.yaml --set resources.nodes = 2", "→ --set resources.nodes=2",
          "run config.yaml --set resources.nodes=2"),
    Typed("run config.yaml params.lr=0.1", "→ --set params.lr=0.1",
          "run config.yaml --set params.lr=0.1"),
    Typed("run config.yaml --nodes 2", "→ --set resources.nodes=2",
          "run config.yaml --set resources.nodes=2"),
    Typed("run config.yaml --time 1h", "→ --set resources.time_limit=1h",
          "run config.yaml --set resources.time_limit=1h"),
    Typed("run config.yaml --gpus=1", "→ --set resources.gpus_per_node=1",
          "run config.yaml --set resources.gpus_per_node=1"),
    Typed("run config.yaml --nodes", "→ --set resources.nodes=VALUE",
          "run config.yaml --set resources.nodes=2"),
    Typed("run config.yaml --gpus 1", "→ --set resources.gpus_per_node=1",
          "run config.yaml --set resources.gpus_per_node=1"),
    Typed("run config.yaml --dryrun", "Did you mean '--dry-run'?", "run config.yaml --dry-run"),
    Typed("run confg.yaml", "did you mean config.yaml?", "run config.yaml"),
    Typed("run {live}", "→ resubmit it: hpcflow resume", "show {live}"),
    Typed("run sweep.yaml", "the file of a sweep", "sweep start sweep.yaml --dry-run"),
    Typed("run mine.yaml", "a site file", "site show mine.yaml"),
    Typed("run config.yaml --site config.yaml", "the config of a run",
          "run config.yaml --dry-run"),
    Typed("run config.yaml --site devclster", "did you mean devcluster?",
          "run config.yaml --site devcluster"),
    Typed("run python train.py", "→ hpcflow run train.py", "run config.yaml"),
    Typed("run job.sbatch", 'command: [bash, "job.sbatch"]', "run config.yaml"),
    Typed("run bash job.sbatch", "→ hpcflow run job.sbatch", "run config.yaml"),
    Typed("sweep start config.yaml", "the config of a run", "run config.yaml --dry-run"),
    Typed("sweep sweep.yaml", "→ hpcflow sweep start sweep.yaml",
          "sweep start sweep.yaml --dry-run"),
    Typed("show smlal", "did you mean small?", "show small"),
    Typed("show config.yaml", "hpcflow ls; submit it: hpcflow run config.yaml", "ls"),
    Typed("resume {live}", "still pending or running", "show {live}"),
    Typed("resume {done}", "train it again as a new run: hpcflow run CONFIG", "run config.yaml"),
    Typed("logs {done} --attempt 9", "no attempt 9", "show {done}"),
    Typed("checkpoint {done}", "→ hpcflow checkpoint ls", "checkpoint ls {done}"),
    Typed("logs -n 5 {done}", "→ did you mean --tail?", "logs --tail 5 {done}"),
    Typed("tail {done}", "Did you mean 'logs -f'?", "logs -f {done}"),
    Typed("daemon stop", "→ hpcflow daemon uninstall", "daemon uninstall --help"),
    Typed("ls --status running", "'--state'", "ls --state running"),
    Typed("rnu config.yaml", "Did you mean 'run'?", "run config.yaml"),
    Typed("delete {live}", "Did you mean 'cancel'?", "cancel {live}"),
    Typed("--json ls", "→ options come after the command: hpcflow ls --json", "ls --json"),
]  # fmt: skip
