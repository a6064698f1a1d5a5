"""Colours of charts and page, for light and for dark backgrounds."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Theme:
    """Colours of the page, of text (ink, and soft beside it), of grid lines and of series by their place."""

    page: str
    ink: str
    soft: str
    grid: str
    warn: str  # behind a warning
    series: tuple[str, ...]


# Any two series differ for eyes without red, green or blue cones too, and stand out from the page by 3 to 1
# (sweep_plots_test.py checks both).
LIGHT = Theme("#fcfcfb", "#14140f", "#5c5b56", "#e4e3dd", "#fbf0d5",
              ("#0b4595", "#b5430a", "#377a74", "#a8901c", "#4a93f5", "#dd46b2"))
DARK = Theme("#191917", "#f4f3ee", "#b4b2a8", "#31312d", "#40351a",
             ("#3a7590", "#b54c1c", "#79ae4b", "#f0d45c", "#8cd0f5", "#c26cf5"))
