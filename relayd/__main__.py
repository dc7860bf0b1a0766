"""`python -m relayd` is the command `relayd`."""

from relayd.cli.main import main

if __name__ == "__main__":
    main()
