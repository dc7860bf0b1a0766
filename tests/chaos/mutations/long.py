"""The long run of the mutations, as the other layers have theirs; run.py has more options."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from chaos.layer import main
from chaos.mutations.run import run

if __name__ == "__main__":
    main("mutations", run)
