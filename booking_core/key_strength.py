"""Estimate the entropy of a secret key that an operator chose.

The estimate is an upper bound that every generator passes and that text made by people does not. It multiplies the bits
of one character by the number of characters that are new: a repetition, a run such as `abcdefgh` or `11111111`, and a
row of the keyboard count as one character each. Text that reads like words counts two bits for a letter.
"""

import math
import re
from string import ascii_lowercase, digits, hexdigits

REQUIRED_BITS = 256
"""32 random bytes, as from `openssl rand -base64 32`, `openssl rand -hex 32` and `secrets.token_urlsafe(32)`."""

_WORD_BITS = 2.0
"""For each letter of a text of words: natural language has less, words drawn at random from a list a little more."""
_EXPLAINED_BITS = 32
"""A repetition is found when it covers so many bits: shorter ones occur in random text too."""
_KNOWN = " ".join((ascii_lowercase, digits * 2, "qwertyuiop asdfghjkl zxcvbnm", "qwertzuiop yxcvbnm", "azertyuiop"))
_KNOWN_SEQUENCES = f"{_KNOWN} {_KNOWN[::-1]} "
_COMMON_PAIRS = frozenset(
    "th he in er an re on at en nd ti es or te of ed is it al ar st to nt ng se ha as ou io le ve co me de hi ri ro ic"
    " ne ea ra ce li ch ll be ma si om ur ow oo et ey pa el".split()
)
"""More than half of the pairs of letters in English are among these, and one in twelve of random pairs."""
_PAIRS_MIN = 20
_WORDLIKE = 0.5
_WORDLIKE_IN_ONE_CASE = 0.35
"""The length that is enough with mixed case, as in base64 of random bytes."""
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]+(={0,2})")


def is_strong(key: str) -> bool:
    """Tell a key with 32 random bytes from a shorter or guessable one."""
    return entropy_bits(key) >= REQUIRED_BITS


def entropy_bits(key: str) -> float:
    """Return an upper bound of the entropy of a secret key, in bits."""
    key = key.strip()
    if padded := _BASE64.fullmatch(key):
        key = key.removesuffix(padded[1])
    if not key:
        return 0.0
    bits = _bits_per_character(key)
    return min(bits, _WORD_BITS if _reads_like_words(key, bits) else bits) * _new_characters(key, bits)


def _bits_per_character(key: str) -> float:
    """Return the bits of one character of the smallest usual alphabet that holds the key."""
    if set(key) <= set(digits):
        return math.log2(10)
    if set(key) <= set(hexdigits) and (key == key.lower() or key == key.upper()):
        return 4.0
    if key == key.lower() or key == key.upper():
        return math.log2(36)
    return 6.0 if _BASE64.fullmatch(key) else math.log2(94)


def _new_characters(key: str, bits: float) -> int:
    """Return how many characters are left when each repetition and each known sequence counts as one."""
    text = _KNOWN_SEQUENCES + key.lower()
    length = math.ceil(_EXPLAINED_BITS / bits) + 1
    at, new = len(_KNOWN_SEQUENCES), 0
    while at < len(text):
        covered = _repeated(text, at)
        at += covered if covered >= length else 1
        new += 1
    return new


def _repeated(text: str, at: int) -> int:
    """Return how many characters from there on stand in the text before."""
    length = found = 0
    while at + length < len(text):
        found = text.find(text[at : at + length + 1], found, at + length)
        if found < 0:
            break
        length += 1
        while at + length < len(text) and text[found + length] == text[at + length]:
            length += 1
    return length


def _reads_like_words(key: str, bits: float) -> bool:
    """Tell text of words from random text by its pairs of letters; six letters are too few to tell of hexadecimal."""
    if bits <= 4:
        return False
    pairs = [key[i : i + 2].lower() for i in range(len(key) - 1) if key[i : i + 2].isalpha()]
    common = sum(pair in _COMMON_PAIRS for pair in pairs)
    wordlike = _WORDLIKE_IN_ONE_CASE if key == key.lower() or key == key.upper() else _WORDLIKE
    return len(pairs) >= _PAIRS_MIN and common / len(pairs) >= wordlike
