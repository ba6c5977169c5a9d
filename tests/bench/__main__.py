"""`python -m tests.bench`: every figure in one run."""

from tests.bench import exposition, resident, step, targets


def main() -> None:
    """Print all parts."""
    for part in (exposition, step, targets, resident):
        part.main()
        print()


main()
