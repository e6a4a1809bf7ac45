"""`python -m eval.screenspot`; the benchmark itself is eval.benchmarks.screenspot."""

import sys

from eval.benchmarks.screenspot.run import main

if __name__ == "__main__":
    sys.exit(main())
