from tpt_keras.errors import UsageError


class ServingError(UsageError):
    """A server did not do what a client asked it for.

    Its message names the server and the way out.
    """
