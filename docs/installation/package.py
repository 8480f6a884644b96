"""hpcflow for Spack: a virtual environment from wheels, without network.

The module has only `hpcflow` on PATH. It changes neither python nor PYTHONPATH, so it does not
affect the environments of trainings. installation.md, one folder up, says how to make the archive.
"""

from pathlib import Path

from spack.package import Executable, depends_on, join_path, mkdirp, symlink, version
from spack_repo.builtin.build_systems.generic import Package


class Hpcflow(Package):
    """Training runs that survive a Slurm cluster: one YAML file, one command."""

    manual_download = True
    url = f"file://{Path.cwd()}/hpcflow-0.1.0-wheels.tar.gz"

    version("0.1.0")

    # The Python for which the wheels were made. Not of type run: users do not get it on PATH.
    depends_on("python@3.10:", type=("build", "link"))

    def install(self, spec, prefix):
        venv = join_path(prefix, "venv")
        spec["python"].command("-m", "venv", venv)
        pip = Executable(join_path(venv, "bin", "pip"))
        pip("install", "--no-index", "--find-links=.", "hpcflow[postgres,s3,sweeps]")
        mkdirp(prefix.bin)
        symlink("../venv/bin/hpcflow", join_path(prefix.bin, "hpcflow"))

    def setup_run_environment(self, env):
        env.set("HPCFLOW_PYTHON", join_path(self.prefix, "venv", "bin", "python"))
