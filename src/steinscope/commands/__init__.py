"""The larger commands of `steinscope`. Nothing here imports torch before a command runs."""
