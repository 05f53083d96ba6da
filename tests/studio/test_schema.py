"""The API holds to its own description, whatever is sent: schemathesis makes the requests, with and without a key."""

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings

from peasy.studio.app import build
from peasy.studio.house import House

KEY = "s3cret"
LONG = ("/api/experiment", "/api/data")
"""What may work for a minute when its name is found by chance."""


def headers(key):
    return {"host": "localhost"} | ({} if key is None else {"authorization": f"Bearer {key}"})


@pytest.fixture(scope="module", params=[None, KEY], ids=["open", "locked"])
def described(request, folders):
    house = House(folders, weights="float32")
    house.warm()
    app = build(house, pages=False, key=request.param)
    yield schemathesis.openapi.from_asgi("/openapi.json", app, headers=headers(request.param)), request.param
    house.close()


def fuzz(schema, key, examples):
    """Send made-up requests to every route and hold every answer to the description; gives how many routes."""
    operations = [found.ok() for found in schema.get_all_operations()]
    for operation in operations:
        if operation.path not in LONG:
            plan = settings(
                max_examples=examples, deadline=None, database=None, derandomize=True,
                suppress_health_check=list(HealthCheck),
            )  # fmt: skip

            @plan
            @given(case=operation.as_strategy())
            def hold(case):
                case.call_and_validate(headers=headers(key))

            hold()
    return len(operations)


def test_it_holds_to_its_description(described):
    assert fuzz(*described, examples=4) >= 20


@pytest.mark.slow
def test_it_holds_under_many_requests(described):
    assert fuzz(*described, examples=150) >= 20


def test_an_answer_that_is_not_described_is_found(folders):
    app = build(House(folders[:1]), pages=False)

    @app.get("/broken")
    async def broken(count: int = 0):
        from fastapi.responses import PlainTextResponse

        return PlainTextResponse("teapot", status_code=418)

    app.openapi_schema = None
    schema = schemathesis.openapi.from_asgi("/openapi.json", app, headers=headers(None))
    case = schema["/broken"]["GET"].Case()
    with pytest.raises(BaseException, match=r"418|Undocumented"):
        case.call_and_validate(headers=headers(None))
