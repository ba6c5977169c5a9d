"""The on-call engineer beside every vLLM server: it reads `/metrics`, names the cause and says what to change."""

__version__ = "1.0.0"
