"""What was learnt: the recorded experiments near a config, what an agent should read first, why and what next."""
