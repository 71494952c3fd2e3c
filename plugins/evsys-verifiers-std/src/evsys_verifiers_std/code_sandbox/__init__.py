"""The code that runs alongside a model's code: nothing here imports anything but Python's own library and this
folder.
"""
