"""Measure what a job uses: a small process on every node, for any program.

The job script starts ``python3 -S -m hpcflow.runtime.sampling``, which samples the program of its
node until that ends. It only reads what the system shows of the program. Errors are ignored, and
nothing waits for this process.

=============  ==================================================================================
command.py     the loop of one node: when to sample and when to write
processes.py   CPU time and memory, from /proc, and from the job's cgroup if Slurm made one
gpus.py        which GPUs are the job's; NVIDIA's library, by ctypes
tally.py       mean, maximum and quantiles of the samples; one event for all nodes
=============  ==================================================================================

Every node has one small file, ``attempts/NNNN/.usage/NODE.json``, which is replaced, does not grow
and is not mirrored. The first node combines these files into events ``usage``. Each covers the
whole attempt so far, so only the last one counts. The job script appends the last one when the
program has ended.
"""
