"""The decision: enumerate candidates for a question, compute their cost, choose the best, and explain the choice."""
