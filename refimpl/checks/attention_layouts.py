"""How the caches of chapter 10's checks may lie in memory, and what stands behind the last block of a table.

A right answer reads a tensor by its axes and knows none of this. Sits below the inputs and the account of attention.
"""

ORDERS = {  # layout of two caches -> their axes in memory: cache, block, offset, head, element
    "tokens first": "2NBHD",
    "heads first": "2NHBD",
    "interleaved": "N2BHD",
    "transposed": "2NHDB",
}
LAYOUTS = tuple(ORDERS)

NOT_A_BLOCK = 999_999  # behind the last block of a table
