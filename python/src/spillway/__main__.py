"""The program itself: `python -m spillway generate ...`, and the command `spillway` of the wheel."""

import os
import sys

from spillway.program import find_binary


def main():
    binary = find_binary()
    os.execv(binary, [binary, *sys.argv[1:]])


if __name__ == "__main__":
    main()
