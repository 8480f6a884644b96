"""Check on the login node what the job of a run will not find, before it is submitted.

A problem is an error if the job would have it too, and a warning if this machine may only differ
from the nodes. With ``login_nodes_differ`` in the site file, or with the user's own templates,
every problem is a warning. So is a missing Python, program or script that ``environment.setup`` or
``before`` may provide. docs/configuration.md lists the checks.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from hpcflow.clock import Clock
from hpcflow.config.paths import is_image_file
from hpcflow.documents import KeyPath, as_one_error
from hpcflow.documents.suggest import nearest_file
from hpcflow.errors import SpecError, shell_word
from hpcflow.launch.plan import Plan
from hpcflow.model.execution import Launcher
from hpcflow.rendering.arguments import filled_in, program_argv
from hpcflow.settings import Settings
from hpcflow.sites.schema import SchedulerKind

# Few runs ask a shell: only those that set up an environment.
if TYPE_CHECKING:
    from hpcflow.launch.login_shell import Answer, Question

_PYTHON: Final = re.compile(r"python(?:3(?:\.[0-9]+)?)?")
#: A shell's exit code for a file that it cannot execute; higher codes are not the program's either.
_NOT_EXECUTED: Final = 126
#: Programs that start ranks.
_LAUNCHERS: Final = frozenset({"torchrun", "srun", "mpirun", "mpiexec", "accelerate", "deepspeed"})
#: What a new login shell has before it reads any file.
_KEPT: Final = frozenset({"HOME", "LOGNAME", "SHELL", "USER"})


@dataclass(frozen=True)
class Finding:
    """A problem.

    Attributes:
        key: of the config.
        is_certain: whether the job will have it too.
    """

    key: KeyPath
    message: str
    next_action: str
    is_certain: bool = True


def check_on_login_node(plan: Plan, settings: Settings, clock: Clock) -> list[str]:
    """Return warnings about what the job of ``plan`` may not find.

    Raises:
        SpecError: lists everything that it will not find.
    """
    code = plan.run.code
    folders = () if code is None else tuple(str(Path(code.root, path)) for path in code.paths)
    # The snapshot is not on scratch yet, so its source is checked.
    live = plan if code is None else replace(plan, run=plan.run.model_copy(update={"code": None}))
    program = _Program.of(live, folders)
    if code is not None and plan.snapshot is None:
        # A resumed run executes its snapshot, which was checked when it was taken.
        program = replace(program, name=PurePosixPath(program.name).name, script=None)
    plan = live
    findings = list(_paths(plan, program))
    if not findings:
        findings = list(_environment(plan, program, settings, clock))
    findings += _launcher(plan, program)
    # The user's own templates may set up another environment.
    is_other = plan.site.login_nodes_differ or settings.home.templates.is_dir()
    wrong = [each for each in findings if each.is_certain and not is_other]
    if not wrong:
        return [f"{plan.document.where(each.key)}: {_in_full(each)}" for each in findings]
    if len(wrong) == 1:
        errors = [(plan.document.where(wrong[0].key), wrong[0].message)]
        raise as_one_error(errors, 1, plan.document, SpecError, wrong[0].next_action)
    errors = [(plan.document.where(each.key), _in_full(each)) for each in wrong]
    raise as_one_error(errors, len(errors), plan.document, SpecError, None)


def _in_full(finding: Finding) -> str:
    return f"{finding.message} → {finding.next_action}"


@dataclass(frozen=True)
class _Program:
    """The program of a run.

    Attributes:
        name: its first word.
        script: the Python script, and the key that names it.
        python: name of the required Python, if any.
        folders: folders of its own Python packages.
    """

    name: str
    script: tuple[Path, KeyPath] | None
    python: str | None
    folders: tuple[str, ...]

    @classmethod
    def of(cls, plan: Plan, folders: tuple[str, ...]) -> _Program:
        spec, working_dir = plan.run.spec, plan.run.working_dir
        words = program_argv(plan.run)
        is_python = _PYTHON.fullmatch(PurePosixPath(words[0]).name) is not None
        script: tuple[Path, KeyPath] | None = None
        python = words[0] if is_python and "/" not in words[0] else None
        if spec.script is not None:
            script = Path(spec.script), ("script",)
        elif is_python:
            index, given = 2 if words[1:2] == ["-u"] else 1, len(spec.command or ())
            if index < len(words) and words[index].endswith(".py"):
                key = ("command", index) if index < given else ("args", index - given)
                script = Path(working_dir, words[index]), key
        if plan.placement.launcher is Launcher.TORCHRUN:
            python = "python3"
        return cls(words[0], script, python, folders)


def _paths(plan: Plan, program: _Program) -> Iterator[Finding]:
    environment, working_dir = plan.run.spec.environment, plan.run.working_dir
    container = environment.container
    for name, value in environment.variables.items():
        if re.search(rf"\$(?:{name}\b|{{{name}}})", value):
            move = f"move it to environment.setup: ['export {name}={value}']"
            yield Finding(("environment", "variables", name), f"${name} is not expanded here", move)
    if environment.venv is not None:
        yield from _venv(plan, Path(working_dir, environment.venv))
    if environment.conda is not None and "/" in environment.conda:
        folder = Path(working_dir, environment.conda)
        see = "see what there is: conda env list"
        what = "conda environment"
        yield from _missing(plan, ("environment", "conda"), folder, what, see)
        if program.python is not None and _exists(folder):
            python = folder / "bin/python3"
            yield from _missing(plan, ("environment", "conda"), python, "Python", see)
    if container is not None:
        key = ("environment", "container")
        if is_image_file(container.image):
            yield from _missing(plan, (*key, "image"), Path(container.image), "container image")
        for number, mount in enumerate(container.mounts):
            source = Path(mount.partition(":")[0])
            yield from _missing(plan, (*key, "mounts", number), source, "mount source")
        return
    yield from _uncertain(_program_files(plan, program), if_any=plan.run.spec.before)


def _launcher(plan: Plan, program: _Program) -> Iterator[Finding]:
    """Yield a warning if each of several ranks of a node would start ranks again."""
    launcher, ranks = plan.placement.launcher, plan.placement.ranks_per_node
    if program.name in _LAUNCHERS and launcher is not Launcher.NONE and ranks > 1:
        yield Finding(
            ("command",),
            f"{program.name} starts ranks, and {launcher.value} starts it {ranks} times on a node",
            "name the program alone, such as `script: train.py`; or add `launch: {launcher: none}`",
            is_certain=False,
        )


def _uncertain(findings: Iterator[Finding], *, if_any: Sequence[object]) -> Iterator[Finding]:
    """Yield findings, as warnings if anything of ``if_any`` may resolve them in the job."""
    return (replace(each, is_certain=each.is_certain and not if_any) for each in findings)


def _program_files(plan: Plan, program: _Program) -> Iterator[Finding]:
    working_dir = plan.run.working_dir
    if "/" in program.name:
        path = Path(working_dir, program.name)
        yield from _missing(plan, ("command", 0), path, "program")
        if path.is_file() and not os.access(path, os.X_OK):
            allow = f"chmod u+x {shell_word(path)}"
            yield Finding(("command", 0), f"{path} is not executable", allow, _is_seen(plan, path))
    if program.script is not None:
        yield from _missing(plan, program.script[1], program.script[0], "script")


def _venv(plan: Plan, venv: Path) -> Iterator[Finding]:
    key: KeyPath = ("environment", "venv")
    make = f"python3 -m venv {shell_word(venv)}"
    if not _exists(venv):
        what = "virtual environment"
        yield from _missing(plan, key, venv, what, f"correct the path, or create it: {make}")
    elif not _exists(venv / "bin/activate"):
        name = "name the directory that has bin/activate"
        yield Finding(key, f"{venv} is not a virtual environment", name, _is_seen(plan, venv))
    elif not _exists(python := venv / "bin/python3"):
        target = Path(os.path.realpath(python))
        leads = f" points to {target}, which" if python.is_symlink() else ""
        again = f"create the environment again: {make} --clear"
        yield Finding(key, f"{python}{leads} does not exist", again, _is_seen(plan, target))


def _missing(
    plan: Plan, key: KeyPath, path: Path, what: str, next_action: str | None = None
) -> Iterator[Finding]:
    if _exists(path):
        return
    if next_action is None:
        near = nearest_file(str(path))
        next_action = f"did you mean {near!r}?" if near else "correct the path"
    if _is_seen(plan, path):
        yield Finding(key, f"there is no {what} {path}", next_action)
    else:
        here = f"this login node has no {what} {path}"
        yield Finding(key, here, "make sure that the compute nodes have it", is_certain=False)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False


def _is_seen(plan: Plan, path: Path) -> bool:
    """Return whether jobs see ``path``: it is on a file system that they need, or below the same
    top directory of the root file system."""
    place = _place(path)
    needed = (plan.run.working_dir, plan.run.run_dir, os.path.expanduser("~"))  # noqa: PTH111 - Path raises without a home
    return place is not None and place in {_place(Path(each)) for each in needed}


def _place(path: Path) -> tuple[int, str] | None:
    """Return the device of ``path``; with its top directory if it is on the root file system. None
    for the root directory itself."""
    real = Path(os.path.realpath(path))
    nearest = next(each for each in (real, *real.parents) if _exists(each))
    device = nearest.stat().st_dev
    if device != Path("/").stat().st_dev:
        return device, ""
    return (device, nearest.parts[1]) if len(nearest.parts) > 1 else None


def _is_shared(plan: Plan, executable: Path) -> bool:
    """Return whether jobs use the same Python. A system Python may have another version or other
    packages on compute nodes."""
    if plan.site.scheduler is SchedulerKind.LOCAL:
        return True
    real = Path(os.path.realpath(executable))
    return real.stat().st_dev != Path("/").stat().st_dev or _is_seen(plan, real)


def _environment(
    plan: Plan, program: _Program, settings: Settings, clock: Clock
) -> Iterator[Finding]:
    """Yield the problems that a shell finds which sets up the environment as the job does."""
    question = _question(plan, program, settings)
    if question is None:
        return
    from hpcflow.launch.login_shell import PATIENCE_S, ask

    minute = int(clock.monotonic() / 60)
    answer = ask(question, settings.environ, minute)
    if answer is None:
        late = f"not checked: the shell that sets it up did not finish within {PATIENCE_S:g} s"
        yield Finding(("environment",), late, "the run can be submitted unchecked", False)
        return
    found = list(_found(plan, program, question, answer))
    if any(each.is_certain for each in found) and plan.site.dialect.export:
        # Jobs do not inherit what this shell has loaded, purged or set.
        new_shell = {name: settings.environ[name] for name in _KEPT & settings.environ.keys()}
        again = ask(question, {**new_shell, "PATH": os.defpath}, minute)
        there = _found(plan, program, question, again) if again is not None else ()
        wrong = {each.key for each in there}
        found = [replace(each, is_certain=each.is_certain and each.key in wrong) for each in found]
    yield from found


def _found(plan: Plan, program: _Program, question: Question, answer: Answer) -> Iterator[Finding]:
    problems = list(_modules(plan, question, answer))
    yield from problems
    # Without its modules, an environment may lack what it has in the job.
    yield from _uncertain(_conda(question, answer), if_any=problems)
    later = [*problems, *plan.run.spec.environment.setup, *plan.run.spec.before]
    yield from _uncertain(_python(plan, program, question, answer), if_any=later)


def _question(plan: Plan, program: _Program, settings: Settings) -> Question | None:
    environment, site = plan.run.spec.environment, plan.site
    modules = (*site.modules.load, *environment.modules)
    venv = environment.venv and str(Path(plan.run.working_dir, environment.venv))
    conda = environment.conda
    if conda is not None and "/" in conda:
        conda = str(Path(plan.run.working_dir, conda))
    if environment.container is not None:
        if not environment.modules:
            return None
        from hpcflow.launch.login_shell import Question

        return Question(modules, site.modules.init)
    own = {
        name: filled_in(value, plan.run, f"environment.variables.{name}")
        for name, value in environment.variables.items()
    }
    variables = {**site.variables, **site.fabric.variables, **own}
    script = str(program.script[0]) if program.script is not None else None
    bare = program.name if "/" not in program.name and program.python is None else None
    if program.python is None and not environment.modules and (conda is None or "/" in conda):
        folders = [f"{each}/bin" for each in (venv, conda) if each]
        path = os.pathsep.join([*folders, settings.environ.get("PATH", os.defpath)])
        if bare is None or shutil.which(bare, path=path):
            return None
    from hpcflow.launch.login_shell import Question

    return Question(
        modules,
        site.modules.init,
        venv,
        conda,
        tuple(variables.items()),
        bare,
        program.python,
        script,
        torch=plan.placement.launcher is Launcher.TORCHRUN,
        python_path=program.folders,
    )


def _modules(plan: Plan, question: Question, answer: Answer) -> Iterator[Finding]:
    key: KeyPath = ("environment", "modules")
    if not answer.has_module:
        see = "name the script that defines it in the site file: modules.init"
        yield Finding(key, "this login node has no command `module`", see, False)
    of_site = len(plan.site.modules.load)
    may_be_hidden = False  # a module that only jobs can load may provide others
    for index, exists in answer.modules.items():
        name, is_own = question.modules[index], index >= of_site
        at = (*key, index - of_site) if is_own else key
        whose = "" if is_own else f" of site {plan.site.name}"
        if exists:
            see = f"see why: module load {shell_word(name)}"
            yield Finding(at, f"module {name}{whose} cannot be loaded here", see, False)
        else:
            see = f"see what there is: module avail {shell_word(name.partition('/')[0])}"
            is_certain = is_own and not may_be_hidden
            yield Finding(at, f"there is no module {name}{whose}", see, is_certain)
        may_be_hidden = may_be_hidden or exists or not is_own


def _conda(question: Question, answer: Answer) -> Iterator[Finding]:
    key: KeyPath = ("environment", "conda")
    if answer.conda == "none":
        load = "name the module that has it in environment.modules"
        yield Finding(key, "this login node has no command `conda`", load, False)
    elif answer.conda is not None:
        see = "see what there is: conda env list"
        yield Finding(key, f"conda cannot activate the environment {question.conda}", see)


def _python(plan: Plan, program: _Program, question: Question, answer: Answer) -> Iterator[Finding]:
    if answer.conda is not None:
        return
    key, whose = _key_of_python(plan)
    if not answer.has_program:
        see = "make sure that the compute nodes have it"
        yield Finding(("command", 0), f"{program.name} is not on PATH here", see, False)
    if not answer.has_python:
        name = "name an environment: environment.venv, environment.conda or environment.modules"
        yield Finding(key, f"{question.python} is not on PATH here", name, False)
    elif answer.exit_code is not None:
        word = shell_word(f"{question.venv}/bin/python3" if question.venv else question.python)
        starts = answer.exit_code < _NOT_EXECUTED
        is_named = question.venv is not None or question.conda is not None
        what = "fails" if starts else "cannot be executed on this login node"
        yield Finding(
            key,
            f"{question.python}{whose} {what} (exit code {answer.exit_code})",
            f"see why: {word} -c pass",
            starts and is_named,
        )
    elif answer.executable is not None:
        is_same = answer.has_own_packages or _is_shared(plan, Path(answer.executable))
        if not answer.has_torch:
            install = f"{shell_word(answer.executable)} -m pip install torch"
            yield Finding(
                key,
                f"the launcher torchrun needs torch, and {answer.executable}{whose} has none",
                f"install it: {install}; or name another environment: environment.venv",
                is_same,
            )
        yield from _script(program, answer, is_same=is_same)


def _key_of_python(plan: Plan) -> tuple[KeyPath, str]:
    """Return the key that selects the Python, and a remark if the config does not set it."""
    given = plan.document.data.get("environment")
    named = [
        name for name in ("venv", "conda", "modules") if isinstance(given, dict) and given.get(name)
    ]
    if named:
        return ("environment", named[0]), ""
    environment = plan.run.spec.environment
    default = " of the environment in use here" if environment.venv or environment.conda else ""
    return ("environment", "venv"), default


def _script(program: _Program, answer: Answer, *, is_same: bool) -> Iterator[Finding]:
    if program.script is None:
        return
    path, key = program.script
    if answer.wrong is not None:
        line, message = answer.wrong
        place = f"{path}:{line}" if line else str(path)
        what = f"{place} does not compile with {answer.executable}: {message}"
        yield Finding(key, what, "correct the script", is_same)
    for line, name in answer.missing:
        yield Finding(
            key,
            f"{path}:{line} imports {name}, which {answer.executable} does not find",
            "install it, unless the script extends sys.path",
            is_certain=False,
        )
