"""Another project's distribution is called `watchdog` and installs a package of our name."""

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, distribution

from watchdog.errors import WatchdogError

NAMESAKE = "watchdog"


def refuse_namesake(find: Callable[[str], object] = distribution) -> None:
    """Raises WatchdogError where the two share an environment: one has overwritten files of the other."""
    try:
        find(NAMESAKE)
    except PackageNotFoundError:
        return
    raise WatchdogError(
        "the package 'watchdog' (file-system events) is installed in this environment and shares the folder "
        "'watchdog' with us: give vllm-watchdog an environment of its own, for example "
        "`python3 -m venv /opt/vllm-watchdog && /opt/vllm-watchdog/bin/pip install vllm-watchdog`"
    )
