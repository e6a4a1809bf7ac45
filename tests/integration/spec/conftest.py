from tests.support.home import home

__all__ = ["home"]
