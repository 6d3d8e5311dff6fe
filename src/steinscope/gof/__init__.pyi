from .driver import gof_test as gof_test
