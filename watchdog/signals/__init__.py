"""From pages to signals: names over vLLM's versions, bounded history, and the algebra of windows."""
