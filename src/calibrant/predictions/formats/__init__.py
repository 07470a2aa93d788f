"""The formats of predictions, one module each: ``open_file(path, options)`` and ``save(store, path)``.

`arrays` has what ``.npz``, ``.npy`` and ``.safetensors`` share, `tables` what CSV, JSON lines, Parquet and frames do.
"""
