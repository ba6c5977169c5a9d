"""What was expected, what was said, and whether the two agree; in the end the exit code."""

import time
from collections.abc import Collection
from dataclasses import dataclass, field


@dataclass(slots=True)
class Account:
    """Checks as they are made; each is printed at once."""

    wrong: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    checks: int = 0
    began: float = field(default_factory=time.monotonic)
    _scene: str = ""

    def scene(self, name: str) -> None:
        """A new part of the run begins."""
        self._scene = name
        print(f"\n[{time.monotonic() - self.began:4.0f} s] {name}", flush=True)

    def note(self, text: str) -> None:
        """Prints what a reader may judge for himself."""
        print("\n".join(f"        {line}" for line in text.strip().splitlines()), flush=True)

    def check(self, what: str, expected: str, said: str, holds: bool) -> bool:
        """Notes one check and prints it; gives whether it holds."""
        self.checks += 1
        if not holds:
            self.wrong.append(f"{self._scene}: {what}")
        print(f"  {'ok   ' if holds else 'WRONG'} {what}: expected {expected}; said {said}", flush=True)
        return holds

    def check_only(self, what: str, allowed: Collection[str], said: Collection[str]) -> bool:
        """Notes whether nothing was said beside what may be."""
        expected = f"nothing but {', '.join(sorted(allowed))}" if allowed else "nothing"
        return self.check(what, expected, ", ".join(sorted(said)) or "nothing", set(said) <= set(allowed))

    def leave_out(self, what: str, why: str) -> None:
        """Notes a part that cannot be had here."""
        self.left_out.append(what)
        print(f"  left out {what}: {why}", flush=True)

    def close(self) -> int:
        """Prints the sum; 0 where all held, else 1."""
        minutes = (time.monotonic() - self.began) / 60
        print(f"\n{self.checks} checks, {len(self.wrong)} wrong, {minutes:.0f} min", flush=True)
        for each in self.wrong:
            print(f"  wrong: {each}")
        for each in self.left_out:
            print(f"  left out: {each}")
        return 1 if self.wrong or not self.checks else 0
