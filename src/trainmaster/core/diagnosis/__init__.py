"""Why a synchronous job stopped or is slow: evidence of many forms, one judgement. See `judge.py`."""
