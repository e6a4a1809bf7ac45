"""`python -m eval.osworld`; the benchmark's files are read by eval.benchmarks.osworld."""

import sys

from eval.benchmarks.osworld.run import main

if __name__ == "__main__":
    sys.exit(main())
