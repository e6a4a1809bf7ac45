import sys

from training.data.ingest import main

sys.exit(main())
