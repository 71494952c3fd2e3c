"""Where the rows that a run trained on come from is in the cache as well."""

from pathlib import Path

from evsys_record.files import read_json


def test_the_cached_rows_of_a_run_say_where_they_come_from_and_what_decided_them(project):
    result = project.experiment().run()
    [manifest] = Path(project.root).glob(".evsys/cache/datasets/training-data-*/manifest.json")
    found = read_json(manifest)
    lineage = read_json(Path(result.arms[0].run_dir) / "run.json")["data"]["lineage"]
    assert found["lineage"] == {"source": lineage[0], "transforms": lineage[1:]}
    assert [step["kind"] for step in found["lineage"]["transforms"]] == ["jsonl_to_chat"]
    assert found["ingredients"].items() >= found["lineage"].items()
    assert isinstance(found["ingredients"]["seed"], int)
