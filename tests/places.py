"""Where the data of the tests lies."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RECORDINGS = ROOT / "tests" / "recordings"
SAMPLES = ROOT / "tests" / "samples"
CASES = ROOT / "tests" / "cases"
DOCS = ROOT / "docs"
