"""The text of Slurm's configuration files. Pure: values in, text out."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

from hpcflow.testing.cluster.layouts import Layout, Node
from hpcflow.testing.cluster.settings import Settings


def slurm_conf(folder: Path, settings: Settings, *, has_cgroups: bool) -> str:
    """Return slurm.conf: one controller, many slurmd on this host, accounting, preemption.

    Args:
        has_cgroups: whether Slurm tracks processes by cgroups, as at nearly all sites. It then
            signals only the process that it has started for a rank, otherwise all.
    """
    layout = settings.layout
    usual = [
        *_identity(folder, settings),
        *_paths(folder),
        _plugins(folder, settings),
        f"TaskProlog={folder}/etc/task-prolog" if settings.slurm else "",
        *_SCHEDULING,
        f"ProctrackType=proctrack/{'cgroup' if has_cgroups else 'linuxproc'}",
        *(_accounting(folder, settings) if layout.has_accounting else ()),
    ]
    return "\n".join(
        [
            "# Written by hpcflow.testing.cluster; changes are lost at the next `up`.",
            *(line for line in usual if line.partition("=")[0] not in layout.settings),
            *(f"{key}={value}" for key, value in layout.settings.items() if value),
            *_nodes(settings),
            *(f"PartitionName={words}" for words in layout.partitions),
            "",
        ]
    )


def _identity(folder: Path, settings: Settings) -> list[str]:
    return [
        f"ClusterName={settings.name}",
        f"SlurmctldHost={_host()}(127.0.0.1)",
        f"SlurmctldPort={settings.ports.slurmctld}",
        # hpcflow derives a job's ports from its id, and clusters of one machine share ports.
        f"FirstJobId={settings.ports.slurmctld}",
        # root, not slurm: one owner of all files, and slurmd must be root anyway.
        "SlurmUser=root",
        "AuthType=auth/munge",
        f"AuthInfo=socket={folder}/munge/munge.sock",
        "CredType=cred/munge",
    ]


def _paths(folder: Path) -> list[str]:
    return [
        f"StateSaveLocation={folder}/state",
        f"SlurmctldPidFile={folder}/run/slurmctld.pid",
        f"SlurmdPidFile={folder}/run/slurmd.%n.pid",
        f"SlurmdSpoolDir={folder}/spool/%n",
        # The log of steps; slurmd itself logs to stderr, which is log/slurmd.<node>.log.
        f"SlurmdLogFile={folder}/log/slurmd.%n.steps.log",
        "SlurmdSyslogDebug=quiet",
        "SlurmctldSyslogDebug=quiet",
        f"PlugStackConfig={folder}/etc/plugstack.conf",
    ]


def _plugins(folder: Path, settings: Settings) -> str:
    """Return the line that names the plugins of a version that is not the installed one."""
    return f"PluginDir={folder}/slurm/plugins" if settings.slurm else ""


# The settings of a real site, with seconds instead of minutes.
_SCHEDULING = [
    "EnforcePartLimits=ALL",
    "SelectType=select/cons_tres",
    "SelectTypeParameters=CR_Core_Memory",
    "SchedulerType=sched/backfill",
    "SchedulerParameters=batch_sched_delay=0,sched_interval=2,bf_interval=2,bf_resolution=10",
    "PreemptType=preempt/partition_prio",
    "PreemptMode=REQUEUE",
    "PriorityType=priority/multifactor",
    "PriorityWeightFairshare=100000",
    "PriorityWeightAge=1000",
    "PriorityCalcPeriod=1",
    "PriorityDecayHalfLife=1-00:00:00",
    "GresTypes=gpu",
    "ScronParameters=enable",
    "MpiDefault=none",
    "MailProg=/bin/true",
    "ReturnToService=2",
    # Between SIGTERM and SIGKILL at the time limit and on scancel; the default is 30.
    "KillWait=5",
    "MinJobAge=300",
    "SlurmctldTimeout=30",
    # The time until a node without slurmd is DOWN, and its jobs NODE_FAIL. Shorter than the default
    # 300, but long enough for 1,000 jobs on two real cores.
    "SlurmdTimeout=30",
    "MessageTimeout=10",
    "SlurmdParameters=config_overrides",
    "TaskPlugin=task/none",
]


def _accounting(folder: Path, settings: Settings) -> list[str]:
    return [
        "JobAcctGatherType=jobacct_gather/linux",
        "AccountingStorageType=accounting_storage/slurmdbd",
        "AccountingStorageHost=127.0.0.1",
        "AccountingStorageEnforce=associations,limits,qos",
        "AccountingStorageTRES=gres/gpu",
        f"AccountingStoragePort={settings.ports.slurmdbd}",
        # With munge the "password" is the socket for slurmdbd.
        f"AccountingStoragePass={folder}/munge/munge.sock",
    ]


def _nodes(settings: Settings) -> Iterator[str]:
    for port, (name, node) in enumerate(settings.layout.nodes.items(), settings.ports.slurmd):
        gres = f"Gres={node.gres_words} " if node.gres else ""
        yield (
            f"NodeName={name} NodeHostname={_host()} NodeAddr=127.0.0.1 Port={port} {node.words}"
            f" {gres}State=UNKNOWN"
        )


def task_prolog(folder: Path) -> str:
    """Return a script that puts the cluster's own srun on PATH, as sites do in /etc/profile.d."""
    return f'#!/bin/sh\necho "export PATH={folder}/slurm/bin:$PATH"\n'


def gres_conf(folder: Path, layout: Layout) -> str:
    """Return gres.conf. A ``Count=`` without ``File=`` would register 0 GPUs."""
    lines = (
        f"NodeName={name} {words}\n"
        for name, node in layout.nodes.items()
        for words in _gres(f"{folder}/gpus/{name}gpu", node)
    )
    return "".join(lines)


def _gres(devices: str, node: Node) -> Iterator[str]:
    first = 0
    for each in node.gres:
        kind = f" Type={each.type}" if each.type else ""
        if each.name == "gpu":
            what = f"File={devices}{_range(first, first + each.count - 1)}"
            first += each.count
        else:
            what = f"Count={each.count}"
        yield f"Name={each.name}{kind} {what}{f' Cores={each.cores}' if each.cores else ''}"


def cgroup_conf(version: str | None) -> str:
    """Return cgroup.conf: ``disabled`` does not exist in Slurm 22.05."""
    return f"CgroupPlugin={'disabled' if version else 'cgroup/v1'}\n"


def slurmdbd_conf(folder: Path, settings: Settings) -> str:
    """Return slurmdbd.conf, with the database's password."""
    return "\n".join(
        [
            "AuthType=auth/munge",
            f"AuthInfo=socket={folder}/munge/munge.sock",
            f"DbdHost={_host()}",
            "DbdAddr=127.0.0.1",
            f"DbdPort={settings.ports.slurmdbd}",
            "SlurmUser=root",
            f"PidFile={folder}/run/slurmdbd.pid",
            _plugins(folder, settings),
            "StorageType=accounting_storage/mysql",
            "StorageHost=127.0.0.1",
            f"StoragePort={settings.ports.mariadb}",
            "StorageUser=slurm",
            f"StoragePass={settings.database_password}",
            "StorageLoc=slurm_acct_db",
            "",
        ]
    )


def _host() -> str:
    return socket.gethostname().split(".")[0]


def _range(first: int, last: int) -> str:
    return f"[{first}-{last}]" if last > first else str(first)
