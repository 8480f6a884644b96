"""``python -m tests.rendering.golden``: rewrite the golden scripts."""

from __future__ import annotations

from tests.rendering.golden import FOLDER, cases


def main() -> None:
    """Write what is missing or different, delete what belongs to no site any more."""
    for stale in FOLDER.glob("*.sbatch"):
        if stale.name not in cases():
            stale.unlink()
            print(f"deleted {stale.name}")
    for name, make in cases().items():
        path, script = FOLDER / name, make()
        if not path.exists() or path.read_text() != script:
            path.write_text(script)
            print(f"wrote {name}")


if __name__ == "__main__":
    main()
