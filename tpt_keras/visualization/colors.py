"""Colours that readers who see fewer of them tell apart."""

# Okabe and Ito's, without yellow and black.
OKABE_ITO = (
    *("#0072B2", "#D55E00", "#009E73"),
    *("#CC79A7", "#E69F00", "#56B4E9"),
)
