"""What is tested: versions, GPUs, repros and their cases, and the cells that these make together.

It reads matrix.yaml (``matrix``) and the repros (``repro_files``) into the types that every
other package works with (``model``, ``repros``, ``cells``, ``plan``), and tells by digests whether a repro's
code or our own has changed (``digest``). Any file whose keys are declared as a type is read by ``keys``, with
all mistakes at once. Of trtmatrix it imports ``common.errors`` and ``common.text`` alone. ``repro_files`` and
``digest`` read files, the others are pure.
"""
