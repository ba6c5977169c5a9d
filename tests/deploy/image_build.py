"""The image built and run without a Docker engine: debootstrap, buildah and a chroot, all from Debian."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SUITE = "bookworm"
BASE = "localhost/watchdog-base"
IMAGE = "localhost/vllm-watchdog"
WHEELS = "deploy/image/wheels"
# What the .dockerignore lets in, so that the context is what a clone would send.
CONTEXT = (
    "Dockerfile",
    ".dockerignore",
    "pyproject.toml",
    "PYPI.md",
    "LICENSE",
    "watchdog",
    "rules",
    "deploy/image",
)


@dataclass(frozen=True, slots=True)
class Builder:
    """buildah with a storage of its own under `folder`, so that nothing else on the machine is touched."""

    folder: Path

    def run(self, *arguments: str | Path) -> str:
        """Standard output of a buildah command that has to succeed."""
        environment = {**os.environ, "BUILDAH_ISOLATION": "chroot"}
        storage = (
            "--storage-driver",
            "vfs",
            "--root",
            self.folder / "storage",
            "--runroot",
            self.folder / "run",
        )
        return output(["buildah", *storage, *arguments], environment)

    def base(self, archive: Path) -> None:
        """Make a base image from the archive of a root file system."""
        container = self.run("from", "scratch").strip()
        self.run("add", container, archive, "/")
        self.run("commit", "--rm", container, BASE)

    def build(self, context: Path) -> None:
        """Build the Dockerfile, in docker's format: OCI's own has no health check."""
        arguments = {
            "BASE": BASE,
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": f"/src/{WHEELS}",
            "REVISION": "test",
        }
        options = [part for name, value in arguments.items() for part in ("--build-arg", f"{name}={value}")]
        self.run("bud", "--format", "docker", "--layers=false", "--tag", IMAGE, *options, context)

    def mounted(self, image: str) -> Path:
        """The root file system of a container of that image."""
        return Path(self.run("mount", self.run("from", image).strip()).strip())

    def config(self, image: str) -> Mapping[str, Any]:
        """The image's configuration as docker knows it."""
        told: dict[str, Any] = json.loads(self.run("inspect", "--type", "image", image))
        config: dict[str, Any] = told["Docker"]["config"]
        return config


def output(command: list[str | Path], environment: Mapping[str, str] | None = None) -> str:
    """Standard output of a command that has to succeed; what it complained about is in the error."""
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout


LEFT_OUT = ("./var/cache/apt/archives/*.deb", "./var/lib/apt/lists/*", "./dev/*")
"""Not what a base image has: archives and lists of the installation, and device files."""


def base_archive(cache: Path) -> Path:
    """A minimal Debian with Python as a tar file, made once and kept in `cache`."""
    archive = cache / f"{SUITE}.tar"
    if archive.exists():
        return archive
    folder = cache / f"{SUITE}.unfinished"
    shutil.rmtree(folder, ignore_errors=True)
    packages = "python3,python3-venv,ca-certificates"
    output(["debootstrap", "--variant=minbase", f"--include={packages}", SUITE, folder, _mirror()])
    unfinished = archive.with_suffix(".part")
    left_out = [f"--exclude={pattern}" for pattern in LEFT_OUT]
    output(["tar", "--create", "--file", unfinished, *left_out, "--directory", folder, "."])
    unfinished.rename(archive)
    shutil.rmtree(folder)
    return archive


def _mirror() -> str:
    """The package archive that this machine itself uses."""
    listed = output(["apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME)"]).splitlines()
    return next(line.split()[0] for line in listed if line.endswith(f" {SUITE}"))


def write_context(root: Path, context: Path) -> None:
    """A copy of what the build needs, with the wheels to install from, since the build has no network."""
    for name in CONTEXT:
        source, target = root / name, context / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "wheels"))
        else:
            shutil.copy2(source, target)
    download = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:", "--dest"]
    lock = root / "deploy" / "image" / "requirements.txt"
    output([*download, context / WHEELS, "--require-hashes", "--requirement", lock])
    output([*download, context / WHEELS, "hatchling"])


def size_bytes(folder: Path) -> int:
    """What the files of a folder hold, each counted once."""
    return int(output(["du", "--summarize", "--bytes", "--one-file-system", folder]).split()[0])
