"""What users run besides their own program: the command line, reports, generated documentation."""
