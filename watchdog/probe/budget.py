"""What a probe may ask of a server: so many requests, so many tokens, and nothing while others wait."""

from dataclasses import dataclass

from watchdog.errors import WatchdogError

MOST_REQUESTS = 12
MOST_TOKENS = 12_000
MOST_WAITING = 2
"""Requests in the queue above which nothing is asked."""


class BudgetSpentError(WatchdogError):
    """The next request would go beyond the budget, or would join a queue; the text says which."""


@dataclass(slots=True)
class Budget:
    """Counts what was asked. Tokens are prompt and output, as estimated before and as the server counted after."""

    most_requests: int = MOST_REQUESTS
    most_tokens: int = MOST_TOKENS
    most_waiting: float = MOST_WAITING
    requests: int = 0
    tokens: int = 0

    def take(self, tokens: int, waiting: float | None) -> None:
        """Counts a request before it is sent; raises BudgetSpentError. `waiting` is None where no page shows it."""
        if waiting is not None and waiting > self.most_waiting:
            raise BudgetSpentError(
                f"{waiting:.0f} requests wait, more than {self.most_waiting:g}: the probe does not add to a queue"
            )
        if self.requests >= self.most_requests:
            raise BudgetSpentError(f"the budget of {self.most_requests} requests is spent (--max-requests)")
        if self.tokens + tokens > self.most_tokens:
            raise BudgetSpentError(
                f"{tokens:,} more tokens would exceed the budget of {self.most_tokens:,} (--max-tokens)"
            )
        self.requests += 1
        self.tokens += tokens

    def settle(self, estimated: int, counted: int | None) -> None:
        """Puts the server's own count of a request in place of the estimate."""
        if counted is not None:
            self.tokens += counted - estimated

    @property
    def cost(self) -> str:
        """What was spent, in words."""
        return f"{self.requests} requests, {self.tokens:,} tokens"
