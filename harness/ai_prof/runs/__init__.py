"""Find workloads and run them under capture."""
