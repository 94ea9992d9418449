"""Prints the table of src/base/text.c from Python's str: digits that are no decimal ones.

    python unicode_digits.py
"""
import unicodedata


def main():
    everything = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    digits = [ord(char) for char in everything if char.isdigit() and unicodedata.category(char) != "Nd"]
    ranges = []
    for code in digits:
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    for first, last in ranges:
        print(f"    {{0x{first:X}, 0x{last:X}}},")


if __name__ == "__main__":
    main()
