"""What the README claims, measured: each figure beside a peer or a limit that was measured in the same run.

`python -m bench [NAME]` prints one JSON object a line for each figure. Figures are medians of seven or more rounds in
which ours and the peer take turns, so that a machine that slows down slows both. A goal that does not hold is printed
and fails nothing: machines differ, and the reader sees the ratio.
"""
