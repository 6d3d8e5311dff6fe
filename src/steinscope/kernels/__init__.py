"""Kernel tests of fit: what a learned test has to beat."""

from steinscope.kernels.aggregated import ksdagg_test as ksdagg_test
from steinscope.kernels.fssd import fssd_test as fssd_test
from steinscope.kernels.ksd import ksd_estimate as ksd_estimate
from steinscope.kernels.ksd import ksd_test as ksd_test
from steinscope.kernels.ksd import linear_ksd_test as linear_ksd_test
from steinscope.kernels.mmd import mmd_test as mmd_test
