"""python -m shoestring"""

import sys

from .cli import main

sys.exit(main())
