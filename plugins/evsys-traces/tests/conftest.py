import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "support"))

from evsys_traces.importing import ImportReport, import_traces


@pytest.fixture
def imported(tmp_path: Path):
    """A function that imports documents, and returns their rows and the report."""

    def run(*documents, **options):
        path = tmp_path / "log.jsonl"
        path.write_text("".join(json.dumps(each) + "\n" for each in documents), encoding="utf-8")
        report = ImportReport()
        return list(import_traces([path], report, **options)), report

    return run
