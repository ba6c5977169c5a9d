"""The clause language: grammar, three-valued evaluation and how clauses are shown; it knows no vLLM."""
