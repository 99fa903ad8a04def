"""Seeded traces of LLM requests whose reuse looks like that of real ones.

The standard library does it all (pyarrow only where ``.zst`` is asked for), so that equal options give equal
lines on any machine: every random number comes from ``random.Random`` seeded by text, through ``random`` and
``getrandbits``, whose streams Python keeps; lengths and times are sums and products of them, with powers and
logarithms only where their last bit cannot matter. Compressed bytes depend on the compressor's version too.

How near the defaults come to public traces, the Mooncake conversation trace and 710 Claude Code sessions of
kv-cache-tester on one clock (block hit rate in % of an LRU cache of so many GiB, at 61,505 bytes a token):

======================= ======== ===== ==== ==== ==== ==== ========= =========== ===========
trace                   requests block 100  200  400  800  unlimited mean prompt p50 prompt
======================= ======== ===== ==== ==== ==== ==== ========= =========== ===========
Mooncake conversation     12,031   512  7.3 15.6 24.6 31.9      36.6      12,035       6,909
``chat``                  12,000   512 15.7 25.9 36.0 44.1      46.7      12,640       7,580
kv-cache-tester           49,334    64 32.7 61.9 86.5 94.2      96.3     122,379     103,700
``agent``                 20,000    64 46.3 75.7 90.8 95.9      96.9     110,500      75,790
======================= ======== ===== ==== ==== ==== ==== ========= =========== ===========
"""
