"""The REST API: parses, asks a service, answers. Every decision is made below it."""
