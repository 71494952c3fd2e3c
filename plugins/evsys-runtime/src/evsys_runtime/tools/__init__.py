"""The tools of an agent: what the commands answer, as typed functions with JSON Schemas. Commands and servers share them."""
