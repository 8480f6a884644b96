"""Hypothesis strategies for the content of valid run files, as YAML values."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from hpcflow.model.ids import NAME_PATTERN
from hpcflow.model.secret import is_secret, names_secret
from hpcflow.model.units import write_duration, write_memory

#: Any text that can be an argument of a program.
TEXTS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20
).filter(lambda text: not is_secret(text))
NAMES = st.from_regex(NAME_PATTERN, fullmatch=True).filter(lambda name: ".." not in name)
WORDS = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.@:+-]{0,20}", fullmatch=True)
VARIABLES = st.from_regex(r"[A-Z_][A-Z0-9_]{0,8}", fullmatch=True).filter(
    lambda name: (
        not names_secret(name)
        and not name.startswith(("SLURM_", "SBATCH_", "SRUN_", "PMI_", "PMIX_", "HPCFLOW_"))
    )
)
COUNTS = st.integers(1, 100_000)
METRICS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20)
DURATIONS = st.integers(1, 10_000 * 1440).map(lambda minutes: write_duration(minutes * 60))
MEMORY = st.integers(1, 1 << 30).map(write_memory)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda values: st.lists(values, max_size=3) | st.dictionaries(TEXTS, values, max_size=3),
    max_leaves=8,
)


def _some(**keys: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=keys)


_ADOPT: st.SearchStrategy[dict[str, Any]] = (
    st.fixed_dictionaries(
        {"like": st.sampled_from(["huggingface", "lightning", "nanogpt"])},
        optional={"folder": st.just("{{ run.dir }}/out"), "stable": DURATIONS},
    )
    | st.fixed_dictionaries(
        {"pattern": st.sampled_from(["step-*", "*/[ab]?.pt"]), "renamed": st.just(True)},
        optional={"train_step": st.sampled_from(["name", "count", "state.json:step"])},
    )
    | st.fixed_dictionaries({"pattern": st.just("x"), "marker": st.just(".done")})
)

_SECTIONS = {
    "resources": _some(
        nodes=COUNTS,
        gpus_per_node=st.integers(0, 100_000),
        gpu_type=WORDS,
        tasks_per_node=COUNTS,
        cpus_per_task=COUNTS,
        mem=MEMORY,
        time_limit=DURATIONS,
        partition=WORDS,
        account=WORDS,
        qos=WORDS,
        constraint=st.from_regex(r"[A-Za-z][A-Za-z0-9_&|*()\[\]-]{0,20}", fullmatch=True),
        exclude=st.from_regex(r"[a-z][a-z0-9\[\],-]{0,20}", fullmatch=True),
        dependency=st.just("afterok:12:13_4,singleton"),
        begin=st.just("now+2hours"),
        nice=st.integers(0, 2_147_483_645),
        sbatch=st.dictionaries(
            st.sampled_from(["licenses", "mail-type", "x-new"]),
            st.booleans().filter(bool) | st.integers(0, 9) | WORDS,
        ),
    ),
    "launch": _some(
        framework=st.sampled_from(["pytorch", "tensorflow", "jax", "mpi", "none"]),
        launcher=st.sampled_from(["torchrun", "srun", "none"]),
    ),
    "environment": _some(
        modules=st.lists(st.from_regex(r"[a-z][a-z0-9./-]{0,10}", fullmatch=True), max_size=3),
        conda=WORDS,
        container=st.fixed_dictionaries(
            {"image": st.just("docker://ubuntu:24.04")},
            optional={
                "runtime": st.sampled_from(["apptainer", "pyxis"]),
                "mounts": st.lists(st.just("/data:/data:ro"), max_size=2),
            },
        ),
        variables=st.dictionaries(VARIABLES, TEXTS | st.integers(), max_size=3),
    ),
    "checkpoint": _some(
        interval=DURATIONS | st.sampled_from(["never", "auto"]),
        every_train_steps=st.integers(1, 10**12),
        when_busy=st.sampled_from(["wait", "skip"]),
        notice=DURATIONS,
        keep_last=st.integers(1, 10**6) | st.just("all"),
        keep_best=st.fixed_dictionaries(
            {"metric": METRICS, "mode": st.sampled_from(["min", "max"])},
            optional={"count": st.integers(1, 100)},
        ),
        keep_every=st.integers(1, 10**12),
    )
    | st.fixed_dictionaries(
        {"adopt": _ADOPT}, optional={"keep_last": st.integers(1, 10**6), "notice": DURATIONS}
    ),
    "budget": _some(
        cost_usd=st.integers(1, 10**12) | st.sampled_from([0.5, "12.50", "0.00000001"]),
        cost_su=st.integers(1, 10**12),
        # As many decimal places as a bill has; a float of so few digits is written as it was meant.
        gpu_hours=st.integers(1, 10**14).map(lambda parts: parts / 10**8),
        on_exceeded=st.sampled_from(["finish", "save_and_stop"]),
    ),
    "retry": _some(
        resubmit_exit_codes=st.lists(st.integers(1, 255), max_size=3),
        stall_after=DURATIONS | st.just("never"),
        stall_factor=st.integers(1, 1000),
        stall_log=st.booleans(),
    ),
}

#: The content of a file that is right in itself and names no other file.
CONFIGS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "name": NAMES,
        "command": st.lists(TEXTS | st.integers(), min_size=1, max_size=4).filter(
            lambda words: words[0] != ""
        ),
    },
    optional={
        "project": NAMES,
        "args": st.lists(TEXTS, max_size=3),
        "resume_args": st.lists(TEXTS | st.just("{{ resume.path }}"), max_size=3),
        "params": st.dictionaries(
            st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,10}", fullmatch=True), JSON, max_size=4
        ),
        "tags": st.lists(NAMES, max_size=3),
        **_SECTIONS,
    },
)
