# The released RocketMQ as the judge. Needs a JDK, Maven and, the first time, the network.

.PHONY: interop
interop: $(STAMPS)/dev  ## RocketMQ reads our stores, we read its stores; all compared
	$(PY) -m tests.interop.run
