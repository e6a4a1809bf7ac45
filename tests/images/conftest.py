"""The engine and the image slipway-cpu, for the tests of this folder."""

from tests.support.cpu_image import cpu_image
from tests.support.engine import engine

__all__ = ["cpu_image", "engine"]
