"""The ledger of proofs: what each technique claims, what was measured, and the pages made of both (tools/prove)."""
