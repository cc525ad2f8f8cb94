"""The JSON at the edge: what may be sent, and what is answered."""
