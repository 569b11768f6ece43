"""`python -m refimpl`."""

from refimpl.cli import main

raise SystemExit(main())
