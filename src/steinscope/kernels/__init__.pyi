from .aggregated import ksdagg_test as ksdagg_test
from .fssd import fssd_test as fssd_test
from .ksd import KSDEstimate as KSDEstimate
from .ksd import ksd_estimate as ksd_estimate
from .ksd import ksd_test as ksd_test
from .ksd import linear_ksd_test as linear_ksd_test
from .mmd import mmd_test as mmd_test
