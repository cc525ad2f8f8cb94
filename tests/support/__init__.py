"""What several test folders share: real peers and real processes."""
