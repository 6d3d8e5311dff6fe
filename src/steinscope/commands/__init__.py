"""The commands of `steinscope`, one file for each. Nothing here imports torch before a command runs."""
