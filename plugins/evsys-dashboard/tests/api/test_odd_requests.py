"""Whatever is asked by the OpenAPI document, or against it, no answer is a failure of the server."""

from http.client import HTTPConnection
from urllib.parse import quote, urlencode, urlsplit

import pytest
from clients import running
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lab_records import Lab

from evsys_dashboard.local import local_dashboard


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """The address of a dashboard, its GET operations, and values that exist there."""
    lab = Lab(tmp_path_factory.mktemp("fuzzed") / "lab")
    name = lab.whole("one").experiment_id
    with running(lambda: local_dashboard(lab.experiments)) as ask:
        for _ in range(1000):
            if ask("/projects/lab/experiments")["total"]:
                break
        paths = ask("/openapi.json")["paths"]
        operations = [
            (path, item["get"]["parameters"])
            for path, item in sorted(paths.items())
            if "get" in item and not path.endswith("/stream")
        ]
        there = {"project": "lab", "experiment": name, "run": "a-s0", "phase": "validation", "place": "0"}
        yield urlsplit(ask.address).netloc, operations, there


ODD = st.one_of(
    st.text(),
    st.integers().map(str),
    st.floats().map(str),
    st.sampled_from(["", "true", "..", "%00", "last", "a" * 3000]),
)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_request_makes_the_server_fail(asked, data):
    address, operations, there = asked
    path, parameters = data.draw(st.sampled_from(operations))
    query = {}
    for each in parameters:
        if each["in"] == "path":
            value = data.draw(st.one_of(st.just(there.get(each["name"], "x")), ODD))
            path = path.replace(f"{{{each['name']}}}", quote(value.encode("utf-8", "replace"), safe=""))
        elif data.draw(st.booleans()):
            kind = each["schema"].get("enum")
            value = data.draw(st.sampled_from(kind) if kind else ODD)
            query[each["name"]] = str(value).encode("utf-8", "replace")
    connection = HTTPConnection(address, timeout=60)
    try:
        connection.request("GET", f"{path}?{urlencode(query)}")
        response = connection.getresponse()
        body = response.read()
    finally:
        connection.close()
    assert response.status < 500, (path, query, body)
