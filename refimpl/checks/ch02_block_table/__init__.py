"""Chapter 02: from a token's position to its block, its offset and its slot, and what the last block wastes."""

from refimpl.checks.ch02_block_table import lengths, tables

STEPS = (lengths.REQUIRED, tables.LOCATE, tables.SLOTS, lengths.WASTE)
