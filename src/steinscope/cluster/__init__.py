"""Points that stay on the workers of a Dask cluster."""
