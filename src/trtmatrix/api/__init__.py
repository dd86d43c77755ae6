"""What a move from one release of TensorRT to another does to code that uses its API.

``types`` are the words. ``surface`` is what a release's bindings offer, as JSON (``surfaces.json``);
``read_bindings`` reads it from NVIDIA's wheels. ``changes`` is the table kept by hand (``changes.yaml``).
``compare`` finds what changes between two surfaces, ``scan`` finds it in code, ``section`` puts all of that
together for one move. ``report`` tells it as text, ``page`` as HTML, ``sarif`` to code scanning. Imports
nothing of ``trtmatrix`` but ``core`` and ``effects``; upgrades import it.
"""
