"""Set up a run's environment in a shell on the login node, as its job does, and check it.

The shell loads the modules, activates the environment and starts its Python. That looks up modules
without importing them, and compiles the script.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from hpcflow.programs import run_program
from hpcflow.rendering.quoting import sh
from hpcflow.runtime.reading import JsonError, parse_object

#: The shell of job scripts.
_BASH: Final = "/bin/bash"
#: After this time the run is submitted unchecked.
PATIENCE_S: Final = 10.0
_BEGIN: Final = "hpcflow begins"
_MOST_IMPORTS: Final = 5
_MOST_REMEMBERED: Final = 100
_MOST_CHARS: Final = 300

#: Runs in the Python of the environment, which may be an old one.
_LOOK_AROUND: Final = """
import ast, glob, json, os, site, sys
from importlib.util import find_spec
def is_there(name):
    try:
        return name in sys.modules or find_spec(name) is not None
    except Exception:
        return True  # a hook of that environment fails: nobody knows
asked = json.loads(sys.argv[1])
script = asked["script"]
if sys.path[:1] == [""]:
    sys.path[:1] = [os.path.dirname(script)] if script else []
has_torch = is_there("torch") if asked["torch"] else True
told = {"python": sys.executable, "torch": has_torch, "missing": []}
libraries = glob.glob(os.path.join(glob.escape(sys.prefix), "lib", "python3*"))
is_venv = sys.prefix != sys.base_prefix and not site.ENABLE_USER_SITE
told["own_packages"] = is_venv and len(libraries) == 1
def look_at(script):
    with open(script, "rb") as file:
        text = file.read()
    if bytes(1) in text:
        return  # an archive, which Python executes, too
    try:
        compile(text, script, "exec", dont_inherit=True)
    except SyntaxError as error:
        told["wrong"] = [error.lineno, error.msg]
        return
    for node in ast.parse(text, script).body:
        names = []
        if isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module]
        for name in {each.split(".")[0] for each in names} - {"hpcflow"}:
            if not is_there(name):
                told["missing"].append([node.lineno, name])
try:
    if script:
        look_at(script)
except Exception:
    pass  # it cannot be read here, or is nested too deeply: nobody knows
os.write(3, (json.dumps(told) + "\\n").encode())
"""


@dataclass(frozen=True)
class Question:
    """What to look for.

    Attributes:
        modules: to load, in this order.
        module_init: script that defines ``module``; None for the login shell's.
        venv: a directory.
        conda: a name, or a directory.
        variables: exported after that, as for the program.
        program: looked up on PATH.
        python: name of the Python to start, if any.
        script: compiled by that Python.
        torch: whether that Python has to find torch.
        python_path: folders that it searches first.
    """

    modules: tuple[str, ...] = ()
    module_init: str | None = None
    venv: str | None = None
    conda: str | None = None
    variables: tuple[tuple[str, str], ...] = ()
    program: str | None = None
    python: str | None = None
    script: str | None = None
    torch: bool = False
    python_path: tuple[str, ...] = ()


@dataclass(frozen=True)
class Answer:
    """What the shell found.

    Attributes:
        modules: index of each module that could not be loaded -> whether it exists.
        has_module: whether there is a command ``module``.
        conda: ``none`` without a command ``conda``, ``failed`` if it could not activate the
            environment.
        has_program, has_python: whether they are on PATH.
        exit_code: of Python, if it fails.
        executable: path of Python; None if it is too old for the check.
        has_own_packages: whether Python uses only the virtual environment's packages, and these
            are of one Python version.
        has_torch: whether Python finds torch, if required.
        missing: line and name of each import that Python does not find.
        wrong: line and message of a syntax error.
    """

    modules: Mapping[int, bool] = field(default_factory=dict)
    has_module: bool = True
    conda: str | None = None
    has_program: bool = True
    has_python: bool = True
    exit_code: int | None = None
    executable: str | None = None
    has_own_packages: bool = False
    has_torch: bool = True
    missing: tuple[tuple[int, str], ...] = ()
    wrong: tuple[int | None, str] | None = None

    @property
    def is_good(self) -> bool:
        return replace(self, executable=None, has_own_packages=False) == Answer()


#: The good answers of this process, which may submit a thousand runs.
_good: dict[object, Answer] = {}


def ask(question: Question, environ: Mapping[str, str], minute: int) -> Answer | None:
    """Return what the shell found; None if it took too long or could not be started.

    Args:
        environ: the initial environment.
        minute: good answers are cached for the same minute.
    """
    key = (question, *sorted(environ.items()), minute)
    if key in _good:
        return _good[key]
    answer = _ask(question, environ)
    if answer is not None and answer.is_good:
        if len(_good) >= _MOST_REMEMBERED:
            _good.clear()
        _good[key] = answer
    return answer


def _ask(question: Question, environ: Mapping[str, str]) -> Answer | None:
    argv = [_BASH, "--noprofile", "--norc", "-c", "\n".join(_lines(question))]
    try:
        done = run_program(argv, environment=environ, timeout_s=PATIENCE_S, cwd=Path("/"))
    except OSError:
        return None
    # A script named by BASH_ENV may print too.
    _, _, output = done.stdout.rpartition(f"{_BEGIN}\n")
    lines = output.splitlines()
    return _answer(lines) if lines and lines[-1] == "done" else None


def _lines(question: Question) -> Iterator[str]:
    yield "exec 3>&1 > /dev/null 2>&1"  # answers go to 3, where modules do not write
    yield f"echo {_BEGIN} >&3"
    yield from _load(question)
    if question.venv is not None:
        yield f"source {sh(question.venv)}/bin/activate"
    if question.conda is not None and "/" in question.conda:
        yield f"export PATH={sh(question.conda)}/bin:$PATH"
    elif question.conda is not None:
        yield 'hpcflow_conda=$(command -v conda) || { echo "conda none"; echo done; exit; } >&3'
        yield 'eval "$("${CONDA_EXE:-$hpcflow_conda}" shell.bash hook)"'
        yield f"conda activate {sh(question.conda)} || echo conda failed >&3"
    for name, value in question.variables:
        yield f"export {name}={sh(value)}"
    if question.python_path:
        yield f"export PYTHONPATH={sh(':'.join(question.python_path))}${{PYTHONPATH:+:$PYTHONPATH}}"
    if question.program is not None:
        yield f"command -v {sh(question.program)} || echo program none >&3"
    if question.python is not None:
        asked = json.dumps({"script": question.script, "torch": question.torch})
        yield f"if command -v {question.python}; then"
        yield f"  {question.python} -c {sh(_LOOK_AROUND)} {sh(asked)} ||"
        yield f'    {question.python} -c pass || echo "exited $?" >&3'
        yield "else echo python none >&3; fi"
    yield "echo done >&3"


def _load(question: Question) -> Iterator[str]:
    if not question.modules:
        return
    if question.module_init is not None:
        yield f"source {sh(question.module_init)}"
    else:
        yield "command -v module || source /etc/profile"
    yield "if command -v module; then"
    for index, name in enumerate(question.modules):
        word = sh(name)
        exists = f"module is-avail {word} && echo module {index} exists || echo module {index} none"
        yield f"  module load {word} || {{ {exists}; }} >&3"
    yield "else echo modules none >&3; fi"


def _answer(lines: list[str]) -> Answer:
    modules: dict[int, bool] = {}
    found: dict[str, Any] = {}
    for line in lines:
        what, _, value = line.partition(" ")
        if what == "module":
            index, _, state = value.partition(" ")
            modules[int(index)] = state == "exists"
        elif what == "modules":
            found["has_module"] = False
        elif what == "conda":
            found["conda"] = value
        elif what == "program":
            found["has_program"] = False
        elif what == "python":
            found["has_python"] = False
        elif what == "exited":
            found["exit_code"] = int(value)
        elif line.startswith("{"):
            found |= _python_answer(line)
    return Answer(modules=modules, **found)


def _python_answer(line: str) -> dict[str, Any]:
    """Parse Python's answer; empty if it is invalid."""
    try:
        answer = parse_object(line)
        wrong = answer.get("wrong")
        return {
            "executable": str(answer["python"]),
            "has_own_packages": bool(answer["own_packages"]),
            "has_torch": bool(answer["torch"]),
            "missing": tuple((int(n), str(name)) for n, name in answer["missing"][:_MOST_IMPORTS]),
            "wrong": (wrong[0], str(wrong[1])[:_MOST_CHARS]) if wrong else None,
        }
    except (JsonError, KeyError, TypeError, ValueError):
        return {}
