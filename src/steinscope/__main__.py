"""`python -m steinscope` is the `steinscope` command."""

from steinscope.cli import main

main()
