"""The chat-completions protocol over any sampling client: its messages, its handler, a server on this machine."""
