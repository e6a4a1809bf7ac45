"""`python -m training.push_to_hub`: see training.weights.push."""

import sys

from training.weights.push import main

if __name__ == "__main__":
    sys.exit(main())
