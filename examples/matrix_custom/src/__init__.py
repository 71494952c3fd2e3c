"""This project's own transform, verifier and metric; `evsys run` imports them."""
