"""`python -m training.compare_raters`: see training.reward.raters."""

import sys

from training.reward.raters import main

if __name__ == "__main__":
    sys.exit(main())
