#!/usr/bin/env bash
# The main job, as `make demo` runs it: train on the handwritten digits and say where everything is.
#
# Usage: demo.sh BIN   (the folder of the hpcflow and python programs to use)
set -euo pipefail

bin=$(cd "$1" && pwd)
root=$(cd "$(dirname "$0")/.." && pwd)
export HPCFLOW_HOME="${HPCFLOW_HOME:-$root/.demo/home}"
hpcflow() { "$bin/hpcflow" "$@"; }

# A Slurm that is installed but answers nothing is as good as none.
if command -v sbatch >/dev/null && timeout 10 scontrol ping >/dev/null 2>&1; then
    site=()
    hpcflow site show >/dev/null 2>&1 || hpcflow site detect --write
    echo "Slurm answers here: the run becomes a Slurm job."
else
    site=(--site local)
    echo "No Slurm here: the same script runs on this machine, with submitit."
fi

hpcflow run "$root/examples/digits/config.yaml" "${site[@]}" --follow
run=$(hpcflow ls --json | "$bin/python" -c 'import json, sys; print(json.load(sys.stdin)["runs"][0]["run_id"])')

echo
hpcflow show "$run"
echo
echo "The ledger:   $HPCFLOW_HOME/ledger.sqlite"
echo "All runs:     HPCFLOW_HOME=$HPCFLOW_HOME $bin/hpcflow ls"
echo "This run:     HPCFLOW_HOME=$HPCFLOW_HOME $bin/hpcflow show $run"
echo "Its output:   HPCFLOW_HOME=$HPCFLOW_HOME $bin/hpcflow logs $run"
