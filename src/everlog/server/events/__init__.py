"""Events over HTTP: appended, paged, streamed."""
