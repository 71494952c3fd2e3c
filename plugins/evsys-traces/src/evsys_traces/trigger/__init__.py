"""`evsys trigger`: decides from traces alone whether a deployed model needs new training."""
