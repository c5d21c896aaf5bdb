r"""Text in LaTeX: `escaped`, `wrapped` with places to break, and the estimated `width` of a line.

Widths are those of Computer Modern, the widest of the usual fonts.
"""

import re

# factor on estimated widths, so that what seems to fit does fit
SAFETY = 1.04

# Widths in thousandths of the font size: Knuth's Computer Modern at 10 pt.
WIDTHS = {
    **dict.fromkeys("0123456789/agnopquvxykhbd", 540),
    **dict.fromkeys("cefrstz-()[]? ", 430),
    **dict.fromkeys("ijl.,:;'!|`", 310),
    **dict.fromkeys("mwMW@%&", 900),
    **dict.fromkeys("+=<>", 800),
    "±": 1250,
    "_": 430,
}
UPPER = 770
OTHER = 900
# width of bold text, in that of plain text
BOLD = 1.16

# a character, and its command in math
SYMBOLS = (
    "α alpha β beta γ gamma δ delta ε epsilon ζ zeta η eta θ theta ι iota κ kappa λ lambda μ mu ν nu ξ xi π pi ρ rho ς "
    "varsigma σ sigma τ tau υ upsilon φ phi χ chi ψ psi ω omega Γ Gamma Δ Delta Θ Theta Λ Lambda Ξ Xi Π Pi Σ Sigma Υ "
    "Upsilon Φ Phi Ψ Psi Ω Omega ← leftarrow → to ↔ leftrightarrow ⇐ Leftarrow ⇒ Rightarrow ⇔ Leftrightarrow ↑ uparrow "
    "↓ downarrow × times · cdot ± pm … dots ≤ le ≥ ge ≠ ne ≈ approx ∼ sim ∈ in ∞ infty √ surd µ mu"
)
ESCAPES = {
    "\\": r"\textbackslash{}",
    "^": r"\^{}",
    "~": r"\~{}",
    "<": "$<$",
    ">": "$>$",
    "|": "$|$",
    "−": "$-$",
    "†": r"$^\dagger$",
    "°": r"$^\circ$",
    "²": "$^2$",
    "³": "$^3$",
    # Greek letters that LaTeX has no command for, because they look Latin.
    **dict(zip("ΑΒΕΖΗΙΚΜΝΟΡΤΧο", "ABEZHIKMNOPTXo", strict=True)),
}
for _special in "&%$#_{}":
    ESCAPES[_special] = "\\" + _special
for _symbol, _command in re.findall(r"(\S) (\w+)", SYMBOLS):
    ESCAPES[_symbol] = f"$\\{_command}$"
BREAKS = "_/.,=:;@+-"  # a wrapped text may break behind these
LONGEST_WORD = 24  # characters of a word that a line of text is trusted to hold
PIECE = 6  # characters between two breaks of a longer word


def escaped(text: str) -> str:
    """Text that LaTeX prints as it is."""
    characters = "[" + re.escape("".join(ESCAPES)) + "]"
    text = re.sub(characters, lambda match: ESCAPES[match[0]], text)
    # two hyphens would be a dash
    return re.sub("-(?=-)", "-{}", text)


def wrapped(text: str, longest: int = LONGEST_WORD) -> str:
    """Text that LaTeX may break into lines: words of more than `longest` characters have breaks inside."""
    words = []
    for word in text.split(" "):
        breakable = escaped if len(word) <= longest else _with_breaks
        words.append(breakable(word))
    return " ".join(words)


def _with_breaks(word: str) -> str:
    pieces = re.findall(rf"[^{re.escape(BREAKS)}]{{1,{PIECE}}}[{re.escape(BREAKS)}]?|.", word)
    return r"\allowbreak{}".join(map(escaped, pieces))


def width(text: str, size: float) -> float:
    """Points of a text of `size` points in one line, rather more than less."""
    thousandths = 0
    for letter in text:
        unknown = UPPER if letter.isupper() else OTHER
        thousandths += WIDTHS.get(letter, unknown)
    return SAFETY * size * thousandths / 1000
