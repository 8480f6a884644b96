"""What a job uses, seen from beside: a small process on every node, for any program.

``python3 -S -m hpcflow.runtime.sampling``, started by the job script, watches the program of its
node until that ends. Whatever goes wrong here is silence: nobody waits for this process, and it
reads what the system shows of the program without touching it.

=============  ==================================================================================
command.py     the loop: when to look, when to write
schedule.py    how often, so that a day costs little and ten days hardly more
processes.py   CPU time and memory of the program's processes, from /proc
cgroup.py      the same of the job's cgroup, where Slurm made one
nvml.py        NVIDIA's library, by ctypes; gpus.py: which GPUs are the job's
tally.py       many samples -> mean, highest, quantiles, in constant space
report.py      what the nodes have seen -> one event
=============  ==================================================================================

Every node keeps one small file, ``attempts/NNNN/.usage/NODE.json``, which is replaced, does not
grow and is not mirrored. The first node puts them together into events called ``usage``. Each is
about the whole attempt so far, so that the last one that got through says it all; the job script
appends the very last when the program has ended.
"""
