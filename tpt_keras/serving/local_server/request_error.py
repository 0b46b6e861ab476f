import grpc


class RequestError(Exception):
    """A request that the local server refuses.

    Args:
        code: A `grpc.StatusCode`.
        message: Why, in TF Serving's words where it has some.
    """

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code

    @classmethod
    def invalid(cls, message):
        """The error of a request that makes no sense."""
        return cls(grpc.StatusCode.INVALID_ARGUMENT, message)
