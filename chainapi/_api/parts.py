"""Imports of a session, loaded with the first session.

The import of `Session` does without them, so that it takes little longer than the import of aiohttp.
"""

from __future__ import annotations

from chainapi._api.data import DataAPI
from chainapi._api.metrics import MetricsAPI
from chainapi._api.options import call_options
from chainapi._http.call import Retries
from chainapi._http.connection import Connection
from chainapi._http.emitter import Emitter, ServiceEvents
from chainapi._http.options import CallOptions
from chainapi._http.service import Service
from chainapi._http.telemetry import telemetry_of
from chainapi._limits.gates import LoopGates, OwnGates
from chainapi._limits.member import Member, is_rate

__all__ = [
    "CallOptions",
    "Connection",
    "DataAPI",
    "Emitter",
    "LoopGates",
    "Member",
    "MetricsAPI",
    "OwnGates",
    "Retries",
    "Service",
    "ServiceEvents",
    "call_options",
    "is_rate",
    "telemetry_of",
]
