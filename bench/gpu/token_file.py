"""An llm.c token file of random ids by a power law.

    python3 bench/gpu/token_file.py FILE COUNT VOCABULARY
"""

import array
import random
import struct
import sys

path, count, vocabulary = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
draw = random.Random(1)
tokens = array.array("H", (min(vocabulary, int(draw.paretovariate(0.6))) - 1 for _ in range(count)))
with open(path, "wb") as file:
    file.write(struct.pack("<256i", 20240520, 1, count, *[0] * 253))
    tokens.tofile(file)
