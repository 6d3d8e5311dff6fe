"""Small stand-ins for the containers of xarray."""

import numpy as np


class Array:
    """As much of an xarray.DataArray as is used."""

    def __init__(self, values, dims, coords=None):
        self.values, self.dims, self.coords = np.asarray(values), tuple(dims), coords or {}
        self.shape, self.dtype = self.values.shape, self.values.dtype

    def transpose(self, *dims):
        order = [self.dims.index(dim) for dim in dims if dim is not ...]
        order += [place for place in range(len(self.dims)) if place not in order]
        return Array(self.values.transpose(order), [self.dims[place] for place in order], self.coords)

    def to_numpy(self):
        return self.values

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.values, dtype=dtype)


class Dataset:
    """As much of an xarray.Dataset as is used."""

    def __init__(self, **variables):
        self.data_vars = variables


class Tree(dict):
    """A group of an xarray.DataTree: groups inside, and a data set of its own."""

    def __init__(self, groups, dataset=None):
        super().__init__(groups)
        self.children, self.data_vars, self._dataset = groups, {}, dataset

    def to_dataset(self):
        return self._dataset
