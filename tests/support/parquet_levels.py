"""Lists as Parquet stores them, written from the format's description, in plain Python."""


def list_levels(rows, present, highest):
    """Repetition and definition levels of rows: None, [] or a list of values (None is a null)."""
    repetition, definition = [], []
    for row in rows:
        if not row:
            repetition.append(0)
            definition.append(0 if row is None else present - 1)
        for place, value in enumerate(row or []):
            repetition.append(min(place, 1))
            definition.append(present if value is None and highest > present else highest)
    return repetition, definition


def varint(number):
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def encode_levels(levels, bits, cuts):
    """Hybrid encoding; ``cuts`` are (levels, packed?) of the runs to use, over and over."""
    out, at, turn = b"", 0, 0
    while at < len(levels):
        size, packed = cuts[turn % len(cuts)]
        turn += 1
        if packed:
            group = levels[at : at + 8 * size]
            group += [0] * (-len(group) % 8)
            number = sum(level << (bits * place) for place, level in enumerate(group))
            out += varint(len(group) // 8 << 1 | 1)
            out += number.to_bytes(len(group) * bits // 8, "little")
            at += 8 * size
        else:
            run = 1
            while run < 8 * size and at + run < len(levels) and levels[at + run] == levels[at]:
                run += 1
            out += varint(run << 1) + bytes([levels[at]])
            at += run
    return out
