"""What onbeat means: pure rules and values. No I/O, no clock, no other onbeat package."""
