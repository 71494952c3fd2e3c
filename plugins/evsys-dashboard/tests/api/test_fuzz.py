"""The API under requests made up from its OpenAPI document: `nox -s fuzz` runs these tests."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from clients import running
from lab_records import Lab

from evsys_dashboard.local import local_dashboard

SCHEMATHESIS = shutil.which("schemathesis", path=str(Path(sys.executable).parent))
pytestmark = pytest.mark.skipif(
    SCHEMATHESIS is None, reason="`nox -s fuzz` installs Schemathesis and runs these tests"
)


def test_no_request_makes_the_server_fail(tmp_path):
    lab = Lab(tmp_path / "lab")
    record = lab.whole("trial")
    config = tmp_path / "schemathesis.toml"
    config.write_text(
        f"""[parameters]
"path.project" = "lab"
"path.experiment" = "{record.experiment_id}"
"path.run" = "a-s0"
"path.phase" = "validation"
""",
        encoding="utf-8",
    )
    with running(lambda: local_dashboard(lab.experiments)) as ask:
        while not ask("/projects/lab/experiments")["total"]:
            pass
        done = subprocess.run(
            [
                *(
                    str(SCHEMATHESIS),
                    "--config-file",
                    str(config),
                    "run",
                    f"{ask.address}/api/v1/openapi.json",
                ),
                *("--checks", "not_a_server_error,response_schema_conformance", "--max-examples", "50"),
                *("--exclude-path-regex", "stream", "--request-timeout", "30"),
            ],
            cwd=tmp_path,
            check=False,
            capture_output=True,
            text=True,
        )
    assert done.returncode == 0, done.stdout[-4000:]
