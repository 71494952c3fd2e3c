"""The one way in: pieces of files, by where they belong in their file."""
