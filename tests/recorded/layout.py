"""Record what a cluster unlike ours says of itself, and which jobs it takes:
``python -m tests.recorded.layout [OUT]``, as root, with a cluster of such a layout up and idle.

It keeps the raw answers to hpcflow's own questions, asked by an ordinary user, below
tests/recorded/layouts/<layout>-<version>/, with ``truth.json``: who asked, and what
``sbatch --test-only`` said to jobs for every partition of the site file that hpcflow detected.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from hpcflow.schedulers.slurm import outlook
from hpcflow.schedulers.slurm.commands import CLUSTER_QUESTIONS
from hpcflow.schedulers.slurm.run_command import FOR_QUERIES
from hpcflow.testing.cluster import Cluster, User
from hpcflow.testing.cluster.settings import cluster_directory
from tests.sites.unlike import Request, requests
from tests.sites.unlike_recorded import Recorded

HERE = Path(__file__).parent


def main(out: str | None = None) -> None:
    cluster = Cluster(cluster_directory())
    ada = cluster.user("hpcf-ada")
    version = re.sub(r"^[a-z-]* ?", "", cluster.run("squeue", "--version").strip())
    name = f"{cluster.settings.layout_name}-{version}"
    folder = Path(out) if out else HERE / "layouts" / name
    folder.mkdir(parents=True, exist_ok=True)
    asked = outlook.questions(ada.name, ())
    of_user = {f"of_{key}": asked[key] for key in ("associations", "usage")}
    wanted = {**CLUSTER_QUESTIONS, "qos": asked["qos"], **of_user}
    for question, argv in wanted.items():
        done = ada.run(argv, env=FOR_QUERIES, check=False)
        if done.returncode == 0:
            (folder / f"{question}.txt").write_text(done.stdout)
    user = {"name": ada.name, "uid": ada.entry.pw_uid, "groups": [ada.name]}
    (folder / "truth.json").write_text(json.dumps({"user": user, "answers": []}) + "\n")
    site = Recorded(folder).site()
    answers = [answer(ada, request) for request in requests(site)]
    lines = ",\n".join(json.dumps(each) for each in answers)
    (folder / "truth.json").write_text(
        f'{{"user": {json.dumps(user)}, "answers": [\n{lines}\n]}}\n'
    )


def answer(user: User, request: Request) -> dict[str, object]:
    """What ``sbatch --test-only`` says of a job."""
    argv = ["sbatch", "--test-only"]
    done = user.run(argv, input=request.script(), env=FOR_QUERIES, check=False)
    return {
        "partition": request.partition,
        "options": request.options,
        "is_taken": done.returncode == 0,
        "complaint": "" if done.returncode == 0 else done.stderr,
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
