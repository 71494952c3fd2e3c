"""The helpers of these tests, and what each of them needs."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "support"))
