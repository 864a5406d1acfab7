"""Files are found whole or not at all, whatever stops the writing."""

from __future__ import annotations

import os
import threading

import pytest

from sojourn import files
from sojourn.files import write_whole


def test_what_was_there_is_replaced(tmp_path):
    path = tmp_path / "a.json"
    write_whole(path, "eins – zwei")
    assert path.read_bytes() == "eins – zwei".encode()
    write_whole(path, b"\x00\xff")
    assert path.read_bytes() == b"\x00\xff"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("stop", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_stopped_in_the_middle(tmp_path, monkeypatch, stop):
    path = tmp_path / "a.json"
    path.write_text("before")

    def fsync(descriptor):
        raise stop

    monkeypatch.setattr(files.os, "fsync", fsync)
    with pytest.raises(type(stop)):
        write_whole(path, "after")
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_keeps_leading_to_its_file(tmp_path):
    (tmp_path / "far").mkdir()
    target, link = tmp_path / "far" / "file", tmp_path / "link"
    target.write_text("before")
    link.symlink_to(target)
    write_whole(link, "after")
    assert link.is_symlink()
    assert target.read_text() == "after"


def test_a_pipe_is_written_to(tmp_path):
    pipe, read = tmp_path / "pipe", list[bytes]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write_whole(pipe, "through")
    reader.join()
    assert read == [b"through"]


def test_two_writers_of_one_file(tmp_path):
    """Whoever is last, the file is one of theirs."""
    path, texts = tmp_path / "a", [str(i) * 200_000 for i in range(4)]
    writers = [threading.Thread(target=write_whole, args=(path, text)) for text in texts]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert path.read_text() in texts
    assert list(tmp_path.iterdir()) == [path]
