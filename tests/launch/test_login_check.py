"""What the login node can tell about a run before it waits in a queue: real environments, real
shells; only ``module`` and ``conda`` are small functions, for which a test says what there is."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from hpcflow.errors import SpecError, SubmissionRefused
from hpcflow.launch import login_shell
from hpcflow.launch.login_check import check_on_login_node
from hpcflow.launch.plan import make_plan
from hpcflow.launch.run import rehearse
from hpcflow.settings import load_settings
from hpcflow.sites.schema import SchedulerKind
from tests.launch.desk import Desk

#: Knows gcc, and torch-stack once gcc is loaded; gpu exists, and loads on compute nodes only.
MODULE = """
module() {
  case "$1 $2" in
    "load gcc/13" | "is-avail gpu/1") HAS_GCC=yes ;;
    "load torch-stack/2" | "is-avail torch-stack/2") [ -n "${HAS_GCC-}" ] ;;
    *) return 1 ;;
  esac
}
"""
#: A part of this machine, and not of the file system of the tests.
SYSTEM_PYTHON = Path("/usr/bin/python3")
CONDA = """#!/bin/sh
echo 'conda() { [ "$2" = train ]; }'
"""


class LoginNode(Desk):
    """A person on a login node, with a config and a script."""

    def __post_init__(self) -> None:
        super().__post_init__()
        (self.folder / "train.py").write_text("print('trained')\n")
        self.environ = {**self.settings.environ, "PATH": os.environ["PATH"]}

    def write(self, text: str) -> None:
        self.config.write_text(f"name: digits\nresources: {{account: physics}}\n{text}\n")

    def plan(self) -> Any:
        self.settings = load_settings(self.environ)
        return make_plan(self.config, settings=self.settings, clock=self.clock, site=self.site)

    def warnings(self, text: str) -> list[str]:
        """What is warned of before this config is submitted."""
        self.write(text)
        return check_on_login_node(self.plan(), self.settings, self.clock)

    def refusal(self, text: str) -> str:
        with pytest.raises(SpecError) as caught:
            self.warnings(text)
        return str(caught.value).replace(str(self.folder), "HERE")

    def change_site(self, **changes: Any) -> None:
        self.site = self.site.model_copy(update=changes)

    def with_modules(self, *loaded: str) -> None:
        """The site has environment modules, and loads some first."""
        init = self.folder / "modules.sh"
        init.write_text(MODULE)
        modules = self.site.modules.model_copy(update={"init": str(init), "load": list(loaded)})
        self.change_site(modules=modules)

    def executable(self, name: str, text: str) -> None:
        path = self.folder / "programs" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        self.environ["PATH"] = f"{path.parent}:{os.environ['PATH']}"


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LoginNode:
    monkeypatch.chdir(tmp_path)
    return LoginNode(tmp_path)


@pytest.fixture
def venv(node: LoginNode) -> Path:
    """An environment without torch."""
    path = node.folder / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(path)], check=True)
    return path


SCRIPT = "script: train.py\nlaunch: {launcher: srun}\n"


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (
            SCRIPT + "environment:\n  venv: ./envs/train\n",
            "HERE/config.yaml:6, environment.venv: there is no virtual environment "
            "HERE/envs/train\n  → correct the path, or create it: python3 -m venv HERE/envs/train",
        ),
        (
            SCRIPT + "environment:\n  venv: .\n",
            "environment.venv: HERE is not a virtual environment\n  → name the directory",
        ),
        (
            SCRIPT + "environment: {conda: ./envs/train}\n",
            "HERE/config.yaml:5, environment.conda: there is no conda environment HERE/envs/train",
        ),
        (
            SCRIPT + "environment: {conda: ./}\n",
            "environment.conda: there is no Python HERE/bin/python3\n  → see what there is: conda",
        ),
        (
            "launch: {framework: none}\ncommand: [./simulate]\n",
            "HERE/config.yaml:4, command[0]: there is no program HERE/simulate\n  → correct",
        ),
        (
            "launch: {framework: none}\ncommand: [./train.py]\n",
            "command[0]: HERE/train.py is not executable\n  → chmod u+x HERE/train.py",
        ),
        (
            "launch: {framework: none}\ncommand:\n  - python3\n  - -u\n  - trian.py\n",
            "HERE/config.yaml:7, command[2]: there is no script HERE/trian.py",
        ),
        (
            SCRIPT + "environment: {container: {image: ./x.sif, mounts: ['./data:/data']}}\n",
            "2 problems:\n  HERE/config.yaml:5, environment.container.image: there is no "
            "container image HERE/x.sif → correct the path\n  HERE/config.yaml:5, "
            "environment.container.mounts[0]: there is no mount source HERE/data",
        ),
    ],
)
def test_a_path_that_jobs_would_not_find_is_refused(
    node: LoginNode, config: str, said: str
) -> None:
    assert said in node.refusal(config)


def test_a_path_that_only_compute_nodes_may_have_is_warned_of(node: LoginNode) -> None:
    (said,) = node.warnings(SCRIPT + "environment: {venv: /local-disk/train}")
    assert "environment.venv: this login node has no virtual environment /local-disk/train" in said
    config = SCRIPT + "environment: {container: {image: /images/x.sif}}"
    assert "has no container image /images/x.sif" in node.warnings(config)[0]
    assert node.warnings(SCRIPT + "environment: {container: {image: lab/train}}") == []


def test_where_login_nodes_differ_everything_is_a_warning(node: LoginNode) -> None:
    config = SCRIPT + "environment: {venv: ./envs/train}"
    own_templates = node.settings.home.templates
    own_templates.mkdir()
    assert "there is no virtual environment" in node.warnings(config)[0]
    own_templates.rmdir()
    node.refusal(config)
    node.change_site(login_nodes_differ=True)
    assert "there is no virtual environment" in node.warnings(config)[0]


def test_an_environment_is_asked_for_torch_only_if_the_launcher_needs_it(
    node: LoginNode, venv: Path
) -> None:
    config = "script: train.py\nenvironment: {venv: env}\nlaunch: {launcher: %s}\n"
    said = node.refusal(config % "torchrun")
    assert "config.yaml:4, environment.venv: the launcher torchrun needs torch, and " in said
    assert "HERE/env/bin/python3 has none\n  → install it: HERE/env/bin/python3 -m pip" in said
    assert node.warnings(config % "srun") == []
    packages = next((venv / "lib").glob("python*/site-packages"))
    (packages / "torch.py").write_text("raise SystemExit('it is found, and not imported')")
    assert node.warnings(config % "torchrun") == []


def test_what_the_variables_of_a_run_add_to_its_python_is_found(
    node: LoginNode, venv: Path
) -> None:
    added = node.folder / "it's added"
    added.mkdir()
    (added / "torch.py").touch()
    config = (
        f"script: train.py\nlaunch: {{launcher: torchrun}}\nenvironment:\n  venv: {venv}\n"
        f'  variables: {{PYTHONPATH: "{{{{ params.place }}}}"}}\nparams: {{place: "{added}"}}\n'
    )
    assert node.warnings(config) == []


def test_the_environment_in_use_is_checked_where_the_config_names_none(
    node: LoginNode, venv: Path
) -> None:
    node.environ["VIRTUAL_ENV"] = str(venv)
    said = node.refusal("script: train.py\nlaunch: {launcher: torchrun}")
    assert "HERE/env/bin/python3 of the environment in use here has none" in said


def test_a_python_that_fails_is_refused_and_one_for_other_cpus_warned_of(
    node: LoginNode, venv: Path
) -> None:
    config = SCRIPT + "environment: {venv: env}"
    python = venv / "bin/python3"
    python.unlink()
    python.write_text("#!/bin/sh\necho broken >&2\nexit 1\n")
    python.chmod(0o755)
    assert "python3 fails (exit code 1)\n  → see why: HERE/env/bin/python3 -c" in node.refusal(
        config
    )
    python.write_bytes(b"\x7fELF\x02\x01\x01" + bytes(60))
    (said,) = node.warnings(config)
    assert "python3 cannot be executed on this login node (exit code 126)" in said
    python.unlink()
    python.symlink_to("/no/such/python3")
    (said,) = node.warnings(config)
    assert "env/bin/python3 points to /no/such/python3, which does not exist" in said
    python.unlink()
    python.symlink_to(node.folder / "gone")
    assert "points to HERE/gone, which does not exist" in node.refusal(config)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "x = 1\nprint((x\n",
            ":2 does not compile with HERE/env/bin/python3: '(' was never closed",
        ),
        ("return 1\n", ":1 does not compile with HERE/env/bin/python3: 'return' outside function"),
    ],
)
def test_a_script_that_does_not_compile_is_refused(
    node: LoginNode, venv: Path, text: str, said: str
) -> None:
    (node.folder / "train.py").write_text(text)
    config = SCRIPT + f"environment: {{venv: {venv}}}"
    assert f"HERE/config.yaml:3, script: HERE/train.py{said}" in node.refusal(config)


@pytest.mark.skipif(not SYSTEM_PYTHON.is_file(), reason="needs a Python of the system")
@pytest.mark.parametrize("text", ["x = (\n", "import torch\n"])
def test_a_python_of_the_system_may_be_another_one_on_compute_nodes(
    node: LoginNode, text: str
) -> None:
    """Its version decides what compiles, and where its users' packages are."""
    node.with_modules()
    node.environ["PATH"] = "/usr/bin:/bin"
    (node.folder / "train.py").write_text(text)
    launch = "script: train.py\nenvironment: {modules: [gcc/13]}\nlaunch: {launcher: torchrun}\n"
    said = "\n".join(node.warnings(launch))
    assert "the launcher torchrun needs torch, and /usr/bin/python3 has none" in said
    assert "train.py:1 " in said
    node.change_site(scheduler=SchedulerKind.LOCAL)  # jobs run here
    assert "/usr/bin/python3 has none" in node.refusal(launch)


def test_a_virtual_environment_may_have_the_packages_of_another_version(
    node: LoginNode, venv: Path
) -> None:
    """Its `python3` leads to that of the system, which is another one on compute nodes."""
    config = f"script: train.py\nenvironment: {{venv: {venv}}}\nlaunch: {{launcher: torchrun}}\n"
    node.refusal(config)
    (venv / "lib/python3.99/site-packages").mkdir(parents=True)
    (said,) = node.warnings(config)
    assert "needs torch" in said


def test_a_python_too_old_to_be_asked_is_only_started(node: LoginNode, venv: Path) -> None:
    python = venv / "bin/python"
    python.unlink()
    python.write_text('#!/bin/sh\n[ "$1 $2" = "-c pass" ] || exit 1\n')
    python.chmod(0o755)
    config = (
        f"command: [python, train.py]\nlaunch: {{framework: none}}\nenvironment: {{venv: {venv}}}"
    )
    assert node.warnings(config) == []


def test_an_archive_that_python_executes_is_no_script_to_compile(node: LoginNode) -> None:
    with ZipFile(node.folder / "train.py", "w") as archive:
        archive.writestr("__main__.py", "print('trained')")
    assert node.warnings(SCRIPT) == []


@pytest.mark.parametrize("locale", ["C", "POSIX"])
def test_a_name_that_the_locale_cannot_spell_is_not_judged(
    node: LoginNode, venv: Path, locale: str
) -> None:
    folder = node.folder / "tren\N{LATIN SMALL LETTER E WITH ACUTE}"
    folder.mkdir()
    (folder / "train.py").touch()
    node.config = folder / "config.yaml"
    node.environ |= {"LC_ALL": locale, "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    assert node.warnings(SCRIPT + f"environment: {{venv: {venv}}}") == []


def test_what_only_this_shell_has_set_or_purged_is_only_warned_of(
    node: LoginNode, venv: Path
) -> None:
    """A job does not inherit it."""
    node.environ["PYTHONWARNINGS"] = "error"
    (node.folder / "train.py").write_text("x = '\\d'\n")
    config = SCRIPT + f"environment: {{venv: {venv}, modules: [%s]}}"
    (said,) = node.warnings(config % "")
    assert "does not compile" in said
    node.environ["PURGED"] = "yes"
    node.with_modules()
    module = node.folder / "modules.sh"
    module.write_text('module() { [ "$2" = gcc/13 ] && [ -z "${PURGED-}" ]; }\n')
    assert "there is no module gcc/13" in node.warnings(config % "gcc/13")[0]
    assert "there is no module gcc/14" in node.refusal(config % "gcc/14")
    dialect = node.site.dialect.model_copy(update={"export": False})
    node.change_site(dialect=dialect)
    assert "there is no module gcc/13" in node.refusal(config % "gcc/13")


@pytest.mark.parametrize(
    ("command", "launch", "is_told"),
    [
        ("[torchrun, --nproc-per-node, 4, train.py]", "", True),
        ("srun python train.py", "launch: {launcher: srun}", True),
        ("[torchrun, --nproc-per-node, 4, train.py]", "launch: {launcher: none}", False),
        ("[python3, train.py]", "", False),
    ],
)
def test_a_launcher_that_every_rank_would_start_is_warned_of(
    node: LoginNode, command: str, launch: str, is_told: bool
) -> None:
    node.write(f"command: {command}\n{launch}")
    text = node.config.read_text().replace("physics", "physics, gpus_per_node: 4")
    node.config.write_text(text)
    told = "\n".join(check_on_login_node(node.plan(), node.settings, node.clock))
    assert ("starts ranks, and" in told) is is_told


def test_imports_that_are_not_found_are_warned_of(node: LoginNode) -> None:
    """The script may add to sys.path itself."""
    (node.folder / "beside.py").touch()
    (node.folder / "train.py").write_text(
        "import os, beside\nfrom no_such_package.part import x\nfrom hpcflow import runtime\n"
        "try:\n    import optional_package\nexcept ImportError:\n    pass\n"
    )
    (said,) = node.warnings(SCRIPT)
    assert "train.py:2 imports no_such_package, which " in said
    assert not list(node.folder.rglob("__pycache__")), "nothing is written"


@pytest.mark.parametrize("is_repository", [True, False])
def test_of_a_code_snapshot_what_it_is_taken_from_is_looked_at(
    node: LoginNode, *, is_repository: bool
) -> None:
    """It is not on scratch before the run is created."""
    if is_repository:
        subprocess.run(["git", "init", "-q", str(node.folder)], check=True)
    (node.folder / "src/package").mkdir(parents=True)
    (node.folder / "src/package/__init__.py").touch()
    (node.folder / "pyproject.toml").touch()
    (node.folder / "train.py").write_text("import package\n")
    (node.folder / "begin.sh").write_text("#!/bin/sh\n")
    (node.folder / "begin.sh").chmod(0o755)
    launch = "launch: {framework: none}\n"
    for program in (
        SCRIPT,
        launch + "command: [python3, -u, train.py]",
        launch + "command: [python3]\nargs: [train.py]",
        launch + "command: [python3, '{{ run.code }}/train.py']",
        launch + "command: [./begin.sh]",
    ):
        assert node.warnings(program) == []
    (node.folder / "other.py").write_text("import package\nimport no_such_package\n")
    (said,) = node.warnings(launch + "command: [python3, other.py]")
    assert f"{node.folder}/other.py:2 imports no_such_package" in said
    (node.folder / "train.py").unlink()
    said = node.refusal(launch + "command: [python3, '{{ run.code }}/train.py']")
    assert "command[1]: there is no script HERE/train.py" in said


def test_a_script_that_python_cannot_look_at_is_not_judged(node: LoginNode) -> None:
    (node.folder / "train.py").write_text("x = " + "-" * 100_000 + "1\n")
    node.environ["PYTHONSAFEPATH"] = "1"
    assert node.warnings(SCRIPT) == []


def test_modules_are_looked_for_in_the_order_in_which_jobs_load_them(node: LoginNode) -> None:
    node.with_modules("gcc/13")
    config = SCRIPT + "environment:\n  modules:\n    - torch-stack/2\n    - %s\n"
    assert node.warnings(config % "gcc/13") == []
    said = node.refusal(config % "cuda/12.4")
    assert "HERE/config.yaml:8, environment.modules[1]: there is no module cuda/12.4" in said
    assert said.endswith("→ see what there is: module avail cuda")
    (said,) = node.warnings(config % "gpu/1")
    assert "module gpu/1 cannot be loaded here" in said
    hidden = config % "gpu/1\n    - of-gpu/3"
    assert "there is no module of-gpu/3" in node.warnings(hidden)[1], (
        "on compute nodes, gpu/1 may bring it"
    )


def test_what_a_site_itself_loads_is_not_the_users_to_correct(node: LoginNode) -> None:
    node.with_modules("gone/1")
    (said,) = node.warnings(SCRIPT + "environment: {modules: [gcc/13]}")
    assert "there is no module gone/1 of site devcluster" in said


def test_without_its_modules_nothing_is_certain_about_an_environment(
    node: LoginNode, venv: Path
) -> None:
    node.with_modules()
    config = "script: train.py\nlaunch: {launcher: torchrun}\n"
    said = node.warnings(f"{config}environment: {{modules: [gpu/1], venv: {venv}}}")
    assert len(said) == 2
    assert "needs torch" in said[1]


def test_a_conda_environment_is_activated_as_in_the_job(node: LoginNode) -> None:
    config = SCRIPT + "environment: {conda: %s}"
    node.executable("conda", CONDA)
    node.environ.pop("CONDA_EXE", None)
    assert node.warnings(config % "train") == []
    said = node.refusal(config % "trian")
    assert "environment.conda: conda cannot activate the environment trian" in said
    node.environ["PATH"] = "/usr/bin:/bin"
    (said,) = node.warnings(config % "train")
    assert "this login node has no command `conda`" in said


def test_a_program_that_is_not_on_path_here_is_warned_of(node: LoginNode) -> None:
    config = "launch: {framework: none}\ncommand: [simulate, fast]"
    (said,) = node.warnings(config)
    assert "command[0]: simulate is not on PATH here" in said
    node.executable("simulate", "#!/bin/sh\n")
    assert node.warnings(config) == []


def test_a_login_node_that_is_too_slow_holds_nothing_up(
    node: LoginNode, venv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(login_shell, "PATIENCE_S", 0.3)
    (venv / "bin/activate").write_text("sleep 600\n")
    (said,) = node.warnings(SCRIPT + "environment: {venv: env}")
    assert "environment: not checked: the shell that sets it up did not finish within " in said


def test_whatever_an_environment_prints_is_no_answer(node: LoginNode, venv: Path) -> None:
    with (venv / "bin/activate").open("a") as file:
        file.write("\necho module 0 none\necho '{'\necho python none\n")
    packages = next((venv / "lib").glob("python*/site-packages"))
    (packages / "sitecustomize.py").write_text("print('{}\\nmodule gcc\\nconda is slow\\ndone')")
    begin = node.folder / "begin.sh"
    begin.write_text("echo 'module gcc loaded'\necho 'conda is slow'\necho 'python 3.12'\n")
    node.environ["BASH_ENV"] = str(begin)
    assert node.warnings(SCRIPT + "environment: {venv: env}") == []


@pytest.mark.parametrize("words", [["a'b $(touch x)"], ["-x"]])
def test_nothing_of_a_config_becomes_shell(node: LoginNode, words: Sequence[str]) -> None:
    node.warnings(f'launch: {{framework: none}}\ncommand: ["{words[0]}"]')
    assert not Path("/x").exists()
    assert not (node.folder / "x").exists()


def test_a_run_that_is_resumed_is_checked_again_before_anything_is_changed(
    node: LoginNode, venv: Path
) -> None:
    script = node.folder / "train.py"
    node.write(SCRIPT + f"code: live\nenvironment: {{venv: {venv}}}\n")
    node.plan()
    launched = node.launch()
    run_dir = node.dir_of(launched)
    node.slurm.end(launched.job_id, "FAILED")
    node.look()
    before = run_dir.journal.read_bytes()
    script.write_text("x = (\n")
    with pytest.raises(SpecError, match=r"script: .*train\.py:1 does not compile") as caught:
        node.resume(run_dir, overrides=["resources.nodes=2"])
    again = (
        f"correct the script; or name another: hpcflow resume {run_dir.path.name} --set KEY=VALUE"
    )
    assert caught.value.next_action == again
    assert run_dir.journal.read_bytes() == before
    script.write_text("import no_such_package\n")
    warnings: list[str] = []
    assert node.resume(run_dir, warn=warnings.append).attempt == 2
    assert "train.py:1 imports no_such_package" in warnings[0]


def test_a_run_that_is_resumed_is_not_judged_by_code_that_it_does_not_execute(
    node: LoginNode,
) -> None:
    node.write(SCRIPT + "code: snapshot\n")
    launched = node.launch()
    node.slurm.end(launched.job_id, "FAILED")
    node.look()
    (node.folder / "train.py").write_text("x = (\n")
    assert node.resume(node.dir_of(launched)).attempt == 2


def test_a_dry_run_asks_slurm_whether_it_would_take_the_job(
    node: LoginNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpcflow.launch.run.connect_scheduler", lambda *_: node.slurm)
    node.write(SCRIPT)
    assert rehearse(node.plan(), settings=node.settings, clock=node.clock) == []

    def refuse(_: object) -> None:
        raise SubmissionRefused("Invalid account")

    monkeypatch.setattr(node.slurm, "predicted_start", refuse)
    with pytest.raises(SubmissionRefused, match="Invalid account"):
        rehearse(node.plan(), settings=node.settings, clock=node.clock)


@pytest.mark.parametrize(
    ("config", "brings", "what"),
    [
        (
            "launch: {framework: none}\ncommand: ./simulate --fast\n",
            "before: [make simulate]",
            "no program HERE/simulate",
        ),
        (
            "launch: {framework: none}\ncommand: python3 made.py\n",
            "before: [[cp, train.py, made.py]]",
            "no script HERE/made.py",
        ),
        (
            "script: train.py\nlaunch: {launcher: torchrun}\nenvironment:\n  venv: env\n",
            "  setup: [pip install torch]",
            "the launcher torchrun needs torch",
        ),
    ],
)
@pytest.mark.usefixtures("venv")
def test_what_the_job_may_bring_itself_is_warned_of(
    node: LoginNode, config: str, brings: str, what: str
) -> None:
    assert what in node.refusal(config)
    (warned,) = node.warnings(config + brings)
    assert what in warned.replace(str(node.folder), "HERE")
