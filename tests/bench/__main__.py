"""`python -m tests.bench`: every figure in one run."""

from tests.bench import exposition, notify, resident, step, storm, targets


def main() -> None:
    """Print all parts."""
    for part in (exposition, step, notify, storm, targets, resident):
        part.main()
        print()


main()
