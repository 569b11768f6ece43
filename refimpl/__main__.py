"""`python -m refimpl`; a Python that is too old for the package itself gets a sentence, not a traceback."""

import sys

if sys.version_info < (3, 11):  # noqa: UP036  pip refuses such a Python, a checkout does not
    found = ".".join(map(str, sys.version_info[:3]))
    print(f"This course needs Python 3.11 or newer, this is {found}: make lab PYTHON=/path/to/python3", file=sys.stderr)
    raise SystemExit(2)

from refimpl.cli import main  # noqa: E402

raise SystemExit(main())
