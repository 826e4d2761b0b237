"""Encodes scalars in TensorBoard's file format: protocol buffers in records with checksums.

TensorBoard's own writer uses a thread, which neither stops the run when the disk is full nor can truncate the file to
a step.
"""

import struct
import time
from collections.abc import Mapping


def _table() -> list[int]:
    """Return the lookup table of CRC-32C (Castagnoli)."""
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _table()


def checksum(data: bytes) -> bytes:
    """Return the masked CRC-32C of the TFRecord format."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def record(data: bytes) -> bytes:
    """Return one TFRecord: length and data, each followed by its checksum."""
    length = struct.pack("<Q", len(data))
    return length + checksum(length) + data + checksum(data)


def first_record() -> bytes:
    """Return the version record that every event file starts with."""
    return record(_double(1, time.time()) + _bytes(3, b"brain.Event:2"))


def scalars_record(step: int, values: Mapping[str, float | int]) -> bytes:
    """Return the record of named scalars at one step."""
    summary = b"".join(_bytes(1, _bytes(1, name.encode()) + _float(2, value)) for name, value in values.items())
    return record(_double(1, time.time()) + _key(2, 0) + _varint(step) + _bytes(5, summary))


def _varint(value: int) -> bytes:
    data = b""
    while value > 0x7F:
        data += bytes([value & 0x7F | 0x80])
        value >>= 7
    return data + bytes([value])


def _key(field: int, wire: int) -> bytes:
    return _varint(field << 3 | wire)


def _double(field: int, value: float) -> bytes:
    return _key(field, 1) + struct.pack("<d", value)


def _float(field: int, value: float | int) -> bytes:
    try:
        return _key(field, 5) + struct.pack("<f", value)
    except OverflowError:  # beyond float32
        return _key(field, 5) + struct.pack("<f", float("inf") if value > 0 else float("-inf"))


def _bytes(field: int, data: bytes) -> bytes:
    return _key(field, 2) + _varint(len(data)) + data
