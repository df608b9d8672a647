"""The mixed-integer program of a fleet plan: its columns, a lower bound on its cost, its solution with HiGHS."""
