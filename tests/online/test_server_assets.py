"""What comes with the service fits the service."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

import numpy as np
import orjson
import pytest

from kvcap.kernels.observations import FIRST_CAPACITY
from kvcap.online import Estimator, EstimatorOptions, ObservedBatch
from kvcap.online.server import bodies
from kvcap.online.server.app import make_app
from kvcap.online.server.endpoints import DOWNLOADS, Endpoints, asset
from kvcap.online.server.metrics import Metrics
from kvcap.online.server.options import ServeOptions
from kvcap.online.server.prompts import TokenizingEncoder
from kvcap.online.server.service import Service

OPTIONS = ServeOptions(Fraction(1000), "1GiB")


def exported_names() -> set[str]:
    metrics = Metrics(OPTIONS)
    metrics.observed(ObservedBatch(0, np.zeros((1, FIRST_CAPACITY + 2), np.int64)))
    snapshot = Estimator(EstimatorOptions((1,), 1, block_bytes=1)).snapshot()
    text = metrics.render(snapshot, 0).decode()
    return set(re.findall(r"^(\w+)", text, re.MULTILINE))


def expressions(panels: list[dict[str, Any]]) -> list[str]:
    return [target["expr"] for panel in panels for target in panel["targets"]]


def test_the_dashboard_asks_only_for_metrics_that_the_service_exports() -> None:
    dashboard = orjson.loads(asset("grafana-dashboard.json"))
    wanted = set(re.findall(r"\bkvcap_\w+", " ".join(expressions(dashboard["panels"]))))
    assert len(wanted) >= 12
    known = exported_names() | {"kvcap_window_required_capacity_bytes"}
    assert wanted <= known


def test_every_path_is_documented() -> None:
    document = orjson.loads(asset("openapi.json"))
    endpoints = Endpoints(Service(OPTIONS), TokenizingEncoder(None))
    served = {
        (route.path, method)
        for route in endpoints.routes()
        for method in route.methods or ()
        if method != "HEAD"
    }
    documented = {(path, method.upper()) for path, item in document["paths"].items() for method in item}
    assert served - documented == {("/", "GET"), ("/openapi.json", "GET")}
    assert documented <= served
    endpoints.close()


@pytest.mark.parametrize("name", DOWNLOADS)
def test_configurations_come_with_the_package(name: str) -> None:
    assert asset(name)


def test_an_application_needs_nothing_but_a_service_and_an_encoder() -> None:
    assert callable(make_app(Service(OPTIONS), TokenizingEncoder(None)))


def test_every_field_of_a_request_is_documented() -> None:
    schemas = orjson.loads(asset("openapi.json"))["components"]["schemas"]
    documented = {name for kind in ("TokenRequest", "HashRequest") for name in schemas[kind]["properties"]}
    assert documented == set(bodies._FIELDS)
