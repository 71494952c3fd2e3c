"""Text to tokens: tokenizers, chat templates, loss masks, and the model client that keeps exact token ids."""
