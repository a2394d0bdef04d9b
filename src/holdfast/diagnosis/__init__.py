"""What killed a worker: the evidence, the causes, the engine that ranks them, and the message that says it."""
