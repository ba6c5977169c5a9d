"""A recording of a real vLLM, served again as if it were live."""
