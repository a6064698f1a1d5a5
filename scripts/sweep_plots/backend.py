"""Loads matplotlib for scripts that draw."""

import sys


def load(script):
    """Returns matplotlib, which then draws without a display; ends the script with one line where it is not installed."""
    try:
        import matplotlib
    except ImportError:
        sys.exit(f"{script}: needs matplotlib, which {sys.executable} does not have; install Debian's python3-matplotlib (its "
                 f"Python is /usr/bin/python3), or: {sys.executable} -m pip install matplotlib")
    matplotlib.use("Agg")
    return matplotlib


def load_pyplot(script):
    """Returns matplotlib.pyplot; else as load."""
    load(script)
    import matplotlib.pyplot

    return matplotlib.pyplot
