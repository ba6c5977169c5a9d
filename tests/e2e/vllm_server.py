"""A real vLLM server on loopback, in a session of its own, whose engine can be stopped and let go on."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from tests.contract.programs import free_port, get
from tests.e2e.installation import Installation

START_SECONDS = 600.0
END_SECONDS = 60.0
MODEL_NAME = "tiny"


class NotStartedError(Exception):
    """The server ended or was not healthy in time; says what its log ends with."""


class VllmServer:
    """`vllm serve` of the tiny model with these flags; restartable on its port."""

    def __init__(
        self, installation: Installation, log: Path, flags: Sequence[str], rust: bool = False
    ) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._environment = installation.environment(rust)
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        program = installation.python.with_name("vllm")
        own = f"--host 127.0.0.1 --port {port} --load-format dummy --served-model-name {MODEL_NAME} --enforce-eager"
        self._command = ["nice", str(program), "serve", str(installation.model), *own.split(), *flags]

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def start(self) -> None:
        """Starts it and waits until it answers; raises NotStartedError."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdout=log, stderr=log, env=self._environment, start_new_session=True
            )
        give_up_at = time.monotonic() + START_SECONDS
        while get(f"{self.url}/health") is None:
            if self._process.poll() is not None or time.monotonic() > give_up_at:
                end = self._log.read_text(encoding="utf-8", errors="replace")[-3000:]
                raise NotStartedError(f"vLLM did not start; {self._log} ends with:\n{end}")
            time.sleep(0.5)

    def stop_engine(self) -> None:
        """The engine stands still; the front end goes on to answer."""
        self._signal_engine(signal.SIGSTOP)

    def continue_engine(self) -> None:
        """The engine goes on where it stood."""
        self._signal_engine(signal.SIGCONT)

    def kill(self) -> None:
        """Ends it at once, as a crash does."""
        if self._process is None:
            return
        self._kill_all()
        self._process.wait()
        self._process = None

    def end(self) -> None:
        """Ends it as an operator does, and what is left of it after that."""
        if self._process is None:
            return
        self.continue_engine()
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_SECONDS)
        self.kill()

    def _signal_engine(self, what: signal.Signals) -> None:
        for pid in self._pids():
            if _title(pid).startswith(("VLLM::EngineCore", "VLLM::Worker")):
                os.kill(pid, what)

    def _kill_all(self) -> None:
        for pid in list(self._pids()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _pids(self) -> Iterator[int]:
        """The processes of its session that live."""
        assert self._process is not None
        for entry in Path("/proc").glob("[0-9]*/stat"):
            try:
                state, _, _, session = entry.read_text().rpartition(")")[2].split()[:4]
            except (OSError, ValueError):
                continue
            if int(session) == self._process.pid and state != "Z":
                yield int(entry.parent.name)


def _title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
