"""Whatever stands in a config reaches the program as it is, and changes nothing on the way."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from hpcflow.errors import InputError
from hpcflow.model.spec import RunSpec
from hpcflow.ownership import NO_TRUST
from hpcflow.rendering.job import make_integrity_check
from hpcflow.sites.schema import Site
from tests.rendering.executed import SRUN_STUB, Bench
from tests.rendering.samples import a_run, a_site, a_spec, script_of
from tests.rendering.test_quoting import HOSTILE
from tests.valid_specs import TEXTS, VARIABLES

IN_SLURM = {"SLURM_JOB_ID": "41", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_NODEID": "0"}
WORDS = TEXTS.filter(lambda text: "{{" not in text)
#: A folder's name: no slash, no NUL, and not what the way to Slurm or PATH cannot carry.
FOLDERS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0/%\\:"), min_size=1, max_size=12
).filter(lambda name: name not in (".", ".."))


def options(script: str) -> list[str]:
    """The lines that sbatch obeys: from the beginning, until a line that is no comment."""
    found = []
    for line in script.splitlines():
        if line and not line.startswith("#"):
            break
        if line.startswith("#SBATCH"):
            found.append(line)
    return found


def executed(spec: RunSpec, site: Site, folder: Path) -> tuple[Bench, dict[str, str], list[str]]:
    """Execute the script under the stub; the environment and the words that srun was given."""
    bench = Bench(folder)
    bench.program("srun", SRUN_STUB)
    bench.write(spec, site)
    assert bench.execute(**IN_SLURM) == 0, bench.log()
    words = [word.decode() for word in bench.dumped("argv")]
    return bench, dict(bench.dumped_environ()), words


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    args=st.lists(WORDS, max_size=5),
    variables=st.dictionaries(VARIABLES | st.from_regex(r"[a-z_]{1,9}", fullmatch=True), TEXTS),
    params=st.dictionaries(st.sampled_from("abc"), TEXTS),
    folder=FOLDERS,
    launcher=st.sampled_from(["torchrun", "srun"]),
)
@example(HOSTILE, {"A": "\n$(touch owned)"}, {}, "it's; $(x) \n#", "torchrun")
@example([], {f"V{i}": text for i, text in enumerate(HOSTILE)}, {}, '"', "srun")
@example([], {"hpcflow_command": "x", "hpcflow_pid": "1", "IFS": "x", "PATH": "/"}, {}, "a", "srun")
def test_words_variables_and_folders_arrive_as_they_are(
    args: list[str], variables: dict[str, str], params: dict[str, str], folder: str, launcher: str
) -> None:
    filled = [f"{{{{ params.{name} }}}}" for name in params]
    changes: dict[str, Any] = {
        "script": None,
        "command": ["./go", *args],
        "args": filled,
        "params": params,
        "environment": {"variables": variables},
        "launch": {"launcher": launcher},
    }
    with tempfile.TemporaryDirectory(prefix="hpcflow-") as base:
        try:
            bench, environ, words = executed(a_spec(**changes), a_site(), Path(base, folder))
        except InputError as error:
            assume("belongs to the shell" not in error.message)
            raise
        expected = ["./go", *args, *params.values()]
        assert words[len(words) - len(expected) :] == expected
        for name, value in variables.items():
            if name != "PYTHONPATH":
                assert environ[name] == value
        assert environ["HPCFLOW_RUN_DIR"] == str(bench.run_dir.path)
        assert environ["PYTHONPATH"].startswith(str(bench.run_dir.runtime))
        assert [event["event"] for event in bench.events()] == ["started", "exited"]
        assert not list(Path(base).rglob("owned"))
        integrity = make_integrity_check(bench.run_dir.path, NO_TRUST)
        plain_run = a_run(a_spec(launch={"launcher": launcher}))
        plain = script_of(plain_run, a_site(), integrity=integrity)
        assert options(bench.attempt.script.read_text()) == options(plain)
