"""Certificates of tests, made by openssl: an authority, and what it signs."""

from __future__ import annotations

import subprocess
from pathlib import Path


class Authority:
    """An authority in a directory of its own: `ca.crt`, and a certificate and key for each name."""

    def __init__(self, openssl: Path, directory: Path) -> None:
        self._openssl = openssl
        self.directory = directory
        directory.mkdir(parents=True)
        subject = f"/CN=authority of {directory.name}"
        self._run("req", "-x509", *_NEW_KEY, "-keyout", "ca.key", "-out", "ca.crt", "-days", "2", "-subj", subject)

    @property
    def certificate(self) -> Path:
        """What a client verifies a server with."""
        return self.directory / "ca.crt"

    def sign(self, name: str, alternatives: str = "") -> tuple[Path, Path]:
        """A certificate and key for the common name ``name``. ``alternatives``: such as ``IP:127.0.0.1``."""
        key, request, certificate = (f"{name}.{kind}" for kind in ("key", "csr", "crt"))
        self._run("req", "-new", *_NEW_KEY, "-keyout", key, "-out", request, "-subj", f"/CN={name}")
        extension = self.directory / f"{name}.ext"
        extension.write_text(f"subjectAltName={alternatives}\n" if alternatives else "")
        self._run(
            "x509", "-req", "-in", request, "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
            "-extfile", extension.name, "-out", certificate,
        )  # fmt: skip
        (self.directory / key).chmod(0o600)
        return self.directory / certificate, self.directory / key

    def _run(self, *words: str) -> None:
        subprocess.run([self._openssl, *words], cwd=self.directory, check=True, capture_output=True, timeout=60)


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
