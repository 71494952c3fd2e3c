"""The cost of calls, in tokens and money, and limits on concurrent calls."""
