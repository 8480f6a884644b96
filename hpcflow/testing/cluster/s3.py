"""An independent S3 server: ``rclone serve s3`` on a folder. It needs neither Slurm nor root."""

from __future__ import annotations

import secrets
from pathlib import Path

from hpcflow.testing.cluster.daemon import Daemon
from hpcflow.testing.cluster.files import locked, make_directory, read_json, write_json
from hpcflow.testing.cluster.packages import require_rclone
from hpcflow.testing.cluster.polling import DeadlinePassed, poll
from hpcflow.testing.cluster.ports import answers, free_block, is_free
from hpcflow.testing.cluster.progress import Progress


class S3:
    """The server of one folder; :meth:`start` starts it. A bucket is a folder."""

    def __init__(self, folder: str | Path, *, progress: Progress | None = None) -> None:
        self.folder = Path(folder).resolve()
        self.home = self.folder / "s3"
        self.data = self.home / "data"
        self._progress = progress or Progress()
        self._saved = self.home / "server.json"

    def __repr__(self) -> str:
        return f"<s3 in {self.home}>"

    @property
    def daemon(self) -> Daemon:
        """The process, for tests that kill it."""
        saved = read_json(self._saved)
        port = int(saved.get("port", 0))
        argv = [require_rclone(), "serve", "s3", str(self.data), "--addr", f"127.0.0.1:{port}"]
        # In the environment, because everyone can see the arguments of a process.
        env = {
            # Quoted as in CSV, else the comma would end the first key pair.
            "RCLONE_AUTH_KEY": f'"{saved.get("access_key", "")},{saved.get("secret_key", "")}"',
            "RCLONE_CONFIG": str(self.home / "rclone.conf"),
        }
        return Daemon(self.folder, "s3", argv, ready=lambda: answers(port), env=env)

    def start(self) -> S3:
        """Choose port and keys if need be, start the server unless it runs, and wait for it."""
        if self.daemon.is_ready():
            return self
        with locked(self.folder / "s3.lock"), self._progress.step("S3"):
            if not self.daemon.is_running():
                self._prepare()
            self.daemon.start().wait_ready()
        return self

    def stop(self) -> None:
        """Stop the server; the objects remain."""
        self.daemon.stop()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{read_json(self._saved)['port']}"

    def env(self) -> dict[str, str]:
        saved = read_json(self._saved)
        return {
            "AWS_ACCESS_KEY_ID": saved["access_key"],
            "AWS_SECRET_ACCESS_KEY": saved["secret_key"],
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def create_bucket(self, name: str) -> str:
        """Create a bucket unless it exists; return its name.

        The server creates it, because it does not read its folder again for a while.
        """
        from botocore.session import Session

        session, env = Session(), self.env()
        client = session.create_client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=env["AWS_DEFAULT_REGION"],
            aws_access_key_id=env["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=env["AWS_SECRET_ACCESS_KEY"],
        )
        client.create_bucket(Bucket=name)
        return name

    def _prepare(self) -> None:
        make_directory(self.home, 0o700)
        make_directory(self.data)
        saved = read_json(self._saved) or {
            "port": 0,
            "access_key": secrets.token_hex(10),
            "secret_key": secrets.token_hex(20),
        }
        if not saved["port"] or not _comes_free(int(saved["port"])):
            saved["port"] = free_block(1)
        write_json(self._saved, saved)


def _comes_free(port: int) -> bool:
    """Return whether a port becomes free within 5 s: a killed server may still listen."""
    try:
        return poll(lambda: is_free(port), 5, f"port {port} is free")
    except DeadlinePassed:
        return False
