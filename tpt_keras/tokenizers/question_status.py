"""Whether a question can be encoded, and if not, why not."""

OK = "OK"
EMPTY = "EMPTY"
TOO_LONG = "TOO_LONG"
UNKNOWN_CHARACTER = "UNKNOWN_CHARACTER"
INVALID_UTF8 = "INVALID_UTF8"
