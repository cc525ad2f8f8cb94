"""The command line: parses, calls a service or the API, prints. It decides nothing."""
