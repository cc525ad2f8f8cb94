"""What onbeat does: one use case per module. They know what; the store knows how; loops, API and CLI know when."""
