"""The declared settings, and pydantic, which reads them."""
