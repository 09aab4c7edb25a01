"""The run itself: what is registered on Ignite's engines, and how hooks are called."""
