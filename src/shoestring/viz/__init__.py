"""Pictures. Readers only: nothing here changes a plan or a network."""
