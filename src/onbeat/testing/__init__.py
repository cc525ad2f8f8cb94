"""What judges a cluster of onbeat: a pure checker of histories, and what records them. Nothing of the product needs it.

`history` is where to begin; docs/history-checker.md shows a whole test.
"""
