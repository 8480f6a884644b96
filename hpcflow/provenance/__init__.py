"""Record and freeze the code of a run.

- :mod:`.code_state`: the git commit, and uncommitted changes
- :mod:`.snapshot`: the files of the code; :mod:`.frozen_code`: the program in them
- :mod:`.git`: run git without executing what a repository's configuration names
- :mod:`.redaction`: redact secrets in the recorded diff
"""
