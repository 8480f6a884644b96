"""A job executes nothing from a run directory that another user could have replaced."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from hpcflow.model.state import UNTRUSTED_EXIT_CODE
from hpcflow.ownership import Trust
from hpcflow.rendering.job import (
    IntegrityCheck,
    common_directives,
    make_integrity_check,
    render_array,
)
from hpcflow.storage.runtime_copy import add_runtime, compiled_sum, installed_sum, runtime_sum
from tests.rendering.executed import NONE, Bench, kinds, written
from tests.rendering.samples import a_local_site, a_run, a_site, a_spec, script_of
from tests.untrusted_paths import (
    EVE,
    LAB,
    SAFE,
    UNSAFE,
    folders,
    of_eve,
    open_and_sticky,
    open_to_a_group,
    open_to_all,
)

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
_BY_ACL = {each for each in UNSAFE if each.__name__.endswith("_by_an_acl")}


def on(root: Path, layout: Callable[[Path], None], integrity: IntegrityCheck) -> Bench:
    """A job that waits when the folders above its run directory become ``layout``."""
    path = folders(root)
    bench = Bench(path)
    add_runtime(bench.run_dir.runtime, path / ".runtime", [])
    spec = a_spec(script=None, command=["touch", "done"], launch=NONE)
    bench.write(spec, a_local_site(), integrity=integrity)
    layout(root)
    return bench


def execute(bench: Bench) -> tuple[int, str]:
    """From a text, as Slurm's copy of the script."""
    done = subprocess.run(
        ["bash"],
        input=bench.attempt.script.read_bytes(),
        env=bench.environment(),
        capture_output=True,
        timeout=120,
    )
    return done.returncode, done.stderr.decode()


@as_root
@pytest.mark.parametrize("layout", SAFE)
def test_a_way_that_nobody_else_can_change(
    weird_tmp_path: Path, layout: Callable[[Path], None]
) -> None:
    bench = on(
        weird_tmp_path, layout, make_integrity_check(weird_tmp_path, Trust(), installed_sum())
    )
    assert execute(bench) == (0, "")
    assert (bench.work / "done").exists()


@as_root
@pytest.mark.parametrize("layout", [each for each in UNSAFE if each not in _BY_ACL])
def test_a_way_that_others_can_change(weird_tmp_path: Path, layout: Callable[[Path], None]) -> None:
    bench = on(
        weird_tmp_path, layout, make_integrity_check(weird_tmp_path, Trust(), installed_sum())
    )
    code, said = execute(bench)
    assert code == UNTRUSTED_EXIT_CODE
    assert "the job executes nothing" in said
    assert ("belongs to another user" in said) == ("belongs to" in UNSAFE[layout])
    assert not (bench.work / "done").exists()
    there = [path.name for path in bench.attempt.path.iterdir()]
    assert there == ["job.sbatch"], "nothing is written there"


@as_root
@pytest.mark.parametrize(
    ("layout", "trust"),
    [
        (of_eve, Trust(users=frozenset({EVE}))),
        (open_to_a_group, Trust(groups=frozenset({1, LAB}))),
    ],
)
def test_whom_a_site_trusts(
    weird_tmp_path: Path, layout: Callable[[Path], None], trust: Trust
) -> None:
    bench = on(weird_tmp_path, layout, make_integrity_check(weird_tmp_path, trust, installed_sum()))
    assert execute(bench) == (0, "")


def plant(root: Path, runs: Path) -> None:
    """A tree with its own hpcflow in the place of that which a waiting job has."""
    runs.rename(root / "aside")
    shutil.copytree(root / "aside", runs, symlinks=True)
    for name in ("__init__.py", "runtime/__init__.py"):
        for planted in runs.glob(f"runs/*/runtime/hpcflow/{name}"):
            planted.unlink()
            planted.write_text(f"open({str(root / 'owned')!r}, 'w').close()\n")


@as_root
@pytest.mark.parametrize("is_closed_after", [False, True])
def test_code_of_others_is_not_executed(tmp_path: Path, is_closed_after: bool) -> None:
    """Eve has made /shared/ada before ada did, open to all; while the job waits she swaps it."""
    integrity = make_integrity_check(tmp_path, Trust(), installed_sum())
    bench = on(tmp_path, open_to_all, integrity)
    plant(tmp_path, bench.folder)
    if is_closed_after:  # and covers her tracks, as far as she could
        (tmp_path / "shared/ada").chmod(0o755)
        bench.attempt.path.joinpath("events.jsonl").touch()
    else:
        os.chown(tmp_path / "shared/ada", EVE, EVE)
    code, said = execute(bench)
    assert code in (1, UNTRUSTED_EXIT_CODE), said
    assert not (tmp_path / "owned").exists()
    assert not (bench.work / "done").exists()


def a_changed_module(hpcflow: Path) -> None:
    path = hpcflow / "runtime/events.py"
    path.unlink()
    path.write_text("")


def a_missing_module(hpcflow: Path) -> None:
    (hpcflow / "runtime/events.py").unlink()


def a_module_that_hides_one_of_python(hpcflow: Path) -> None:
    (hpcflow.parent / "json.py").touch()


def a_module_in_the_package(hpcflow: Path) -> None:
    (hpcflow / "runtime/torch.py").touch()


def a_compiled_module(hpcflow: Path) -> None:
    (hpcflow / "runtime/events.pyc").touch()


def a_hidden_file(hpcflow: Path) -> None:
    (hpcflow / ".x").touch()


def a_name_with_a_newline(hpcflow: Path) -> None:
    (hpcflow / "a\nb").touch()


def a_link_to_the_same_bytes(hpcflow: Path) -> None:
    path = hpcflow / "runtime/events.py"
    path.rename(hpcflow.parents[1] / "events.py")
    path.symlink_to(hpcflow.parents[1] / "events.py")


def a_linked_folder(hpcflow: Path) -> None:
    (hpcflow.parents[1] / "code").mkdir()
    (hpcflow.parent / "yaml").symlink_to(hpcflow.parents[1] / "code")


def a_pipe(hpcflow: Path) -> None:
    os.mkfifo(hpcflow / "pipe")


def an_open_folder(hpcflow: Path) -> None:
    (hpcflow / "runtime").chmod(0o777)


def an_open_file(hpcflow: Path) -> None:
    path = hpcflow / "runtime/events.py"
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data)
    path.chmod(0o666)


CHANGES = (
    a_changed_module,
    a_missing_module,
    a_module_that_hides_one_of_python,
    a_module_in_the_package,
    a_compiled_module,
    a_hidden_file,
    a_name_with_a_newline,
    a_link_to_the_same_bytes,
    a_linked_folder,
    a_pipe,
    an_open_folder,
    an_open_file,
)


@pytest.mark.parametrize("change", CHANGES)
def test_a_runtime_that_was_changed_is_not_used(
    bench: Bench, change: Callable[[Path], None]
) -> None:
    add_runtime(bench.run_dir.runtime, bench.folder / "shared", [])
    written(bench, "touch", "done")
    change(bench.run_dir.runtime / "hpcflow")
    assert bench.execute() == 1
    assert "runtime was changed after this job was submitted" in bench.log()
    assert kinds(bench) == ["started", "exited"], "it is an end like any other, and recorded"
    assert not (bench.work / "done").exists()


def test_a_runtime_of_another_user_is_not_used(bench: Bench) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    add_runtime(bench.run_dir.runtime, bench.folder / "shared", [])
    written(bench, "touch", "done")
    os.chown(bench.run_dir.runtime / "hpcflow/runtime/events.py", EVE, -1)
    assert bench.execute() == 1
    assert "events.py belongs to another user" in bench.log()


def compiled_files(bench: Bench) -> list[Path]:
    """A runtime with two files that Python has compiled."""
    add_runtime(bench.run_dir.runtime, bench.folder / "shared", [])
    files = [
        bench.run_dir.runtime / folder / "__pycache__/planted.cpython-311.pyc"
        for folder in ("hpcflow", "hpcflow/runtime/adoption")
    ]
    for file in files:
        file.parent.mkdir(mode=0o700, exist_ok=True)
        file.write_bytes(b"compiled")
        file.chmod(0o600)
    return files


def submit(bench: Bench) -> None:
    """Write the script of an attempt that the runtime was looked at for."""
    runtime = bench.run_dir.runtime
    integrity = make_integrity_check(
        bench.run_dir.path, Trust(), runtime_sum(runtime), compiled_sum(runtime)
    )
    spec = a_spec(script=None, command=["touch", "done"], launch=NONE)
    bench.write(spec, a_local_site(), integrity=integrity)


#: The sampler outlives the job: what it compiles must not get into the next test.
NO_WRITING = {"PYTHONDONTWRITEBYTECODE": "1"}


def test_what_python_has_compiled_before_submission_is_used_again(bench: Bench) -> None:
    files = compiled_files(bench)
    submit(bench)
    assert bench.execute(**NO_WRITING) == 0
    assert all(each.read_bytes() == b"compiled" for each in files)


def another_content(file: Path) -> None:
    """As long as the one before, and of the same time."""
    before = file.stat()
    file.unlink()
    file.write_bytes(b"COMPILED")
    file.chmod(0o600)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize(
    "change",
    [
        another_content,
        lambda file: file.with_name("planted-more.pyc").touch(),
        lambda file: file.unlink(),
        lambda file: file.rename(file.with_name("planted-other.pyc")),
    ],
    ids=["content", "more", "fewer", "name"],
)
def test_compiled_files_that_changed_after_submission_are_removed(
    bench: Bench, change: Callable[[Path], None]
) -> None:
    files = compiled_files(bench)
    submit(bench)
    change(files[0])
    assert bench.execute(**NO_WRITING) == 0, "Python compiles them again"
    assert not list(bench.run_dir.runtime.rglob("planted*.pyc"))
    assert (bench.work / "done").exists()


def replaced_by_a_link(file: Path) -> None:
    file.unlink()
    file.symlink_to("/etc/hostname")


@as_root
@pytest.mark.parametrize(
    "change",
    [lambda file: os.chown(file, EVE, -1), lambda file: file.chmod(0o602), replaced_by_a_link],
    ids=["owner", "mode", "link"],
)
def test_compiled_files_that_another_user_can_have_written_are_removed(
    bench: Bench, change: Callable[[Path], None]
) -> None:
    files = compiled_files(bench)
    change(files[0])
    submit(bench)
    assert bench.execute(**NO_WRITING) == 0
    assert not list(bench.run_dir.runtime.rglob("planted*.pyc"))


def test_what_python_has_compiled_before_goes_and_is_no_change(bench: Bench) -> None:
    add_runtime(bench.run_dir.runtime, bench.folder / "shared", [])
    written(bench, "touch", "done")
    for folder in ("", "hpcflow", "hpcflow/runtime/adoption"):
        cache = bench.run_dir.runtime / folder / "__pycache__"
        cache.mkdir()
        (cache / "job.cpython-311.pyc").write_bytes(b"planted")
    assert bench.execute(**NO_WRITING) == 0, bench.log()
    assert not [*bench.run_dir.runtime.rglob("job.*.pyc")]


def test_both_sides_make_the_same_checksum(tmp_path: Path) -> None:
    target = tmp_path / "runtime"
    assert runtime_sum(target) == ""
    add_runtime(target, tmp_path / "shared", [])
    assert runtime_sum(target) == installed_sum()
    (target / "hpcflow/__pycache__").mkdir()
    (target / "hpcflow/__pycache__/x.pyc").touch()
    assert runtime_sum(target) == installed_sum()
    (target / "hpcflow/x.py").touch()
    assert runtime_sum(target) != installed_sum()
    Path(os.fsdecode(b"%s/\xff.py" % os.fsencode(target))).touch()  # a bit that has flipped
    command = (
        "export LC_ALL=C; find * -type f ! -name '*.pyc' -print0 | sort -z | xargs -0 sha256sum"
    )
    there = subprocess.run(
        ["bash", "-c", f"{command} | sort | sha256sum"], cwd=target, capture_output=True, check=True
    )
    assert there.stdout.decode().split()[0] == runtime_sum(target)


def an_array(root: Path) -> tuple[Bench, str]:
    bench = Bench(folders(root))
    (bench.work / "array").mkdir()
    (bench.work / "array/0").symlink_to(os.path.relpath(bench.attempt.path, bench.work / "array"))
    script = f"touch {root}/done\n"
    bench.attempt.script.write_text(script)
    array = render_array(
        "a", [], bench.work / "array", [script], integrity=make_integrity_check(bench.work, Trust())
    )
    return bench, array


def execute_task(bench: Bench, array: str) -> tuple[int, str]:
    ids = {"SLURM_ARRAY_TASK_ID": "0", "SLURM_ARRAY_JOB_ID": "7"}
    done = subprocess.run(
        ["bash"],
        input=array,
        env=bench.environment(**ids),
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stderr


def test_a_task_of_an_array_executes_the_script_that_was_sent(tmp_path: Path) -> None:
    bench, array = an_array(tmp_path)
    assert execute_task(bench, array) == (0, "")
    assert (tmp_path / "done").exists()
    bench.attempt.script.write_text(f"touch {tmp_path}/owned\n")
    code, said = execute_task(bench, array)
    assert (code, "was changed after" in said) == (UNTRUSTED_EXIT_CODE, True)
    assert not (tmp_path / "owned").exists()


@as_root
@pytest.mark.parametrize("layout", [of_eve, open_to_all, open_to_a_group])
def test_a_task_of_an_array_distrusts_the_same_ways(
    tmp_path: Path, layout: Callable[[Path], None]
) -> None:
    bench, array = an_array(tmp_path)
    layout(tmp_path)
    code, said = execute_task(bench, array)
    assert (code, "the job executes nothing" in said) == (UNTRUSTED_EXIT_CODE, True)
    assert not (tmp_path / "done").exists()


#: What Slurm says to a job, as far as the scripts of one node need it.
IN_SLURM = {"SLURM_JOB_ID": "41", "SLURM_JOB_NODELIST": "n1", "SLURM_NODEID": "0"}


def execute_as_slurm(script: str, directory: Path, bench: Bench, **variables: str) -> int:
    """Enter the directory and open the log as slurmstepd does: before the script can check them."""
    asked = dict(
        line.removeprefix("#SBATCH --").split("=", 1)
        for line in script.splitlines()
        if line.startswith("#SBATCH --") and "=" in line
    )
    log = asked["output"].replace("%a", variables.get("SLURM_ARRAY_TASK_ID", ""))
    done = subprocess.run(
        [
            "bash",
            "-c",
            f'cd -- "$1" && exec bash >> {log} 2>&1',
            "-",
            asked.get("chdir", directory),
        ],
        input=script.encode(),
        env=bench.environment(**IN_SLURM, **variables),
        timeout=30,
    )
    return done.returncode


def in_slurm(root: Path, *, as_array: bool) -> tuple[Bench, Callable[[], int]]:
    """A run below a sticky folder, ready to be sent; what its job, or its task, does."""
    bench = Bench(folders(root))
    open_and_sticky(root)
    add_runtime(bench.run_dir.runtime, bench.folder / ".runtime", [])
    spec = a_spec(script=None, command=["echo", "it runs"], launch=NONE)
    bench.write(spec, a_site())
    script = bench.attempt.script.read_text()
    if not as_array:
        return bench, lambda: execute_as_slurm(script, bench.attempt.path, bench)
    folder = bench.folder / "array"
    folder.mkdir()
    (folder / "0").symlink_to(os.path.relpath(bench.attempt.path, folder))
    alike = common_directives([script])
    assert alike is not None
    integrity = make_integrity_check(folder, Trust())
    array = render_array("a", alike, folder, [script], integrity=integrity)
    ids = {"SLURM_ARRAY_TASK_ID": "0", "SLURM_ARRAY_JOB_ID": "7"}
    return bench, lambda: execute_as_slurm(array, folder, bench, **ids)


def a_link(log: Path, victim: Path) -> None:
    log.symlink_to(victim)


def a_hard_link(log: Path, victim: Path) -> None:
    log.hardlink_to(victim)


def a_pipe_without_a_reader(log: Path, _victim: Path) -> None:
    os.mkfifo(log)


@as_root
@pytest.mark.parametrize("as_array", [False, True])
@pytest.mark.parametrize("plant_log", [a_link, a_hard_link, a_pipe_without_a_reader])
def test_a_log_that_another_user_put_in_the_place_of_a_purged_one_is_not_opened(
    tmp_path: Path, plant_log: Callable[[Path, Path], None], as_array: bool
) -> None:
    bench, execute = in_slurm(tmp_path, as_array=as_array)
    (tmp_path / "shared/ada").rename(tmp_path / "purged")  # as a purge would take it away
    shutil.copytree(tmp_path / "purged", tmp_path / "shared/ada", symlinks=True)
    victim = tmp_path / ".bashrc"
    victim.write_text("# mine\n")
    plant_log(bench.attempt.log, victim)
    os.chown(tmp_path / "shared/ada", EVE, EVE)
    assert execute() == UNTRUSTED_EXIT_CODE
    assert victim.read_text() == "# mine\n"


@pytest.mark.parametrize("as_array", [False, True])
def test_a_job_below_a_sticky_folder_writes_the_log_of_its_attempt(
    tmp_path: Path, as_array: bool
) -> None:
    bench, execute = in_slurm(tmp_path, as_array=as_array)
    bench.attempt.log.write_text("of a former life\n")
    assert execute() == 0, bench.log()
    assert bench.log() == "of a former life\nit runs\n"


def test_tasks_that_open_their_logs_and_tasks_that_do_not_are_no_array() -> None:
    checks = [IntegrityCheck(opens_log=each) for each in (False, True)]
    scripts = [script_of(a_run(a_spec()), a_site(), integrity=check) for check in checks]
    assert common_directives(scripts) is None
    for script, output in zip(scripts, ("%a/out.log", "/dev/null"), strict=True):
        alike = common_directives([script])
        assert alike is not None
        array = render_array("a", alike, Path("/a"), [script], integrity=IntegrityCheck())
        outputs = [line for line in array.splitlines() if line.startswith("#SBATCH --output")]
        assert outputs == [f"#SBATCH --output={output}"]
