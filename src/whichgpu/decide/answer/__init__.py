"""The answer of `recommend`: its rows, sentences, reasons, assumptions and advice."""
