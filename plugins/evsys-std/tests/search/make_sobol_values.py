"""Makes sobol_values.json: the first points that scipy gives in each dimension, unscrambled, as integers of 30 bits.

scipy is not a dependency. `uv run --no-project --with scipy python make_sobol_values.py` in this folder.
"""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path

from scipy.stats import qmc

DIMENSIONS, POINTS, BITS = 21, 128, 30


def main() -> None:
    """Write the file beside this one."""
    points = qmc.Sobol(DIMENSIONS, scramble=False, bits=BITS).random(POINTS)
    values = {
        "made_with": {"scipy": version("scipy"), "numpy": version("numpy")},
        "bits": BITS,
        "points": [[int(one * (1 << BITS)) for one in point] for point in points],
    }
    lines = json.dumps(values).replace("], [", "],\n  [")
    Path(__file__).with_name("sobol_values.json").write_text(lines + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
