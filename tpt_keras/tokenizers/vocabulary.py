"""The Mathematics Dataset's symbols, written once."""

PAD = "<pad>"
START = "<start>"
END = "<end>"
UNKNOWN = "<unknown>"
SPECIAL_SYMBOLS = (PAD, START, END, UNKNOWN)

CHARACTERS = (
    " !'()*+,-./0123456789:<=>?ACDEFGHILMPRSTWabcdefghijklmnopqrstuvwxyz{}"
)

# The paper's 72 symbols; a symbol's place is its token id.
MATHEMATICS_VOCABULARY = (PAD, START, END, *CHARACTERS)

# The dataset's own limits, in characters.
MAX_QUESTION_LENGTH = 160
MAX_ANSWER_LENGTH = 30
