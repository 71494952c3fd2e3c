"""The channel by which other processes follow and steer a running experiment."""
