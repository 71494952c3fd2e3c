"""`evsys gate`: whether a candidate is good enough to take the place of the deployed model."""
