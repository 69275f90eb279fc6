# Aliases only; the launcher does the work.
.PHONY: demo test check
demo test check:
	./everlog $@
