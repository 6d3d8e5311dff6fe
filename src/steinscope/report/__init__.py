"""Reports: one HTML file with everything in it, for a test, a check, a ranking or a training run."""

from steinscope.report.checking import report_check
from steinscope.report.ranking import report_ranking
from steinscope.report.samples import report_samples
from steinscope.report.testing import report_test
from steinscope.report.training import report_training

__all__ = ["report_check", "report_ranking", "report_samples", "report_test", "report_training"]
