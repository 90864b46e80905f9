"""What rows become: frozen records, and the decoder that makes them from the body of an answer."""

from chainapi.models.convert import converter
from chainapi.models.metrics import MetricPoint

__all__ = ["MetricPoint", "converter"]
