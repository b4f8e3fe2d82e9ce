"""How numbers, sizes, shapes and users' words are written."""

import pytest

from modlab import format

INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize(
    ("write", "given", "text"),
    [
        (format.count, 0, "0"),
        (format.count, 1_536, "1,536"),
        (format.count, 99_999, "99,999"),
        (format.count, 786_432, "786 k"),
        (format.count, 1_769_472, "1.77 M"),
        (format.count, 124_439_808, "124.4 M"),
        (format.count, 671_026_419_200, "671.0 G"),
        (format.count, 2**80, "1208925.8 E"),
        (format.count, 999_999, "1.00 M"),
        (format.count, 9_999_999, "10.0 M"),
        (format.size, 0, "0 B"),
        (format.size, 999, "999 B"),
        (format.size, 4_900, "4.90 kB"),
        (format.size, 2_684_105_676_800, "2.68 TB"),
        (format.size, 999_999, "1.00 MB"),
        (format.shape, (768, 2304), "768×2304"),
        (format.shape, (), "scalar"),
        (format.shape, None, ""),
        (format.shape, (2, -1, 3), "2×?×3"),
        (format.shape, (0,), "0"),
        (format.dtype, "float32", "f32"),
        (format.dtype, "bfloat16", "bf16"),
        (format.dtype, "int64", "i64"),
        (format.dtype, "uint8", "u8"),
        (format.dtype, "bool", "bool"),
        (format.dtype, "float8_e4m3fn", "f8_e4m3fn"),
        (format.dtype, "complex64", "c64"),
        (format.dtype, "qint8", "qi8"),
        (format.dtype, "", ""),
        (format.number, 0.0201, "0.0201"),
        (format.number, -1.5, "-1.5"),
        (format.number, 3.2e-7, "3.2e-07"),
        (format.number, 0.0, "0"),
        (format.number, -0.0, "0"),
        (format.number, NAN, "NaN"),
        (format.number, INF, "Inf"),
        (format.number, -INF, "-Inf"),
        (format.number, 12_345.6, "12,346"),
        (format.number, 7, "7"),
        (format.number, 10**12, "1e+12"),
        (format.number, 1e-300, "1e-300"),
        (format.number, 1 / 3, "0.3333"),
        (format.clean, "plain é 日本 😀", "plain é 日本 😀"),
        (format.clean, "a\nb\tc\x00", "a\\nb\\tc\\x00"),
        (format.clean, "\x1b[31m", "\\x1b[31m"),
        (format.clean, "\u202edrow", "\\u202edrow"),
        (format.clean, "\u200b\ufeff", "\\u200b\\ufeff"),
        (format.clean, "\ud800", "\\ud800"),
    ],
)
def test_words(write, given, text):
    assert write(given) == text


@pytest.mark.parametrize(
    ("number", "words", "text"),
    [(1, ("module",), "1 module"), (0, ("module",), "0 modules"), (1_234, ("entry", "entries"), "1,234 entries")],
)
def test_plural(number, words, text):
    assert format.plural(number, *words) == text


@pytest.mark.parametrize(("text", "limit", "cut"), [("abc", 3, "abc"), ("abcd", 3, "abc… (4 characters)"), ("", 0, "")])
def test_cut(text, limit, cut):
    assert format.cut(text, limit) == cut
