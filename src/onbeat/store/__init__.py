"""How truth is kept: the contract (what every engine promises), the values that cross it, and the engines."""
