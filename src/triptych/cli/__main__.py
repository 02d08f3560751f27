"""`python -m triptych.cli`: the same as the command `triptych`."""

import sys

from triptych.cli.main import main

sys.exit(main())
