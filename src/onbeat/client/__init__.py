"""What speaks to a server over HTTP: the API client of the command line and the link of remote workers."""
