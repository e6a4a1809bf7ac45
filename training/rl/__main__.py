"""`python -m training.rl`: see training.rl.train."""

from training.common.entry import leave
from training.rl.train import main

if __name__ == "__main__":
    leave(main())
