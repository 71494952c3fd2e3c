"""Standard transforms, data stores, callbacks, rollout engine and agent of evsys."""
