"""Measure what a job uses: a small process on every node, for any program.

The job script starts ``python3 -S -m hpcflow.runtime.sampling``, which samples the program of its
node until that ends. It only reads what the system shows of the program. Errors are ignored, and
nothing waits for this process.

Every node has one small file, ``attempts/NNNN/.usage/NODE.json``, which is replaced, does not grow
and is not mirrored. The first node combines these files into events ``usage``. Each covers the
whole attempt so far, so only the last one counts. The job script appends the last one when the
program has ended.
"""
