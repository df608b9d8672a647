"""The mixed-integer program of a fleet plan: its columns, its bound, its solution on HiGHS."""
