"""The same lengths in every format that lengthwise reads, written with other people's code."""

import csv
import gzip
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard
from pyarrow import feather


def token_lists(lengths):
    return [list(range(length)) for length in lengths]


def _jsonl(lengths):
    return "".join(
        json.dumps({"id": i, "length": n}) + "\n" for i, n in enumerate(lengths)
    ).encode()


def parquet(lengths, folder):
    pq.write_table(pa.table({"length": pa.array(lengths, pa.int64())}), folder / "a.parquet")
    return folder / "a.parquet"


def parquet_row_groups(lengths, folder):
    table = pa.table({"other": ["x"] * len(lengths), "seq_len": pa.array(lengths, pa.int32())})
    pq.write_table(table, folder / "groups.parquet", row_group_size=3)
    return folder / "groups.parquet"


def parquet_lists(lengths, folder):
    lists = pa.array(token_lists(lengths), pa.list_(pa.int32()))
    pq.write_table(pa.table({"input_ids": lists}), folder / "lists.parquet", row_group_size=4)
    return folder / "lists.parquet"


def parquet_folder(lengths, folder):
    """Three files whose names sort in the order of the rows."""
    root = folder / "shards"
    root.mkdir()
    third = -(-len(lengths) // 3)
    for shard in range(3):
        part = pa.array(lengths[shard * third : (shard + 1) * third], pa.int64())
        pq.write_table(pa.table({"num_tokens": part}), root / f"part-{shard}.parquet")
    (root / "_SUCCESS").touch()
    return root


def arrow_file(lengths, folder):
    table = pa.table({"length": pa.array(lengths, pa.int64()), "t": ["y"] * len(lengths)})
    with pa.ipc.new_file(folder / "a.arrow", table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    return folder / "a.arrow"


def arrow_stream(lengths, folder):
    table = pa.table({"t": ["y"] * len(lengths), "length": pa.array(lengths, pa.uint64())})
    with pa.ipc.new_stream(folder / "b.arrow", table.schema) as writer:
        writer.write_table(table, max_chunksize=5)
    return folder / "b.arrow"


def feather_file(lengths, folder):
    table = pa.table({"input_ids": pa.array(token_lists(lengths), pa.large_list(pa.int16()))})
    feather.write_feather(table, folder / "a.feather", compression="zstd")
    return folder / "a.feather"


def jsonl(lengths, folder):
    (folder / "a.jsonl").write_bytes(_jsonl(lengths))
    return folder / "a.jsonl"


def jsonl_gz(lengths, folder):
    """Two gzip members one after the other, as `cat a.gz b.gz` makes them."""
    half = len(lengths) // 2
    members = [gzip.compress(_jsonl(part)) for part in (lengths[:half], lengths[half:])]
    (folder / "a.jsonl.gz").write_bytes(b"".join(members))
    return folder / "a.jsonl.gz"


def jsonl_zst(lengths, folder):
    half = len(lengths) // 2
    compress = zstandard.ZstdCompressor().compress
    frames = [compress(_jsonl(part)) for part in (lengths[:half], lengths[half:])]
    (folder / "a.ndjson.zst").write_bytes(b"".join(frames))
    return folder / "a.ndjson.zst"


def jsonl_lists(lengths, folder):
    lines = [json.dumps({"input_ids": tokens}) for tokens in token_lists(lengths)]
    (folder / "lists.jsonl").write_text("\r\n".join(lines))
    return folder / "lists.jsonl"


def csv_file(lengths, folder):
    with (folder / "a.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["note", "token_count"])
        writer.writerows(["two\nlines, and a comma", length] for length in lengths)
    return folder / "a.csv"


def csv_without_header(lengths, folder):
    (folder / "bare.csv").write_text("".join(f"{length}\n" for length in lengths))
    return folder / "bare.csv"


def tsv_gz(lengths, folder):
    text = "length\tname\n" + "".join(f"{length}\tn\n" for length in lengths)
    (folder / "a.tsv.gz").write_bytes(gzip.compress(text.encode("utf-8-sig")))
    return folder / "a.tsv.gz"


def npy(lengths, folder):
    np.save(folder / "a.npy", np.array(lengths, np.uint32))
    return folder / "a.npy"


def npz(lengths, folder):
    np.savez(folder / "a.npz", whatever=np.array(lengths, np.float64))
    return folder / "a.npz"


def npz_two_arrays(lengths, folder):
    arrays = {"lengths": np.array(lengths, np.int64), "labels": np.zeros(3)}
    np.savez(folder / "b.npz", **arrays)
    return folder / "b.npz"


FILES = [
    parquet,
    parquet_row_groups,
    parquet_lists,
    parquet_folder,
    arrow_file,
    arrow_stream,
    feather_file,
    jsonl,
    jsonl_gz,
    jsonl_zst,
    jsonl_lists,
    csv_file,
    csv_without_header,
    tsv_gz,
    npy,
    npz,
    npz_two_arrays,
]

MEMORY = {
    "list": list,
    "tuple": tuple,
    "generator": iter,
    "int16 array": lambda lengths: np.array(lengths, np.int16),
    "float array": lambda lengths: np.array(lengths, np.float32),
    "strided array": lambda lengths: np.repeat(np.array(lengths, np.int64), 2)[::2],
    "object array": lambda lengths: np.array(lengths, object),
    "token lists": token_lists,
    "token tuples": lambda lengths: [tuple(tokens) for tokens in token_lists(lengths)],
    "token arrays": lambda lengths: [np.arange(length) for length in lengths],
    "records": lambda lengths: [{"id": i, "length": n} for i, n in enumerate(lengths)],
    "records of tokens": lambda lengths: [{"input_ids": ids} for ids in token_lists(lengths)],
    "arrow array": lambda lengths: pa.array(lengths, pa.int16()),
    "sliced arrow lists": lambda lengths: pa.array([[7] * 9, *token_lists(lengths)]).slice(1),
    "arrow table": lambda lengths: pa.table({"seq_len": pa.array(lengths, pa.int64())}),
    "record batch": lambda lengths: pa.record_batch({"seq_len": pa.array(lengths, pa.int64())}),
    "chunks": lambda lengths: pa.chunked_array([lengths[:2], [], lengths[2:]], pa.int32()),
    "dictionary": lambda lengths: pa.array(lengths, pa.int32()).dictionary_encode(),
    "decimals": lambda lengths: pa.array(lengths, pa.int32()).cast(pa.decimal128(12, 0)),
}
