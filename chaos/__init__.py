"""Chaos: real loaders while another process kills their workers and supervisors. Run `python -m chaos --help`.

    training loop (this process) ──► holdfast's loader ──► supervisor ──► workers
       │ compares each batch with torch's                      ▲            ▲
       └ starts ──► killer (another process) ──── signals ─────┴────────────┘

What is delivered must be what torch's loader delivers from the same seed: nothing lost, repeated or reordered.
"""
