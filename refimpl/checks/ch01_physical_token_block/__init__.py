"""Chapter 01: what a block says of itself, what its memory takes, and when two blocks are one."""

from refimpl.checks.ch01_physical_token_block import fields, identity, kv_bytes

STEPS = (fields.STEP, kv_bytes.STEP, identity.STEP)
