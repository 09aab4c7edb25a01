from __future__ import annotations

from pathlib import Path

from ignite_hooks.writers.memory import MemoryWriter


def test_a_memory_writer_keeps_everything_in_order(tmp_path: Path) -> None:
    writer = MemoryWriter()
    writer.write_scalars({"loss": 0.5}, 1, kind="val", epoch=3)
    writer.write_scalar("lr", 0.1, 2)
    writer.write_text("note", "hello", 2)
    writer.write_config({"seed": 1})
    writer.write_artifact(tmp_path, "folder", "data")
    writer.resumed(1)
    writer.close()
    assert writer.scalars == [("val/loss", 0.5, 1), ("lr", 0.1, 2)]
    assert writer.lines == [({"loss": 0.5}, 1, "val", 3)]
    assert writer.texts == [("note", "hello", 2)]
    assert writer.config == {"seed": 1}
    assert writer.artifacts == [(tmp_path, "folder", "data")]
    assert writer.resumed_at == [1]
    assert writer.closed
