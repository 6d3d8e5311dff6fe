from .sequential import SequentialTest as SequentialTest
from .sequential import StreamState as StreamState
