"""The server's answers: endpoints, their shapes, and the OpenAPI document made from both."""
