"""The API conforms to its OpenAPI schema: requests by schemathesis, with and without a key."""

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance

from peasy.server.app import build_app
from peasy.server.model_registry import ModelRegistry

KEY = "s3cret"
LONG = ("/api/experiment", "/api/data")
"""Routes that may run for a minute if the fuzzer guesses a name."""


def headers(key):
    return {"host": "localhost"} | ({} if key is None else {"Authorization": f"Bearer {key}"})


@pytest.fixture(scope="module", params=[None, KEY], ids=["open", "locked"])
def described(request, folders):
    registry = ModelRegistry(folders, weights="float32")
    registry.preload()
    app = build_app(registry, pages=False, api_key=request.param)
    name_models(app, registry.names)
    yield schemathesis.openapi.from_asgi("/openapi.json", app, headers=headers(request.param)), request.param
    registry.close()


def name_models(app, names):
    """Tell the fuzzer the names of the models."""
    for schema in app.openapi()["components"]["schemas"].values():
        if "model" in schema.get("properties", {}):
            schema["properties"]["model"] = {"type": "string", "enum": [*names, "unknown"]}


def understood(ctx, response, case):
    """A request that fits the schema may be refused, but never as malformed.

    Replaces schemathesis' own check, which knows only the status.
    """
    if case.meta is not None and case.meta.generation.mode.is_positive and response.status_code == 400:
        assert response.json()["error"]["code"] != "malformed", response.text


def shorten(case):
    """Reduce token counts: a valid request may take minutes."""
    if isinstance(case.body, dict) and case.meta is not None and case.meta.generation.mode.is_positive:
        for name in ("max_tokens", "max_completion_tokens", "num_beams", "n"):
            if case.body.get(name) is not None:
                case.body[name] = min(case.body[name], 4)


def fuzz(schema, key, examples):
    """Send generated requests to every route and validate the responses; return the number of routes."""
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
                shorten(case)
                case.call_and_validate(
                    headers=headers(key),
                    timeout=300,
                    additional_checks=[understood],
                    excluded_checks=[positive_data_acceptance],
                )

            hold()
    return len(operations)


def test_api_conforms_to_its_schema(described):
    assert fuzz(*described, examples=3) >= 20


@pytest.mark.slow
def test_api_conforms_under_many_requests(described):
    assert fuzz(*described, examples=60) >= 20


def test_undocumented_response_is_detected(folders):
    app = build_app(ModelRegistry(folders[:1]), pages=False)

    @app.get("/broken")
    async def broken(count: int = 0):
        from fastapi.responses import PlainTextResponse

        return PlainTextResponse("teapot", status_code=418)

    app.openapi_schema = None
    schema = schemathesis.openapi.from_asgi("/openapi.json", app, headers=headers(None))
    case = schema["/broken"]["GET"].Case()
    with pytest.raises(BaseException, match=r"418|Undocumented"):
        case.call_and_validate(headers=headers(None))
