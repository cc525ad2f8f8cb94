"""onbeat: calls your webhooks on time, once per planned instant, and can prove it."""
