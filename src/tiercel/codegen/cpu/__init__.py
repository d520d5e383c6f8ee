"""Code generation for CPUs: LLVM IR as text, explicit vectors, no mid-level passes."""
