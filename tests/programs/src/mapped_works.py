"""Programs that map files: each makes its file, or works on it and prints what it found.

usage: mapped_works.py make-KIND FILE MIB
       mapped_works.py WORK FILE

The seconds that the work took, without the program's start, go to the file `seconds`.
"""

import hashlib
import random
import sys
import time
import zlib

import numpy as np

COLUMNS = 128
"""Of the matrix of numbers: a row has 1 KiB."""
DIMENSIONS = 1024
LISTS = 512
"""Of the vectors of an index."""
MIB = 1 << 20


def make_array(path, mib):
    source = np.random.default_rng(1)
    with open(path, "wb") as file:
        for _ in range(mib):
            source.integers(0, 1 << 40, MIB // 8).tofile(file)


def matrix(path):
    return np.memmap(path, np.int64, "r").reshape(-1, COLUMNS)


def rows(path):
    """Random rows, in an order that nobody can guess (numpy#13172)."""
    numbers, source = matrix(path), np.random.default_rng(2)
    for _ in range(100):
        yield int(numbers[source.integers(0, len(numbers), 120)].sum())


def column(path):
    """Three columns."""
    numbers = matrix(path)
    for at in (3, 64, 127):
        yield int(numbers[:, at].sum())


def total(path):
    """The sum of all, twice."""
    for _ in range(2):
        yield int(matrix(path).sum())


def value_of(key):
    return hashlib.sha256(b"%d" % key).digest() * 28


def make_lmdb(path, mib):
    import lmdb

    with lmdb.open(path, subdir=False, map_size=4 * mib * MIB) as base, base.begin(write=True) as write:
        for key in range(mib * 1000):
            write.put(b"%09d" % key, value_of(key), append=True)


def lmdb_of(path):
    import lmdb

    base = lmdb.open(path, subdir=False, readonly=True, lock=False)
    return base.stat()["entries"], base.begin(buffers=True)


def gets(path):
    """Random gets of a database."""
    count, read = lmdb_of(path)
    source = random.Random(3)
    for _ in range(4000):
        key = source.randrange(count)
        found = bytes(read.get(b"%09d" % key))
        assert found == value_of(key)
        yield found[:4].hex()


def scan(path):
    """All values of a database, twice, in order."""
    _, read = lmdb_of(path)
    for _ in range(2):
        seen = 0
        for key, found in read.cursor():
            seen = zlib.crc32(found, zlib.crc32(key, seen))
        yield seen


def make_arrow(path, mib):
    import pyarrow as pa

    source, count = np.random.default_rng(4), 1 << 16
    fields = pa.schema([("id", pa.int64()), ("kind", pa.int32()), ("price", pa.int64()), ("name", pa.string())])
    # A row has 20 bytes of numbers, and a string of 8 with its place of 4.
    with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, fields) as writer:
        for batch in range(mib * MIB // 32 // count):
            ids = np.arange(count) + batch * count
            names = pa.array([f"{number * 2654435761 % (1 << 32):08x}" for number in ids.tolist()])
            arrays = [pa.array(ids), pa.array(source.integers(0, 1000, count, np.int32)), pa.array(source.integers(0, 1 << 40, count)), names]
            writer.write_batch(pa.record_batch(arrays, schema=fields))


def filtered(path):
    """A scan of a table with a filter, twice."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for wanted in (7, 8):
        table = pa.ipc.open_file(pa.memory_map(path)).read_all()
        found = table.filter(pc.equal(table["kind"], wanted))
        yield len(found), pc.sum(found["price"]).as_py(), pc.max(found["name"]).as_py()


def polars(path):
    """The same by Polars, which reads what a lazy scan needs."""
    import polars as library

    for wanted in (7, 8):
        found = library.scan_ipc(path).filter(library.col("kind") == wanted)
        yield found.select(library.len(), library.col("price").sum(), library.col("name").max()).collect().row(0)


def vectors(count, seed):
    return np.random.default_rng(seed).standard_normal((count, DIMENSIONS), np.float32)


def clustered(count, seed):
    """Vectors around as many centres as the index has lists: of vectors without clusters, a few lists have nearly all."""
    centres = 3 * vectors(LISTS, 5)
    return centres[np.random.default_rng(seed).integers(LISTS, size=count)] + vectors(count, seed)


def usearch_index():
    from usearch.index import Index

    return Index(ndim=DIMENSIONS, metric="cos", dtype="f32", connectivity=8, expansion_add=8, expansion_search=32)


def make_usearch(path, mib):
    index, step = usearch_index(), 4096
    for at in range(0, mib * MIB // (4 * DIMENSIONS + 100), step):
        index.add(np.arange(at, at + step), vectors(step, at))
    index.save(path)


def usearch(path):
    """Searches of the nearest of vectors in a graph."""
    index = usearch_index()
    index.view(path)
    for query in vectors(60, 5):
        yield index.search(query, 10, threads=1).keys.tolist()


def make_faiss(path, mib):
    import faiss

    step = 4096
    coarse = faiss.IndexFlatL2(DIMENSIONS)
    index = faiss.IndexIVFFlat(coarse, DIMENSIONS, LISTS)
    index.cp.niter, index.cp.min_points_per_centroid = 10, 1
    index.train(clustered(8 * LISTS, 6))
    for at in range(0, mib * MIB // (4 * DIMENSIONS + 8), step):
        index.add(clustered(step, at))
    faiss.write_index(index, path)


def faiss(path):
    """Searches of the nearest of vectors in inverted lists."""
    import faiss as library

    index = library.read_index(path, library.IO_FLAG_MMAP | library.IO_FLAG_READ_ONLY)
    index.nprobe = 8
    library.omp_set_num_threads(1)
    for query in clustered(30, 7):
        yield index.search(query[None], 10)[1].tolist()


def make_llama(path, mib):
    """A model with random weights of 16 bits, of which nearly all are used for each token."""
    import gguf

    width, inner, heads, groups, words = 2048, 5632, 32, 4, 4000
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("random")
    writer.add_context_length(2048)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(heads)
    writer.add_head_count_kv(groups)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(width // heads)
    writer.add_vocab_size(words)
    writer.add_file_type(1)
    writer.add_tokenizer_model("llama")
    writer.add_token_list([b"<unk>", b"<s>", b"</s>", *[b"t%d" % at for at in range(words - 3)]])
    writer.add_token_scores([0.0] * words)
    writer.add_token_types([2, 3, 3, *[1] * (words - 3)])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    source = np.random.default_rng(8)

    def add(name, *shape):
        numbers = np.ones(shape, np.float32) if len(shape) == 1 else source.standard_normal(shape, np.float32) * 0.02
        writer.add_tensor(name, numbers if len(shape) == 1 else numbers.astype(np.float16))

    add("token_embd.weight", words, width)
    add("output_norm.weight", width)
    add("output.weight", words, width)
    narrow = width * groups // heads
    parts = {"attn_q": (width, width), "attn_k": (narrow, width), "attn_v": (narrow, width), "attn_output": (width, width),
             "ffn_gate": (inner, width), "ffn_up": (inner, width), "ffn_down": (width, inner), "attn_norm": (width,), "ffn_norm": (width,)}
    layers = (mib * MIB - 4 * words * width) // sum(2 * int(np.prod(shape)) for shape in parts.values())
    writer.add_block_count(layers)
    for layer in range(layers):
        for part, shape in parts.items():
            add(f"blk.{layer}.{part}.weight", *shape)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def llama(path):
    """Tokens of a language model, after a first one that reads it. Two threads would wait for each other on a busy machine."""
    from llama_cpp import Llama

    model = Llama(path, n_ctx=256, n_threads=1, n_threads_batch=1, n_batch=8, verbose=False)
    model.reset()
    model.eval([1])
    yield None
    for token in range(24):
        model.eval([100 + token])
    logits = model._ctx.get_logits()
    yield [float(logits[at]) for at in (0, 5, 77, 3999)]


def main():
    what, path = sys.argv[1], sys.argv[2]
    if what.startswith("make-"):
        return MAKERS[what.removeprefix("make-")](path, int(sys.argv[3]))
    began = time.monotonic()
    for found in WORKS[what](path):
        # A work whose first result is None has only begun now.
        if found is None:
            began = time.monotonic()
        else:
            print(found)
    with open("seconds", "w", encoding="ascii") as file:
        file.write(str(time.monotonic() - began))
    return None


MAKERS = {"array": make_array, "lmdb": make_lmdb, "arrow": make_arrow, "usearch": make_usearch, "faiss": make_faiss, "llama": make_llama}
WORKS = {"rows": rows, "column": column, "sum": total, "gets": gets, "scan": scan, "filter": filtered, "polars": polars, "usearch": usearch, "faiss": faiss, "llama": llama}

if __name__ == "__main__":
    main()
