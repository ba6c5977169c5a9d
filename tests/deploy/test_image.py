"""The image, built and run as its own user on a read-only root against a replayed recording.

`make image-test` installs what it needs and runs it; it takes some minutes and root.
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests

from watchdog.replay.demo_server import demo_server

from .image_build import BASE, IMAGE, Builder, base_archive, size_bytes, write_context
from .loopback import free_port

pytestmark = [
    pytest.mark.image,
    pytest.mark.skipif(os.geteuid() != 0, reason="debootstrap and chroot need root"),
    pytest.mark.skipif(shutil.which("buildah") is None, reason="buildah is not installed"),
    pytest.mark.skipif(shutil.which("debootstrap") is None, reason="debootstrap is not installed"),
]

MEBIBYTE = 1024 * 1024
WATCHED_SECONDS = 75


@pytest.fixture(scope="module")
def builder(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builder]:
    cache = root / "build" / "image-test"
    cache.mkdir(parents=True, exist_ok=True)
    builder = Builder(tmp_path_factory.mktemp("buildah"))
    builder.base(base_archive(cache))
    context = tmp_path_factory.mktemp("context")
    write_context(root, context)
    builder.build(context)
    yield builder
    # Every layer is a whole copy: too much to leave behind.
    shutil.rmtree(builder.folder)


@pytest.fixture(scope="module")
def image_root(builder: Builder) -> Path:
    return builder.mounted(IMAGE)


@pytest.fixture(scope="module")
def config(builder: Builder) -> Mapping[str, Any]:
    return builder.config(IMAGE)


def test_the_image_says_how_it_runs(config: Mapping[str, Any]) -> None:
    assert config["User"] == "65532:65532"
    assert config["Entrypoint"] == ["vllm-watchdog"]
    assert config["Cmd"] == ["serve"]
    assert config["Healthcheck"]["Test"] == ["CMD", "alive"]
    assert list(config["Volumes"]) == ["/var/lib/vllm-watchdog"]
    assert list(config["ExposedPorts"]) == ["9847/tcp"]
    assert config["Labels"]["org.opencontainers.image.revision"] == "test"


def test_the_image_adds_less_than_150_mb_to_its_base(builder: Builder, image_root: Path) -> None:
    added = size_bytes(image_root) - size_bytes(builder.mounted(BASE))
    print(f"\nthe image adds {added / 1e6:.0f} MB to its base")
    assert added < 150e6


def test_no_build_tool_reaches_the_image(image_root: Path) -> None:
    environment = image_root / "opt" / "vllm-watchdog"
    assert not list(environment.glob("bin/pip*"))
    assert not (image_root / "build").exists()
    assert not (image_root / "src").exists()
    assert not (image_root / "usr" / "bin" / "gcc").exists()


def in_image(config: Mapping[str, Any], image_root: Path, state: Path, *command: str) -> list[str]:
    """A command in the image as its user: root read-only, /tmp, /dev and the state folder as in a pod."""
    variables = [*config["Env"], "WATCHDOG_LOG__FORMAT=json"]
    script = (
        'set -e; root=$1; state=$2; shift 2; mount --bind "$root" "$root"; '
        'mount --bind "$state" "$root/var/lib/vllm-watchdog"; mount -t tmpfs none "$root/tmp"; '
        'mount --rbind /dev "$root/dev"; '
        'mount -o remount,bind,ro "$root"; '
        'exec chroot --userspec=65532:65532 "$root" env -i "$@"'
    )
    inside = ["sh", "-c", script, "sh", str(image_root), str(state), *variables, *command]
    return ["unshare", "--mount", *inside]


@contextmanager
def serving(command: list[str], port: int) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command)
    try:
        end = time.monotonic() + 90
        while not answers(port):
            assert process.poll() is None, "the service ended at once"
            assert time.monotonic() < end, "the service does not answer"
            time.sleep(0.2)
        yield process
    finally:
        process.kill()
        process.wait()


def answers(port: int) -> bool:
    try:
        return requests.get(f"http://127.0.0.1:{port}/healthz", timeout=2).status_code == 200
    except (requests.ConnectionError, requests.Timeout):
        return False


def lead(port: int) -> str | None:
    told = requests.get(f"http://127.0.0.1:{port}/diagnose", timeout=30).json()
    named: str | None = told["targets"][0]["lead"]
    return named


def test_the_image_names_the_cause_in_a_replayed_recording(
    config: Mapping[str, Any], image_root: Path, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    state.mkdir()
    os.chown(state, 65532, 65532)
    port = free_port()
    arguments = ("--port", str(port))
    with demo_server() as vllm:
        command = ("vllm-watchdog", "serve", "--target", vllm.url, *arguments)
        with serving(in_image(config, image_root, state, *command), port) as process:
            began = usage(process.pid)
            end = time.monotonic() + WATCHED_SECONDS
            named = set()
            while time.monotonic() < end:
                named.add(lead(port))
                time.sleep(2)
            report(began, usage(process.pid))
            assert "kv-pool-exhausted" in named
            health = in_image(config, image_root, state, "vllm-watchdog", "health", *arguments)
            assert subprocess.run(health, check=False, timeout=30).returncode == 0
            alive = in_image(config, image_root, state, "alive")
            assert subprocess.run(alive, check=False, timeout=30).returncode == (0 if port == 9847 else 1)
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=30) == 0
        assert subprocess.run(health, check=False, timeout=30).returncode == 1
    # The state survived in the volume, written by the image's user.
    written = list(state.iterdir())
    assert written
    assert {path.stat().st_uid for path in written} == {65532}


def test_the_sidecars_command_outlives_settings_that_cannot_be_used(
    config: Mapping[str, Any], image_root: Path, tmp_path: Path
) -> None:
    command = in_image(config, image_root, tmp_path, "WATCHDOG_CONFIG=/nowhere", "serve-beside")
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        told = b""
        while b"starting it again" not in told:
            line = process.stderr.readline()
            assert line, told
            told += line
        assert b"/nowhere" in told
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0


def usage(pid: int) -> tuple[float, float, float]:
    """Seconds of clock, seconds of processor, and resident bytes of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    processor = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return time.monotonic(), processor, int(fields[21]) * os.sysconf("SC_PAGE_SIZE")


def report(began: tuple[float, float, float], ended: tuple[float, float, float]) -> None:
    share = (ended[1] - began[1]) / (ended[0] - began[0])
    print(f"\nresident memory {ended[2] / MEBIBYTE:.0f} MiB, {share:.2%} of a core at a 5 s interval")
    assert ended[2] < 128 * MEBIBYTE
