"""Its presence puts this folder on the import path: the tests share tiny_run.py."""
