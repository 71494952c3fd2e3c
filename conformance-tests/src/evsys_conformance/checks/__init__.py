"""The checks, a class a kind. The classes are named so that pytest collects them only where someone subclasses them."""
