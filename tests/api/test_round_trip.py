"""What can be written reads back as it could be written: any job, over the real API."""

from __future__ import annotations

import httpx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.api.bodies import Json

from onbeat.api.schemas.jobs import JobBody

ZONES = st.sampled_from(["UTC", "Europe/Kyiv", "US/Eastern", "Australia/Lord_Howe", "Asia/Calcutta", "Etc/GMT+12"])
INSTANTS = st.builds(
    "{}-{:02}-{:02}T{:02}:{:02}:{:02}{}".format,
    st.integers(2030, 2098), st.integers(1, 12), st.integers(1, 28), st.integers(0, 23), st.integers(0, 59),
    st.integers(0, 59), st.sampled_from(["Z", "+02:00", "-11:30"]),
)  # fmt: skip
MINUTES = st.one_of(st.integers(0, 59).map(str), st.sampled_from(["*", "*/7", "H", "1-5,9", "H/15"]))
CRON = st.fixed_dictionaries(
    {"cron": st.builds("{} {} * * {}".format, MINUTES, st.integers(0, 23), st.sampled_from(["*", "MON-FRI", "5L"]))},
    optional={"timezone": ZONES, "dst_gap": st.sampled_from(["shift", "skip"]), "start_at": INSTANTS},
)
EVERY = st.fixed_dictionaries(
    {"every": st.one_of(st.integers(1, 86_400), st.sampled_from(["90s", "1h30m", "PT5M", "2d"]))},
    optional={"anchor": st.one_of(st.just("epoch"), INSTANTS), "start_at": INSTANTS},
)
AT = st.one_of(
    st.fixed_dictionaries({"at": INSTANTS}),
    st.fixed_dictionaries({"at": INSTANTS.map(lambda text: text[:19]), "timezone": ZONES}),
)
TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=40).filter(str.strip)
NUMBERS = st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False))
PAYLOADS = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, st.text(st.characters(exclude_categories=["Cs"]))),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("aé\0.", max_size=3), inner, max_size=3),
    max_leaves=6,
)
URL = st.just("https://example.com/hook?a=1")
HEADERS = st.dictionaries(st.sampled_from(["X-A", "X-B", "Accept"]), st.text("ab 1;=", max_size=5).map(str.strip))
METHODS = st.sampled_from(["POST", "PUT", "PATCH", "DELETE"])
TARGETS = st.one_of(
    st.fixed_dictionaries({"url": URL}, optional={"headers": HEADERS, "method": METHODS, "payload": PAYLOADS}),
    st.fixed_dictionaries(
        {"url": URL, "body": st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))}
    ),
    st.fixed_dictionaries({"queue": st.sampled_from(["mail", "a.b-c_9"])}, optional={"payload": PAYLOADS}),
)
JOBS = st.fixed_dictionaries(
    {"name": TEXT, "schedules": st.lists(st.one_of(CRON, EVERY, AT), min_size=1, max_size=4), "target": TARGETS},
    optional={
        "tags": st.lists(TEXT, max_size=3),
        "timezone": ZONES,
        "grace_s": st.integers(0, 86_400),
        "misfire": st.fixed_dictionaries({"policy": st.sampled_from(["skip", "run_latest", "catch_up"])}),
        "overlap": st.sampled_from(["queue", "skip", "allow", "replace"]),
        "max_running": st.integers(1, 100),
        "retry": st.fixed_dictionaries({"initial_s": st.floats(0.001, 3_600), "factor": st.floats(1, 100)}),
        "timeout_s": st.floats(0.001, 3_600),
        "delivery": st.sampled_from(["at_least_once", "at_most_once"]),
        "auto_pause": st.sampled_from([None, {"failures": 3}, {"failing_s": 60}, {"failures": 1, "failing_s": 1}]),
    },
)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(body=JOBS)
async def test_what_is_read_can_be_put_back_and_changes_nothing(http: httpx.AsyncClient, body: Json) -> None:
    made = await http.post("/v1/jobs", json=body)
    if made.status_code == 422:  # such as one rule twice: the generator knows not every rule
        return
    assert made.status_code == 201, made.text
    job = made.json()
    path = f"/v1/jobs/{job['id']}"
    for name in ("name", "overlap", "grace_s", "timeout_s", "delivery"):
        assert job[name] == body.get(name, job[name])
    assert job["target"].get("payload") == body["target"].get("payload")
    assert job["target"].get("body") == body["target"].get("body")
    key = job["id"].replace("_", "-")
    keyed = (await http.patch(path, json={"key": key})).json()
    assert (keyed["version"], keyed["next_fire_at"]) == (2, job["next_fire_at"])
    written = {name: keyed[name] for name in JobBody.model_fields if name in keyed}
    again = await http.put(f"/v1/jobs/by-key/{key}", json=written)
    assert (again.status_code, again.json()) == (200, keyed), again.text
    del written["target"]  # a merge patch removes what is null, also in a payload
    patched = await http.patch(path, json=written)
    assert (patched.status_code, patched.json()) == (200, keyed), patched.text
