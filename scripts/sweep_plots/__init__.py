"""Parts of plot_sweep.py: read the results of a sweep, make charts of them as data, draw them, and write the page."""
