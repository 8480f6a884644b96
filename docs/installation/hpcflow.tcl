#%Module1.0
# hpcflow for Environment Modules. Save it as MODULEFILES/hpcflow/VERSION, where VERSION names the folder below /apps/hpcflow.
set root /apps/[module-info name]

module-whatis "Training runs that survive a Slurm cluster: one YAML file, one command"
proc ModulesHelp {} {
    puts stderr "Begin with: hpcflow setup"
    puts stderr "hpcflow --help names the folder of the documentation."
    puts stderr "The module changes neither python nor PYTHONPATH."
}
conflict hpcflow

prepend-path PATH $root/bin
# The Python of runs that are submitted by hand with sbatch.
setenv HPCFLOW_PYTHON $root/venv/bin/python
