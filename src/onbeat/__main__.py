"""`python -m onbeat`: the command line."""

from onbeat.cli.main import main

main()
