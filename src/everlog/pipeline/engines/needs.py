"""What an engine raises when it leaves something to Spark."""


class NeedsSpark(Exception):
    """This engine cannot do it. `why` is shown to the user before Spark is started."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why
