"""Which settings recorded launches would be better off with: the proposals of `tune`; no launch imports it."""
