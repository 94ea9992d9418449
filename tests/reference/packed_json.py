"""Large JSON fixtures, compressed by gzip; tests/support/packed_json.h reads them. `zcat FILE | python3 -m json.tool`
shows one."""

import gzip
import json


def write(path, value):
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n"
    path.write_bytes(gzip.compress(text.encode(), mtime=0))
