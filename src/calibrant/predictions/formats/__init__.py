"""The formats of predictions, one module each: ``open_file(path, options)`` and ``save(store, path)``.

`arrays` has the shared parts of ``.npz``, ``.npy`` and ``.safetensors``, `tables` those of CSV, JSON lines, Parquet
and frames.
"""
