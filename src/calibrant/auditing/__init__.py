"""What `calibrant.audit` is made of: collecting in one pass, tables, repairs, diagnosis, the document."""
