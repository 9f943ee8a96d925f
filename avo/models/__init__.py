"""Language models: endpoints that answer a text. SDKs are imported when the first request goes out, not before."""

from avo.models.naming import open_model
from avo.models.prices import Price
from avo.models.protocol import Message, Model, Reply, Request, Trouble, Usage

__all__ = ["Message", "Model", "Price", "Reply", "Request", "Trouble", "Usage", "open_model"]
