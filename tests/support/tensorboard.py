"""A reader of TensorBoard event files that is independent of the writer under test."""

import struct
from pathlib import Path

from tensorboardX.proto.event_pb2 import Event
from tensorboardX.record_writer import masked_crc32c


def scalars(directory: Path) -> dict[tuple[str, int], float]:
    """Return {(tag, step): value} of the event file in a directory; check the checksums of its records on the way."""
    (path,) = directory.glob("events.out.tfevents.*")
    data, position, found = path.read_bytes(), 0, {}
    while position < len(data):
        (length,) = struct.unpack_from("<Q", data, position)
        text = data[position + 12 : position + 12 + length]
        event = Event.FromString(text)
        sums = [struct.unpack_from("<I", data, place)[0] for place in (position + 8, position + 12 + length)]
        assert sums == [masked_crc32c(data[position : position + 8]), masked_crc32c(text)]
        assert (position == 0) == (event.file_version == "brain.Event:2")
        found |= {(value.tag, event.step): value.simple_value for value in event.summary.value}
        position += 16 + length
    return found
