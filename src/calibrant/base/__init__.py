"""What every part uses and knows nothing of predictions.

=========================  =============================================================================================
`arrays`                   NumPy from any framework, chunks of rows, threads
`checks`                   checks of arguments, one sentence each
`files`                    files written aside and renamed, locks, JSON, regular files only
`numbers`                  how numbers read, in sentences, tables and charts alike
`progress`                 one protocol for the progress of long work
`extras`                   names that are imported when they are used, packages that an extra installs
`spreadsheet`              text that no spreadsheet takes for a formula
`parquet`                  how large the columns of a Parquet file are, before anything of it is read
`cluster`                  a connection to a Ray cluster
`torchvision_operators`    torchvision where its compiled operators do not load
=========================  =============================================================================================
"""
