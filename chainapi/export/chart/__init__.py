"""Charts of series, in a terminal and as PNG."""

from __future__ import annotations

from chainapi.export.chart.image import require_pictures, save
from chainapi.export.chart.reading import read_chart
from chainapi.export.chart.series import MOST, Chart, Point, chart_of
from chainapi.export.chart.terminal import draw

__all__ = ["MOST", "Chart", "Point", "chart_of", "draw", "read_chart", "require_pictures", "save"]
