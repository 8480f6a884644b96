-- hpcflow for Lmod. Save it as MODULEFILES/hpcflow/VERSION.lua, where VERSION names the folder below /apps/hpcflow.
local root = pathJoin("/apps", myModuleName(), myModuleVersion())

whatis("Name: hpcflow")
whatis("Version: " .. myModuleVersion())
whatis("Description: Training runs that survive a Slurm cluster: one YAML file, one command")
help([[
Begin with: hpcflow setup
hpcflow --help names the folder of the documentation.
The module changes neither python nor PYTHONPATH.]])

prepend_path("PATH", pathJoin(root, "bin"))
-- The Python of runs that are submitted by hand with sbatch.
setenv("HPCFLOW_PYTHON", pathJoin(root, "venv/bin/python"))
