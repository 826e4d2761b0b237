"""Pictures and tables of runs."""

from monotau.report.figures import draw_learning_curve, draw_quantile_functions

__all__ = ["draw_learning_curve", "draw_quantile_functions"]
