"""What a remedy says on the page: a flag with its value is one piece to copy, and stands there once."""

import pytest

from watchdog.model import Remedy
from watchdog.web.wording import step


@pytest.mark.parametrize(
    ("action", "flag", "value", "direction", "expected"),
    [
        ("Remove --x-y.", "--x-y", None, None, 'Remove <code class="flag">--x-y</code>'),
        (
            "Lower --x-y to 20 if it is higher.",
            *("--x-y", "20", "lower"),
            'Lower <code class="flag">--x-y 20</code> if it is higher.',
        ),
        ("Set it.", "--x-y", "fp8", "set", '<code class="flag">--x-y fp8</code> Set it.'),
        ("Give it room.", "--x-y", None, "raise", 'raise <code class="flag">--x-y</code> Give it room.'),
        # A longer number, or a longer flag, is another.
        (
            "Set --x-y to 204.",
            "--x-y",
            "20",
            "set",
            '<code class="flag">--x-y 20</code> Set <code>--x-y</code> to 204.',
        ),
        ("Add a <replica> to --dp-x.", None, None, None, "Add a &lt;replica&gt; to <code>--dp-x</code>."),
    ],
)
def test_a_step_has_one_piece_to_copy(
    action: str, flag: str | None, value: str | None, direction: str | None, expected: str
) -> None:
    assert step(Remedy(action, flag, value, "", "", direction)) == expected
